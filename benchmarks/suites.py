"""What is measured, and against which bar."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import commands
import inputs
import measure
import other_tools
import recorder
from commands import Command
from inputs import Input
from measure import Cost, Job, JobFailed, Peer
from other_tools import first_that_imports
from results import (
    Bar,
    Options,
    Result,
    Row,
    cpu,
    failures_of,
    measured_rows,
    output_folder,
    rows_of,
    slope,
    wall,
    warmed,
)

from tracelink import samples

RECORDER_RANKS, RECORDER_ENTRIES = 64, 2000
MEMORY_OF_FILE = 1.5
LINEARITY = 1.25
COST_AT_LENGTH = 1.10
PROGRAM = (sys.executable, "-m", "tracelink")


def kineto(options: Options) -> Result:
    """Load and link a profile without Python stacks."""
    return loaded_profile(inputs.without_stacks(options.size), options)


def kineto_stacks(options: Options) -> Result:
    """Load and link a profile with Python stacks."""
    return loaded_profile(inputs.with_stacks(options.size), options)


def kineto_communication(options: Options) -> Result:
    """Load and link a profile with much communication."""
    return loaded_profile(inputs.with_communication(options.size), options)


def loaded_profile(file: Input, options: Options) -> Result:
    """Loading a profile, beside parsers and beside other tools."""
    missing = Result()
    others = other_tools.of_profile(file.path, options, missing)
    result = loaded([file], others, options)
    one, orjson, two = (row.costs for row in result.rows[:3])
    result.bars = [
        Bar("CPU / orjson.loads", measure.best_ratio(one, orjson, cpu), 1.25, 0.8),
        Bar("wall, 2 jobs / orjson.loads", measure.best_ratio(two, orjson, wall), 0.75, 0.5),
        *result.bars,
    ]
    result.failures += missing.failures
    return result


def pair(options: Options) -> Result:
    """Load and link execution trace and profile of a rank, about as long together as the other inputs."""
    files, missing = inputs.rank_pair(options.size // 2), Result()
    with output_folder() as folder:
        traces = [*(file.path for file in files), folder / "linked.json"]
        result = loaded(
            files, list(other_tools.of_tool(other_tools.CHAKRA, traces, options, missing)), options
        )
    one, orjson = (row.costs for row in result.rows[:2])
    result.bars.insert(0, Bar("CPU / orjson.loads of both", measure.best_ratio(one, orjson, cpu), 1.0))
    result.failures += missing.failures
    return result


def loaded(files: Sequence[Input], others: Sequence[Peer], options: Options) -> Result:
    """Loading in one process and in two, beside parsers that make objects of everything, and beside other tools."""
    paths = warmed(files)
    jobs = [
        Job("tracelink.load, 1 job", "load", (1, *paths)),
        Job("orjson.loads", "orjson_loads", paths),
        Job("tracelink.load, 2 jobs", "load", (2, *paths)),
        Job("json.loads", "json_loads", paths),
        Job("tracelink.load, not the first", "load_again", paths),
    ]
    result = measured_rows(jobs, others, files, options.repeats)
    result.bars = memory_bars(result.rows[0], result.rows[2])
    return result


def summary(options: Options) -> Result:
    """Answer where the time of a profile without Python stacks went, beside tools that answer a part of it."""
    return summarized(inputs.without_stacks(options.size), options)


def summary_stacks(options: Options) -> Result:
    """The same of a profile with Python stacks."""
    return summarized(inputs.with_stacks(options.size), options)


def summarized(file: Input, options: Options) -> Result:
    """The summary beside loading alone, and beside the same tables of other tools."""
    paths, missing = warmed([file]), Result()
    jobs = [
        Job("tracelink.summary, 1 job", "summarize", (1, *paths)),
        Job("tracelink.load, 1 job", "load", (1, *paths)),
        Job("five questions to a tracelink.Job, 1 job", "five_questions", (1, *paths)),
    ]
    peers = other_tools.answers_on(file.path, options, missing)
    result = measured_rows(jobs, peers, [file], options.repeats)
    own, load, five, *others = result.rows
    result.bars = [
        Bar("five questions / one", measure.best_ratio(five.costs, own.costs, cpu), 1.3),
        Bar("CPU / tracelink.load", measure.best_ratio(own.costs, load.costs, cpu), 1.3, 1.15),
        *(
            Bar(f"CPU of {row.job} / CPU", measure.best_ratio(row.costs, own.costs, cpu), 8.0, at_least=True)
            for row in others
        ),
        Bar("memory / input", own.peak_mb / own.megabytes, MEMORY_OF_FILE),
    ]
    result.failures += missing.failures
    return result


def merge(options: Options) -> Result:
    """Merge a profile without Python stacks into Perfetto JSON and into Perfetto's native format."""
    return merged(inputs.without_stacks(options.size), options)


