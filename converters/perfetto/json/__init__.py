"""Perfetto's JSON (Chrome's trace event format): text of a timeline."""

__all__ = ["events", "numbers", "schema"]
