"""`tracelink diff`: how much longer a step takes than before, and why; with gates for CI."""

from __future__ import annotations

import click

import tracelink._api.functions as api
from tracelink._compile.diff import worse_in_words
from tracelink._time.compare.model import Comparison
from tracelink._time.compare.report import gate_in_words
from tracelink.cli.answer import print_answer, takes_output
from tracelink.cli.console import Console
from tracelink.cli.main import FINE, NO
from tracelink.cli.options import Traces, command, reads

NOT_COMPARABLE = 3
GATES = (
    "Fail (exit code 1) if a change exceeds a limit and the variation between steps: 'step_time > +5%', 'idle > +2ms', "
    "'aten::mm > +10%'. Repeatable."
)


@command(
    "tracelink diff samples/run_before samples/run_after",
    "tracelink diff samples/run_before samples/run_after --gate 'step_time > +5%' --gate 'idle > +100us'",
    "tracelink diff samples/run_before samples/run_after -o comment.md",
    "tracelink diff samples/compile_job samples/compile_job     with logs of torch.compile: what was compiled, too",
)
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path())
@takes_output
@click.option("--gate", "gates", multiple=True, metavar="LIMIT", help=GATES)
@click.option("--anyway", is_flag=True, help="Apply the gates also to runs that are not comparable.")
@click.option(
    "--run",
    type=click.IntRange(min=1),
    metavar="N",
    help="If the compile logs of BEFORE are of several starts of the job, compare this one: 1 is the first.",
)
@reads(paths=False, without=("metrics",))
def diff(
    console: Console,
    traces: Traces,
    before: str,
    after: str,
    output: str | None,
    gates: tuple[str, ...],
    anyway: bool,
    run: int | None,
) -> None:
    """Compare two runs: how much longer a step takes, and why.

    Steps are compared by their average over ranks. Causes are operators with their kernels, copies, and reasons of idle
    time; together they are the change of the step. A change that is not larger than the variation between steps is
    marked as the same.

    If both runs have logs of torch.compile (TORCH_TRACE), what was compiled is compared too, or alone: recompilations,
    graph breaks, failures and differences between ranks that are new or gone, and the time of each function. Compiling
    is worse if something is new or more frequent, or if a function takes more than 1 s and 20 % longer.

    The exit code is 0 if all gates pass, 1 if one fails or compiling is worse, 2 if an argument is wrong, and 3 if the
    runs are not comparable: another number of ranks, no steps in one of them, collectives of other sizes, or damaged
    files. Then gates are not decided, except with --anyway.

    BEFORE and AFTER are directories, files or archives.
    """
    with traces.watched(console, before, after) as reading:
        result = api.diff(before, after, gates=gates, anyway=anyway, run=run, **reading)
    print_answer(console, result, output, read=[before, after])
    if console.quiet:
        for reason in result.why_not:
            console.error(f"not comparable: {reason}")
        for gate in result.gates:
            if gate.failed:
                console.error(gate_in_words(gate))
        for line in worse_in_words(result.compile) if result.compile else ():
            console.error(line)
    click.get_current_context().exit(_exit_code(result, anyway=anyway))


def _exit_code(result: Comparison, *, anyway: bool) -> int:
    if not result.comparable and not anyway:
        return NOT_COMPARABLE
    return NO if result.failed else FINE
