"""Steps of a small training: alone, in captures, in torch.profiler.

python benchmarks/capture_job.py ROUNDS: prints one line of JSON. Runs under any Python that imports torch and what
tracelink needs. All ways take turns in one process, in another order in each round.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch import nn

import tracelink

STEPS = 40
"""Steps that are timed in each round."""
CALLS = 200_000
IDLE_S = 10.0
WIDTH, LAYERS, BATCH = 128, 12, 64

Seconds = tuple[float, float]
"""Processor time of all threads, and wall time."""


def training() -> Callable[[], None]:
    """A step of about 200 operators."""
    torch.set_num_threads(1)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    network = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    inputs = torch.randn(BATCH, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        network(inputs).square().mean().backward()
        optimizer.step()

    return step


def clock() -> Seconds:
    """Now."""
    return time.process_time(), time.perf_counter()


def timed(train: Callable[[], None], step: Callable[[], None]) -> list[Seconds]:
    """One step that is not timed, then each of the others with the end of it."""
    train()
    step()
    moments = [clock()]
    for _ in range(STEPS):
        train()
        step()
        moments.append(clock())
    return [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(moments)]


@contextmanager
def plain(folder: Path) -> Iterator[Callable[[], None]]:
    """Nothing is recorded."""
    yield lambda: None


@contextmanager
def off(folder: Path) -> Iterator[Callable[[], None]]:
    """A capture whose steps are never reached."""
    with tracelink.capture(folder, "1000000") as capture:
        yield capture.step


@contextmanager
def profiler(folder: Path) -> Iterator[Callable[[], None]]:
    """torch.profiler and the observer of execution traces, as the manual of torch says."""
    observer = torch.profiler.ExecutionTraceObserver().register_callback(str(folder / "et.json"))
    with torch.profiler.profile(
        record_shapes=True,
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=STEPS + 1, repeat=1),
        on_trace_ready=lambda profile: profile.export_chrome_trace(str(folder / "kineto.json.gz")),
        execution_trace_observer=observer,
    ) as profile:
        yield profile.step


@contextmanager
def recorded(folder: Path) -> Iterator[Callable[[], None]]:
    """The same steps in a capture."""
    with tracelink.capture(folder, f"1-{STEPS + 1}") as capture:
        yield capture.step


WAYS: dict[str, Callable[[Path], AbstractContextManager[Callable[[], None]]]] = {
    "plain": plain,
    "off": off,
    "profiler": profiler,
    "recorded": recorded,
}


def measured(rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Each way in each round: its steps, and all of it with begin, end and files."""
    train = training()
    for _ in range(STEPS):
        train()
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in WAYS}
    names = list(WAYS)
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            with tempfile.TemporaryDirectory() as folder:
                begin = clock()
                with WAYS[name](Path(folder)) as step:
                    steps = timed(train, step)
                end = clock()
            if number:  # the first round imports and compiles
                cpu, wall = zip(*steps, strict=True)
                whole = {"whole_cpu_s": end[0] - begin[0], "whole_wall_s": end[1] - begin[1]}
                found[name].append({"cpu_s": cpu, "wall_s": wall, **whole})
    return found


def unrecorded_call() -> float:
    """Processor seconds of `step()` in a capture that does not record: of the training's thread."""
    best = float("inf")
    with tempfile.TemporaryDirectory() as folder, off(Path(folder)) as step:
        step()
        for _ in range(5):
            before = time.thread_time()
            for _ in range(CALLS):
                step()
            best = min(best, time.thread_time() - before)
    return best / CALLS


def beside() -> float:
    """Part of one core that the threads of a capture need while the training sleeps."""
    with tempfile.TemporaryDirectory() as folder, off(Path(folder)):
        time.sleep(1.0)
        before = clock()
        time.sleep(IDLE_S)
        after = clock()
    return (after[0] - before[0]) / (after[1] - before[1])


def main() -> None:
    """Prints everything."""
    result: dict[str, Any] = {
        "torch": torch.__version__,
        "steps": STEPS,
        "rounds": measured(int(sys.argv[1])),
        "call_s": unrecorded_call(),
        "beside": beside(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
