"""Dumps of the c10d flight recorder."""

from tracelink.converters.flight_recorder.reader import FlightRecorderReader

__all__ = ["FlightRecorderReader"]
