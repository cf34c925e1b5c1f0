"""NCCL Inspector: the JSON lines of NCCL's and RCCL's profiler plugin of this name."""

from __future__ import annotations

import re

from tracelink.plugins import Format, ReaderSpec

__all__ = ["NCCL_INSPECTOR"]

_RECORD = re.compile(rb'(?:^|\n)\s*\{[^\n]{0,4096}?"(?:coll_perf|p2p_perf|dump_stats|proxy_trace)"\s*:\s*\{')
_COMMUNICATOR = re.compile(rb'"(?:n_ranks|inspector_output_format_version)"\s*:')


def is_inspector(head: bytes, name: str) -> bool:
    """True if one of the first lines is a record, and a line names a communicator."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and bool(
        _COMMUNICATOR.search(head) and _RECORD.search(head)
    )


NCCL_INSPECTOR = Format(
    "nccl-inspector",
    reader=ReaderSpec(
        "NCCL and RCCL Inspector: JSON lines, formats v4.0 to v4.3",
        is_inspector,
        "tracelink.converters.nccl_inspector.reader:InspectorReader",
        unpacks=True,
    ),
)
