"""What writing Chakra traces takes, whole command, beside upstream's link and convert on the same pair."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import commands
import inputs
import measure
from commands import Command
from inputs import Input
from other_tools import first_that_imports
from results import Bar, Options, Result, Row, cpu, failures_of, memory, output_folder, slope, warmed
from suites import LINEARITY

PROFILE_BYTES = 85_000_000
TIMES_FASTER, TIMES_SMALLER = 15, 3
BESIDE_PARSING = 4.0
LINK, CONVERT = "chakra_trace_link", "chakra_converter"
PARSE = "import sys, orjson\nfor path in sys.argv[1:]: orjson.loads(open(path, 'rb').read())"


def written(options: Options) -> Result:
    """Execution trace and profile of a rank to one .et, beside parsing them and beside upstream's two programs."""
    files = inputs.rank_pair(PROFILE_BYTES)
    paths = [str(path) for path in warmed(files)]
    with output_folder() as folder:
        jobs = [
            Command("tracelink merge --to chakra, 1 job", ours(paths, folder / "one" / "job", 1)),
            Command("orjson.loads", [sys.executable, "-c", PARSE, *paths]),
            Command("tracelink merge, --variant astra-sim", astra_sim(paths, folder / "astra" / "job")),
        ]
        result = Result(
            [
                row(job, costs, files)
                for job, costs in zip(jobs, commands.alternately(jobs, options.repeats), strict=True)
            ]
        )
        mine, parsing = (row.costs for row in result.rows[:2])
        result.bars = [Bar("CPU / orjson.loads", measure.best_ratio(mine, parsing, cpu), BESIDE_PARSING)]
        with failures_of("upstream", result):
            beside_upstream(files, folder, options, result)
        with failures_of("sizes", result):
            result.bars += by_size(folder, options, result)
    return result


def beside_upstream(files: tuple[Input, Input], folder: Path, options: Options, result: Result) -> None:
    """Upstream's programs once, in the same round as ours: they take minutes."""
    python = Path(first_that_imports("et_replay, chakra", options))
    host, device = (str(file.path) for file in files)
    linked, converted = str(folder / "linked.json"), str(folder / "upstream.0.et")
    program = python.with_name(LINK)
    traces = ["--chakra-host-trace", host, "--chakra-device-trace", device]
    link = Command(LINK, [str(program), "--rank", "0", *traces, "--output-file", linked])
    options_of_log = ["--log-filename", str(folder / "log")]
    convert = Command(
        CONVERT,
        [
            str(python.with_name(CONVERT)),
            *options_of_log,
            "PyTorch",
            "--input",
            linked,
            "--output",
            converted,
        ],
    )
    mine = Command("tracelink merge, same round", ours([host, device], folder / "again" / "job", 1))
    rows = [row(job, [commands.watched(job)], files) for job in (mine, link, convert)]
    result.rows += rows
    times = cpu(rows[0].costs[0]) / sum(cpu(other.costs[0]) for other in rows[1:])
    size = memory(rows[0].costs[0]) / max(memory(other.costs[0]) for other in rows[1:])
    result.bars += [
        Bar(f"{TIMES_FASTER} x CPU / link + convert", TIMES_FASTER * times, 1.0),
        Bar(f"{TIMES_SMALLER} x memory / link, convert", TIMES_SMALLER * size, 1.0),
    ]


def by_size(folder: Path, options: Options, result: Result) -> list[Bar]:
    """What a further megabyte costs."""
    rows = []
    for part in (8, 4, 1):
        files = inputs.rank_pair(PROFILE_BYTES // part)
        words = ours([str(path) for path in warmed(files)], folder / f"size{part}" / "job", 1)
        job = Command("tracelink merge --to chakra, 1 job", words)
        rows.append(row(job, commands.alternately([job], options.repeats)[0], files))
    result.rows += rows
    lower, upper = slope(rows[0], rows[1]), slope(rows[1], rows[2])
    return [Bar("CPU per further MB, long / short", upper / lower, LINEARITY)] if lower > 0 else []


def ours(paths: list[str], output: Path, jobs: int) -> list[str]:
    """As a user types it, but with this interpreter."""
    words = [sys.executable, "-m", "tracelink", "merge", *paths, "--to", "chakra", "-q"]
    return [*words, "-o", str(output), "-j", str(jobs)]


def astra_sim(paths: list[str], output: Path) -> list[str]:
    """The same in the variant for simulators."""
    return [*ours(paths, output, 1), "--variant", "astra-sim"]


def row(job: Command, costs: list[measure.Cost], files: tuple[Input, Input]) -> Row:
    """What a command took on a pair."""
    made_of = f"{files[0].copies} x {files[0].made_of}"
    return Row(job.label, costs, sum(file.megabytes for file in files), made_of=made_of)


SUITES: dict[str, Callable[[Options], Result]] = {"chakra": written}
