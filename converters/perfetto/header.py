"""What stands around the events: the facts on the job, and each rank's header."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tracelink.converters.perfetto.schema import OWN_HEADER, PRIVATE, REPLACED
from tracelink.converters.perfetto.text import encoded
from tracelink.graph import Rank
from tracelink.job import Job
from tracelink.trace import SourceInfo

PROFILER_KEYS = frozenset({"deviceProperties", "distributedInfo"})
"""A header with one of these is a profiler's."""

EVENTS = b',\n"traceEvents": [\n'
END = b"\n]\n}\n"
LAST = b"}"
"""Closes the last event."""


def opening(job: Job, base: int) -> bytes:
    """Everything before the list of events."""
    values: dict[str, Any] = {"schemaVersion": 1}
    lone = _lone_header(job)
    if lone is not None:
        values |= lone
    values |= {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": base,
        OWN_HEADER: {"ranks": [_rank(job, rank, brief=lone is not None) for rank in job.ranks]},
    }
    return unclosed_object(values)


def unclosed_object(values: Mapping[str, Any]) -> bytes:
    """The text of an object, a member on each line, left open for more of them."""
    lines = [b"%s: %s" % (encoded(key), encoded(value)) for key, value in values.items()]
    return b"{\n" + b",\n".join(lines)


def _lone_header(job: Job) -> dict[str, Any] | None:
    """The header of a single rank's profile, at the top level where other tools look for it."""
    if len(job.ranks) != 1:
        return None
    rank = job.ranks[0]
    header: dict[str, Any] = {"deviceProperties": [], "distributedInfo": {}}
    for source in job.sources:
        if PROFILER_KEYS & source.header.keys():
            header |= _public(source.header)
            break
    known = {} if rank.world_size is None else {"world_size": rank.world_size}
    header["distributedInfo"] = known | dict(header["distributedInfo"] or {}) | {"rank": rank.rank}
    return header


def _rank(job: Job, rank: Rank, *, brief: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {"rank": rank.rank, "clock_offset_ns": rank.clock_offset_ns}
    clock = {
        "clock_drift_ppm": rank.clock_drift_ppm or None,
        "clock_low_ns": rank.clock_low_ns,
        "clock_high_ns": rank.clock_high_ns,
        "clock_uncertainty_ns": rank.clock_uncertainty_ns,
    }
    facts |= {name: value for name, value in clock.items() if value is not None}
    if rank.world_size is not None:
        facts["world_size"] = rank.world_size
    facts["sources"] = [
        _source(source, brief=brief) for source in job.sources if source.rank in (rank.rank, None)
    ]
    return facts


def _source(source: SourceInfo, *, brief: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {"format": source.format}
    if source.version:
        facts["version"] = source.version
    if not brief:
        facts |= _public(source.header)
    return facts


def _public(header: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in header.items() if key not in PRIVATE | REPLACED}


def unclosed(events: Iterator[dict[str, Any]]) -> bytes:
    """The text of events, the last of them left open for the next event to close."""
    return b"},\n".join(encoded(event).removesuffix(b"}") for event in events)
