"""Compile logs of all ranks as one HTML page."""

__all__ = ["page"]