def merge_stacks(options: Options) -> Result:
    """Merge a profile with Python stacks into Perfetto JSON and into Perfetto's native format."""
    return merged(inputs.with_stacks(options.size), options)


def merge_communication(options: Options) -> Result:
    """Merge a profile with much communication into Perfetto JSON and into Perfetto's native format."""
    return merged(inputs.with_communication(options.size), options)


def merged(file: Input, options: Options) -> Result:
    """Merging in one process and in two, beside parsing and printing without a file."""
    paths = warmed([file])
    with output_folder() as folder:
        jobs = [
            Job("tracelink.merge, 1 job", "merge", (1, folder / "one.json", *paths)),
            Job("orjson.loads + orjson.dumps", "orjson_round_trip", paths),
            Job("tracelink.merge, 2 jobs", "merge", (2, folder / "two.json", *paths)),
            Job("tracelink.merge, native, 1 job", "merge", (1, folder / "one.pftrace", *paths)),
            Job("tracelink.merge, native, 2 jobs", "merge", (2, folder / "two.pftrace", *paths)),
        ]
        result = Result(rows_of(jobs, [file], options.repeats))
    one, orjson, two, native, _ = (row.costs for row in result.rows)
    result.bars = [
        Bar("CPU / orjson.loads + dumps", measure.best_ratio(one, orjson, cpu), 1.6, 1.2),
        Bar("wall, 2 jobs / orjson.loads + dumps", measure.best_ratio(two, orjson, wall), 1.0, 0.8),
        Bar("native, CPU / orjson.loads + dumps", measure.best_ratio(native, orjson, cpu), 2.0, 1.5),
        *memory_bars(result.rows[0], result.rows[2]),
    ]
    return result


