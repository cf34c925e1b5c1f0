"""The command `tracelink`."""

from tracelink.cli.main import main

__all__ = ["compile_documents", "diagnosis_documents", "documents", "main", "trace_documents"]
