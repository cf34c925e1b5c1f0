"""What is measured, and against which bar."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import inputs
import measure
import recorder
from inputs import Input
from measure import Cost, Job, JobFailed
from results import (
    Bar,
    Options,
    Result,
    Row,
    cpu,
    failures_of,
    memory,
    output_folder,
    rows_of,
    slope,
    wall,
    warmed,
)

RECORDER_RANKS, RECORDER_ENTRIES = 64, 2000
MEMORY_OF_FILE = 1.5
LINEARITY = 1.25


def kineto(options: Options) -> Result:
    """Load and link a profile without Python stacks."""
    return loaded([inputs.without_stacks(options.size)], options, cpu_bar=1.25, wall_bar=0.75)


def kineto_stacks(options: Options) -> Result:
    """Load and link a profile with Python stacks."""
    return loaded([inputs.with_stacks(options.size)], options, cpu_bar=1.25, wall_bar=0.75)


def pair(options: Options) -> Result:
    """Load and link execution trace and profile of a rank, about as long together as the other inputs."""
    return loaded(inputs.rank_pair(options.size // 2), options, cpu_bar=1.5)


def loaded(files: Sequence[Input], options: Options, *, cpu_bar: float, wall_bar: float = 0.0) -> Result:
    """Loading in one process and in two, beside parsers that make objects of everything."""
    paths = warmed(files)
    jobs = [
        Job("tracelink.load, 1 job", "load", (1, *paths)),
        Job("orjson.loads", "orjson_loads", paths),
        Job("tracelink.load, 2 jobs", "load", (2, *paths)),
        Job("json.loads", "json_loads", paths),
        Job("tracelink.load, not the first", "load_again", paths),
    ]
    result = Result(rows_of(jobs, files, options.repeats))
    one, orjson, two = (row.costs for row in result.rows[:3])
    result.bars.append(Bar("CPU / orjson.loads", measure.median_ratio(one, orjson, cpu), cpu_bar))
    if wall_bar:
        result.bars.append(
            Bar("wall, 2 jobs / orjson.loads", measure.median_ratio(two, orjson, wall), wall_bar)
        )
    result.bars += memory_bars(result.rows[0], result.rows[2])
    if len(paths) == 1:
        add_holistic_trace_analysis(result, files, options)
    return result


def merge(options: Options) -> Result:
    """Merge a profile without Python stacks into Perfetto JSON."""
    return merged(inputs.without_stacks(options.size), options)


def merge_stacks(options: Options) -> Result:
    """Merge a profile with Python stacks into Perfetto JSON."""
    return merged(inputs.with_stacks(options.size), options)


def merged(file: Input, options: Options) -> Result:
    """Merging in one process and in two, beside parsing and printing without a file."""
    paths = warmed([file])
    with output_folder() as folder:
        jobs = [
            Job("tracelink.merge, 1 job", "merge", (1, folder / "one.json", *paths)),
            Job("orjson.loads + orjson.dumps", "orjson_round_trip", paths),
            Job("tracelink.merge, 2 jobs", "merge", (2, folder / "two.json", *paths)),
        ]
        result = Result(rows_of(jobs, [file], options.repeats))
    one, orjson, two = (row.costs for row in result.rows)
    result.bars = [
        Bar("CPU / orjson.loads + dumps", measure.median_ratio(one, orjson, cpu), 2.0),
        Bar("wall, 2 jobs / orjson.loads + dumps", measure.median_ratio(two, orjson, wall), 1.2),
        *memory_bars(result.rows[0], result.rows[2]),
    ]
    return result


def linear(options: Options) -> Result:
    """Load and link profiles from an eighth of the size to twice the size."""
    sizes = [options.size * times // 8 for times in (1, 2, 4, 8, 16)]
    files = [inputs.without_stacks(size) for size in sizes]
    jobs = [Job("tracelink.load, 1 job", "load", (1, *warmed([file]))) for file in files]
    costs = measure.alternately(jobs, options.repeats)
    rows = [
        Row(
            job.label,
            runs,
            file.megabytes,
            f"{100 * measure.median(runs, cpu) / file.megabytes:.3f} s per 100 MB",
        )
        for job, runs, file in zip(jobs, costs, files, strict=True)
    ]
    return Result(rows, linearity_bars(rows))


def linearity_bars(rows: Sequence[Row]) -> list[Bar]:
    """What a further megabyte costs in the longest input and in the short ones; the fixed cost is in neither."""
    lower, upper = slope(rows[0], rows[2]), slope(rows[2], rows[4])
    first, middle, last = (f"{row.megabytes:.0f}" for row in rows[::2])
    name = f"CPU per MB, {middle}-{last} MB / {first}-{middle} MB"
    return [Bar(name, upper / lower, LINEARITY)] if lower > 0 else []


def gz(options: Options) -> Result:
    """Compressed input and output, for information."""
    plain = inputs.without_stacks(options.size)
    packed = inputs.gzipped(plain)
    with output_folder() as folder:
        jobs = [
            Job("tracelink.load, 1 job", "load", (1, *warmed([plain]))),
            Job("tracelink.load of .gz, 1 job", "load", (1, *warmed([packed]))),
            Job("tracelink.load of .gz, 2 jobs", "load", (2, packed.path)),
            Job("tracelink.merge to .gz, 1 job", "merge", (1, folder / "one.json.gz", plain.path)),
            Job("tracelink.merge to .gz, 2 jobs", "merge", (2, folder / "two.json.gz", plain.path)),
        ]
        rows = rows_of(jobs, [plain], options.repeats)
    return Result(rows)


def flight_recorder(options: Options) -> Result:
    """Read the dumps of 64 ranks with 2000 entries each."""
    ways = {
        "tracelink": recorder.TRACELINK,
        "pickle.load": recorder.PICKLE,
        "tracelink with payloads": recorder.TRACELINK + recorder.PAYLOADS,
    }
    with tempfile.TemporaryDirectory() as name:
        megabytes = recorder.generate(Path(name), RECORDER_RANKS, RECORDER_ENTRIES) / 1e6
        rounds = [
            [recorded(what, work, name, sys.executable) for what, work in ways.items()]
            for _ in range(options.short_repeats)
        ]
        columns = zip(ways, zip(*rounds, strict=True), strict=True)
        result = Result([Row(what, costs, megabytes) for what, costs in columns])
        with failures_of("fr_trace", result):
            python = first_that_imports("torch.distributed.flight_recorder.fr_trace", options)
            costs = [recorded("fr_trace", recorder.FR_TRACE, name, python)]
            result.rows.append(Row("fr_trace", costs, megabytes, "with its import of torch"))
    ours, pickle = (row.costs for row in result.rows[:2])
    result.bars = [
        Bar("CPU / pickle.load", measure.median_ratio(ours, pickle, cpu), 3.0),
        Bar("peak MB", result.rows[0].median(memory), 100.0),
    ]
    return result


def recorded(what: str, work: str, folder: str, python: str) -> Cost:
    """One run of the recorder's benchmark."""
    try:
        cost = recorder.measured(what, work, Path(folder), python, 1)
    except (subprocess.CalledProcessError, ValueError, IndexError) as error:
        raise JobFailed(str(error)) from error
    megabytes = cost.peak_megabytes * 1.048576
    return Cost(cost.cpu_seconds, peak_mb=megabytes, tree_peak_mb=megabytes)


