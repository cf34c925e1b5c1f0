"""The command `tracelink`."""

from tracelink.cli.main import main

__all__ = ["answer", "documents", "formats", "main", "open", "run"]
