"""`tracelink inspect`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from tracelink import api
from tracelink.cli.documents import inspect_document
from tracelink.cli.found import complain_of_errors, exit_code
from tracelink.cli.listing import listing
from tracelink.cli.options import Inputs, command, takes_inputs, takes_jobs
from tracelink.cli.progress import watching
from tracelink.cli.voice import Voice
from tracelink.findings import in_order
from tracelink.inputs import engine_for
from tracelink.surveying import Survey

if TYPE_CHECKING:
    from tracelink.converters.chakra.census import Census

CHAKRA = "chakra"


@command(
    "tracelink inspect traces/",
    "tracelink inspect --fr dumps/",
    "tracelink inspect et/job.*.et",
    "tracelink inspect traces/ --json | jq '.sources[].rank'",
)
@takes_inputs
@takes_jobs
def inspect(voice: Voice, inputs: Inputs, jobs: int | None) -> None:
    """Say what each trace is and what is wrong with it.

    Of Chakra traces also: how many nodes of each sort there are, what is communicated in which group, how long the
    longest chain of nodes takes that wait for each other, and what keeps simulators from loading them.

    PATHS are files, directories, globs and archives; - is standard input.
    """
    with watching(voice, inputs.named) as watch:
        survey = api.survey(**inputs.keywords(), jobs=jobs, watch=watch)
    survey, censuses = _with_censuses(survey, jobs)
    if voice.json:
        voice.document(inspect_document(survey, censuses))
    elif voice.quiet:
        complain_of_errors(voice, survey.findings)
    else:
        voice.say(listing(survey, censuses, verbose=voice.verbose))
    click.get_current_context().exit(exit_code(survey.sources, survey.findings))


def _with_censuses(survey: Survey, jobs: int | None) -> tuple[Survey, Mapping[str, Census]]:
    """What is in the Chakra traces, by path; what is wrong with them joins what was found so far."""
    traces = survey.of_format(CHAKRA)
    if not traces:
        return survey, {}
    from tracelink.converters.chakra.inspection import inspect_traces

    inspection = inspect_traces(traces, engine_for(jobs, None))
    findings = in_order([*survey.findings, *inspection.findings])
    return replace(survey, findings=findings), inspection.censuses
