"""Metrics that other programs sampled: nvidia-smi, DCGM, rocm-smi, amd-smi, Prometheus, dynolog, vmstat, any CSV."""

from __future__ import annotations

import re

from tracelink.plugins import Content, Format, ReaderSpec

__all__ = ["METRICS"]

HEAD = 16 << 10
"""First bytes that are examined."""
LONGEST_HEADER = 4 << 10

_TIME_NAME = re.compile(
    rb"(?:^|[^a-z])(?:time|timestamps?|ts|date|datetime|date_time|epoch|unix|unixtime|clock|t)(?:[^a-z]|$)"
    rb"|time_?stamp|epoch|date_?time|unix_?time|wall_?time"
)
_TIME_CELL = re.compile(
    rb"\d{4}[-/]\d\d[-/]\d\d[ T]\d|(?<![\d.])(?:1\d{9}|1\d{12}|1\d{15}|1\d{18})(?:\.\d+)?(?!\d)"
)
"""A date and time, or seconds, milliseconds, microseconds or nanoseconds since 1970."""
_NAMED_CELL = re.compile(rb'"?[A-Za-z_#][^,;\t"]*"?')

_DIALECTS = (
    ("query-range", re.compile(rb'\s*\{.{0,400}?"resultType"\s*:\s*"(?:matrix|vector)"', re.DOTALL)),
    ("smi-json", re.compile(rb'(?:[^{\[\n]*\n){0,8}\s*\{\s*"(?:card|gpu)\d+"\s*:\s*\{', re.IGNORECASE)),
    ("smi-json", re.compile(rb'(?:[^{\[\n]*\n){0,8}\s*(?:\{\s*"gpu_data"\s*:\s*)?\[\s*\{\s*"gpu"\s*:\s*\d')),
    ("prometheus", re.compile(rb"# (?:HELP|TYPE) [A-Za-z_:][\w:]* ")),
    ("prometheus", re.compile(rb'[A-Za-z_:][\w:]*\{\w+="[^\n]*\} [-+.\deEInfNa]+(?: \d+)?\r?(?:\n|$)')),
    ("dynolog", re.compile(rb"(?:.*\n){0,64}?.{0,200}\btime = \S+ data = \{")),
    ("dcgmi", re.compile(rb"(?:.*\n){0,8}?#\s*Entity\s")),
    ("dmon", re.compile(rb"(?:.*\n){0,8}?#[^\n]{0,40}\bgpu\b[^\n]*\r?\n#[^\n]*\bIdx\b", re.IGNORECASE)),
    ("vmstat", re.compile(rb"(?:.*\n){0,4}?procs -+memory-")),
    ("csv", re.compile(rb"(?:.*\n){0,32}?\s*timestamp, (?:index|name|uuid|[a-z_]+\.[a-z.]+)")),
    (
        "csv",
        re.compile(
            rb"(?:.*\n){0,32}?(?:timestamp,)?(?:device|gpu),[^\n]*(?:GPU use|VRAM|gfx|power)", re.IGNORECASE
        ),
    ),
    ("headless", re.compile(rb"\s*\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}, ")),
)
"""How files of each dialect begin. Dialects are modules of this format, or tables in them."""


def dialect_of(head: bytes, name: str) -> str:
    """The dialect of a file with these first bytes; empty if it is none."""
    text = as_utf8(head[:HEAD])
    for dialect, start in _DIALECTS:
        if start.match(text):
            return dialect
    return "csv" if _is_table(text, name) else ""


def as_utf8(head: bytes) -> bytes:
    """The same text in UTF-8: PowerShell writes UTF-16."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return head[: len(head) & ~1].decode("utf-16", "replace").lstrip("\ufeff").encode()
    return head.removeprefix(b"\xef\xbb\xbf")


def _is_table(text: bytes, name: str) -> bool:
    """True for a table with names of columns, of which one names a time and, unless it is a .csv, contains times."""
    lines = text.lstrip().splitlines()
    if not lines or len(lines[0]) > LONGEST_HEADER:
        return False
    separator = next((one for one in (b",", b";", b"\t") if one in lines[0]), b"")
    cells = [cell.strip() for cell in lines[0].split(separator)] if separator else []
    if len(cells) < 2 or not all(_NAMED_CELL.fullmatch(cell) for cell in cells if cell):
        return False
    if re.search(r"\.csv(?:\.gz)?$", name, re.IGNORECASE):
        return True
    has_times = any(_TIME_CELL.search(line) for line in lines[1:3])
    return has_times and any(_TIME_NAME.search(cell.lower()) for cell in cells)


def is_metrics(head: bytes, name: str) -> bool:
    """True for the output of a known program, and for a table with a column of times."""
    return bool(dialect_of(head, name))


METRICS = Format(
    "metrics",
    reader=ReaderSpec(
        "sampled metrics: nvidia-smi, dcgmi, Prometheus, rocm-smi, amd-smi, dynolog, vmstat, CSV with times",
        is_metrics,
        "tracelink.converters.metrics.reader:MetricsFileReader",
        content=Content.METRICS,
    ),
)
