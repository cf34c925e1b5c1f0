"""Logs of the clog hook of torchcomms: a line for each step of each communication of a process."""

from __future__ import annotations

import re

from tracelink.plugins import Content, Format, ReaderSpec

__all__ = ["CLOG"]

_VERSION_LINE = re.compile(rb"V\|\d{1,9}\|base_timestamp=-?\d")


def is_clog(head: bytes, name: str) -> bool:
    """True if the first line is that of a log of the clog hook."""
    return _VERSION_LINE.match(head) is not None


CLOG = Format(
    "clog",
    reader=ReaderSpec(
        "torchcomms clog: text logs of the steps of each communication, version 1",
        is_clog,
        "tracelink.converters.clog.reader:ClogReader",
        content=Content.RECORDS,
    ),
)
