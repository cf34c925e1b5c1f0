"""Generates two synthetic runs of one job: in the second one kernels are slower and a data loader makes a rank late.

PYTHONPATH=tests python -m generators.two_runs FOLDER

No GPU ran: the times are invented, the layout is that of torch 2.6 on CUDA.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from generators.files import Kept, write_files
from generators.job import Job
from generators.machine import Machine, Program
from generators.training import MATRIX_KERNEL, SCRIPT, simulate, train, train_step

SLOWER = 1.3
"""How many times as long matrix kernels take in the second run."""
LATE_RANK = 1
LATE_NS = 250_000
JOB = Job(steps=6, layers=2, clock_skew_ns=0)


def train_slowly(machine: Machine, job: Job) -> Program:
    """The second run of a rank."""
    machine.slower[MATRIX_KERNEL] = SLOWER
    begin = machine.now
    machine.work(20_000, 40_000)
    with machine.frame(f"{SCRIPT}(80): main"):
        for number in range(1, job.steps + 1):
            with (
                machine.frame(f"{SCRIPT}(41): train_step"),
                machine.annotation(f"ProfilerStep#{number}"),
            ):
                if machine.rank == LATE_RANK:
                    load_slowly(machine)
                yield from train_step(machine, job)
    machine.recording.window = (begin, machine.now + 20_000)


def load_slowly(machine: Machine) -> None:
    """The data loader has no batch ready."""
    with (
        machine.frame("torch/utils/data/dataloader.py(701): __next__"),
        machine.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
    ):
        machine.work(LATE_NS, LATE_NS + 20_000)


def write(folder: Path, job: Job = JOB) -> None:
    """Writes the profiles of both runs."""
    for name, program in (("run_before", train), ("run_after", train_slowly)):
        write_files(job, simulate(job, program), folder / name, Kept(sources=("kineto",)), compressed=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Generate two synthetic runs of a job.")
    parser.add_argument("folder", type=Path)
    write(parser.parse_args().folder)


if __name__ == "__main__":
    main()
