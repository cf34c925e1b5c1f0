"""`tracelink summary`: where the time went, on every rank and step."""

from __future__ import annotations

import click

from tracelink._io.engine import Engine
from tracelink._model.ranges import Numbers
from tracelink._time.summarize import summarize
from tracelink.cli.answer import print_answer, takes_output
from tracelink.cli.console import Console
from tracelink.cli.options import Inputs, command, takes_clock, takes_engine, takes_inputs
from tracelink.cli.terminal import watching


@command(
    "tracelink summary samples/gpu_pair",
    "tracelink summary samples/gpu_pair --steps 2 -v",
    "tracelink summary samples/gpu_pair --what-if 'communication free' --what-if 'rank 1 on time'",
    "tracelink summary samples/gpu_pair -o report.html",
    "tracelink summary samples/gpu_pair --json | jq '.ranks[].steps[] | [.step, .idle_ns]'",
)
@takes_inputs
@takes_output
@click.option("--ranks", "only_ranks", metavar="N-M,...", help="Read only these ranks, such as 0-7,64.")
@click.option("--steps", metavar="N-M,...", help="Only these steps, such as 3-5,7.")
@click.option(
    "--what-if",
    metavar="QUESTION",
    multiple=True,
    help="How long the steps would take: 'communication free', 'kernel NAME 2x', 'operator NAME 2x', 'rank 3 on time'.",
)
@click.option("--shapes", is_flag=True, help="Also add up operators by the shapes of their inputs.")
@takes_clock
@takes_engine
def summary(
    console: Console,
    inputs: Inputs,
    output: str | None,
    only_ranks: str | None,
    steps: str | None,
    what_if: tuple[str, ...],
    shapes: bool,
    clock: str,
    engine: Engine,
) -> None:
    """Show where the time went, on every rank and step.

    A step is divided into compute, exposed communication (while nothing computes), exposed memory copies, and idle
    time; exposed and idle time by its causes. docs/answers.md defines every number.

    -o report.html writes a page that needs no network. Its tables sort and filter; rows have the command that shows
    them in a timeline.

    PATHS are files, directories, globs and archives, here or in stores such as s3://; - is standard input.
    """
    with watching(console, inputs.named) as watch:
        result = summarize(
            **inputs.keywords(),
            clock=clock,
            engine=engine,
            watch=watch,
            ranks=None if only_ranks is None else Numbers.parse(only_ranks, "--ranks"),
            steps=None if steps is None else Numbers.parse(steps, "--steps"),
            what_if=what_if,
            shapes=shapes,
        )
    code = print_answer(console, result, output, read=inputs.named)
    click.get_current_context().exit(code)
