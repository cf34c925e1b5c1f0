"""Reading a long execution trace: CPU time and peak memory, beside one `orjson.loads` of the same bytes.

python benchmarks/execution_trace.py ET_FILE [--megabytes 120] [--runs 3]

ET_FILE is replicated with shifted ids until it is as long as asked; without it, a sample is.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracelink import samples

TRACELINK = """
from tracelink.converters.execution_trace.reader import ExecutionTraceReader
from tracelink._run.processes import Processes
from tracelink._io.sources import Request, discover
(source,) = discover(Request([(path, "")])).sources
started = time.process_time()
trace = ExecutionTraceReader().read(source, Processes())
assert not trace.findings, trace.findings
"""

PAYLOADS = """
started = time.process_time()
for payloads in trace.payloads:
    for run in payloads.batches():
        pass
"""

ORJSON = """
import gc, orjson
with open(path, "rb") as file:
    text = file.read()
gc.disable()
started = time.process_time()
orjson.loads(text)
"""

MEASURED = """
import sys, time
path = sys.argv[1]
{work}
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(time.process_time() - started, int(peak) / 1024)
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one way to read a file costs."""

    what: str
    seconds: float
    megabytes: float


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=Path, default=samples.path("gpu_pair") / "et_0.json.gz")
    parser.add_argument("--megabytes", type=int, default=120)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "et.json"
        nodes = replicate(options.file, path, options.megabytes << 20)
        size = path.stat().st_size / (1 << 20)
        ways = {"orjson.loads": ORJSON, "tracelink": TRACELINK, "tracelink, payloads": TRACELINK + PAYLOADS}
        costs = [measured(what, work, path, options.runs) for what, work in ways.items()]
    print(f"{nodes} nodes, {size:.0f} MB; best of {options.runs}\n")
    print(f"{'':22}{'CPU s':>8}{'ratio':>8}{'peak RSS MB':>14}{'of the file':>14}")
    for cost in costs:
        ratio = cost.seconds / costs[0].seconds
        share = cost.megabytes / size
        print(f"{cost.what:22}{cost.seconds:8.2f}{ratio:8.2f}{cost.megabytes:14.0f}{share:14.2f}")


def replicate(source: Path, target: Path, size: int) -> int:
    """Writes `target` as a trace of at least `size` bytes made of copies of `source`; returns its nodes."""
    opened = gzip.open if source.suffix == ".gz" else open
    with opened(source, "rb") as file:
        trace = json.load(file)
    nodes = trace.pop("nodes")
    step = max(node["id"] for node in nodes)
    process = next(node for node in nodes if node["ctrl_deps"] == node["id"])
    count = 1
    others = [node for node in nodes if node is not process]
    with target.open("w") as file:
        file.write(json.dumps(trace)[:-1] + ', "nodes": [')
        for shift in itertools.count(0, step):
            if file.tell() >= size:
                break
            file.writelines(json.dumps(node) + ", " for node in copies(others, process["id"], shift))
            count += len(others)
        file.write(json.dumps(process) + "]}")
    return count


def copies(nodes: list[dict[str, Any]], process: int, shift: int) -> Iterator[dict[str, Any]]:
    """The nodes with other ids, under the same process."""
    for original in nodes:
        node = copy.copy(original)
        node["id"] += shift
        node["ctrl_deps"] += 0 if node["ctrl_deps"] == process else shift
        node["attrs"] = [_shifted(attribute, shift) for attribute in node["attrs"]]
        yield node


def _shifted(attribute: dict[str, Any], shift: int) -> dict[str, Any]:
    if attribute["name"] != "rf_id" or not attribute["value"]:
        return attribute
    return {**attribute, "value": attribute["value"] + shift}


def measured(what: str, work: str, path: Path, runs: int) -> Cost:
    """The least of several runs, each in a process of its own."""
    command = [sys.executable, "-c", MEASURED.format(work=work), str(path)]
    outputs = [
        subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        for _ in range(runs)
    ]
    seconds, megabytes = zip(*(map(float, output) for output in outputs), strict=True)
    return Cost(what, min(seconds), min(megabytes))


if __name__ == "__main__":
    main()
