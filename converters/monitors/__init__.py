"""Output of monitors of a job that hangs: watchdog lines of process groups in logs, and the status of NCCL's RAS."""

from __future__ import annotations

import re

from tracelink.plugins import Format, ReaderSpec

__all__ = ["NCCL_RAS", "WATCHDOG_LOG"]

# Logs with lines of ProcessGroupNCCL and ProcessGroupGloo.

_LINE = re.compile(
    rb"Watchdog caught collective operation timeout: Work|ast (?:enqueued|completed) (?:\w+ )?work: -?\d"
    rb"|eartbeat monitor timed out! Process|gloo/transport/\w+/\w+\.cc:\d+\] \w|failed to pass monitoredBarrier in \d"
)


def is_watchdog_log(head: bytes, name: str) -> bool:
    """True if a line of a watchdog is near the start of a text; most logs have theirs at the end."""
    return b"\0" not in head[:4096] and _LINE.search(head) is not None


def why_no_trace(head: bytes) -> str:
    """Why a log is no trace, and what reads it."""
    return "a log with lines of a watchdog, which have no exact times: tracelink diagnose reads it."


WATCHDOG_LOG = Format(
    "watchdog-log",
    reader=ReaderSpec(
        "Logs with watchdog lines of ProcessGroupNCCL and ProcessGroupGloo (for diagnose)",
        is_watchdog_log,
        "tracelink.converters.monitors.watchdog:WatchdogLogReader",
        refuses=why_no_trace,
        many_per_rank=True,
    ),
)

# What `ncclras` and `ncclras -f json` print: the client of NCCL's monitor RAS.

_JSON = re.compile(
    rb'(?:OK\r?\n){0,3}\s*\{\s*"nccl_version"\s*:\s*"[^"\n]{0,80}".{0,400}?"communicators(?:_count)?"\s*:',
    re.DOTALL,
)
_TEXT = re.compile(
    rb"^(?:Job summary\r?\n=+\r?$|Communicators\.\.\. ?\([\d.]+s\)\r?\n=+\r?$"
    rb"|#\d+-\d+ \([0-9a-f]{8,16}\) [A-Z,]+\r?$|\[[\d :-]{19}\] PEER_DEAD: Process \d)",
    re.MULTILINE,
)


def is_status(head: bytes, name: str) -> bool:
    """True if a heading of the text, or the first keys of the JSON document, are near the start."""
    if _JSON.match(head):
        return True
    return b"\0" not in head[:4096] and _TEXT.search(head[:8192]) is not None


def why_no_events(head: bytes) -> str:
    """Why a status is no trace, and what reads it."""
    return "the status of NCCL's monitor (RAS), which has no events: tracelink diagnose reads it."


NCCL_RAS = Format(
    "nccl-ras",
    reader=ReaderSpec(
        "NCCL RAS status: what ncclras and ncclras -f json print (for diagnose)",
        is_status,
        "tracelink.converters.monitors.ras:NcclRasReader",
        refuses=why_no_events,
        many_per_rank=True,
    ),
)
