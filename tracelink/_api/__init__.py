"""The library: `Job`, and a function for each question."""

__all__ = ["functions", "inspection", "job", "outputs"]
