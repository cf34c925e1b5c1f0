"""*same*: a range that Nsight Systems recorded, and the event of a profile that describes the same code.

Both recorders were called at the start and at the end of it, one after the other: their times differ by microseconds.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._model.columns import MICROSECOND, MILLISECOND, UNKNOWN, Bools, Int64s, lookup, values_at
from tracelink._model.events import Edges, EventKind, Key, Relation
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import LinkReport, Links, nonzero
from tracelink._model.trace import RankTrace
from tracelink.plugins import reader_spec

RELATION = "same.nsys"
FARTHEST_NS = MILLISECOND
"""Starts of ranges without an id that are further apart are of different code."""
DESCRIBED = (EventKind.OPERATOR, EventKind.ANNOTATION)


class LinkedRanges(Struct, frozen=True):
    """The edges, and the trace in which each operator occurs once."""

    links: Links
    distinct: RankTrace
    """Without the kinds of ranges that are the same as a profiled event: other linkers leave them out."""


def link_ranges(trace: RankTrace) -> LinkedRanges:
    """Ranges to profiled events: by record-function id, else by name and time within the same process."""
    events = trace.events
    systems = [
        number for number, source in enumerate(trace.sources) if reader_spec(source.format).repeats_profiles
    ]
    described = events.of_kind(*DESCRIBED) & events.timed
    of_system = np.isin(events.source, systems)
    ranges, profiled = np.flatnonzero(described & of_system), np.flatnonzero(described & ~of_system)
    process = _process_of_tracks(trace)[events.track]
    profiled = profiled[np.isin(process[profiled], process[ranges])]
    ranges = ranges[np.isin(process[ranges], process[profiled])]
    if not len(profiled) or not len(ranges):
        return LinkedRanges(Links(Edges.empty(), LinkReport(RELATION, 0, 0)), trace)
    found = _by_id(trace, ranges, profiled, process)
    left = found == UNKNOWN
    found[left] = _by_time(trace, ranges[left], np.setdiff1d(profiled, found), process)
    linked = found != UNKNOWN
    edges = Edges.of_relation(Relation.SAME, ranges[linked], found[linked])
    kind = events.kind.copy()
    kind[edges.source] = EventKind.OTHER
    unlinked = {"no event of the profile has its name and time": int(np.count_nonzero(~linked))}
    notes = {"linked by name and time": int(np.count_nonzero(linked & left))}
    report = LinkReport(RELATION, len(edges), len(ranges), nonzero(unlinked), nonzero(notes))
    findings = (_apart(trace, edges),) if len(edges) else ()
    return LinkedRanges(Links(edges, report, findings), replace(trace, events=replace(events, kind=kind)))


def _process_of_tracks(trace: RankTrace) -> Int64s:
    """A number for the process of each track."""
    _, number = np.unique([track.process for track in trace.tracks], return_inverse=True)
    return number.astype(np.int64)


def _by_id(trace: RankTrace, ranges: Int64s, profiled: Int64s, process: Int64s) -> Int64s:
    """The profiled event with the record-function id and the name of each range, or UNKNOWN."""
    column = trace.key(Key.RECORD_FUNCTION)
    known = values_at(column.values, lookup(column.rows, ranges))
    recorded = column.take(np.isin(column.rows, profiled))
    row = values_at(recorded.rows, lookup(recorded.values, known))
    name = trace.events.name
    same = (
        (known != UNKNOWN)
        & (row != UNKNOWN)
        & (name[row] == name[ranges])
        & (process[row] == process[ranges])
    )
    return np.where(same, row, UNKNOWN)


def _by_time(trace: RankTrace, ranges: Int64s, profiled: Int64s, process: Int64s) -> Int64s:
    """The profiled event of the same name and process that starts nearest to each range, and has no nearer one."""
    start = trace.events.start
    label = trace.events.name.astype(np.int64) * (int(process.max(initial=0)) + 1) + process
    there = nearest(label[ranges], start[ranges], label[profiled], start[profiled])
    back = nearest(label[profiled], start[profiled], label[ranges], start[ranges])
    mutual = (there != UNKNOWN) & (values_at(back, there) == np.arange(len(ranges)))
    row = values_at(profiled, there)
    near: Bools = mutual & (np.abs(start[ranges] - start[row]) <= FARTHEST_NS)
    return np.where(near, row, UNKNOWN)


def nearest(label: Int64s, time: Int64s, labels: Int64s, times: Int64s) -> Int64s:
    """For each label and time the index of the nearest of `times` with an equal one of `labels`, or UNKNOWN."""
    if not len(labels):
        return np.full(len(label), UNKNOWN, np.int64)
    order = np.lexsort((times, labels))
    both = np.lexsort((np.repeat([0, 1], [len(times), len(time)]), np.concatenate([times, time]),
                       np.concatenate([labels, label])))  # fmt: skip
    is_other = both < len(times)
    before = np.empty(len(both), np.int64)
    before[both] = np.cumsum(is_other) - 1
    before = before[len(times) :]
    after = before + 1
    first = _candidate(order, before, label, labels)
    second = _candidate(order, after, label, labels)
    far = np.iinfo(np.int64).max
    gaps = [np.where(one == UNKNOWN, far, np.abs(times[one] - time)) for one in (first, second)]
    return np.where(gaps[0] <= gaps[1], first, second)


def _candidate(order: Int64s, position: Int64s, label: Int64s, labels: Int64s) -> Int64s:
    inside = (position >= 0) & (position < len(order))
    row = np.where(inside, order[np.clip(position, 0, len(order) - 1)], UNKNOWN)
    return np.where(inside & (labels[row] == label), row, UNKNOWN)


def _apart(trace: RankTrace, edges: Edges) -> Finding:
    """How far the times of both recorders are apart."""
    start, end = trace.events.start, trace.events.end
    starts = np.abs(start[edges.target] - start[edges.source]) / MICROSECOND
    ends = np.abs(end[edges.target] - end[edges.source]) / MICROSECOND
    path = trace.sources[int(trace.events.source[edges.source[0]])].path
    text = (
        f"{path}: ranges and the same events of the profile start {np.median(starts):.1f} µs and end "
        f"{np.median(ends):.1f} µs apart (medians; at most {starts.max():.0f} µs)."
    )
    return Finding(Severity.INFO, "times_of_ranges", text, len(edges), path)
