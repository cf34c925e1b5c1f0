"""`tracelink compile`: what torch.compile compiled, how often and why, what it cost, and what failed."""

from __future__ import annotations

import click

from tracelink._compile.reading import Read, read
from tracelink._compile.report import report_of
from tracelink._compile.summary import headlines
from tracelink._io.remote.addresses import shown
from tracelink._join.job_reader import Reading
from tracelink._model.errors import UsageError
from tracelink._model.text import counted, size
from tracelink.cli.answer import print_answer, takes_output
from tracelink.cli.console import Console
from tracelink.cli.main import FINE, NO
from tracelink.cli.options import WHOLE, Traces, command, reads


@command(
    "tracelink compile samples/compile_job",
    "tracelink compile samples/compile_job -v                      every compilation, with its stages",
    "tracelink compile samples/compile_job -q || alert-me          one line for each thing that went wrong",
    "tracelink compile samples/compile_job -o report.html          a page with graphs, guards and generated code",
    "tracelink diff before/ after/                                 what is new, gone, slower or faster in a later run",
    "tracelink compile samples/compile_job --json | jq '.compiles[] | select(.recompile_of != \"\")'",
)
@takes_output
@click.option(
    "--run",
    type=click.IntRange(min=1),
    help="If the logs are of several runs, read this one only: 1 is the first one.",
)
@click.option(
    "--artifacts",
    type=click.Path(file_okay=False),
    help="Also write all artifacts to a new folder, by rank and compile id.",
)
@reads(without=(*WHOLE, "metrics"))
def compile(  # noqa: A001  its name as a command
    console: Console,
    traces: Traces,
    output: str | None,
    run: int | None,
    artifacts: str | None,
) -> None:
    """Show what torch.compile compiled, why, at what cost, and what failed.

    PATHS are the logs that torch writes with TORCH_TRACE=DIR: files, directories, globs and archives; - is standard
    input. Files of other formats are left out.

    What the log ends in comes first, then what ranks compiled differently, failures, and functions by the time that
    their compilation took. The exit code is 1 if something failed, is open at the end of a log, or differs between
    ranks.

    To compare two runs: tracelink diff BEFORE AFTER
    """
    if artifacts == "-":
        raise UsageError("files cannot be written to standard output", advice="Name a folder.")
    with traces.watched(console) as reading:
        chosen = Reading.of(traces.paths, reading)
        logs = read(chosen.discovery, chosen.engine, run=run)
    report = logs.report
    if artifacts:
        _write_artifacts(console, logs, artifacts)
    if console.quiet and (lines := headlines(report)):
        console.result(*lines)
    page = report_of(report, logs) if output else None
    code = print_answer(console, report, output, read=list(logs.sources), report=page)
    click.get_current_context().exit(code if code != FINE else FINE if report.is_clean else NO)


def _write_artifacts(console: Console, logs: Read, folder: str) -> None:
    from tracelink._compile.payloads import write_artifacts

    count, written = write_artifacts(logs, folder)
    console.info(f"Wrote {shown(folder)}: {counted(count, 'artifact')}, {size(written)}.", to_stderr=True)
