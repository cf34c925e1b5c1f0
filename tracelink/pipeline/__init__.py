"""From sources to a job: the reader and the rank of each source, linking, joining, selection."""

__all__ = ["forecast", "job_reader", "metric_times", "metrics", "ranks", "reading", "selection"]
