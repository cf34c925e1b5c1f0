"""What both formats for Perfetto take: writing them, keeping them, and loading them into Perfetto's own engine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import commands
import measure
import perfetto_engine
import rank_inputs
from across import MEMORY_OF_LARGEST, share_of_largest
from commands import Command
from inputs import Input
from measure import Cost, Job
from perfetto_engine import Loads, heap
from results import Bar, Options, Result, Row, cpu, failures_of, memory, output_folder, rows_of, warmed

RANKS = 8
CPU_OF_PARSER, SIZE_OF_JSON = 2.5, 0.30
LOAD_OF_JSON, HEAP_OF_JSON, LOAD_OF_ALL_ARGUMENTS = 1.0, 0.5, 0.5

JSON, NATIVE = "JSON", "native"
JSON_LINK, NATIVE_LINK = "JSON, --args link", "native, --args link"
FORMS: Mapping[str, tuple[str, ...]] = {
    JSON: ("all.json",),
    "JSON, --compress": ("packed.json.gz", "--compress"),
    JSON_LINK: ("link.json", "--args", "link"),
    "JSON, --args none": ("none.json", "--args", "none"),
    NATIVE: ("all.pftrace",),
    "native, --compress": ("packed.pftrace", "--compress"),
    NATIVE_LINK: ("link.pftrace", "--args", "link"),
    "native, --args none": ("none.pftrace", "--args", "none"),
    "native, --no-python": ("calls.pftrace", "--no-python"),
}
"""The name of a file and the options that it is written with."""

CONCATENATED, EMPTY = "inputs, concatenated", "empty trace"
ALL_ARGUMENTS = {JSON_LINK: JSON, NATIVE_LINK: NATIVE}


def both_formats(options: Options) -> Result:
    """Merge 8 ranks into Perfetto's native format and JSON; how long the files are, what loading them takes."""
    files = rank_inputs.long_profiles(RANKS, options.size // 8)
    warmed(files)
    with output_folder() as folder:
        result = written(files, folder, options)
        traces = in_all_forms(files, folder, result)
        empty = folder / "empty.json"
        empty.write_text('{"traceEvents":[]}')
        for engine in perfetto_engine.engines(result):
            costs = perfetto_engine.loads(engine, traces | {EMPTY: empty}, options.repeats, result)
            result.rows += [load_row(engine.version, name, traces.get(name, empty), costs) for name in costs]
            result.bars += load_bars(engine.version, costs)
    return result


def written(files: Sequence[Input], folder: Path, options: Options) -> Result:
    """Merging into either format in one process and in two, beside parsing and printing without a file."""
    paths = [file.path for file in files]
    jobs = [
        Job("native, 1 job", "merge", (1, folder / "one.pftrace", *paths)),
        Job("native, 2 jobs", "merge", (2, folder / "two.pftrace", *paths)),
        Job("orjson.loads + orjson.dumps", "orjson_round_trip", paths),
        Job("JSON, 1 job", "merge", (1, folder / "one.json", *paths)),
        Job("JSON, 2 jobs", "merge", (2, folder / "two.json", *paths)),
    ]
    rows = rows_of(jobs, files, options.repeats)
    parser = rows[2].costs
    times = {row.job: measure.best_ratio(row.costs, parser, cpu) for row in rows}
    remarked = [replace(row, remark=f"{times[row.job]:.2f} x CPU of orjson") for row in rows]
    bars = [
        bar
        for row in rows[:2]
        for bar in (
            Bar(f"{row.job}: CPU / orjson.loads + dumps", times[row.job], CPU_OF_PARSER),
            Bar(f"{row.job}: memory / largest 4", share_of_largest(row, files), MEMORY_OF_LARGEST),
        )
    ]
    return Result(remarked, bars)


def in_all_forms(files: Sequence[Input], folder: Path, result: Result) -> dict[str, Path]:
    """The job as each option has it, each written once, beside the inputs as they are and joined by hand."""
    traces, costs = dict[str, Path](), dict[str, Cost]()
    for name, (file, *words) in FORMS.items():
        with failures_of(f"size: {name}", result):
            costs[name] = commands.run(Command("tracelink merge", merging(files, folder / file, words)))
            traces[name] = folder / file
    traces[CONCATENATED] = rank_inputs.concatenated(files).path
    sizes = {name: path.stat().st_size / 1e6 for name, path in traces.items()}
    sizes["inputs"] = total = sum(file.megabytes for file in files)
    result.rows += [
        Row(f"size: {name}", [costs.get(name, Cost(0.0))], total, in_words(name, sizes)) for name in sizes
    ]
    if {NATIVE, JSON} <= sizes.keys():
        result.bars.append(Bar("size, native / JSON", sizes[NATIVE] / sizes[JSON], SIZE_OF_JSON))
    return traces


def merging(files: Sequence[Input], output: Path, options: Sequence[str]) -> list[str]:
    """As a user types it, but with this interpreter."""
    paths = [str(file.path) for file in files]
    return [sys.executable, "-m", "tracelink", "merge", *paths, "-q", "-o", str(output), *options]


def in_words(name: str, sizes: Mapping[str, float]) -> str:
    """A size beside those that it is compared with."""
    ratios = [f"{sizes[name] / sizes[other]:.2f} x {other}" for other in (JSON, "inputs") if other in sizes]
    return f"{sizes[name]:.1f} MB, {', '.join(ratios)}"


def load_row(version: str, name: str, trace: Path, costs: Loads) -> Row:
    """What loading a trace took, beside an empty trace, JSON, and the same with all arguments."""
    if name == EMPTY:
        return Row(
            f"{version} loads {name}", costs[name], remark=f"heap {measure.best(costs[name], heap):.0f} MB"
        )
    row = Row(f"{version} loads {name}", costs[name], trace.stat().st_size / 1e6)
    said = [f"heap {row.best(heap):.0f} MB"]
    if EMPTY in costs:
        said.append(f"net {row.peak_mb - measure.best(costs[EMPTY], memory):.0f} MB")
    others = dict.fromkeys((JSON, ALL_ARGUMENTS.get(name, JSON)))
    ratios = {other: perfetto_engine.ratio(costs, name, other, cpu) for other in others if other != name}
    said += [f"{times:.2f} x CPU of {other}" for other, times in ratios.items() if times is not None]
    return replace(row, remark=", ".join(said))


def load_bars(version: str, costs: Loads) -> list[Bar]:
    """The native format beside JSON, and beside itself with few arguments."""
    ratios = {
        "CPU, native / JSON": (perfetto_engine.ratio(costs, NATIVE, JSON, cpu), LOAD_OF_JSON),
        "heap, native / JSON": (perfetto_engine.ratio(costs, NATIVE, JSON, heap), HEAP_OF_JSON),
        "CPU, native, --args link / all": (
            perfetto_engine.ratio(costs, NATIVE_LINK, NATIVE, cpu),
            LOAD_OF_ALL_ARGUMENTS,
        ),
    }
    return [
        Bar(f"{version}: {what}", ratio, bar) for what, (ratio, bar) in ratios.items() if ratio is not None
    ]


SUITES: dict[str, Callable[[Options], Result]] = {"perfetto": both_formats}
