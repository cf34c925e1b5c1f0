"""Formats: one folder for each, installed as `tracelink.converters`."""

__all__ = ["chakra", "flight_recorder", "perfetto"]
