"""`tracelink merge`, and `tracelink demo`, which merges a sample."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import click

import tracelink._api as api
from tracelink._io.engine import Engine
from tracelink._model.selection import Selection
from tracelink.cli.console import Console
from tracelink.cli.main import UNREADABLE, Terminated
from tracelink.cli.merged import announcing, own_command, print_written, writes_to_stdout
from tracelink.cli.options import (
    Inputs,
    command,
    takes_bundle,
    takes_clock,
    takes_engine,
    takes_format,
    takes_inputs,
    takes_selection,
    takes_writing,
)
from tracelink.cli.terminal import watching


@command(
    "tracelink merge samples/gpu_pair",
    "tracelink merge samples/gpu_pair -o merged.json.gz",
    "tracelink merge samples/gpu_pair --open",
    "tracelink merge samples/cpu_job -o job.pftrace --ranks 0-1 --steps 1-2 --only operators,collectives",
    "tracelink merge samples/cpu_job --window 10ms..50ms --clock collectives",
    "tracelink merge samples/gpu_pair samples/gpu_metrics --tz UTC -o metrics.pftrace",
    "tracelink merge samples/gpu_pair -o job.pftrace --resume",
    "tracelink merge samples/gpu_pair -o job.pftrace --engine dask",
    "tracelink merge samples/gpu_pair --bundle -o job.tar",
    "tracelink merge samples/gpu_pair --to chakra -o et/job",
    "tracelink merge samples/gpu_pair --to chakra --variant astra-sim -o et/job",
    "tracelink merge --kineto samples/gpu_pair/kineto_0.json.gz --fr samples/gpu_pair/dumps",
    "tracelink merge samples/gpu_pair/kineto_1.json.gz --rank kineto_1.json.gz=1 -o - | gzip > rank_1.json.gz",
)
@takes_inputs
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FILE|DIR|-",
    help="Output file or directory; - is standard output. Default: merged, with the suffix of the format.",
)
@takes_format
@takes_bundle
@takes_writing
@takes_selection
@takes_clock
@takes_engine
@click.option(
    "--resume",
    is_flag=True,
    help="Keep finished ranks in OUTPUT.resume until the output is complete; after an interruption, the same command "
    "goes on with them.",
)
@click.option(
    "--open",
    "opening",
    is_flag=True,
    help="Open the output in Perfetto's UI, as `tracelink open` does. Then --to defaults to perfetto.",
)
def merge(
    console: Console,
    inputs: Inputs,
    output: str | None,
    to: str | None,
    options: dict[str, str],
    selection: Selection | None,
    clock: str,
    engine: Engine,
    resume: bool,
    opening: bool,
) -> None:
    """Merge the traces of all ranks into one.

    PATHS are files, directories, globs and archives, here or in stores such as s3://; - is standard input. Formats and
    ranks are detected from the contents.

    Before a large timeline is written, its estimated size is printed, with advice if a browser cannot load it.
    """
    to_stderr = writes_to_stdout(console, output)
    with ExitStack() as stack:
        if opening:
            from tracelink._open.server import reserved_port
            from tracelink.cli.open import BEST_SHOWN, check_openable, open_merged

            check_openable(output, to)
            to = to or (None if output else BEST_SHOWN)
            listener = stack.enter_context(reserved_port())
        with _resumption_explained(console, resume), watching(console, inputs.named) as watch:
            merged = api.merge(
                **inputs.keywords(),
                output=output,
                to=to,
                options=options,
                clock=clock,
                selection=selection,
                engine=engine,
                watch=watch,
                on_forecast=announcing(console, watch, to_stderr=to_stderr),
                resume=resume,
            )
        code = print_written(console, merged, to_stderr=to_stderr, opening=opening)
        if opening and code != UNREADABLE:
            code = open_merged(console, merged, listener) or code
    click.get_current_context().exit(code)


@contextmanager
def _resumption_explained(console: Console, resume: bool) -> Iterator[None]:
    """Prints after an interruption that the same command goes on."""
    try:
        yield
    except (KeyboardInterrupt, Terminated):
        if resume:
            console.error("finished ranks are kept: run the same command to go on.")
        raise


# `tracelink demo`.


SAMPLE, HUNG_SAMPLE = "gpu_pair", "hung_job"
INTRODUCTION = (
    "Merging a sample: two ranks of a training job with a GPU each; every rank has a profile, an execution trace and a "
    "flight-recorder dump."
)
LOOK_AT = """
What to look at in the timeline:
- The tracks `group default_pg` and `group tensor_parallel`: each collective from the first rank that enters to the last
  that leaves, with the rank that arrived last.
- `stream 20 · communication` of both ranks: the same collective on both, on one clock. Select a kernel: arrows lead to
  the call that launched it, and from the rank for which the other waited.
- `stream 7 · compute`, and `outstanding kernels` below it: how far the CPU is ahead of the GPU.
"""


@command("tracelink demo", "tracelink demo -o /tmp/demo.json.gz")
@click.option(
    "-o",
    "--output",
    default="tracelink-demo.json",
    show_default=True,
    type=click.Path(),
    metavar="FILE",
    help="Output file.",
)
def demo(console: Console, output: str) -> None:
    """Merge a sample that comes with tracelink."""
    import tracelink.samples as samples

    folder = str(samples.path(SAMPLE))
    console.info(INTRODUCTION, "", f"  {own_command('merge', folder, '-o', output)}", "")
    with watching(console, (folder,)) as watch:
        merged = api.merge(folder, output=output, watch=watch)
    code = print_written(console, merged, opening=True)
    hung = own_command("diagnose", str(samples.path(HUNG_SAMPLE) / "dumps"))
    console.info(*LOOK_AT.splitlines())
    console.info("", "To find out why a job hangs, run this on its flight-recorder dumps:", "", f"  {hung}")
    console.info("", "Open the timeline in your browser:", "", f"  {own_command('open', output)}")
    click.get_current_context().exit(code)
