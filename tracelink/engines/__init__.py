"""Engines: where work runs."""

__all__ = ["choice", "processes"]
