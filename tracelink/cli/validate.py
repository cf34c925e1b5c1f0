"""`tracelink validate`: the verdict on Chakra traces, and each violated rule with examples and advice."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tracelink.cli.console import Console
from tracelink.cli.main import FINE, NO
from tracelink.cli.options import Words, command, takes_engine
from tracelink.cli.terminal import Page, more, watching
from tracelink.converters.chakra.schema import Variant
from tracelink.converters.chakra.validation import RULES, Rule, Validation, Violation
from tracelink.converters.chakra.validation import validate as validated
from tracelink.converters.chakra.validation.validate import SHOWN
from tracelink.io.engine import Engine
from tracelink.model.ranges import Numbers
from tracelink.model.text import counted, number

EXAMPLES = 5
"""Violations of each rule that are shown without -v; the rest are counted."""


def verdict(validation: Validation) -> str:
    """The verdict in one line."""
    seen = f"{counted(len(validation.files), 'file')}, {counted(validation.nodes, 'node')}"
    if validation.valid:
        return f"valid: {seen}"
    return f"invalid: {counted(sum(validation.counts.values()), 'violation')} ({seen})"


def validate_page(validation: Validation, examples: int | None, *, verbose: bool) -> str:
    """The verdict, the violations by rule with examples and advice, and a line for each warning."""
    page = Page()
    page.line(verdict(validation), "bold green" if validation.valid else "bold red")
    for rule, count in validation.counts.items():
        page.gap()
        _rule(
            page,
            rule,
            count,
            [violation for violation in validation.violations if violation.rule is rule],
            examples,
        )
    if validation.warning_counts:
        page.gap()
    for rule, count in validation.warning_counts.items():
        listed = [warning for warning in validation.warnings if warning.rule is rule]
        if verbose:
            _rule(page, rule, count, listed, examples, "yellow")
        else:
            page.line(f"warning: {_head(rule, count, listed)} For example: {listed[0].message}", "yellow")
    return page.text


def _rule(
    page: Page, rule: Rule, count: int, listed: Sequence[Violation], examples: int | None, style: str = "red"
) -> None:
    page.line(f"{_head(rule, count, listed)} {RULES[rule].advice}", style)
    page.beneath([(_example(violation),) for violation in listed[:examples]])
    if (rest := count - len(listed[:examples])) > 0:
        page.beneath([(f"… {more(rest, 'violation')}",)])


def _head(rule: Rule, count: int, listed: Sequence[Violation]) -> str:
    text = RULES[rule]
    times = "once" if count == 1 else f"{number(count)} times"
    ranks = Numbers.of({violation.rank for violation in listed if violation.rank is not None})
    where = f" on {ranks.called('rank')}" if ranks else ""
    return f"{rule.value} ({text.ids}), {times}{where}: {text.breaks}."


def _example(violation: Violation) -> str:
    rank = f"rank {violation.rank}"
    named = violation.rank is None or violation.message.startswith(f"{rank} ")
    return violation.message if named else f"{rank}: {violation.message}"


# `tracelink validate`.


@command(
    "tracelink merge samples/gpu_pair --to chakra -o et/job     and then:",
    "tracelink validate et/",
    "tracelink validate et/ -v                     all violations and warnings",
    "tracelink validate et/ -q || alert-me         one line if the traces are invalid",
    "tracelink validate 'et/job.*.et' --groups et/job.groups.json",
    "tracelink validate et/ --variant full         collectives that ASTRA-sim cannot run are only warnings",
    "tracelink validate et/ --json | jq '.violations[] | {rule, rank, node}'",
)
@click.option(
    "-g",
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
@takes_engine
@click.argument("paths", nargs=-1, type=click.Path(), required=True)
def validate(
    console: Console,
    paths: tuple[str, ...],
    groups: str | None,
    variant: str | None,
    limit: int | None,
    engine: Engine,
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
    with watching(console, paths) as watch:
        validation = validated(
            paths,
            groups=groups,
            variant=variant,
            limit=None if everything else limit or SHOWN,
            engine=engine,
            watch=watch,
        )
    if console.json:
        from tracelink.cli.documents.traces import validate_document

        console.document(validate_document(validation))
    elif not console.quiet:
        console.info(
            validate_page(validation, None if everything else limit or EXAMPLES, verbose=console.verbose)
        )
    elif not validation.valid:
        console.result(verdict(validation))
    click.get_current_context().exit(FINE if validation.valid else NO)
