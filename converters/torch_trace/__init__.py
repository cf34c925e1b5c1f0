"""Compile logs: the structured log that torch.compile writes with TORCH_TRACE=DIR."""

from __future__ import annotations

import re

from tracelink.plugins import Content, Format, ReaderSpec

__all__ = ["TORCH_TRACE", "schema"]

_RECORD = re.compile(rb"^[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ [^:\n]+:\d+\] (?:\{|$)", re.MULTILINE)
_FILE_NAME = re.compile(r"dedicated_log_torch_trace_")
"""Part of torch's default file names."""
_PREFIX = re.compile(rb"\s*[VIWEC]\d{4} \d\d:\d\d:\d\d")


def is_compile_log(head: bytes, name: str) -> bool:
    """True if a record is near the start; also for the start of one in a file with torch's name."""
    return _RECORD.search(head) is not None or (
        _FILE_NAME.search(name) is not None and _PREFIX.match(head) is not None
    )


TORCH_TRACE = Format(
    "torch-trace",
    reader=ReaderSpec(
        "torch.compile structured logs (TORCH_TRACE=DIR): .log, .log.gz",
        is_compile_log,
        "tracelink.converters.torch_trace.reader:TorchTraceReader",
        content=Content.COMPILATIONS,
        many_per_rank=True,
    ),
)
