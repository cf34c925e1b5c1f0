"""The command `tracelink`."""

from tracelink.cli.main import main

__all__ = ["diagnosis_documents", "documents", "main", "trace_documents"]
