"""`tracelink diagnose`."""

from __future__ import annotations

import click

from tracelink import api
from tracelink.cli.diagnosis_document import diagnosis_document
from tracelink.cli.diagnosis_page import diagnosis_page
from tracelink.cli.failures import FINE, NO
from tracelink.cli.options import Inputs, command, takes_inputs, takes_jobs
from tracelink.cli.progress import watching
from tracelink.cli.voice import Voice


@command(
    "tracelink diagnose dumps/",
    "tracelink diagnose dumps/ --json | jq '.problems[0].message'",
)
@takes_inputs
@takes_jobs
def diagnose(voice: Voice, inputs: Inputs, jobs: int | None) -> None:
    """Say which rank, which collective and why a job hangs.

    PATHS are flight-recorder dumps, directories, globs and archives of them; - is standard input. The exit
    code is 0 if nothing is wrong, 1 if something is, and 3 if nothing can be read.
    """
    with watching(voice, inputs.named) as watch:
        examined = api.examine(**inputs.keywords(), jobs=jobs, watch=watch)
    diagnosis = examined.diagnosis
    if voice.json:
        voice.document(diagnosis_document(diagnosis))
    else:
        voice.say(diagnosis_page(diagnosis, verbose=voice.verbose))
    click.get_current_context().exit(NO if diagnosis.problems else FINE)
