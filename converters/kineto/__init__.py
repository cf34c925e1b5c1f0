"""Kineto: the Chrome trace that `torch.profiler` writes."""

from __future__ import annotations

from tracelink.plugins import Content, Format, ReaderSpec

__all__ = ["KINETO"]

MARKS = (b'"traceEvents"', b'"deviceProperties"', b'"distributedInfo"', b'"baseTimeNanoseconds"')
DISTRIBUTED_MARK = b"distributedInfo"
TIMELINE_MARK = b'"tracelink": {"'
"""Part of the header of a timeline that tracelink wrote."""


def is_kineto(head: bytes, name: str) -> bool:
    """True for an object with the keys of a Chrome trace, and for a bare array of events."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith(b"["):
        return b'"ph"' in text and b'"ts"' in text
    return text.startswith(b"{") and any(mark in head for mark in MARKS)


def refusal(head: bytes) -> str:
    """Why a timeline of several ranks is not read; empty for all other files."""
    if not is_timeline_of_ranks(head):
        return ""
    return (
        "a timeline of several ranks that tracelink wrote; its ranks cannot be separated. "
        "Give tracelink the files that it was made of, or its .pftrace."
    )


def is_timeline_of_ranks(head: bytes) -> bool:
    """True for a timeline of several ranks: that of one rank has the header of its profile, too."""
    before, mark, _ = head.partition(TIMELINE_MARK)
    return bool(mark) and DISTRIBUTED_MARK not in before


KINETO = Format(
    "kineto",
    reader=ReaderSpec(
        "torch.profiler (Kineto) Chrome trace, 2020 to 2026: .json, .json.gz",
        is_kineto,
        "tracelink.converters.kineto.reader:KinetoReader",
        refusal,
        content=Content.PROFILE,
        shown_unchanged=True,
    ),
)
