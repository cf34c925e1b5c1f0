"""`tracelink convert`."""

from __future__ import annotations

import click

from tracelink import api
from tracelink.cli.conversion_page import report_conversion
from tracelink.cli.foresight import foreseeing
from tracelink.cli.options import command, takes_format, takes_jobs
from tracelink.cli.progress import watching
from tracelink.cli.summary import report_merge, stands_aside
from tracelink.cli.viewing import takes_view
from tracelink.cli.voice import Voice
from tracelink.converting import Converted
from tracelink.view import View


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
    voice: Voice, source: str, output: str, to: str | None, view: View | None, jobs: int | None
) -> None:
    """Write one trace in another format.

    INPUT can be - for standard input, OUTPUT can be - for standard output. The name of OUTPUT says the
    format, unless --to does. Between some formats, see `tracelink formats`, a file is rewritten with
    everything that is in it; between all others as the graph that merge makes of it.

    A Chakra trace, or a directory of those of several ranks, is drawn where OUTPUT is .svg, .dot or .graphml.
    """
    aside = stands_aside(voice, output)
    with watching(voice, (source,)) as watch:
        result = api.convert(
            source,
            output=output,
            to=to,
            view=view,
            jobs=jobs,
            watch=watch,
            foresee=foreseeing(voice, watch, aside=aside),
        )
    if isinstance(result, Converted):
        code = report_conversion(voice, result, aside=aside)
    else:
        code = report_merge(voice, result, aside=aside)
    click.get_current_context().exit(code)
