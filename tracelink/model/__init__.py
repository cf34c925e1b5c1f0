"""Plain values: events, graphs, jobs, communications, clocks, selections; nothing here knows files or formats."""

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "call_tree",
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
    "overview",
    "ranges",
    "records",
    "results",
    "selection",
    "tables",
    "text",
    "trace",
    "witnesses",
]
