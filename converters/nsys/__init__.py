"""Nsight Systems: what `nsys export` writes of a report, of one process or of all processes of a host."""

from __future__ import annotations

import re

from tracelink.plugins import Content, Format, ReaderSpec

__all__ = ["NSYS"]

SQLITE_MAGIC = b"SQLite format 3\0"
MARKS = (b"TARGET_INFO_SESSION_START_TIME", b"ENUM_NSYS_EVENT", b"CUPTI_ACTIVITY_KIND_", b"NVTX_EVENTS")
"""Names of tables, which are in the first pages of an export."""


PARQUET_MAGIC = b"PAR1"
PARQUET_TABLE = re.compile(
    r"((?:CUPTI_ACTIVITY|NVTX|OSRT|CUDA_GPU|GPU_METRICS|TARGET_INFO|META_DATA|ENUM|MPI|PROFILER|DIAGNOSTIC|ANALYSIS)"
    r"\w*|StringIds|ThreadNames|PROCESSES|ProcessStreams)\.parquet"
)
"""Names of the files of a Parquet export."""
REPORT_SUFFIXES = (".nsys-rep", ".qdrep", ".qdstrm")


def is_nsys(head: bytes, name: str) -> bool:
    """True for a SQLite database with tables of an export, for a table as a Parquet file, and for a report.

    The format of reports is not published: they are binary files with the suffix of a report.
    """
    if head.startswith(SQLITE_MAGIC):
        return any(mark in head for mark in MARKS)
    if head.startswith(PARQUET_MAGIC):
        return bool(parquet_table(name))
    return name.endswith(REPORT_SUFFIXES) and b"\0" in head


def parquet_table(name: str) -> str:
    """The table in a Parquet file of an export, by its name; empty for all other files."""
    match = PARQUET_TABLE.fullmatch(name)
    return match[1] if match else ""


NSYS = Format(
    "nsys",
    reader=ReaderSpec(
        "Nsight Systems export (nsys export --type sqlite or parquetdir): .sqlite, .sqlite.gz, .parquet",
        is_nsys,
        "tracelink.converters.nsys.reader:NsysReader",
        content=Content.PROFILE,
        unpacks=True,
        repeats_profiles=True,
        on_request={"osrt": "calls of the operating system"},
    ),
)
