"""Synthetic jobs in folders: profiles, execution traces, recorder dumps, samples of metrics, and what is true of them.

No GPU ran: the times are invented. The layouts are those of torch 2.6 on CUDA, of dumps of torch 2.9 for NCCL, and of
`nvidia-smi --query-gpu=... --format=csv -lms 100`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from generators.files import KINETO, Kept, write_files
from generators.job import Cluster, Job
from generators.recorded_jobs import Fault, Plan, RecordedJob, Snapshot
from generators.recorded_jobs import job as recorded_job
from generators.training import simulate, slow_step, train_step
from generators.truth import truth

WHOLE = Kept()


def write(job: Job, folder: Path, kept: Kept = WHOLE, **how: Any) -> dict[str, Any]:
    """Writes a job, or what is kept of it, with `truth.json` next to it; returns the whole truth."""
    recordings = simulate(job)
    write_files(job, recordings, folder, kept, **how)
    facts = truth(job, recordings, kept)
    _write_json(folder, facts, None if isinstance(job, Cluster) else 1)
    return facts


def write_cluster(folder: Path, kept: Kept = WHOLE, **parameters: Any) -> dict[str, Any]:
    """Writes a job of these parameters of `Cluster`, or what is kept of it; returns the whole truth."""
    return write(Cluster(**parameters), folder, kept)


def gpu_pair(folder: Path, *, plain: bool = False, **parameters: Any) -> None:
    """The sample of a pair of GPUs, or a job of other parameters; `plain` files are not compressed."""
    write(Job(**parameters), folder, compressed=not plain)


def many_hosts(folder: Path, *, compressed: bool = False, **parameters: Any) -> None:
    """A job on many hosts: tensor, data and pipeline parallel, with clock errors and late ranks."""
    write(Cluster(**parameters), folder, compressed=compressed)


def two_runs(folder: Path) -> None:
    """Two runs of one job: in the second one kernels are slower and a data loader makes a rank late."""
    job, kept = Job(steps=6, layers=2, clock_skew_ns=0), Kept(sources=[KINETO])
    for name, step in (("run_before", train_step), ("run_after", slow_step)):
        write_files(job, simulate(job, step), folder / name, kept, compressed=True)


def hung_job(folder: Path, *, fault: str = "", ranks: int = 8, seed: int = 0) -> RecordedJob:
    """Recorder dumps of the sample that hangs, or of a job with another fault in some rank."""
    wrong = Fault(fault) if fault else Fault("never_joined", rank=3, role="mesh_dp")
    recorded = recorded_job(Plan(world=ranks, seed=seed), wrong, Snapshot(wait_ns=4_000_000_000))
    assert recorded.truth
    recorded.write(folder / "dumps")
    _write_json(folder, asdict(recorded.truth))
    return recorded


def _write_json(folder: Path, facts: dict[str, Any], indent: int | None = 1) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(facts, indent=indent, default=sorted)
    (folder / "truth.json").write_text(f"{text}\n", "utf-8")


# What nvidia-smi would have sampled next to the sample gpu_pair: GPU 1 is hot and runs slower.


METRICS = "nvidia_smi.csv"
HEADER = (
    "timestamp, index, uuid, utilization.gpu [%], memory.used [MiB], power.draw [W], temperature.gpu, "
    "clocks.current.sm [MHz], clocks.current.memory [MHz]"
)
UUIDS = ("GPU-5d0a4c3e-0a51-4c6f-9c55-1f0e6b1f7a00", "GPU-5d0a4c3e-0a51-4c6f-9c55-1f0e6b1f7a01")
FIRST = datetime(2025, 3, 1, 8, 5, 59, 513_000)
"""Half a second before the job; the clock of the machine is in UTC."""
ROUNDS = 12
INTERVAL, BETWEEN = timedelta(milliseconds=100), timedelta(milliseconds=4)
"""From one round to the next, and from one GPU to the next."""
LEVELS = ((655, 61, 1980), (430, 87, 1410))
"""Power, temperature and clock of each GPU at work."""


def gpu_metrics(folder: Path) -> None:
    random = Random(1)
    lines = [HEADER]
    for number in range(ROUNDS):
        for gpu, (power, temperature, clock) in enumerate(LEVELS):
            time = FIRST + number * INTERVAL + gpu * BETWEEN
            stamp = f"{time:%Y/%m/%d %H:%M:%S}.{time.microsecond // 1000:03}"
            drawn = power + random.uniform(-8, 8)
            used = random.randint(93, 99)
            lines.append(
                f"{stamp}, {gpu}, {UUIDS[gpu]}, {used} %, 40211 MiB, {drawn:.2f} W, {temperature}, {clock} MHz, "
                "2619 MHz"
            )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / METRICS).write_text("\n".join(lines) + "\n")
