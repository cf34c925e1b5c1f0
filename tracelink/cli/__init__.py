"""The command `tracelink`."""

from tracelink.cli.main import main

__all__ = ["answer", "formats", "main", "open", "run"]
