"""A training of a small model on CPUs with torch and gloo, captured by `tracelink.capture`: run by torchrun.

torchrun --nproc-per-node 2 -m generators.captured_training FOLDER [--mode MODE] [--steps STEPS] [--watchdog SECONDS]

The last rank makes the fault of the mode: it hangs, raises an exception, or is killed, in step FAULTY.
"""

from __future__ import annotations

import argparse
import datetime
import os
import signal
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tracelink

STEPS = 9
FAULTY = 7
"""The step in which a mode shows."""
BATCH, WIDTH, CLASSES = 16, 32, 8
TIMEOUT_S = 20
MODES = ("fine", "compile", "hang", "exception", "kill")


class UserError(Exception):
    """The exception of a training."""


@dataclass(frozen=True, slots=True)
class Training:
    """The parts of a step."""

    network: nn.Module
    optimizer: Any
    group: Any


def build(compiled: bool) -> Training:
    """A small network on all ranks, and a second group."""
    layers = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    network = torch.compile(layers) if compiled else layers
    parallel = (
        DistributedDataParallel(network) if compiled else DistributedDataParallel(network, bucket_cap_mb=0.01)
    )
    group = dist.new_group(list(range(dist.get_world_size())), group_desc="tensor_parallel")
    return Training(parallel, torch.optim.SGD(parallel.parameters(), lr=0.01), group)


def train_step(training: Training, capture: Any) -> None:
    """Forward, an asynchronous collective, backward, update, barrier."""
    inputs, targets = torch.randn(BATCH, WIDTH), torch.randint(0, CLASSES, (BATCH,))
    with capture.annotate('forward "quoted"'):
        loss = nn.functional.cross_entropy(training.network(inputs), targets)
    pending = dist.all_reduce(torch.ones(100), group=training.group, async_op=True)
    training.optimizer.zero_grad()
    loss.backward()
    training.optimizer.step()
    pending.wait()
    dist.barrier()


def fault(mode: str) -> None:
    """What the last rank does instead of its step."""
    if mode == "hang":
        time.sleep(3600)
    if mode == "exception":
        raise UserError("of the user")
    if mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mode", choices=MODES, default="fine")
    parser.add_argument("--steps", default="3-5")
    parser.add_argument("--watchdog", type=float)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT_S))
    training = build(arguments.mode == "compile")
    last = dist.get_rank() == dist.get_world_size() - 1
    with tracelink.capture(
        arguments.folder, arguments.steps, watchdog=arguments.watchdog, metrics=0.05
    ) as capture:
        for step in range(STEPS):
            if step == FAULTY and last:
                fault(arguments.mode)
            train_step(training, capture)
            capture.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except UserError:
        raise
    except Exception:  # noqa: BLE001
        # gloo of torch 2.13 waits for ever in its destructor after a timeout, also without a capture
        traceback.print_exc()
        os._exit(1)
