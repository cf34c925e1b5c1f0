"""`tracelink merge`, and `tracelink demo`, which merges a sample."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem
from msgspec import Struct
from msgspec.structs import replace

import tracelink._api.functions as api
import tracelink.plugins as plugins
from tracelink._io.targets import STDOUT
from tracelink._model.findings import Finding, Severity
from tracelink._model.text import about, counted, size
from tracelink._run import Watch
from tracelink._run.reading import WORK
from tracelink.cli.answer import print_errors, show
from tracelink.cli.console import Bar, Console, is_terminal, watching
from tracelink.cli.main import FINE, NO, Terminated
from tracelink.cli.options import (
    Traces,
    Words,
    command,
    option,
    reads,
)

if TYPE_CHECKING:
    from tracelink._api.outputs import Merged
    from tracelink._join.forecast import OutputForecast
    from tracelink._show.document import Report
    from tracelink.plugins.outputs import Output


BUNDLE = "perfetto-bundle"
TIMELINES, CHAKRA = "Timelines (perfetto, perfetto-json)", "Chakra traces (chakra)"
DRAWINGS = "Drawings of Chakra traces (svg, dot, graphml)"


def _complete_format(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    known = [*plugins.writers(), *plugins.conversions()]
    return [CompletionItem(name) for name in dict.fromkeys(known) if name.startswith(incomplete)]


@command(
    "tracelink merge samples/gpu_pair",
    "tracelink merge samples/gpu_pair -o merged.json.gz",
    "tracelink merge samples/gpu_pair --open",
    "tracelink merge samples/cpu_job -o job.pftrace --ranks 0-1 --steps 1-2 --only operators,collectives",
    "tracelink merge samples/cpu_job --window 10ms..50ms --clock collectives",
    "tracelink merge samples/gpu_pair samples/gpu_metrics --tz UTC -o metrics.pftrace",
    "tracelink merge samples/gpu_pair -o job.pftrace --resume",
    "tracelink merge samples/gpu_pair -o job.pftrace --engine dask",
    "tracelink merge samples/gpu_pair --bundle -o job.tar",
    "tracelink merge samples/gpu_pair --to chakra -o et/job",
    "tracelink merge samples/gpu_pair --to chakra --variant astra-sim -o et/job",
    "tracelink merge et/job.0.et -o job.0.svg --depth 4 --window 2ms..5ms",
    "tracelink merge et/ -o job.dot --ranks 0-1 --limit 500",
    "tracelink merge et/job.0.et -o job.0.nodes.json",
    "tracelink merge --kineto samples/gpu_pair/kineto_0.json.gz --fr samples/gpu_pair/dumps",
    "tracelink merge samples/gpu_pair/kineto_1.json.gz --rank kineto_1.json.gz=1 -o - | gzip > rank_1.json.gz",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FILE|DIR|-",
    help="Output file or directory; - is standard output. Default: merged, with the suffix of the format.",
)
@click.option(
    "-t",
    "--to",
    metavar="FORMAT",
    shell_complete=_complete_format,
    help="Output format; see `tracelink formats`. Default: from the name of the output, else perfetto-json.",
)
@click.option(
    "--open",
    "opening",
    is_flag=True,
    help="Open the output in Perfetto's UI, as `tracelink open` does. Then --to defaults to perfetto.",
)
@option(
    "--args",
    type=Words(["all", "link", "none"]),
    help="Write all arguments of events (default), only those that linking adds, or none (default of "
    "duckdb and parquet).",
    heading=TIMELINES,
)
@option(
    "--python/--no-python",
    default=None,
    help="Write calls of Python functions (default), or leave them out.",
    heading=TIMELINES,
)
@option(
    "--compress",
    is_flag=True,
    default=None,
    help="Write a smaller file: gzip for JSON, stronger deflate for native traces.",
    heading=TIMELINES,
)
@option(
    "--critical-path",
    is_flag=True,
    default=None,
    help="Draw the critical path: a track of each rank, and arrows between ranks.",
    heading=TIMELINES,
)
@option(
    "--variant",
    type=Words(["full", "astra-sim"]),
    help="Write everything (default), or only device work and communication, as ASTRA-sim runs them.",
    heading=CHAKRA,
)
@option(
    "--deps",
    type=Words(["both", "time", "data"]),
    help="Let nodes depend on what ran before them (time), on what produced their tensors (data), or "
    "both (default).",
    heading=CHAKRA,
)
@option(
    "--gaps",
    is_flag=True,
    default=None,
    help="Write pauses between operators as idle nodes.",
    heading=CHAKRA,
)
@option(
    "--bundle",
    is_flag=True,
    help="Write the profiles unchanged into one TAR, with the clock offsets of all ranks; Perfetto (v58 and later) "
    f"merges them. Short for --to {BUNDLE}.",
    heading=TIMELINES,
)
@option(
    "--depth",
    type=int,
    metavar="N",
    help="Draw N levels of nesting; deeper nodes become part of the box around them.",
    heading=DRAWINGS,
)
@option(
    "-n",
    "--limit",
    type=int,
    metavar="N",
    help="Draw at most N nodes. Default: 2000; no limit for .graphml.",
    heading=DRAWINGS,
)
@reads()
@option(
    "--resume",
    is_flag=True,
    help="Keep finished ranks in OUTPUT.resume until the output is complete; after an interruption, the same command "
    "goes on with them.",
    heading=WORK,
)
def merge(
    console: Console,
    traces: Traces,
    output: str | None,
    to: str | None,
    bundle: bool,
    depth: int | None,
    limit: int | None,
    resume: bool,
    opening: bool,
    **writing: str | bool | None,
) -> None:
    """Merge the traces of all ranks into one, or write a trace in another form.

    PATHS are files, directories, globs and archives, here or in stores such as s3://; - is standard input. Formats and
    ranks are detected from the contents.

    The name of the output says its form: .json or .pftrace (timelines), .duckdb or .parquet (tables), .et (Chakra);
    .svg, .dot or .graphml (drawings of Chakra traces, in which --window counts from the first node); .nodes.json (one
    Chakra trace as JSON; .et is the way back).

    Before a large timeline is written, its estimated size is printed, with advice if a browser cannot load it.
    """
    to_stderr = _writes_to_stdout(console, output)
    if bundle and to not in (None, BUNDLE):
        raise click.UsageError(f"--bundle writes {BUNDLE}, but --to is {to}: use only one of them.")
    to = BUNDLE if bundle else to
    with ExitStack() as stack:
        if opening:
            from tracelink._open.server import reserved_port
            from tracelink.cli.open import BEST_SHOWN, check_openable, open_merged

            check_openable(output, to)
            to = to or (None if output else BEST_SHOWN)
            listener = stack.enter_context(reserved_port())
        with _resumption_explained(console, resume), traces.watched(console) as reading:
            announcement = _Announcement(console, reading.get("watch"), to_stderr)
            merged = api.merge(
                traces.paths,
                **reading,
                output=output,
                to=to,
                options=_options_of_writer(writing),
                depth=depth,
                limit=limit,
                on_forecast=None if console.silent else announcement,
                resume=resume,
            )
        code = _print_merged(
            console, merged, to_stderr=to_stderr, opening=opening, announced=announcement.findings
        )
        if opening:
            code = open_merged(console, merged, listener) or code
    click.get_current_context().exit(code)


def _options_of_writer(given: Mapping[str, str | bool | None]) -> dict[str, str]:
    """The options that are given, as words."""
    words = {
        name: ("yes" if value else "no") if isinstance(value, bool) else value
        for name, value in given.items()
    }
    return {name: word for name, word in words.items() if word is not None}


@contextmanager
def _resumption_explained(console: Console, resume: bool) -> Iterator[None]:
    """Prints after an interruption that the same command goes on."""
    try:
        yield
    except (KeyboardInterrupt, Terminated):
        if resume:
            console.error("finished ranks are kept: run the same command to go on.")
        raise


# What is printed: the estimated size, what was linked, and the files.


SHOWN = "perfetto"
"""Prefix of the formats that Perfetto's UI opens."""

