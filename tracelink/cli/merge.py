"""Merge, convert, demo."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import nullcontext
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

import click

from tracelink import api, samples
from tracelink.api import Converted
from tracelink.cli.console import Console
from tracelink.cli.documents import findings_document
from tracelink.cli.main import FINE, NO, UNREADABLE
from tracelink.cli.open import BEST_SHOWN, check_openable, open_merged
from tracelink.cli.options import (
    Inputs,
    command,
    takes_bundle,
    takes_clock,
    takes_format,
    takes_inputs,
    takes_jobs,
    takes_selection,
    takes_writing,
)
from tracelink.cli.summary import named, output_document, report_merge, show_outputs, stands_aside
from tracelink.cli.terminal import Bar, Page, complain_of_errors, show_findings, watching
from tracelink.errors import Severity
from tracelink.open import server as port
from tracelink.pipeline.selection import Selection, View
from tracelink.text import about

if TYPE_CHECKING:
    from tracelink.open.forecast import Foresee, Prospect


# What is said of an output before it is written.


def foreseeing(console: Console, bar: Bar | None, *, aside: bool) -> Foresee | None:
    """Something to be told what will be written; nothing where nobody would read it."""
    if console.silent:
        return None

    def say(prospect: Prospect) -> None:
        if bar:
            bar.now_writing()
        page = Page(aside=aside)
        page.line(_written(prospect))
        show_findings(page, prospect.findings, verbose=console.verbose)
        console.info(page.text, aside=aside)

    return say


def _written(prospect: Prospect) -> str:
    forecast = prospect.forecast
    unpacked = f", {about(forecast.unpacked)} unpacked" if forecast.unpacked != forecast.bytes else ""
    return f"writing {named(prospect.path)}: about {about(forecast.bytes)}{unpacked}"


# `tracelink merge`.


@command(
    "tracelink merge traces/",
    "tracelink merge traces/ -o merged.json.gz",
    "tracelink merge traces/ --open",
    "tracelink merge traces/ --bundle -o job.tar",
    "tracelink merge --et et_0.json --kineto k_0.json --fr dumps/",
    "tracelink merge traces/ --to chakra -o et/job",
    "tracelink merge traces/ --to chakra --variant astra-sim",
    "tracelink merge traces/ --ranks 0-7,64 --steps 3-5 --only collectives,kernels",
    "tracelink merge traces/ --window 2.5s..3.1s --clock collectives",
    "tracelink merge odd.json --rank odd.json=3 -o - | gzip > merged.json.gz",
)
@takes_inputs
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FILE|DIR|-",
    help="Where to write; - is standard output. Default: merged, with the suffix of the format.",
)
@takes_format
@takes_bundle
@takes_writing
@takes_selection
@takes_clock
@takes_jobs
@click.option(
    "--open",
    "opening",
    is_flag=True,
    help="Show what was written in Perfetto's UI, as `tracelink open` does. Default of --to then: perfetto.",
)
def merge(
    console: Console,
    inputs: Inputs,
    output: str | None,
    to: str | None,
    options: dict[str, str],
    selection: Selection | None,
    clock: str,
    jobs: int | None,
    opening: bool,
) -> None:
    """Link traces of all ranks and write them as one.

    PATHS are files, directories, globs and archives; - is standard input. Formats and ranks are found by
    looking inside.

    How large the timeline of a large job will be is said before it is written, and what to change where a
    browser has no room for it.
    """
    aside = stands_aside(console, output)
    if opening:
        check_openable(output, to)
        to = to or (None if output else BEST_SHOWN)
    with port.reserved() if opening else nullcontext() as door:
        with watching(console, inputs.named) as watch:
            merged = api.merge(
                **inputs.keywords(),
                output=output,
                to=to,
                options=options,
                clock=clock,
                selection=selection,
                jobs=jobs,
                watch=watch,
                foresee=foreseeing(console, watch, aside=aside),
            )
        code = report_merge(console, merged, aside=aside)
        if door and code != UNREADABLE:
            code = open_merged(console, merged, door) or code
    click.get_current_context().exit(code)


# What `convert` says of a file that was rewritten as it is.


def report_conversion(console: Console, converted: Converted, *, aside: bool) -> int:
    """Says what was written, as the user wants to hear it; returns the exit code."""
    if console.json:
        outputs = [output_document(output) for output in converted.outputs]
        console.document({"outputs": outputs, "ranks": [], "findings": findings_document(converted.findings)})
    elif console.quiet:
        complain_of_errors(console, converted.findings)
    else:
        page = Page(aside=aside)
        show_findings(page, converted.findings, verbose=console.verbose)
        show_outputs(page, converted.outputs)
        console.info(page.text, aside=aside)
    wrong = any(finding.severity is Severity.ERROR for finding in converted.findings)
    return NO if wrong else FINE


# Options of what a drawing shows.


VIEWING = (
    click.option(
        "--depth",
        type=int,
        metavar="N",
        help="Draw N levels of what encloses what; what lies deeper is part of the box around it.",
    ),
    click.option(
        "--window",
        metavar="FROM..TO",
        help="Draw only what overlaps this time after the first node, such as 2.5s..3.1s, 800us.. or ..2ms.",
    ),
    click.option(
        "--ranks",
        "only_ranks",
        metavar="N-M,...",
        help="Draw only these ranks of a directory, such as 0-7,64.",
    ),
    click.option(
        "--limit",
        type=int,
        metavar="N",
        help="Draw at most N nodes. Default: 2000, and all in .graphml.",
    ),
)


def takes_view(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of drawings; the function gets them as `view`, None where none is given."""

    def gathering(
        *args: Any,
        depth: int | None,
        window: str | None,
        only_ranks: str | None,
        limit: int | None,
        **kwargs: Any,
    ) -> None:
        view = View.parse(depth=depth, window=window, ranks=only_ranks, limit=limit)
        function(*args, view=None if view == View() else view, **kwargs)

    taking: Callable[..., None] = update_wrapper(gathering, function)
    for option in reversed(VIEWING):
        taking = option(taking)
    return taking


