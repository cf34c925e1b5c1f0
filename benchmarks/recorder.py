"""Reading flight-recorder dumps: CPU time and peak memory of tracelink, of plain pickle, and of fr_trace.

python benchmarks/recorder.py [--ranks 64] [--entries 2000] [--torch-python /path/to/python]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parent.parent / "tests")
)  # for the generators of synthetic jobs

from generators.fleet_dumps import Fleet, write_dumps

TRACELINK = """
from pathlib import Path
from tracelink.converters.flight_recorder.reader import FlightRecorderReader
from tracelink._run.processes import Processes
from tracelink._io.sources import Request, discover
started = time.process_time()
reader, engine = FlightRecorderReader(), Processes()
traces = [reader.read(source, engine) for source in discover(Request([(folder, "")])).sources]
"""

RECORDS = TRACELINK.replace("reader.read(", "reader.read_records(")

PAYLOADS = """
for trace in traces:
    for payloads in trace.payloads:
        for run in payloads.batches():
            pass
"""

PICKLE = """
import pickle
started = time.process_time()
for name in sorted(os.listdir(folder)):
    with open(os.path.join(folder, name), "rb") as file:
        pickle.load(file)
"""

FR_TRACE = """
started = time.process_time()
import runpy
sys.argv = ["fr_trace", folder]
runpy.run_module("torch.distributed.flight_recorder.fr_trace", run_name="__main__")
"""

MEASURED = """
import os, sys, time
folder = sys.argv[1]
{work}
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(time.process_time() - started, int(peak) / 1024)
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What reading all dumps took; importing torch is counted, for no fr_trace runs without it."""

    reader: str
    cpu_seconds: float
    peak_megabytes: float


def generate(folder: Path, ranks: int, entries: int) -> int:
    """Writes one dump for each rank; returns the bytes of all."""
    return write_dumps(Fleet(ranks, entries, tensor_parallel=2, stages=1, pipelined=False), folder)


def costs(folder: Path, torch_python: str, repeats: int = 5) -> Iterator[Cost]:
    """Each reader in fresh processes, the best of several runs."""
    yield measured("pickle.load", PICKLE, folder, sys.executable, repeats)
    yield measured("records", RECORDS, folder, sys.executable, repeats)
    yield measured("tracelink", TRACELINK, folder, sys.executable, repeats)
    yield measured("tracelink with payloads", TRACELINK + PAYLOADS, folder, sys.executable, repeats)
    if has_torch(torch_python):
        yield measured("fr_trace", FR_TRACE, folder, torch_python, 1)


def measured(reader: str, work: str, folder: Path, python: str, repeats: int) -> Cost:
    """The cheapest run of `work`."""
    command = [python, "-c", MEASURED.format(work=work), str(folder)]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(repeats)]
    numbers = [tuple(map(float, run.stdout.splitlines()[-1].split())) for run in runs]
    return Cost(reader, min(cpu for cpu, _ in numbers), min(peak for _, peak in numbers))


def has_torch(python: str) -> bool:
    """Whether torch can be imported there."""
    return subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0


def main() -> None:
    """Prints one line for each reader."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument(
        "--torch-python", default=sys.executable, help="a Python that has torch, for fr_trace"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        size = generate(Path(name), options.ranks, options.entries)
        print(f"{options.ranks} dumps of {options.entries} entries, {size / 1e6:.1f} MB")
        print(f"{'reader':<26}{'CPU s':>8}{'ratio':>8}{'peak MB':>9}")
        base = 0.0
        for cost in costs(Path(name), options.torch_python):
            base = base or cost.cpu_seconds
            ratio = cost.cpu_seconds / base
            print(f"{cost.reader:<26}{cost.cpu_seconds:>8.2f}{ratio:>8.1f}{cost.peak_megabytes:>9.0f}")


if __name__ == "__main__":
    main()