FILES = 4
"""More outputs than this share one line."""


def _writes_to_stdout(console: Console, output: str | None) -> bool:
    """True if the trace goes to standard output, so that every message must go to standard error."""
    if output != STDOUT:
        return False
    if console.json:
        raise click.UsageError("--json and an output of - both use standard output: name an output file.")
    if is_terminal():
        raise click.UsageError(
            "an output of - would print the trace to the terminal: pipe it into a command, or name an output file."
        )
    return True


class _Announcement(Struct):
    """Prints the estimated size of an output before it is written, and remembers what it printed."""

    console: Console
    watch: Watch | None
    to_stderr: bool = False
    findings: Sequence[Finding] = ()

    def __call__(self, output: OutputForecast) -> None:
        """Prints the estimate."""
        if isinstance(self.watch, Bar):
            self.watch.now_writing()
        from tracelink._show.document import Paragraph, Report

        self.findings = output.findings
        report = Report("merge", summary=[Paragraph(_estimate(output))], findings=output.findings)
        show(self.console, report, to_stderr=self.to_stderr)


def _estimate(output: OutputForecast) -> str:
    forecast = output.forecast
    unpacked = f" ({about(forecast.unpacked)} uncompressed)" if forecast.unpacked != forecast.bytes else ""
    return f"Writing {_output_name(output.path)}: about {about(forecast.bytes)}{unpacked}"


