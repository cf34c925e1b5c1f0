"""Formats: one folder for each, installed as `tracelink.converters`."""

__all__ = ["capture", "chakra", "flight_recorder", "perfetto", "pytorch", "tables"]
