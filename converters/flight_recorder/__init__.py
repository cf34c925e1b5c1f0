"""Dumps of the c10d flight recorder."""

from __future__ import annotations

from tracelink.converters.flight_recorder.recognition import is_dump
from tracelink.plugins import Format, Reader, ReaderSpec

__all__ = ["FLIGHT_RECORDER"]


def _reader() -> Reader:
    from tracelink.converters.flight_recorder.reader import FlightRecorderReader

    return FlightRecorderReader()


FLIGHT_RECORDER = Format(
    "flight-recorder",
    reader=ReaderSpec(
        "PyTorch flight-recorder dumps (pickle of torch 2.2 and later, or JSON)", is_dump, _reader
    ),
)
