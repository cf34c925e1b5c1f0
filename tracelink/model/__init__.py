"""Plain values: events, graphs, jobs, communications, clocks, selections; nothing here knows files or formats."""

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "call_tree",
    "causes",
    "charts",
    "clock",
    "collectives",
    "columns",
    "communications",
    "compiles",
    "errors",
    "events",
    "graph",
    "job",
    "markup",
    "metrics",
    "operations",
    "ranges",
    "records",
    "results",
    "selection",
    "tables",
    "text",
    "trace",
    "witnesses",
]
