"""`tracelink demo`."""

from __future__ import annotations

import shlex

import click

from tracelink import api, samples
from tracelink.cli.options import command
from tracelink.cli.progress import watching
from tracelink.cli.summary import report_merge
from tracelink.cli.voice import Voice

SAMPLE, HUNG_SAMPLE = "cpu_job", "hung_job"
INTRODUCTION = (
    "Merging the sample: two ranks that trained on CPUs, each with a profile, an execution trace and a \
flight-recorder dump."
)


@command("tracelink demo", "tracelink demo -o /tmp/demo.json.gz")
@click.option(
    "-o",
    "--output",
    default="tracelink-demo.json",
    show_default=True,
    type=click.Path(),
    metavar="FILE",
    help="Where to write the merged trace.",
)
def demo(voice: Voice, output: str) -> None:
    """Merge the traces that come with tracelink."""
    folder = str(samples.path(SAMPLE))
    voice.say(f"{INTRODUCTION}\n\n  {shlex.join(['tracelink', 'merge', folder, '-o', output])}\n")
    with watching(voice, (folder,)) as watch:
        merged = api.merge(folder, output=output, watch=watch)
    code = report_merge(voice, merged)
    voice.say(f"\nOpen it in https://ui.perfetto.dev: Open trace file, then {output}")
    hung = shlex.join(["tracelink", "diagnose", str(samples.path(HUNG_SAMPLE) / "dumps")])
    voice.say(f"\nA job that hangs is told apart by its flight-recorder dumps:\n\n  {hung}")
    click.get_current_context().exit(code)
