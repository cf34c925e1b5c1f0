"""Where the time of a job went, on every rank and step; `summarize` is what the library and the command call."""

__all__ = ["collectives", "compare", "model", "path", "rank", "summarize", "what_if"]
