"""`tracelink clocks`: the offset and drift of each rank's clock, and their uncertainty."""

from __future__ import annotations

import click

import tracelink._api as api
from tracelink._io.engine import Engine
from tracelink.cli.answer import print_answer, takes_output
from tracelink.cli.console import Console
from tracelink.cli.main import UNREADABLE
from tracelink.cli.options import Inputs, command, takes_clock, takes_engine, takes_files
from tracelink.cli.terminal import watching


@command(
    "tracelink clocks samples/gpu_pair",
    "tracelink clocks samples/cpu_job --clock collectives",
    "tracelink clocks samples/gpu_pair -o clocks.json",
    "tracelink merge samples/gpu_pair --clock clocks.json",
)
@takes_files
@takes_output
@takes_clock
@takes_engine
def clocks(console: Console, inputs: Inputs, output: str | None, clock: str, engine: Engine) -> None:
    """Show the clock offset of each rank.

    Offsets are estimated from causality: no rank leaves a collective before the last one enters, and no message arrives
    before it is sent. The uncertainty of an offset follows from the same bounds.

    PATHS are files, directories, globs and archives, here or in stores such as s3://; - is standard input.
    """
    with watching(console, inputs.named) as watch:
        measured = api.clocks(**inputs.keywords(), clock=clock, engine=engine, watch=watch)
    code = print_answer(console, measured, output, read=inputs.named)
    click.get_current_context().exit(code if measured.ranks else UNREADABLE)
