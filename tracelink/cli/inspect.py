"""`tracelink inspect`: format, rank, time and problems of each source, and the nodes of Chakra traces."""

from __future__ import annotations

import click

import tracelink._api as api
from tracelink._io.engine import Engine
from tracelink.cli.answer import print_answer, takes_output
from tracelink.cli.console import Console
from tracelink.cli.main import UNREADABLE
from tracelink.cli.options import Inputs, command, takes_engine, takes_inputs
from tracelink.cli.terminal import watching


@command(
    "tracelink inspect samples/gpu_pair",
    "tracelink inspect --fr samples/hung_job/dumps",
    "tracelink inspect samples/gpu_pair --json | jq '.sources[] | {path, rank, events}'",
    "tracelink inspect samples/gpu_pair -o sources.csv",
    "tracelink merge samples/gpu_pair --to chakra -o et/job     and then:",
    "tracelink inspect et/",
)
@takes_inputs
@takes_output
@takes_engine
def inspect(console: Console, inputs: Inputs, output: str | None, engine: Engine) -> None:
    """Show the format, rank, time and problems of each trace.

    For Chakra traces, also shows the number of nodes of each type, the communication in each group, the longest chain
    of dependent nodes and its duration, and everything that keeps simulators from loading them.

    PATHS are files, directories, globs and archives, here or in stores such as s3://; - is standard input.
    """
    with watching(console, inputs.named) as watch:
        inspection = api.inspect(**inputs.keywords(), engine=engine, watch=watch)
    code = print_answer(console, inspection, output, read=inputs.named)
    click.get_current_context().exit(code if inspection.sources else UNREADABLE)
