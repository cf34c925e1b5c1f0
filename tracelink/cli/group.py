"""The group of commands; a command is imported when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from tracelink import __version__
from tracelink.cli.failures import explained
from tracelink.cli.voice import Voice

COMMANDS = {
    "merge": "Link traces of all ranks and write them as one.",
    "diagnose": "Say which rank, which collective and why a job hangs.",
    "convert": "Write one trace in another format.",
    "collectives": "List what ranks did together, and who came last.",
    "clocks": "Say how far the clocks of ranks are apart.",
    "inspect": "Say what each trace is and what is wrong with it.",
    "validate": "Say whether simulators can load Chakra traces, and whether all ranks fit together.",
    "formats": "List the readers, writers and conversions that are installed.",
    "open": "Show a trace in Perfetto's UI.",
    "demo": "Merge the traces that come with tracelink.",
    "completion": "Print the script that completes commands in your shell.",
}
"""The name and the first line of the help of each command: the module of that name holds the rest."""


class LazyGroup(click.Group):
    """Shows its help without importing a command, and turns every error into words and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, in the order in which a user meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports one command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"tracelink.cli.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Makes the voice before anything can go wrong."""
        ctx.obj = Voice(json="--json" in args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command."""
        with explained(ctx):
            return super().invoke(ctx)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
def main() -> None:
    """One event graph from everything that a distributed PyTorch job left behind.

    Reads Kineto profiles, execution traces and flight-recorder dumps of all ranks, links their events, and
    writes a timeline for https://ui.perfetto.dev or traces for Chakra.

    Try it: tracelink demo
    """
