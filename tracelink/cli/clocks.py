"""`tracelink clocks`."""

from __future__ import annotations

import click

from tracelink import api
from tracelink.cli.choosing import takes_clock
from tracelink.cli.clocks_page import clocks_page
from tracelink.cli.documents import clocks_document
from tracelink.cli.found import complain_of_errors, exit_code
from tracelink.cli.options import Inputs, command, takes_inputs, takes_jobs
from tracelink.cli.progress import watching
from tracelink.cli.voice import Voice


@command(
    "tracelink clocks traces/",
    "tracelink clocks traces/ --clock collectives",
    "tracelink clocks traces/ --json > clocks.json && tracelink merge traces/ --clock clocks.json",
)
@takes_inputs
@takes_clock
@takes_jobs
def clocks(voice: Voice, inputs: Inputs, clock: str, jobs: int | None) -> None:
    """Say how far the clocks of ranks are apart.

    PATHS are files, directories, globs and archives; - is standard input. Nobody leaves an all-reduce before
    the last has entered it, and no message arrives before it is sent: that bounds how far clocks can be apart.
    """
    with watching(voice, inputs.named) as watch:
        job = api.tables(**inputs.keywords(), clock=clock, jobs=jobs, watch=watch)
    if voice.json:
        voice.document(clocks_document(job))
    elif voice.quiet:
        complain_of_errors(voice, job.findings)
    else:
        voice.say(clocks_page(job, clock, verbose=voice.verbose))
    click.get_current_context().exit(exit_code(job.sources, job.findings))
