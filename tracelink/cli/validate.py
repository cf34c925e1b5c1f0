"""`tracelink validate`: the verdict on Chakra traces, and each violated rule with examples and advice."""

from __future__ import annotations

import click

from tracelink.cli.answer import print_answer, takes_output
from tracelink.cli.console import Console
from tracelink.cli.main import FINE, NO
from tracelink.cli.options import WHOLE, Traces, Words, command, reads
from tracelink.converters.chakra.schema import Variant
from tracelink.converters.chakra.validation import validate as validated
from tracelink.converters.chakra.validation.validate import EXAMPLES, SHOWN, report_of


@command(
    "tracelink merge samples/gpu_pair --to chakra -o et/job     and then:",
    "tracelink validate et/",
    "tracelink validate et/ -v                     all violations and warnings",
    "tracelink validate et/ -q || alert-me         one line if the traces are invalid",
    "tracelink validate 'et/job.*.et' --groups et/job.groups.json",
    "tracelink validate et/ --variant full         collectives that ASTRA-sim cannot run are only warnings",
    "tracelink validate et/ -o violations.html",
    "tracelink validate et/ --json | jq '.violations[] | {rule, rank, node}'",
)
@click.option(
    "--groups",
    type=click.Path(),
    metavar="FILE",
    help="Communicator groups. Default: PREFIX.groups.json or comm_group.json next to the traces, else the groups in "
    "the traces.",
)
@click.option(
    "--variant",
    type=Words([variant.value for variant in Variant]),
    help="Check the traces as this variant. Default: the variant in the traces, else astra-sim.",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Show at most N violations of each rule; 0 shows all. Default: {EXAMPLES}; in JSON {SHOWN} for each rank.",
)
@takes_output
@reads(without=(*WHOLE, "et", "kineto", "fr", "include", "metrics"))
def validate(
    console: Console,
    traces: Traces,
    groups: str | None,
    variant: str | None,
    limit: int | None,
    output: str | None,
) -> None:
    """Check that simulators can load Chakra traces.

    Checks each file by itself, and that all ranks agree on communication. docs/validate.md explains every rule.

    PATHS are .et files, directories, globs and archives of them; - is standard input. The rank is the number in
    PREFIX.RANK.et, else the rank in the metadata.

    The verdict comes first, then each violated rule with ranks, examples and advice. Warnings do not make traces
    invalid. The exit code is 0 if the traces are valid, 1 if not, 2 for wrong arguments, and 3 if nothing could be
    read.
    """
    everything = limit == 0 or (limit is None and console.verbose)
    with traces.watched(console) as reading:
        validation = validated(
            traces.paths,
            **reading,
            groups=groups,
            variant=variant,
            limit=None if everything else limit or SHOWN,
        )
    examples = None if everything else limit or EXAMPLES
    report = report_of(validation, examples=examples, verbose=console.verbose or output is not None)
    if console.quiet and not (validation.valid or console.json):
        console.result(report.headline)
    print_answer(console, validation, output, read=traces.named, report=report)
    click.get_current_context().exit(FINE if validation.valid else NO)
