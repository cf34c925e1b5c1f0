"""Capture files: what a rank says of itself and of its recording, written next to its traces by `tracelink.capture`."""

from __future__ import annotations

import re

from tracelink.plugins import Format, ReaderSpec

__all__ = ["CAPTURE", "schema"]

_START = re.compile(rb'\s*\{\s*"tracelink_capture"\s*:')


def is_capture(head: bytes, name: str) -> bool:
    """True if the first key is that of capture files."""
    return _START.match(head) is not None


CAPTURE = Format(
    "capture",
    reader=ReaderSpec(
        "Capture files of tracelink.capture: rank, host, groups and clock of a rank",
        is_capture,
        "tracelink.converters.capture.reader:CaptureReader",
    ),
)
