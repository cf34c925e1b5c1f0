"""What `tracelink inspect` of one long file takes, whole command: a profile, its timeline, and its Chakra trace."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import commands
import inputs
from commands import Command
from results import Bar, Options, Result, Row, cpu, output_folder, warmed

TIMELINE_MEGABYTES, TIMELINE_SECONDS = 17, 1.0
CHAKRA_MEGABYTES, CHAKRA_SECONDS = 93, 3.0
PARSE = "import sys, orjson\norjson.loads(open(sys.argv[1], 'rb').read())"


def inspecting(options: Options) -> Result:
    """Inspect a profile with Python stacks, the native timeline of it, and the Chakra trace of it; one process."""
    profile = inputs.with_stacks(options.size)
    (path,) = warmed([profile])
    with output_folder() as folder:
        timeline, chakra = folder / "timeline.pftrace", folder / "job.0.et"
        for written in (timeline, chakra):
            commands.run(Command(f"write {written.name}", [*OURS, "merge", str(path), "-o", str(written)]))
        files = [timeline, chakra, path]
        jobs = [
            Command(f"tracelink inspect {name}", inspect(file))
            for name, file in zip(NAMES, files, strict=True)
        ]
        jobs.append(Command("orjson.loads profile", [sys.executable, "-c", PARSE, str(path)], answer=""))
        costs = commands.alternately(jobs, options.repeats)
        sizes = [file.stat().st_size / 1e6 for file in (*files, path)]
    rows = [Row(job.label, runs, size) for job, runs, size in zip(jobs, costs, sizes, strict=True)]
    return Result(
        rows,
        [
            bar(rows[0], TIMELINE_MEGABYTES, TIMELINE_SECONDS),
            bar(rows[1], CHAKRA_MEGABYTES, CHAKRA_SECONDS),
        ],
    )


OURS = (sys.executable, "-m", "tracelink")
NAMES = ("timeline", "Chakra trace", "profile")


def inspect(file: Path) -> list[str]:
    """The command, as a user types it, but with this interpreter."""
    return [*OURS, "inspect", str(file), "--jobs", "1"]


def bar(row: Row, megabytes: int, seconds: float) -> Bar:
    """The processor time for a file of this size."""
    return Bar(f"{row.job}, CPU s for {megabytes} MB", row.best(cpu) * megabytes / row.megabytes, seconds)


SUITES: dict[str, Callable[[Options], Result]] = {"inspect": inspecting}
