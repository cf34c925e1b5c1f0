"""`tracelink merge`."""

from __future__ import annotations

from contextlib import nullcontext

import click

from tracelink import api
from tracelink.cli.choosing import takes_clock, takes_selection
from tracelink.cli.failures import UNREADABLE
from tracelink.cli.foresight import foreseeing
from tracelink.cli.handing_over import BEST_SHOWN, check_openable, open_merged
from tracelink.cli.options import (
    Inputs,
    command,
    takes_bundle,
    takes_format,
    takes_inputs,
    takes_jobs,
    takes_writing,
)
from tracelink.cli.progress import watching
from tracelink.cli.summary import report_merge, stands_aside
from tracelink.cli.voice import Voice
from tracelink.handover import port
from tracelink.selection import Selection


@command(
    "tracelink merge traces/",
    "tracelink merge traces/ -o merged.json.gz",
    "tracelink merge traces/ --open",
    "tracelink merge traces/ --bundle -o job.tar",
    "tracelink merge --et et_0.json --kineto k_0.json --fr dumps/",
    "tracelink merge traces/ --to chakra -o et/job",
    "tracelink merge traces/ --to chakra --profile astra-sim",
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
    voice: Voice,
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
    aside = stands_aside(voice, output)
    if opening:
        check_openable(output, to)
        to = to or (None if output else BEST_SHOWN)
    with port.reserved() if opening else nullcontext() as door:
        with watching(voice, inputs.named) as watch:
            merged = api.merge(
                **inputs.keywords(),
                output=output,
                to=to,
                options=options,
                clock=clock,
                selection=selection,
                jobs=jobs,
                watch=watch,
                foresee=foreseeing(voice, watch, aside=aside),
            )
        code = report_merge(voice, merged, aside=aside)
        if door and code != UNREADABLE:
            code = open_merged(voice, merged, door) or code
    click.get_current_context().exit(code)
