"""`tracelink convert`: one trace, or a directory of Chakra traces, in another format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import tracelink._api as api
from tracelink._io.engine import Engine
from tracelink._model.selection import Selection, View
from tracelink.cli.console import Console
from tracelink.cli.merged import announcing, print_written, writes_to_stdout
from tracelink.cli.options import (
    collected,
    command,
    takes_engine,
    takes_format,
    takes_include,
    takes_max_unpacked,
    takes_metrics,
    takes_selection,
    takes_writing,
)
from tracelink.cli.terminal import watching

if TYPE_CHECKING:
    from tracelink._model.metrics import Metrics


def _view(depth: int | None, limit: int | None) -> View:
    return View(depth=depth, limit=limit)


takes_view = collected(
    "view",
    _view,
    (
        click.option(
            "--depth",
            type=int,
            metavar="N",
            help="Drawings: draw N levels of nesting; deeper nodes become part of the box around them.",
        ),
        click.option(
            "--limit",
            type=int,
            metavar="N",
            help="Drawings: draw at most N nodes. Default: 2000; no limit for .graphml.",
        ),
    ),
)
"""Adds the options of drawings; the function gets them as `view`."""


@command(
    "tracelink convert samples/gpu_pair/kineto_0.json.gz kineto_0.pftrace",
    "tracelink convert samples/gpu_pair/kineto_0.json.gz step.json --steps 1 --only kernels,collectives",
    "tracelink convert samples/gpu_metrics/nvidia_smi.csv gpus.pftrace --tz UTC --map 0-1=0-1",
    "tracelink convert samples/cpu_job/et_0.json.gz linked/ --to chakra-json",
    "tracelink merge samples/gpu_pair --to chakra -o et/job     and then:",
    "tracelink convert et/job.0.et job.0.svg --depth 4 --window 2ms..5ms",
    "tracelink convert et/ job.dot --ranks 0-1 --limit 500",
    "zcat samples/gpu_pair/kineto_0.json.gz | tracelink convert - - | wc -c",
)
@click.argument("source", metavar="INPUT", type=click.Path())
@click.argument("output", metavar="OUTPUT", type=click.Path())
@takes_format
@takes_writing
@takes_selection
@takes_view
@takes_max_unpacked
@takes_metrics
@takes_include
@takes_engine
def convert(
    console: Console,
    source: str,
    output: str,
    to: str | None,
    options: dict[str, str],
    selection: Selection | None,
    view: View,
    max_unpacked: int | None,
    metrics: Metrics | None,
    include: tuple[str, ...],
    engine: Engine,
) -> None:
    """Convert a trace to another format.

    INPUT and OUTPUT can be -, for standard input and standard output. The format is taken from the name of OUTPUT
    unless --to is given. Some pairs of formats have a conversion that keeps everything in the file (see `tracelink
    formats`); for all other pairs, the trace is read and written as by `tracelink merge`.

    A Chakra trace, or a directory with those of several ranks, is drawn if OUTPUT ends in .svg, .dot or .graphml;
    --window counts from its first node.
    """
    to_stderr = writes_to_stdout(console, output)
    with watching(console, (source,)) as watch:
        result = api.convert(
            source,
            output=output,
            to=to,
            options=options,
            selection=selection,
            view=view,
            max_unpacked=max_unpacked,
            metrics=metrics,
            include=include,
            engine=engine,
            watch=watch,
            on_forecast=announcing(console, watch, to_stderr=to_stderr),
        )
    click.get_current_context().exit(print_written(console, result, to_stderr=to_stderr))
