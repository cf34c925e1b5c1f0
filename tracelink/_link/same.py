"""*same*: nodes of execution traces, ranges of Nsight Systems, entries of recorders, and the events they describe.

The recorders of a range were called at its start and end, one after the other: their times differ by microseconds.
Calls are matched with entries that have the same sequence number in the same group, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._link.call_events import Vocabulary
from tracelink._model.columns import (
    MICROSECOND,
    MILLISECOND,
    SECOND,
    UNKNOWN,
    Bools,
    Int64s,
    lookup,
    values_at,
)
from tracelink._model.communications import Communications
from tracelink._model.events import ON_THREAD, Edges, EventKind, Key, KeyColumn, Relation, TrackKind
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import LinkReport, Links, nonzero
from tracelink._model.operations import COLLECTIVE_KERNEL, COLLECTIVE_OPERATOR
from tracelink._model.trace import RankTrace, SourceInfo
from tracelink.plugins import reader_spec

RELATION = "same.et_kineto"
ROOT_NAMES = ("[pytorch|profiler|execution_trace|", "[pytorch|profiler|execution_graph|")
TRUSTED = 0.5
"""The smallest share of equal ids that must have equal names; below it the ids mean different things."""
CERTAIN, MANY = 0.95, 16
"""The share and number of equal ids with equal names that link recordings of processes that differ."""


class _IdPairs(Struct, frozen=True):
    """Nodes and operators with the same id."""

    nodes: Int64s
    operators: Int64s
    same_name: Bools

    @property
    def agreement(self) -> float:
        """The share of pairs with the same name."""
        return float(self.same_name.mean()) if len(self.nodes) else 0.0


def link_execution(trace: RankTrace) -> Links:
    """Nodes to operators: by record-function id, else by External id if it means the same, else by order."""
    nodes = _nodes(trace)
    operators = np.flatnonzero(_profiled(trace))
    if not len(nodes) or not len(operators):
        return Links(Edges.empty(), LinkReport(RELATION, 0, 0))
    others = _other_runs(trace, nodes, operators)
    certain = bool(others) and _equal_ids(trace, nodes, operators)
    links = Links(Edges.empty(), LinkReport(RELATION, 0, 0))
    foreign = np.isin(trace.events.source[nodes], [] if certain else [other.source for other in others])
    if not foreign.all():
        links = _linked(trace, nodes[~foreign], operators)
    count = int(np.count_nonzero(foreign))
    report = replace(
        links.report,
        candidates=links.report.candidates + count,
        unlinked={**links.report.unlinked, **nonzero({"the profile is of another run": count})},
    )
    return Links(links.edges, report, tuple(other.finding(linked=certain) for other in others))


def _linked(trace: RankTrace, nodes: Int64s, operators: Int64s) -> Links:
    handles = _among(trace, trace.key(Key.RECORD_FUNCTION), nodes)
    for key, meaning in ((Key.RECORD_FUNCTION, "record-function id"), (Key.EXTERNAL_ID, "External id")):
        recorded = _among(trace, trace.key(key), operators)
        pairs = _pairs_by_id(trace, handles, recorded)
        if pairs.agreement >= TRUSTED:
            return _linked_by_id(handles, recorded, pairs, meaning)
    from tracelink._link.node_order import link_by_order  # only if there are no ids: costs start-up time

    return link_by_order(RELATION, trace, nodes, operators)


def _equal_ids(trace: RankTrace, nodes: Int64s, operators: Int64s) -> bool:
    """True if so many record-function ids have equal names that both recordings are of the same operators."""
    handles, recorded = (_among(trace, trace.key(Key.RECORD_FUNCTION), rows) for rows in (nodes, operators))
    pairs = _pairs_by_id(trace, handles, recorded)
    return pairs.agreement >= CERTAIN and len(pairs.nodes) >= MANY


def _nodes(trace: RankTrace) -> Int64s:
    """Nodes of something that ran, so without the roots of the process and its threads.

    A trace whose nodes have times was linked already: its remaining nodes match no other operator.
    """
    is_root = np.array([text.startswith(ROOT_NAMES) for text in trace.strings.texts()] or [False], np.bool_)
    identified = trace.key(Key.NODE_ID).rows
    linked = np.unique(trace.events.source[identified[_profiled(trace)[identified]]])
    nodes = np.flatnonzero(trace.events.of_kind(EventKind.NODE) & ~np.isin(trace.events.source, linked))
    return nodes[~is_root[trace.events.name[nodes]]]


def _profiled(trace: RankTrace) -> Bools:
    return trace.events.of_kind(EventKind.OPERATOR, EventKind.ANNOTATION)


def _among(trace: RankTrace, column: KeyColumn, rows: Int64s) -> KeyColumn:
    chosen = np.zeros(len(trace.events), np.bool_)
    chosen[rows] = True
    return column.take(chosen[column.rows])


def _pairs_by_id(trace: RankTrace, handles: KeyColumn, recorded: KeyColumn) -> _IdPairs:
    found = lookup(recorded.values, handles.values)
    nodes, operators = handles.rows[found != UNKNOWN], recorded.rows[found[found != UNKNOWN]]
    return _IdPairs(nodes, operators, trace.events.name[nodes] == trace.events.name[operators])


def _linked_by_id(handles: KeyColumn, recorded: KeyColumn, pairs: _IdPairs, meaning: str) -> Links:
    """Candidates are the nodes with ids from the profiled time."""
    first, last = int(recorded.values.min()), int(recorded.values.max())
    inside = int(np.count_nonzero((handles.values >= first) & (handles.values <= last)))
    edges = Edges.of_relation(Relation.SAME, pairs.nodes[pairs.same_name], pairs.operators[pairs.same_name])
    renamed = len(pairs.nodes) - len(edges)
    missing = inside - len(pairs.nodes)
    unlinked = {
        "the profile has a different name for its id": renamed,
        "its id is not in the profile": missing,
    }
    notes = {
        "nodes outside the profiled time": len(handles) - inside,
        f"linked by {meaning}": len(edges),
    }
    return Links(
        edges,
        LinkReport(
            RELATION,
            len(edges),
            inside,
            nonzero(unlinked),
            nonzero(notes),
        ),
    )


# Whether an execution trace and the profiles of its rank are of one run: their processes and times.


TOLERANCE = 48 * 3600 * SECOND
"""The time of an execution trace has no time zone, and its recording may be longer than the profile."""

FIRST_TIME = 10**18
"""Earlier times (before 2001) are not times since 1970."""


class _OtherRun(Struct, frozen=True):
    """An execution trace that is of the run of no profile of its rank."""

    source: int
    path: str
    profile: str
    nodes: int
    evidence: str

    def finding(self, *, linked: bool) -> Finding:
        """The finding; `linked` if ids link the two nevertheless."""
        severity, consequence = (
            (Severity.INFO, "Linked nevertheless: ids and names of the operators are equal.")
            if linked
            else (Severity.WARNING, "They are not linked; give an execution trace and a profile of one run.")
        )
        text = f"{self.path} and {self.profile} are not of one run: {self.evidence}. {consequence}"
        return Finding(severity, "different_runs", text, self.nodes, self.path)


def _other_runs(trace: RankTrace, nodes: Int64s, operators: Int64s) -> list[_OtherRun]:
    """The execution traces (sources of `nodes`) that differ from every profile (sources of `operators`)."""
    sources, counts = np.unique(trace.events.source[nodes], return_counts=True)
    profiles = np.unique(trace.events.source[operators]).tolist()
    name = trace.events.name
    others = []
    for source, count in zip(sources.tolist(), counts.tolist(), strict=True):
        evidence = [_evidence(trace, source, profile) for profile in profiles]
        if not np.isin(name[nodes[trace.events.source[nodes] == source]], name[operators]).any():
            evidence = ["the profile has no operator with the name of a node", *evidence]
        elif not all(evidence):
            continue
        others.append(_OtherRun(source, *_paths(trace, source, profiles[0]), count, evidence[0]))
    return others


def _paths(trace: RankTrace, source: int, profile: int) -> tuple[str, str]:
    return trace.sources[source].path, trace.sources[profile].path


def _evidence(trace: RankTrace, source: int, profile: int) -> str:
    """The reason why two sources are of different runs; empty if nothing contradicts that they are of one."""
    reasons = []
    recorded, pids = trace.sources[source], _processes(trace, profile)
    if recorded.pid and pids and recorded.pid not in pids:
        reasons.append(f"their processes are {recorded.pid} and {', '.join(map(str, sorted(pids)[:3]))}")
    if apart := _times(recorded, trace.sources[profile]):
        reasons.append(apart)
    return "; ".join(reasons)


def _processes(trace: RankTrace, profile: int) -> set[int]:
    counts = np.bincount(trace.events.track[trace.events.source == profile], minlength=len(trace.tracks))
    tracks = [trace.tracks[number] for number in np.flatnonzero(counts).tolist()]
    threads = [track.process for track in tracks if track.kind == TrackKind.THREAD]
    return {int(process) for process in threads if process.isdecimal()} - {0}


def _times(recorded: SourceInfo, profile: SourceInfo) -> str:
    local, start, end = recorded.local_time_ns, profile.start_ns, profile.end_ns
    if local is None or start is None or end is None or start < FIRST_TIME:
        return ""
    if start - TOLERANCE <= local <= end + TOLERANCE:
        return ""
    return f"they were recorded {_date(local)} and {_date(start)}"


def _date(time: int) -> str:
    return str(np.datetime64(time // SECOND, "s")).replace("T", " ")


# Ranges of Nsight Systems.

RELATION_OF_RANGES = "same.nsys"
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
        return LinkedRanges(Links(Edges.empty(), LinkReport(RELATION_OF_RANGES, 0, 0)), trace)
    found = _by_id(trace, ranges, profiled, process)
    left = found == UNKNOWN
    found[left] = _by_time(trace, ranges[left], np.setdiff1d(profiled, found), process)
    linked = found != UNKNOWN
    edges = Edges.of_relation(Relation.SAME, ranges[linked], found[linked])
    kind = events.kind.copy()
    kind[edges.source] = EventKind.OTHER
    unlinked = {"no event of the profile has its name and time": int(np.count_nonzero(~linked))}
    notes = {"linked by name and time": int(np.count_nonzero(linked & left))}
    report = LinkReport(RELATION_OF_RANGES, len(edges), len(ranges), nonzero(unlinked), nonzero(notes))
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
    """The distance between the times of both recorders."""
    start, end = trace.events.start, trace.events.end
    starts = np.abs(start[edges.target] - start[edges.source]) / MICROSECOND
    ends = np.abs(end[edges.target] - end[edges.source]) / MICROSECOND
    path = trace.sources[int(trace.events.source[edges.source[0]])].path
    text = (
        f"{path}: ranges and the same events of the profile start {np.median(starts):.1f} µs and end "
        f"{np.median(ends):.1f} µs apart (medians; at most {starts.max():.0f} µs)."
    )
    return Finding(Severity.INFO, "times_of_ranges", text, len(edges), path)


# Sequence numbers: calls and entries with the same number in the same group.


def _sequence_keys(group: Any, point_to_point: Any, sequence: Any) -> Int64s:
    """One value for each group, kind (collective or message) and number; UNKNOWN if group or number is unknown."""
    known = (group != UNKNOWN) & (sequence != UNKNOWN)
    number = (sequence.astype(np.int64) << 24 | group.astype(np.int64)) << 1 | point_to_point
    return np.where(known, number, UNKNOWN)


def records_by_number(
    table: Communications, records: Int64s, attributes: Mapping[str, Any], open_calls: Int64s
) -> Int64s:
    """For each of `open_calls` the record with the same number, or UNKNOWN."""
    numbers = _sequence_keys(attributes["group"], attributes["point_to_point"], attributes["sequence"])[
        open_calls
    ]
    return values_at(records, _match_keys(numbers, _declared_numbers(table, records)))


def _declared_numbers(table: Communications, rows: Int64s) -> Int64s:
    """The keys of the numbers that events state."""
    statement = lookup(table.row, rows)
    group, sequence = values_at(table.group, statement), values_at(table.sequence, statement)
    return _sequence_keys(group, values_at(table.point_to_point, statement, False), sequence)


def _match_keys(keys: Int64s, other_keys: Int64s) -> Int64s:
    """For each key the index of the same key in `other_keys`, or UNKNOWN.

    Several with one key were issued together, and match in order if there are equally many on both sides.
    """
    values, index = np.unique(np.concatenate([keys, other_keys]), return_inverse=True)
    code, other_code = index[: len(keys)], index[len(keys) :]
    as_many = np.bincount(code, minlength=len(values)) == np.bincount(other_code, minlength=len(values))
    turn, other_turn = _turns(code), _turns(other_code)
    most = int(max(turn.max(initial=0), other_turn.max(initial=0))) + 1
    found = lookup(other_code * most + other_turn, code * most + turn)
    return np.where((keys != UNKNOWN) & as_many[code], found, UNKNOWN)


def _turns(values: Int64s) -> Int64s:
    """The number of equal values before each one."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    turns = np.empty(len(values), np.int64)
    turns[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return turns


# The linkers.


DEEPEST = 16
"""The most collective operators that are looked back for one that is still running: few enclose each other."""


class _Thread(Struct, frozen=True):
    """The collective operators of one thread, by start; an operator comes before those that it encloses."""

    rows: list[int]
    start: Int64s
    end: Int64s
    names: Sequence[str]

    def running(self, time: int) -> Iterator[int]:
        """Positions of the operators that run at `time`, innermost first."""
        last = int(np.searchsorted(self.start, time, side="right"))
        for position in range(last - 1, max(last - DEEPEST, 0) - 1, -1):
            if self.end[position] >= time:
                yield position


def link_recorder(trace: RankTrace) -> Links:
    """Entry to the operator with its number, else to the operator that ran when it was created."""
    events = trace.events
    entries = np.flatnonzero(events.of_kind(EventKind.RECORD) & events.timed)
    inside = entries[profiled(trace, events.start[entries])]
    operator = _by_number(trace, inside)
    numbered = int(np.count_nonzero(operator != UNKNOWN))
    if numbered < len(inside):
        _records_by_time(trace, inside, operator)
    linked = operator != UNKNOWN
    edges = Edges.of_relation(Relation.SAME, inside[linked], operator[linked])
    missing, outside = len(inside) - len(edges), len(entries) - len(inside)
    notes = {
        "entries outside the profiled time": outside if events.of_kind(*ON_THREAD).any() else 0,
        "linked by number": numbered,
    }
    report = LinkReport(
        "same.recorder_kineto",
        linked=len(edges),
        candidates=len(inside),
        unlinked=nonzero({"no collective operator ran when it was created": missing}),
        notes=nonzero(notes),
    )
    return Links(edges, report)


def _by_number(trace: RankTrace, entries: Int64s) -> Int64s:
    """The operator with the same number in the same group, or UNKNOWN; not all profiles have numbers."""
    table, vocabulary = trace.communications, Vocabulary(trace.strings)
    numbered = (table.sequence != UNKNOWN) & (trace.events.kind[table.row] == EventKind.OPERATOR)
    numbered &= ~vocabulary.moves_no_data(table.operation)
    rows = table.row[numbered]
    found: Int64s = values_at(
        rows, _match_keys(_declared_numbers(table, entries), _declared_numbers(table, rows))
    )
    return found


def _records_by_time(trace: RankTrace, entries: Int64s, operator: Int64s) -> None:
    """Fills in the operator that ran when each entry was created."""
    threads, texts = _threads(trace), trace.strings.texts()
    for index in np.flatnonzero(operator == UNKNOWN).tolist():
        entry = entries[index]
        row = _operator_of(int(trace.events.start[entry]), texts[trace.events.name[entry]], threads)
        operator[index] = UNKNOWN if row is None else row


def link_recorder_kernels(trace: RankTrace, recorded: Edges, launches: Edges) -> Links:
    """Entry to the collective kernels that were launched on its operator's thread while the operator ran."""
    events = trace.events
    kernel = Vocabulary(trace.strings).matches(COLLECTIVE_KERNEL, events.name[launches.target])
    call, work = launches.source[kernel], launches.target[kernel]
    order = np.argsort(events.start[call], kind="stable")
    call, work = call[order], work[order]
    source: list[int] = []
    target: list[int] = []
    first = np.searchsorted(events.start[call], events.start[recorded.target])
    last = np.searchsorted(events.start[call], events.end[recorded.target], side="right")
    for entry, operator, begin, end in zip(
        recorded.source.tolist(), recorded.target.tolist(), first.tolist(), last.tolist(), strict=True
    ):
        same_thread = events.track[call[begin:end]] == events.track[operator]
        found = work[begin:end][same_thread].tolist()
        source += [entry] * len(found)
        target += found
    edges = Edges.of_relation(Relation.SAME, np.array(source, np.int64), np.array(target, np.int64))
    candidates = len(recorded) if len(work) else 0
    with_kernel = len(set(source))
    without_kernel = candidates - with_kernel
    reasons = nonzero({"its operator launched no collective kernel": without_kernel})
    return Links(edges, LinkReport("same.recorder_kernel", with_kernel, candidates, reasons))


def profiled(trace: RankTrace, time: Int64s) -> Bools:
    """True for times between the first and the last event of a profile's threads."""
    events = trace.events
    inside = np.zeros(len(time), np.bool_)
    if not len(time):
        return inside
    seen = events.of_kind(*ON_THREAD) & events.timed
    for source in np.unique(events.source[seen]):
        chosen = seen & (events.source == source)
        inside |= (time >= events.start[chosen].min()) & (time <= events.end[chosen].max())
    return inside


def _threads(trace: RankTrace) -> list[_Thread]:
    texts = trace.strings.texts()
    named = np.array([bool(COLLECTIVE_OPERATOR.search(text)) for text in texts] or [False], np.bool_)
    events = trace.events
    rows = np.flatnonzero(events.of_kind(EventKind.OPERATOR) & named[events.name] & events.timed)
    rows = rows[np.lexsort((-events.end[rows], events.start[rows], events.track[rows]))]
    threads = []
    for track in np.unique(events.track[rows]):
        chosen = rows[events.track[rows] == track]
        names = [texts[code] for code in events.name[chosen].tolist()]
        threads.append(_Thread(chosen.tolist(), events.start[chosen], events.end[chosen], names))
    return threads


def _operator_of(time: int, name: str, threads: Sequence[_Thread]) -> int | None:
    """The innermost operator at `time`; of several threads one with the operation of the entry."""
    around = [
        (_same_operation(name, thread.names[position]), int(thread.start[position]), thread.rows[position])
        for thread in threads
        if (position := next(thread.running(time), None)) is not None
    ]
    return max(around)[2] if around else None


def _same_operation(entry: str, operator: str) -> bool:
    return _plain(entry.rsplit(":", 1)[-1]) in _plain(operator.rsplit(":", 1)[-1])


def _plain(name: str) -> str:
    return name.replace("_", "").split(" ", 1)[0].lower()
