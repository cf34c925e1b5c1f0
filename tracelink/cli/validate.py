"""Validate."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tracelink.cli.console import Console
from tracelink.cli.main import FINE, NO
from tracelink.cli.options import command, takes_jobs
from tracelink.cli.terminal import Page, watching
from tracelink.converters.chakra.schema import Variant
from tracelink.converters.chakra.validation import RULES, Rule, Validation, Violation
from tracelink.converters.chakra.validation import validate as validated
from tracelink.converters.chakra.validation.validate import SHOWN
from tracelink.model.ranges import Numbers
from tracelink.text import counted, number

# What `validate` says to a person: the verdict, then each rule that is broken.


EXAMPLES = 5
"""Violations of one rule that are shown before the rest of them is only counted."""


def verdict(validation: Validation) -> str:
    """One line."""
    seen = f"{counted(len(validation.files), 'file')}, {counted(validation.nodes, 'node')}"
    if validation.valid:
        return f"valid: {seen}"
    return f"invalid: {counted(sum(validation.counts.values()), 'violation')} ({seen})"


def validate_page(validation: Validation, examples: int | None, *, verbose: bool) -> str:
    """The verdict, violations by rule with examples and what to do, and warnings in a line each."""
    page = Page()
    page.line(verdict(validation), "bold green" if validation.valid else "bold red")
    for rule, count in validation.counts.items():
        page.gap()
        _rule(page, rule, count, [one for one in validation.violations if one.rule is rule], examples)
    if validation.warning_counts:
        page.gap()
    for rule, count in validation.warning_counts.items():
        listed = [one for one in validation.warnings if one.rule is rule]
        if verbose:
            _rule(page, rule, count, listed, examples, "yellow")
        else:
            page.line(f"warning: {_head(rule, count, listed)} For example: {listed[0].message}", "yellow")
    return page.text


def _rule(
    page: Page, rule: Rule, count: int, listed: Sequence[Violation], examples: int | None, style: str = "red"
) -> None:
    page.line(f"{_head(rule, count, listed)} {RULES[rule].advice}", style)
    page.beneath([(_shown(one),) for one in listed[:examples]])
    if (rest := count - len(listed[:examples])) > 0:
        page.beneath([(f"… {number(rest)} more; -v shows them",)])


def _head(rule: Rule, count: int, listed: Sequence[Violation]) -> str:
    text = RULES[rule]
    times = "once" if count == 1 else f"{number(count)} times"
    ranks = Numbers.of({one.rank for one in listed if one.rank is not None})
    where = f" on {ranks.called('rank')}" if ranks else ""
    return f"{rule.value} ({text.ids}), {times}{where}: {text.breaks}."


def _shown(one: Violation) -> str:
    said = one.rank is None or one.message.startswith(f"rank {one.rank} ")
    return one.message if said else f"rank {one.rank}: {one.message}"


# `tracelink validate`.


@command(
    "tracelink validate et/",
    "tracelink validate et/ -v                     every violation, and every warning",
    "tracelink validate et/ -q || alert-me         one line, and only if something is wrong",
    "tracelink validate 'et/job.*.et' --groups groups.json",
    "tracelink validate et/ --variant full         collectives that ASTRA-sim cannot run are warnings",
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
    "--variant",
    type=click.Choice([variant.value for variant in Variant]),
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
    console: Console,
    paths: tuple[str, ...],
    groups: str | None,
    variant: str | None,
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
    everything = limit == 0 or (limit is None and console.verbose)
    with watching(console, paths) as watch:
        validation = validated(
            paths,
            groups=groups,
            variant=variant,
            limit=None if everything else limit or SHOWN,
            jobs=jobs,
            watch=watch,
        )
    if console.json:
        from tracelink.cli.trace_documents import validate_document

        console.document(validate_document(validation))
    elif not console.quiet:
        console.info(
            validate_page(validation, None if everything else limit or EXAMPLES, verbose=console.verbose)
        )
    elif not validation.valid:
        console.result(verdict(validation))
    click.get_current_context().exit(FINE if validation.valid else NO)