def linear(options: Options) -> Result:
    """Load and link profiles from an eighth of the size to twice the size."""
    sizes = [options.size * times // 8 for times in (1, 4, 8, 16)]
    files = [inputs.without_stacks(size) for size in sizes]
    jobs = [Job("tracelink.load, 1 job", "load", (1, *warmed([file]))) for file in files]
    costs = measure.alternately(jobs, options.repeats)
    rows = [
        Row(
            job.label,
            runs,
            file.megabytes,
            f"{100 * measure.best(runs, cpu) / file.megabytes:.3f} s per 100 MB",
        )
        for job, runs, file in zip(jobs, costs, files, strict=True)
    ]
    return Result(rows, linearity_bars(rows))


def linearity_bars(rows: Sequence[Row]) -> list[Bar]:
    """What a megabyte costs in the longest input and in one of a quarter of it.

    The first number is the whole cost, and what a start costs is a part of it; the second leaves that out.
    """
    short, middle, long = rows[0], rows[1], rows[3]
    at_length = (long.best(cpu) / long.megabytes) / (middle.best(cpu) / middle.megabytes)
    sizes = f"{long.megabytes:.0f} MB / {middle.megabytes:.0f} MB"
    bars = [Bar(f"CPU per MB, {sizes}", at_length, COST_AT_LENGTH)]
    lower, upper = slope(short, middle), slope(middle, long)
    return [*bars, Bar(f"CPU per further MB, {sizes}", upper / lower, COST_AT_LENGTH)] if lower > 0 else bars


def gz(options: Options) -> Result:
    """Load and merge a compressed profile: what it costs beyond inflating it."""
    plain = inputs.without_stacks(options.size)
    packed = inputs.gzipped(plain)
    paths, texts = warmed([packed]), warmed([plain])
    with output_folder() as folder:
        jobs = [
            Job("inflating", "inflate", paths),
            Job("orjson.loads", "orjson_loads", texts),
            Job("orjson.loads + orjson.dumps", "orjson_round_trip", texts),
            Job("tracelink.load, 1 job", "load", (1, *paths)),
            Job("tracelink.load, 2 jobs", "load", (2, *paths)),
            Job("tracelink.merge, 1 job", "merge", (1, folder / "one.json", *paths)),
            Job("tracelink.merge, 2 jobs", "merge", (2, folder / "two.json", *paths)),
            Job("tracelink.merge, native, 1 job", "merge", (1, folder / "one.pftrace", *paths)),
            Job("tracelink.merge to .gz, 2 jobs", "merge", (2, folder / "two.json.gz", *paths)),
        ]
        result = Result(rows_of(jobs, [plain], options.repeats))
    inflating, loads, both, *ours = result.rows
    limits = (
        ("load: CPU / orjson.loads", ours[0], loads, cpu, 1.25, 0.8),
        ("load: wall, 2 jobs / orjson.loads", ours[1], loads, wall, 0.75, 0.5),
        ("merge: CPU / loads + dumps", ours[2], both, cpu, 1.6, 1.2),
        ("merge: wall, 2 jobs / loads + dumps", ours[3], both, wall, 1.0, 0.8),
        ("merge, native: CPU / loads + dumps", ours[4], both, cpu, 2.0, 1.5),
    )
    result.bars = [
        Bar(what, (row.best(pick) - inflating.best(pick)) / baseline.best(pick), limit, moonshot)
        for what, row, baseline, pick, limit, moonshot in limits
    ]
    return result


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
        Bar("CPU / pickle.load", measure.best_ratio(ours, pickle, cpu), 3.0),
        Bar("peak MB", result.rows[0].peak_mb, 100.0),
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
    """Import, help and a small merge, whole commands from start to end."""
    with output_folder() as folder:
        merging = ["merge", str(samples.path("gpu_pair")), "-q", "-o", str(folder / "merged.json")]
        ways = [
            Command("python -c 'import tracelink'", [sys.executable, "-c", "import tracelink"]),
            Command("tracelink --help", [*PROGRAM, "--help"]),
            Command("tracelink merge samples/gpu_pair", [*PROGRAM, *merging]),
            Command("python -c pass", [sys.executable, "-c", "pass"]),
        ]
        costs = commands.alternately(ways, options.short_repeats)
    rows = [Row(way.label, runs) for way, runs in zip(ways, costs, strict=True)]
    return Result(
        rows,
        [
            Bar("import, CPU s", rows[0].best(cpu), 0.15),
            Bar("--help, CPU s", rows[1].best(cpu), 0.25),
            Bar("merge samples/gpu_pair, CPU s", rows[2].best(cpu), 0.30, 0.2),
        ],
    )


SUITES: dict[str, Callable[[Options], Result]] = {
    "kineto": kineto,
    "kineto-stacks": kineto_stacks,
    "kineto-communication": kineto_communication,
    "pair": pair,
    "summary": summary,
    "summary-stacks": summary_stacks,
    "merge": merge,
    "merge-stacks": merge_stacks,
    "merge-communication": merge_communication,
    "recorder": flight_recorder,
    "start-up": start_up,
    "linear": linear,
    "gz": gz,
}


def memory_bars(one: Row, two: Row) -> list[Bar]:
    """Memory by the length of the input, with one process and with two."""
    return [
        Bar("memory / input", one.peak_mb / one.megabytes, MEMORY_OF_FILE),
        Bar("memory, 2 jobs / input", two.peak_mb / two.megabytes, MEMORY_OF_FILE),
    ]
