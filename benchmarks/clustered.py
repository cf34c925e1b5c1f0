"""A merge on a Dask cluster next to one in processes of this machine: time, CPU, memory, bytes through the scheduler.

python benchmarks/clustered.py [--ranks 64] [--size 25] [--workers 2] [--repeat 3] [--suffix pftrace]

The scheduler and each worker are processes of their own, with the settings that docs/fleet.md recommends. Both ways
take turns; outputs are compared. The time of the cluster is that of the whole command, without the start of scheduler
and workers, which run already.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import distributed
import rank_inputs
from msgspec import Struct

from tracelink._run.dask import WORKER_ENVIRONMENT

MEGABYTE = 1_000_000
TICKS = os.sysconf("SC_CLK_TCK")


class Cost(Struct, frozen=True):
    """What a merge took, of all processes."""

    wall: float
    cpu: float


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used, and its children that ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


def peak_of(pid: int) -> float:
    """The peak of the memory of a process, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1000
    return 0.0


@contextmanager
def cluster(workers: int, folder: Path) -> Iterator[tuple[str, list[int]]]:
    """The address of a scheduler with so many workers, and the processes: the scheduler, then the workers."""
    file = folder / "scheduler.json"
    common = ["--scheduler-file", str(file), "--no-dashboard"]
    commands = [
        ["dask_scheduler", *common, "--host", "127.0.0.1", "--port", "0"],
        *[["dask_worker", *common, "--nthreads", "1", "--no-nanny", "--local-directory", str(folder)]]
        * workers,
    ]
    environment = os.environ | WORKER_ENVIRONMENT | {"DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False"}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for name, *options in commands:
            command = [sys.executable, "-m", f"distributed.cli.{name}", *options]
            started.append(subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment))
            while not file.exists():
                time.sleep(0.05)
        yield json.loads(file.read_text())["address"], [process.pid for process in started]
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


def count_bytes(dask_scheduler: Any) -> None:
    """Counts what the scheduler sends and receives from now on; runs in the scheduler."""
    from tornado.iostream import IOStream

    dask_scheduler.counted_bytes = 0
    read, write = IOStream.read_from_fd, IOStream.write_to_fd

    def counted(method: Any) -> Any:
        def call(self: Any, data: Any) -> Any:
            count = method(self, data)
            dask_scheduler.counted_bytes += count or 0
            return count

        return call

    IOStream.read_from_fd, IOStream.write_to_fd = counted(read), counted(write)


def counted_bytes(dask_scheduler: Any) -> int:
    """What was counted; runs in the scheduler."""
    return int(dask_scheduler.counted_bytes)


def merged(source: Path, output: Path, options: list[str], others: list[int]) -> Cost:
    """Runs the command, and adds the CPU of other processes that work for it."""
    before = sum(map(cpu_of, others))
    children = os.times()
    begin = time.perf_counter()
    command = [sys.executable, "-m", "tracelink", "merge", str(source), "-o", str(output), "-q", *options]
    subprocess.run(command, check=True)
    wall = time.perf_counter() - begin
    ended = os.times()
    own = ended.children_user + ended.children_system - children.children_user - children.children_system
    return Cost(wall, own + sum(map(cpu_of, others)) - before)


def equal(one: Path, other: Path) -> bool:
    """Whether two outputs, files or folders, have the same content."""
    if one.is_file():
        return filecmp.cmp(one, other, shallow=False)
    files = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    return bool(files) and all(filecmp.cmp(one / path, other / path, shallow=False) for path in files)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--size", type=int, default=25, help="MB of each profile")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--suffix", default="pftrace")
    options = parser.parse_args()
    profiles = rank_inputs.long_profiles(options.ranks, options.size * MEGABYTE)
    source, total = profiles[0].path.parent, sum(profile.path.stat().st_size for profile in profiles)
    print(f"{options.ranks} profiles, {total / MEGABYTE:.0f} MB, {options.workers} workers or processes")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with cluster(options.workers, folder) as (address, pids):
            client = distributed.Client(address)
            client.wait_for_workers(options.workers)
            client.run_on_scheduler(count_bytes)
            for turn in range(options.repeat):
                alone, clustered = folder / f"alone.{options.suffix}", folder / f"clustered.{options.suffix}"
                pool = merged(source, alone, ["--jobs", str(options.workers)], [])
                counted = client.run_on_scheduler(counted_bytes)
                dask = merged(source, clustered, ["--engine", address], pids)
                counted = client.run_on_scheduler(counted_bytes) - counted
                same = "equal" if equal(alone, clustered) else "DIFFERENT"
                print(
                    f"{turn + 1}: processes {pool.wall:.1f} s, CPU {pool.cpu:.1f} s; "
                    f"Dask {dask.wall:.1f} s ({dask.wall / pool.wall:.2f} x), "
                    f"CPU {dask.cpu:.1f} s ({dask.cpu / pool.cpu:.2f} x); "
                    f"scheduler: {counted / MEGABYTE:.2f} MB ({counted / total:.3%} of the input), "
                    f"{cpu_of(pids[0]):.1f} s of CPU so far; {same} outputs"
                )
            client.close()
            print(
                "peak of memory:", ", ".join(f"{peak_of(pid):.0f} MB" for pid in pids), "(scheduler, workers)"
            )


if __name__ == "__main__":
    main()
