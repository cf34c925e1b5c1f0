"""Commands that describe inputs: `inspect` and `clocks`."""

from __future__ import annotations

import click

import tracelink._api.functions as api
from tracelink.cli.answer import print_answer, takes_output
from tracelink.cli.console import Console
from tracelink.cli.main import UNREADABLE
from tracelink.cli.options import WHOLE, Traces, command, reads


@command(
    "tracelink clocks samples/gpu_pair",
    "tracelink clocks samples/cpu_job --clock collectives",
    "tracelink clocks samples/gpu_pair -o clocks.json",
    "tracelink merge samples/gpu_pair --clock clocks.json",
)
@takes_output
@reads(without=("metrics",))
def clocks(console: Console, traces: Traces, output: str | None) -> None:
    """Show the clock offset of each rank.

    Offsets are estimated from causality: no rank leaves a collective before the last one enters, and no message arrives
    before it is sent. The uncertainty of an offset follows from the same bounds.

    PATHS are files, directories, globs and archives, here or in stores such as s3://; - is standard input.
    """
    with traces.watched(console) as reading:
        measured = api.clocks(traces.paths, **reading)
    code = print_answer(console, measured, output, read=traces.named)
    click.get_current_context().exit(code if measured.ranks else UNREADABLE)


@command(
    "tracelink inspect samples/gpu_pair",
    "tracelink inspect --fr samples/hung_job/dumps",
    "tracelink inspect samples/gpu_pair --json | jq '.sources[] | {path, rank, events}'",
    "tracelink inspect samples/gpu_pair -o sources.csv",
    "tracelink merge samples/gpu_pair --to chakra -o et/job     and then:",
    "tracelink inspect et/",
)
@takes_output
@reads(without=WHOLE)
def inspect(console: Console, traces: Traces, output: str | None) -> None:
    """Show the format, rank, time and problems of each trace.

    For Chakra traces, also shows the number of nodes of each type, the communication in each group, the longest chain
    of dependent nodes and its duration, and everything that keeps simulators from loading them.

    PATHS are files, directories, globs and archives, here or in stores such as s3://; - is standard input.
    """
    with traces.watched(console) as reading:
        inspection = api.inspect(traces.paths, **reading)
    code = print_answer(console, inspection, output, read=traces.named)
    click.get_current_context().exit(code if inspection.sources else UNREADABLE)