def start_up(options: Options) -> Result:
    """Import and help, whole processes from start to end."""
    command = str(Path(sys.executable).with_name("tracelink"))
    ways = {
        "python -c 'import tracelink'": [sys.executable, "-c", "import tracelink"],
        "tracelink --help": [command, "--help"],
        "python -c pass": [sys.executable, "-c", "pass"],
    }
    for way in ways.values():
        measure.whole_process(way)
    rounds = [[measure.whole_process(way) for way in ways.values()] for _ in range(options.short_repeats)]
    rows = [Row(what, costs) for what, costs in zip(ways, zip(*rounds, strict=True), strict=True)]
    return Result(
        rows,
        [
            Bar("import, CPU s", rows[0].median(cpu), 0.15),
            Bar("--help, CPU s", rows[1].median(cpu), 0.25),
        ],
    )


SUITES: dict[str, Callable[[Options], Result]] = {
    "kineto": kineto,
    "kineto-stacks": kineto_stacks,
    "pair": pair,
    "merge": merge,
    "merge-stacks": merge_stacks,
    "recorder": flight_recorder,
    "start-up": start_up,
    "linear": linear,
    "gz": gz,
}


def memory_bars(one: Row, two: Row) -> list[Bar]:
    """Memory by the length of the input, with one process and with two."""
    return [
        Bar("memory / input", one.median(memory) / one.megabytes, MEMORY_OF_FILE),
        Bar("memory, 2 jobs / input", two.median(memory) / two.megabytes, MEMORY_OF_FILE),
    ]


def add_holistic_trace_analysis(result: Result, files: Sequence[Input], options: Options) -> None:
    """A row of HTA, once, where it is installed."""
    with failures_of("HolisticTraceAnalysis", result):
        python = first_that_imports("hta.common.trace", options)
        job = Job("HTA, parse", "holistic_trace_analysis", [file.path for file in files], python)
        result.rows += rows_of([job], files, 1)


def first_that_imports(module: str, options: Options) -> str:
    """The first of the peers' interpreters that has what a peer needs."""
    for python in options.peer_pythons:
        if (
            subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode
            == 0
        ):
            return python
    raise JobFailed(f"no Python here imports {module} (--peer-python names another)")
