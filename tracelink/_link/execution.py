"""*same*: an execution-trace node and the profiled operator that it describes."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._model.columns import SECOND, UNKNOWN, Bools, Int64s, lookup
from tracelink._model.events import Edges, EventKind, Key, KeyColumn, Relation, TrackKind
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import LinkReport, Links, nonzero
from tracelink._model.trace import RankTrace, SourceInfo

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
    """Whether so many record-function ids have equal names that both recordings are of the same operators."""
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
    """Why two sources are of different runs; empty if nothing contradicts that they are of one."""
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
