"""Plain values: events, graphs, jobs, communications, clocks, selections; nothing here knows files or formats."""

__version__ = "0.1.0"

MANIFEST = "tracelink.json"
"""The name of the manifest of a dataset: a folder that contains it is one input."""
MANIFEST_START = b'{"format":"tracelink-tables"'
"""The first bytes of a manifest."""

__all__ = [
    "MANIFEST",
    "MANIFEST_START",
    "__version__",
    "causes",
    "clock",
    "columns",
    "communications",
    "errors",
    "events",
    "fields",
    "findings",
    "graph",
    "job",
    "metrics",
    "operations",
    "records",
    "results",
    "selection",
    "tables",
    "text",
    "trace",
    "witnesses",
]
