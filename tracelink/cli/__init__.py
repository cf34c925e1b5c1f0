"""The command `tracelink`."""

from tracelink.cli.group import main

__all__ = ["main"]
