"""`tracelink diff`: how much longer a step takes than before, and why; with gates for CI."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tracelink.answers.compare.compare import compare
from tracelink.answers.compare.model import CauseChange, Comparison, GateState, Status
from tracelink.answers.compare.words import GATES, gate_in_words, headline, markdown_of, signed, unit
from tracelink.cli.console import Console
from tracelink.cli.main import FINE, NO
from tracelink.cli.options import command, takes_clock, takes_engine
from tracelink.cli.terminal import EMPTY, Page, watching
from tracelink.io.engine import Engine
from tracelink.model.findings import Severity
from tracelink.model.ranges import Numbers
from tracelink.model.text import counted, shortened, span

NOT_COMPARABLE = 3
GATE_STYLES = {GateState.FAILED: "bold red", GateState.NOT_DECIDED: "yellow"}
SHOWN = 15
"""Causes without -v."""
SHOWN_KERNELS = 3
"""Kernels of a cause with -v."""
LONGEST_NAME = 70
STYLES = {
    Status.SLOWER.value: "red",
    Status.NEW.value: "red",
    Status.MORE.value: "red",
    Status.FASTER.value: "green",
    Status.GONE.value: "green",
    Status.FEWER.value: "green",
}


@command(
    "tracelink diff samples/run_before samples/run_after",
    "tracelink diff samples/run_before samples/run_after --gate 'step_time > +5%' --gate 'idle > +100us'",
    "tracelink diff samples/run_before samples/run_after --md > comment.md",
)
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path())
@click.option("--gate", "gates", multiple=True, metavar="LIMIT", help=GATES)
@click.option("--md", "markdown", is_flag=True, help="Print Markdown, for a comment on a pull request.")
@click.option("--anyway", is_flag=True, help="Apply the gates also to runs that are not comparable.")
@click.option(
    "--ranks", "only_ranks", metavar="N-M,...", help="Only these ranks of both runs, such as 0-7,64."
)
@click.option("--steps", metavar="N-M,...", help="Only these steps of both runs, such as 3-5,7.")
@takes_clock
@takes_engine
def diff(
    console: Console,
    before: str,
    after: str,
    gates: tuple[str, ...],
    markdown: bool,
    anyway: bool,
    only_ranks: str | None,
    steps: str | None,
    clock: str,
    engine: Engine,
) -> None:
    """Compare two runs: how much longer a step takes, and why.

    Steps are compared by their average over ranks. Causes are operators with their kernels, copies, and reasons of idle
    time; together they are the change of the step. A change that is not larger than the variation between steps is
    marked as the same.

    The exit code is 0 if all gates pass, 1 if one fails, 2 if an argument is wrong, and 3 if the runs are not
    comparable: another number of ranks, no steps in one of them, collectives of other sizes, or damaged files. Then
    gates are not decided, except with --anyway.

    BEFORE and AFTER are directories, files or archives.
    """
    if markdown and console.json:
        raise click.UsageError("--md and --json cannot be combined.")
    with watching(console, (before, after)) as watch:
        result = compare(
            before,
            after,
            gates=gates,
            anyway=anyway,
            clock=clock,
            engine=engine,
            watch=watch,
            ranks=None if only_ranks is None else Numbers.parse(only_ranks, "--ranks"),
            steps=None if steps is None else Numbers.parse(steps, "--steps"),
        )
    if console.json:
        console.document(result)
    elif markdown:
        console.result(*markdown_of(result).splitlines())
    elif console.quiet:
        for reason in result.why_not:
            console.error(f"not comparable: {reason}")
        for gate in result.gates:
            if gate.failed:
                console.error(gate_in_words(gate))
    else:
        console.info(diff_page(result, verbose=console.verbose))
    click.get_current_context().exit(_exit_code(result, anyway=anyway))


def _exit_code(result: Comparison, *, anyway: bool) -> int:
    if not result.comparable and not anyway:
        return NOT_COMPARABLE
    return NO if result.failed else FINE


def diff_page(result: Comparison, *, verbose: bool) -> str:
    """The page for people."""
    page = Page()
    page.line(headline(result), "bold")
    for reason in result.why_not:
        page.line(f"- {reason}.", "bold red")
    page.gap()
    _show_parts(page, result)
    _show_causes(page, result, verbose=verbose)
    for gate in result.gates:
        page.line(gate_in_words(gate), GATE_STYLES.get(gate.state, "green"))
    for note in result.notes:
        if verbose or note.severity is not Severity.INFO:
            page.line(f"{note.severity}: {note.message}")
    return page.text


def _show_parts(page: Page, result: Comparison) -> None:
    header = (f"part of the {unit(result)}", "before", "after", "change")
    rows = [
        [part.part.value.replace("_", " "), span(part.before_ns), span(part.after_ns), signed(part.delta_ns)]
        for part in result.parts
    ]
    step = result.step
    rows.append([unit(result), span(step.before_ns), span(step.after_ns), signed(step.delta_ns)])
    page.table(header, rows, numbers=header[1:])
    page.gap()


def _show_causes(page: Page, result: Comparison, *, verbose: bool) -> None:
    """The causes that are larger than the variation between steps; all of them with their kernels with -v."""
    header = ("change", "cause", "status", "before", "after", "calls", "part")
    certain = [cause for cause in result.causes if cause.status is not Status.SAME]
    shown = list(result.causes) if verbose else certain[:SHOWN]
    rows = []
    for cause in shown:
        rows.append(_cells(cause))
        for kernel in cause.kernels[:SHOWN_KERNELS] if verbose and len(cause.kernels) > 1 else ():
            name = f"  {shortened(kernel.name, LONGEST_NAME)}"
            change = signed(kernel.after_ns - kernel.before_ns)
            calls = _calls(kernel.before_count, kernel.after_count)
            rows.append([change, name, "", span(kernel.before_ns), span(kernel.after_ns), calls, ""])
    if rows:
        page.table(
            header, rows, numbers=("change", "before", "after"), optional=("part", "calls"), styles=STYLES
        )
    if not verbose:
        _count_hidden(page, certain[SHOWN:], "more cause")
        noise = [cause for cause in result.causes if cause.status is Status.SAME]
        _count_hidden(page, noise, "cause", " within the variation between steps")
    page.gap()


def _count_hidden(page: Page, hidden: Sequence[CauseChange], thing: str, which: str = "") -> None:
    if hidden:
        rest = signed(sum(cause.delta_ns for cause in hidden))
        page.line(f"{counted(len(hidden), thing)}{which}, {rest} together: -v shows all.")


def _cells(cause: CauseChange) -> list[str]:
    return [
        signed(cause.delta_ns),
        shortened(cause.what, LONGEST_NAME),
        cause.status.value,
        span(cause.before_ns),
        span(cause.after_ns),
        EMPTY if cause.before_count is None else _calls(cause.before_count, cause.after_count or 0.0),
        cause.part.value.replace("_", " "),
    ]


def _calls(before: float, after: float) -> str:
    first, second = (f"{count:.4g}" for count in (before, after))
    return first if first == second else f"{first} → {second}"
