"""What a Kineto file says of itself: rank, host, groups, devices."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tracelink.converters.kineto.schema import (
    BASE_TIME,
    DISTRIBUTED,
    HOST,
    KEPT_HEADER,
    PRODUCER_VERSIONS,
    SCHEMA_VERSION,
    TIMELINE_MARK,
)
from tracelink.converters.kineto.times import LATEST_US
from tracelink.events import EventKind, Events, Track, TrackKind
from tracelink.ranks import LARGEST_RANK
from tracelink.sources import Source
from tracelink.trace import ProcessGroup, SourceInfo


def source_info(
    source: Source, header: Mapping[str, Any], events: Events, tracks: Sequence[Track], records: int
) -> SourceInfo:
    """What is known of the file now."""
    distributed = _mapping(header.get(DISTRIBUTED))
    timed = ~events.of_kind(EventKind.SPAN, EventKind.OVERHEAD)
    start, end = events.start[timed], events.end[timed]
    return SourceInfo(
        path=source.path,
        format="kineto",
        version=_version(header),
        rank=_up_to(LARGEST_RANK, distributed.get("rank")),
        host=str(header.get(HOST, "")),
        world_size=_up_to(LARGEST_RANK + 1, distributed.get("world_size")),
        pid=_process(events, tracks),
        events=len(events),
        records=records,
        bytes=source.bytes,
        start_ns=int(start.min()) if len(start) else None,
        end_ns=int(end.max()) if len(end) else None,
        zero_ns=base_time(header) or 0,
        header={key: header[key] for key in KEPT_HEADER if key in header},
    )


def is_timeline_of_ranks(head: bytes) -> bool:
    """Whether a file begins as tracelink's do of several ranks: that of one rank has its profile's header, too."""
    before, mark, _ = head.partition(TIMELINE_MARK)
    return bool(mark) and DISTRIBUTED.encode() not in before


def base_time(header: Mapping[str, Any]) -> int | None:
    """Nanoseconds to add to every time of the file; None where the header says something that is no time."""
    try:
        base = int(header.get(BASE_TIME, 0))
    except (TypeError, ValueError, OverflowError):
        return None
    return base if abs(base) <= LATEST_US * 1000 else None


def process_groups(header: Mapping[str, Any]) -> list[ProcessGroup]:
    """The groups in the header; on-demand traces write the ranks of a group as text."""
    configured = _mapping(header.get(DISTRIBUTED)).get("pg_config")
    if not isinstance(configured, list):
        return []
    return [_group(group) for group in configured if isinstance(group, dict)]


def _group(group: Mapping[str, Any]) -> ProcessGroup:
    ranks = _ranks(group.get("ranks"))
    return ProcessGroup(
        name=str(group.get("pg_name", "")),
        description=str(group.get("pg_desc", "")),
        ranks=ranks,
        size=_whole(group.get("pg_size")) or len(ranks),
        backend=str(group.get("backend_config", "")),
    )


def _version(header: Mapping[str, Any]) -> str:
    schema = str(header.get(SCHEMA_VERSION, ""))
    producers = [
        f"{name.removesuffix('_version')} {header[name]}" for name in PRODUCER_VERSIONS if name in header
    ]
    return ", ".join([schema, *producers[:1]]) if schema else "".join(producers[:1])


def _process(events: Events, tracks: Sequence[Track]) -> int | None:
    """The process that most CPU events are of."""
    counts = np.bincount(events.track, minlength=len(tracks))
    threads = [
        (int(counts[row]), track.process)
        for row, track in enumerate(tracks)
        if track.kind == TrackKind.THREAD and track.process.isdecimal()
    ]
    totals: dict[str, int] = {}
    for count, process in threads:
        totals[process] = totals.get(process, 0) + count
    return int(max(totals, key=lambda process: totals[process])) if totals else None


def _ranks(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return ()
    numbers = tuple(_integers(value)) if isinstance(value, list) else ()
    return numbers if all(0 <= number <= LARGEST_RANK for number in numbers) else ()


def _integers(values: Iterable[Any]) -> Iterable[int]:
    return (value for value in values if isinstance(value, int))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _up_to(largest: int, value: Any) -> int | None:
    number = _whole(value)
    return None if number is None or not 0 <= number <= largest else number


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
