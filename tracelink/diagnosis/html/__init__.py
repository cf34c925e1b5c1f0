"""A diagnosis as one HTML page."""

__all__ = ["page"]
