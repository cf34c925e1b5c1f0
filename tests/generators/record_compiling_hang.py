"""Records a real job that looks hung: the last rank compiles a long function while the others wait in an all-reduce.

PYTHONPATH=tests python -m generators compiling_hang FOLDER [--ranks N] [--seconds S] [--then-hang]

FOLDER receives `traces/` (compile logs) and, S seconds after the last common step, `dumps/` (flight recorder).
With `--then-hang` the function is short, and the rank sleeps after its compilation, from which S counts.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch._C._distributed_c10d import _dump_fr_trace

from generators.record_cpu_job import Job, free_port, join_job

SHORT, MEDIUM, LONG = 2, 4, 1500
"""How many operations of a kind a function has: a long one is compiled for minutes."""
COMPILED = "compiled"
"""The file that shows that the last rank has compiled."""
FOREVER = 3600
"""Seconds that no job lasts."""


@dataclass(frozen=True, slots=True)
class Hang:
    """A job, when it ends, and what its last rank does."""

    job: Job
    seconds: float
    then_hang: bool


def train_step(inputs: torch.Tensor, length: int) -> torch.Tensor:
    """A function that is compiled again for each length."""
    for number in range(length):
        inputs = torch.sin(inputs @ inputs.t()).cumsum(0)[:, :8] + number
    return inputs


def dump_and_exit(rank: int, hang: Hang) -> None:
    """What a watchdog does."""
    while hang.then_hang and not (hang.job.scratch / COMPILED).exists():
        time.sleep(0.1)
    time.sleep(hang.seconds)
    (hang.job.folder / "dumps" / f"comm_lib_trace_rank_{rank}").write_bytes(bytes(_dump_fr_trace()))
    time.sleep(2)
    os._exit(0)


def run_rank(rank: int, hang: Hang) -> None:
    """One rank: three steps together, then the last rank does not come."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(hang.job.scratch / f"cache_{rank}")
    join_job(rank, hang.job)
    compiled, ones = torch.compile(train_step, dynamic=False), torch.ones(4)
    for _ in range(3):
        compiled(torch.randn(8, 8), SHORT)
        dist.all_reduce(ones)
    threading.Thread(target=dump_and_exit, args=(rank, hang), daemon=True).start()
    if rank == hang.job.ranks - 1:
        compiled(torch.randn(8, 8), MEDIUM if hang.then_hang else LONG)
        (hang.job.scratch / COMPILED).touch()
        time.sleep(FOREVER)
    with suppress(RuntimeError):  # a rank that ends first closes its connections
        dist.all_reduce(ones)
    time.sleep(FOREVER)


def record(folder: Path, ranks: int = 3, seconds: float = 40.0, *, then_hang: bool = False) -> None:
    """Runs the job and keeps what it leaves in `folder`."""
    for name in ("dumps", "traces", "scratch"):
        (folder / name).mkdir(parents=True)
    os.environ.update(
        # torch reads these when a process imports it
        TORCH_TRACE=str(folder / "traces"),
        TORCH_FR_BUFFER_SIZE="2000",
        TORCHINDUCTOR_COMPILE_THREADS="1",
    )
    hang = Hang(Job(ranks, free_port(), folder / "scratch", folder), seconds, then_hang)
    multiprocessing.spawn(run_rank, args=(hang,), nprocs=ranks, join=True)
