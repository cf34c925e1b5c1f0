"""Where the time of a job went, on every rank and step; `summarize` is what the library and the command call."""

__all__ = ["collectives", "compare", "html", "model", "path", "rank", "report", "summarize", "what_if"]
