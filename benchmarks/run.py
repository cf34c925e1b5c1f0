"""How fast and how big: tracelink beside its peers on the same inputs, in the same run.

python benchmarks/run.py [--size 200] [--only NAME]... [--repeat 3] [--output results.json]
    [--peer-python PATH]...
python benchmarks/run.py --page [--peer-python PATH]...    # the suites of docs/performance.md, then the page itself
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(
    0, str(Path(__file__).resolve().parent.parent / "tests")
)  # for the generators of synthetic jobs

import across
import capturing
import chakra_traces
import compiling
import diagnosing
import fleet_matching
import inspecting
import nsys_exports
import page
import perfetto_traces
import remote_stores
import suites
import tables
from measure import JobFailed
from results import Bar, Options, Result, Row, cpu, wall

SUITES = (
    suites.SUITES
    | across.SUITES
    | diagnosing.SUITES
    | chakra_traces.SUITES
    | perfetto_traces.SUITES
    | compiling.SUITES
    | nsys_exports.SUITES
    | capturing.SUITES
    | inspecting.SUITES
    | fleet_matching.SUITES
    | remote_stores.SUITES
    | tables.SUITES
)
PYTHONS_OF_PEERS = ("TRACELINK_TRACELENS_PYTHON",)
"""Variables that name the interpreter of a peer, as in the peer tests."""

PACKAGES = ("torch-tracelink", "numpy", "msgspec", "orjson", "isal")


def main() -> int:
    """Runs the suites, prints their tables and saves everything; 1 if a suite could not run."""
    arguments = parsed_arguments()
    named = [os.environ[name] for name in PYTHONS_OF_PEERS if name in os.environ]
    options = Options(arguments.size, arguments.repeat, (*arguments.peer_python, *named, sys.executable))
    facts = machine()
    print(
        f"{facts['cores']} cores, Python {facts['python']}, load {facts['load_before']}; {arguments.size} MB inputs"
    )
    output = arguments.output or (page.RESULTS if arguments.page else Path("results.json"))
    saved: dict[str, Any] = {
        "machine": facts,
        "options": {"size_mb": options.size_mb, "repeats": options.repeats},
        "suites": {},
    }
    if arguments.page and arguments.only:
        saved["suites"] = json.loads(output.read_text("utf-8"))["suites"]
    results = {}
    for name in arguments.only or default_suites(arguments):
        results[name] = measured(name, options)
        conditions = {"rounds": options.repeats, "commit": facts["commit"], "load": load_average()}
        saved["suites"][name] = conditions | as_json(results[name])
        output.write_text(json.dumps(saved, indent=1) + "\n")
    print_bars(results)
    if arguments.page:
        page.write(json.loads(output.read_text("utf-8")))
    return int(any(not result.rows for result in results.values()))


def default_suites(arguments: argparse.Namespace) -> Sequence[str]:
    """Those of the page, or all."""
    return page.SUITES if arguments.page else tuple(SUITES)


def parsed_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=200, help="megabytes (10^6 bytes) of an input")
    parser.add_argument(
        "--only", action="append", default=[], choices=list(SUITES), help="run this; may be given again"
    )
    parser.add_argument(
        "--page",
        action="store_true",
        help="run the suites of docs/performance.md (with --only: replace these), then write its numbers",
    )
    parser.add_argument("--repeat", type=int, default=3, help="rounds; the best of them counts")
    parser.add_argument("--output", type=Path, help="where the JSON goes (results.json)")
    parser.add_argument(
        "--peer-python",
        action="append",
        default=[],
        help="an interpreter with HTA or torch; may be given again",
    )
    return parser.parse_args()


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "cores": len(os.sched_getaffinity(0)),
        "processor": processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in PACKAGES},
        "load_before": load_average(),
    }


def commit() -> str:
    """The commit that is measured."""
    words = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def processor() -> str:
    """The name of the first core."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def load_average() -> float:
    """Processes that wanted to run in the last minute."""
    return round(os.getloadavg()[0], 2)


def measured(name: str, options: Options) -> Result:
    """Runs a suite and prints its table."""
    print(f"\n{name}: {SUITES[name].__doc__}", flush=True)
    try:
        result = SUITES[name](options)
    except JobFailed as failure:
        result = Result(failures=[str(failure)])
    if result.rows:
        print(f"  {'':30}{'input MB':>9}{'CPU s':>9}{'wall s':>9}{'peak MB':>9}{'of input':>9}{'MB/s':>7}")
    for row in result.rows:
        print(f"  {row.job:30}{cells(row)}  {row.remark}".rstrip())
    for missing in result.failures:
        print(f"  not measured: {missing}")
    return result


def cells(row: Row) -> str:
    """The numbers of a row; a dash where there is none."""
    size, seconds, clock, peak = row.megabytes, row.best(cpu), row.best(wall), row.peak_mb
    numbers = (
        (size, 9, 1),
        (seconds, 9, 3),
        (clock, 9, 3),
        (peak, 9, 1),
        (size and peak / size, 9, 2),
        (seconds and size / seconds, 7, 0),
    )
    return "".join(
        f"{number:{width}.{decimals}f}" if number else f"{'-':>{width}}"
        for number, width, decimals in numbers
    )


def print_bars(results: dict[str, Result]) -> None:
    """Every bar, the measured number and whether it is kept."""
    bars = [(name, bar) for name, result in results.items() for bar in result.bars]
    if bars:
        print(f"\n{'suite':22}{'what':46}{'measured':>9}{'bar':>9}{'moonshot':>9}")
    for name, bar in bars:
        moonshot = "-" if bar.moonshot is None else f"{bar.moonshot:.2f}"
        print(f"{name:22}{bar.what:46}{bar.measured:9.2f}{bar.bar:9.2f}{moonshot:>9}  {bar.word}")


def as_json(result: Result) -> dict[str, Any]:
    """A suite's part of the saved file."""
    return {
        "rows": [row.as_json() for row in result.rows],
        "bars": [bar_as_json(bar) for bar in result.bars],
        "not_measured": result.failures,
    }


def bar_as_json(bar: Bar) -> dict[str, Any]:
    """A bar with its word."""
    return asdict(bar) | {"result": bar.word, "reached_moonshot": bar.reached_moonshot}


if __name__ == "__main__":
    sys.exit(main())
