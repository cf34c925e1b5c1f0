"""How long matching takes where it is hard: ranks whose profiles do not number what they do.

python benchmarks/matching.py [--ranks 64] [--calls 5000]

Each rank repeats a step of ten collectives, by a clock of its own; some lose up to a tenth of them. Beside it
stands the same with numbers. What is found is compared with what is true.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from tracelink._match.job import link_ranks
from tracelink._model.clock import ClockMode
from tracelink._model.columns import UNKNOWN
from tracelink._model.communications import Calls, Evidence, RankCalls
from tracelink._model.trace import ProcessGroup

STEP = np.array([0, 1, 2, 3, 4, 4, 5, 6, 7, 8])
LOST = (0.0, 0.01, 0.1)
CLOCK_NS = 50_000_000
STRINGS = ("all_reduce", "0", "Float")


def job(ranks: int, calls: int) -> list[RankCalls]:
    """What each rank shows; `kernel` is the true place."""
    random = np.random.default_rng(7)
    label = np.resize(STEP, calls)
    end = 1_000_000_000 + np.cumsum(random.exponential(2_000_000, calls) + 1_000_000).astype(np.int64)
    world = (ProcessGroup("0", "default_pg", tuple(range(ranks)), ranks),)
    return [_rank(rank, random, label, end, world) for rank in range(ranks)]


def _rank(
    rank: int,
    random: np.random.Generator,
    label: np.ndarray,
    end: np.ndarray,
    world: tuple[ProcessGroup, ...],
) -> RankCalls:
    kept = np.flatnonzero(random.random(len(label)) >= LOST[rank % len(LOST)])
    ended = end[kept] + int(random.integers(-CLOCK_NS, CLOCK_NS)) + random.integers(0, 3000, len(kept))
    started = ended - random.integers(10_000, 900_000, len(kept))
    elements = label[kept] + 1
    calls = Calls.of(
        len(kept),
        operation=np.zeros(len(kept)),
        group=np.full(len(kept), 1),
        sequence=kept + 1,
        elements_in=elements,
        elements_out=elements,
        type=np.full(len(kept), 2),
        kernel=kept,
        enqueued=started - 5000,
        start=started,
        end=ended,
        evidence=np.full(len(kept), Evidence.KERNEL),
    )
    return RankCalls(rank, STRINGS, calls, world, world_size=len(world[0].ranks))


def unnumbered(ranks: Sequence[RankCalls]) -> list[RankCalls]:
    """The same without numbers."""
    return [
        replace(rank, calls=replace(rank.calls, sequence=np.full(len(rank.calls), UNKNOWN))) for rank in ranks
    ]


def timed(what: str, ranks: Sequence[RankCalls]) -> None:
    """Matches, and prints what it took and how much of it is wrong."""
    begin = time.process_time()
    tables = link_ranks(ranks, ClockMode.NONE)
    took = time.process_time() - begin
    parts = tables.participations
    first = np.flatnonzero(np.diff(parts.collective, prepend=-1))
    wrong = np.count_nonzero(parts.kernel != parts.kernel[first][parts.collective])
    true = len(np.unique(parts.kernel))
    print(
        f"{what}: {len(ranks)} ranks, {len(parts)} calls: {took:.2f} s CPU, "
        f"{len(tables.collectives)} collectives where {true} are true, {wrong} calls in a wrong one"
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure matching of ranks that number nothing.")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--calls", type=int, default=5000)
    options = parser.parse_args()
    done = job(options.ranks, options.calls)
    timed("numbered", done)
    timed("not numbered", unnumbered(done))


if __name__ == "__main__":
    main()
