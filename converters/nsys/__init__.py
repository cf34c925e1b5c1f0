"""Nsight Systems: the SQLite database that `nsys export` writes, of one process or of all processes of a host."""

from __future__ import annotations

from tracelink.plugins import Format, ReaderSpec

__all__ = ["NSYS"]

SQLITE_MAGIC = b"SQLite format 3\0"
MARKS = (b"TARGET_INFO_SESSION_START_TIME", b"ENUM_NSYS_EVENT", b"CUPTI_ACTIVITY_KIND_", b"NVTX_EVENTS")
"""Names of tables, which are in the first pages of an export."""


def is_nsys(head: bytes, name: str) -> bool:
    """True for a SQLite database with tables of an export."""
    return head.startswith(SQLITE_MAGIC) and any(mark in head for mark in MARKS)


NSYS = Format(
    "nsys",
    reader=ReaderSpec(
        "Nsight Systems export (nsys export --type sqlite): .sqlite, .sqlite.gz",
        is_nsys,
        "tracelink.converters.nsys.reader:NsysReader",
        on_request={"osrt": "calls of the operating system"},
    ),
)
