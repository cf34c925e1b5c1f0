"""Opens a trace in Perfetto's UI: serves it once, on this machine, to one page."""

__all__ = ["browser", "server", "trace", "view"]
