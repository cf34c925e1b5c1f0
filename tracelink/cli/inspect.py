"""`tracelink inspect`."""

from __future__ import annotations

import click

from tracelink import api
from tracelink.cli.documents import inspect_document
from tracelink.cli.found import complain_of_errors, exit_code
from tracelink.cli.listing import listing
from tracelink.cli.options import Inputs, command, takes_inputs, takes_jobs
from tracelink.cli.progress import watching
from tracelink.cli.voice import Voice


@command(
    "tracelink inspect traces/",
    "tracelink inspect --fr dumps/",
    "tracelink inspect traces/ --json | jq '.sources[].rank'",
)
@takes_inputs
@takes_jobs
def inspect(voice: Voice, inputs: Inputs, jobs: int | None) -> None:
    """Say what each trace is and what is wrong with it.

    PATHS are files, directories, globs and archives; - is standard input.
    """
    with watching(voice, inputs.named) as watch:
        survey = api.survey(**inputs.keywords(), jobs=jobs, watch=watch)
    if voice.json:
        voice.document(inspect_document(survey))
    elif voice.quiet:
        complain_of_errors(voice, survey.findings)
    else:
        voice.say(listing(survey, verbose=voice.verbose))
    click.get_current_context().exit(exit_code(survey.sources, survey.findings))