def _print_merged(
    console: Console,
    merged: Merged,
    *,
    to_stderr: bool = False,
    opening: bool = False,
    announced: Sequence[Finding] = (),
) -> int:
    """Prints what was merged, without the findings that were announced; returns the exit code.

    If the output is opened, the command for that is left out.
    """
    if console.json:
        console.document(merged)
    elif console.quiet:
        print_errors(console, merged.findings)
    else:
        report = merged.report()
        findings = [finding for finding in report.findings if finding not in announced]
        show(console, replace(report, findings=findings), to_stderr=to_stderr)
        show(console, _files(merged.outputs), to_stderr=to_stderr)
        if lines := [] if opening else _how_to_open(merged.outputs):
            console.info(*lines, to_stderr=to_stderr)
    return NO if any(finding.severity is Severity.ERROR for finding in merged.findings) else FINE


def _how_to_open(outputs: Sequence[Output]) -> list[str]:
    """The line with the command that opens the only output, if the UI shows it."""
    shown = [output.path for output in outputs if output.format.startswith(SHOWN)]
    if len(outputs) != 1 or not shown or shown[0] == STDOUT:
        return []
    return [f"Open it: {own_command('open', shown[0])}"]


def own_command(*words: str) -> str:
    """A command line that runs tracelink as it was run now: by its path if the shell would not find it."""
    program, name = sys.argv[0], "tracelink"
    if os.path.basename(program) == name and os.path.exists(program) and shutil.which(name) is None:
        inside = os.path.relpath(program)
        name = os.path.abspath(program) if inside.startswith(os.pardir) else inside
    return shlex.join([name, *words])


def _files(outputs: Sequence[Output]) -> Report:
    """A line for each file that was written; one line for many."""
    from tracelink._show.document import Paragraph, Report, Tone

    if len(outputs) > FILES:
        from tracelink._io.targets import common_folder

        folder = common_folder([output.path for output in outputs])
        lines = [(f"{counted(len(outputs), 'file')} to {folder}", outputs, folder)]
    else:
        lines = [(_output_name(output.path), [output], output.path) for output in outputs]
    texts = [Paragraph(f"Wrote {what} ({_extent(some)}).", Tone.STRONG, path) for what, some, path in lines]
    return Report("merge", summary=texts)


def _output_name(path: str) -> str:
    """The path of an output, or `standard output`."""
    return "standard output" if path == STDOUT else path


def _extent(outputs: Sequence[Output]) -> str:
    events = sum(output.events for output in outputs)
    bytes_written = size(sum(output.bytes for output in outputs))
    return f"{bytes_written}, {counted(events, 'event')}" if events else bytes_written


# `tracelink demo`.


SAMPLE, HUNG_SAMPLE = "gpu_pair", "hung_job"
INTRODUCTION = (
    "Merging a sample: two ranks of a training job with a GPU each; every rank has a profile, an execution trace and a "
    "flight-recorder dump."
)
LOOK_AT = """
What to look at in the timeline:
- The tracks `group default_pg` and `group tensor_parallel`: each collective from the first rank that enters to the last
  that leaves, with the rank that arrived last.
- `stream 20 · communication` of both ranks: the same collective on both, on one clock. Select a kernel: arrows lead to
  the call that launched it, and from the rank for which the other waited.
- `stream 7 · compute`, and `outstanding kernels` below it: how far the CPU is ahead of the GPU.
"""


@command("tracelink demo", "tracelink demo -o /tmp/demo.json.gz")
@click.option(
    "-o",
    "--output",
    default="tracelink-demo.json",
    show_default=True,
    type=click.Path(),
    metavar="FILE",
    help="Output file.",
)
def demo(console: Console, output: str) -> None:
    """Merge a sample that comes with tracelink."""
    import tracelink.samples as samples

    folder = str(samples.path(SAMPLE))
    console.info(INTRODUCTION, "", f"  {own_command('merge', folder, '-o', output)}", "")
    with watching(console, (folder,)) as watch:
        merged = api.merge(folder, output=output, watch=watch)
    code = _print_merged(console, merged, opening=True)
    hung = own_command("diagnose", str(samples.path(HUNG_SAMPLE) / "dumps"))
    console.info(*LOOK_AT.splitlines())
    console.info("", "To find out why a job hangs, run this on its flight-recorder dumps:", "", f"  {hung}")
    console.info("", "Open the timeline in your browser:", "", f"  {own_command('open', output)}")
    click.get_current_context().exit(code)
