"""From sources to a job: the reader and the rank of each source, linking, joining, selection."""

__all__ = [
    "deviations",
    "during",
    "forecast",
    "job_reader",
    "metric_times",
    "metrics",
    "quantities",
    "ranks",
    "reading",
    "selection",
]
