"""Where the time of a job went, on every rank and step; `summarize` answers for a job."""

__all__ = ["collectives", "compare", "model", "path", "rank", "summarize"]
