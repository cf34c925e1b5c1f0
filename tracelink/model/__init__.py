"""Plain values: events, graphs, jobs, communications, clocks, selections; nothing here knows files or formats."""

__all__ = [
    "call_tree",
    "clock",
    "collectives",
    "columns",
    "communications",
    "dependencies",
    "errors",
    "events",
    "graph",
    "job",
    "operations",
    "ranges",
    "records",
    "selection",
    "tables",
    "text",
    "trace",
    "version",
]
