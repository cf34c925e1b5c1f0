"""Dumps of the c10d flight recorder."""

from __future__ import annotations

from tracelink.converters.flight_recorder.recognition import is_dump
from tracelink.plugins import Format, ReaderSpec

__all__ = ["FLIGHT_RECORDER", "schema"]

FLIGHT_RECORDER = Format(
    "flight-recorder",
    reader=ReaderSpec(
        "PyTorch flight-recorder dumps (pickle of torch 2.2 and later, or JSON)",
        is_dump,
        "tracelink.converters.flight_recorder.reader:FlightRecorderReader",
    ),
)
