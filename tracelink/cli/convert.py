"""`tracelink convert`."""

from __future__ import annotations

import click

from tracelink import api
from tracelink.cli.options import command, takes_format, takes_jobs
from tracelink.cli.progress import watching
from tracelink.cli.summary import STDOUT, report_merge
from tracelink.cli.voice import Voice


@command(
    "tracelink convert k_0.json.gz k_0.json",
    "tracelink convert et_0.json.gz linked/ --to chakra-json",
    "zcat k_0.json.gz | tracelink convert - - | wc -c",
)
@click.argument("source", metavar="INPUT", type=click.Path())
@click.argument("output", metavar="OUTPUT", type=click.Path())
@takes_format
@takes_jobs
def convert(voice: Voice, source: str, output: str, to: str | None, jobs: int | None) -> None:
    """Write one trace in another format.

    INPUT can be - for standard input, OUTPUT can be - for standard output. The name of OUTPUT says the
    format, unless --to does.
    """
    aside = output == STDOUT
    if aside and voice.json:
        raise click.UsageError("--json and OUTPUT - both want standard output: give another OUTPUT.")
    with watching(voice, (source,)) as watch:
        merged = api.merge((source,), output=output, to=to, jobs=jobs, watch=watch)
    click.get_current_context().exit(report_merge(voice, merged, aside=aside))
