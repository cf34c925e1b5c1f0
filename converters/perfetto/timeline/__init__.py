"""The timeline that both formats write: layout, times, flows, groups; no text of any format."""

__all__ = [
    "blocks",
    "critical_path",
    "drawing",
    "flows",
    "forecast",
    "groups",
    "hangs",
    "job",
    "layout",
    "schema",
    "summary",
    "view",
]
