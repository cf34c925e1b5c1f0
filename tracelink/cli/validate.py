"""`tracelink validate`."""

from __future__ import annotations

import click

from tracelink.cli.failures import FINE, NO
from tracelink.cli.options import command, takes_jobs
from tracelink.cli.progress import watching
from tracelink.cli.validate_document import validate_document
from tracelink.cli.validate_page import EXAMPLES, validate_page, verdict
from tracelink.cli.voice import Voice
from tracelink.converters.chakra.schema import Profile
from tracelink.converters.chakra.validation import validate as validated
from tracelink.converters.chakra.validation.validating import SHOWN


@command(
    "tracelink validate et/",
    "tracelink validate et/ -v                     every violation, and every warning",
    "tracelink validate et/ -q || alert-me         one line, and only if something is wrong",
    "tracelink validate 'et/job.*.et' --groups groups.json",
    "tracelink validate et/ --profile full         collectives that ASTRA-sim cannot run are warnings",
    "tracelink validate et/ --json | jq '.violations[] | {rule, rank, node}'",
)
@click.option(
    "-g",
    "--groups",
    type=click.Path(),
    metavar="FILE",
    help="The communicator groups. Default: PREFIX.groups.json or comm_group.json beside the traces, "
    "else what the traces say.",
)
@click.option(
    "-p",
    "--profile",
    type=click.Choice([profile.value for profile in Profile]),
    help="What the traces are checked as. Default: what they say, else astra-sim.",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"List at most N violations of each rule, 0 for all. Default: {EXAMPLES}; as JSON {SHOWN} for each rank.",
)
@takes_jobs
@click.argument("paths", nargs=-1, type=click.Path(), required=True)
def validate(
    voice: Voice,
    paths: tuple[str, ...],
    groups: str | None,
    profile: str | None,
    limit: int | None,
    jobs: int | None,
) -> None:
    """Say whether simulators can load Chakra traces, and whether all ranks fit together.

    PATHS are .et files, directories, globs and archives of them; - is standard input. The rank is the number in
    PREFIX.RANK.et, else what the metadata say. Every rule is explained in docs/validate.md.

    The verdict comes first, under it each rule that is broken, where, and what to do. Warnings do not make a trace
    invalid. The exit code is 0 if it is valid, 1 if not, 2 if the arguments make no sense, and 3 if there is
    nothing to read.
    """
    everything = limit == 0 or (limit is None and voice.verbose)
    with watching(voice, paths) as watch:
        validation = validated(
            paths,
            groups=groups,
            profile=profile,
            limit=None if everything else limit or SHOWN,
            jobs=jobs,
            watch=watch,
        )
    if voice.json:
        voice.document(validate_document(validation))
    elif not voice.quiet:
        voice.say(validate_page(validation, None if everything else limit or EXAMPLES, verbose=voice.verbose))
    elif not validation.valid:
        voice.conclude(verdict(validation))
    click.get_current_context().exit(FINE if validation.valid else NO)