# `tracelink convert`.


@command(
    "tracelink convert k_0.json.gz k_0.json",
    "tracelink convert et_0.json.gz linked/ --to chakra-json",
    "tracelink convert job.pftrace job.json",
    "tracelink convert job.0.et job.0.svg --depth 4 --window 2ms..5ms",
    "tracelink convert et/ job.dot --ranks 0-1 --limit 500",
    "zcat k_0.json.gz | tracelink convert - - | wc -c",
)
@click.argument("source", metavar="INPUT", type=click.Path())
@click.argument("output", metavar="OUTPUT", type=click.Path())
@takes_format
@takes_view
@takes_jobs
def convert(
    console: Console, source: str, output: str, to: str | None, view: View | None, jobs: int | None
) -> None:
    """Write one trace in another format.

    INPUT can be - for standard input, OUTPUT can be - for standard output. The name of OUTPUT says the
    format, unless --to does. Between some formats, see `tracelink formats`, a file is rewritten with
    everything that is in it; between all others as the graph that merge makes of it.

    A Chakra trace, or a directory of those of several ranks, is drawn where OUTPUT is .svg, .dot or .graphml.
    """
    aside = stands_aside(console, output)
    with watching(console, (source,)) as watch:
        result = api.convert(
            source,
            output=output,
            to=to,
            view=view,
            jobs=jobs,
            watch=watch,
            foresee=foreseeing(console, watch, aside=aside),
        )
    if isinstance(result, Converted):
        code = report_conversion(console, result, aside=aside)
    else:
        code = report_merge(console, result, aside=aside)
    click.get_current_context().exit(code)


# `tracelink demo`.


SAMPLE, HUNG_SAMPLE = "cpu_job", "hung_job"
INTRODUCTION = (
    "Merging the sample: two ranks that trained on CPUs, each with a profile, an execution trace and a \
flight-recorder dump."
)


@command("tracelink demo", "tracelink demo -o /tmp/demo.json.gz")
@click.option(
    "-o",
    "--output",
    default="tracelink-demo.json",
    show_default=True,
    type=click.Path(),
    metavar="FILE",
    help="Where to write the merged trace.",
)
def demo(console: Console, output: str) -> None:
    """Merge the traces that come with tracelink."""
    folder = str(samples.path(SAMPLE))
    console.info(f"{INTRODUCTION}\n\n  {shlex.join(['tracelink', 'merge', folder, '-o', output])}\n")
    with watching(console, (folder,)) as watch:
        merged = api.merge(folder, output=output, watch=watch)
    code = report_merge(console, merged)
    console.info(f"\nOpen it in https://ui.perfetto.dev: Open trace file, then {output}")
    hung = shlex.join(["tracelink", "diagnose", str(samples.path(HUNG_SAMPLE) / "dumps")])
    console.info(f"\nA job that hangs is told apart by its flight-recorder dumps:\n\n  {hung}")
    click.get_current_context().exit(code)
