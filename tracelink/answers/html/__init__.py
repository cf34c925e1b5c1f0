"""The report as an HTML page."""

__all__ = ["page"]
