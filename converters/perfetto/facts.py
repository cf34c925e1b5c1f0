"""Facts that both formats write as JSON objects: the header of a job, and the arguments that tracelink adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tracelink.converters.perfetto.json_text import Texts, micros, numbers, quoted, table, unclosed_object
from tracelink.converters.perfetto.timeline.drawing import Drawing
from tracelink.converters.perfetto.timeline.groups import group_label, numbers_in_group
from tracelink.converters.perfetto.timeline.hangs import Arrivals
from tracelink.converters.perfetto.timeline.job import Wanted
from tracelink.converters.perfetto.timeline.schema import (
    AWAITED_ARGUMENT,
    COLLECTIVE,
    DURATION_ARGUMENT,
    GROUP_ARGUMENT,
    LAST_ARGUMENT,
    LINK,
    NODE_ARGUMENT,
    WAIT_ARGUMENT,
)
from tracelink.model.columns import UNKNOWN, Bools, Int32s, Int64s
from tracelink.model.events import Key
from tracelink.model.graph import EventGraph, Rank
from tracelink.model.job import Job
from tracelink.model.trace import SourceInfo
from tracelink.ranges import Numbers

SaidOf = Mapping[str, Mapping[int, bytes]]
"""For each argument that others stand in, the rows that have it: its members as those of a JSON object."""


MOST_WAITS = 64
"""Waits that a slice lists at most: the longest."""


PROFILER_KEYS = frozenset({"deviceProperties", "distributedInfo"})
"""A header with one of these is a profiler's."""


OWN_HEADER = "tracelink"
"""What is said here of the ranks stands under this key of the document."""


PRIVATE = frozenset({"traceName", "username", "host_name", "INFO", "ERROR", "metadata"})
"""Parts of a source's header that hold host names and paths."""


REPLACED = frozenset({"traceEvents", "baseTimeNanoseconds", "displayTimeUnit"})
"""Parts of a source's header that the output has values of its own for."""


# The header: what is known of the job and of each rank's sources.


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


# Arguments of the events of a rank: links without a flow, and the collectives that they are parts of.


def said_of(graph: EventGraph, drawing: Drawing, job: Job, wanted: Wanted) -> SaidOf:
    """What is said of the events of one rank that are drawn."""
    if wanted == Wanted.NONE:
        return {}
    shown = drawing.shown.tolist()
    parts = memberships(job, graph.ranks[0].rank)
    return {
        LINK: said_of_links(graph, drawing),
        COLLECTIVE: {row: members for row, members in parts.items() if shown[row]},
    }


def said_of_links(graph: EventGraph, drawing: Drawing) -> dict[int, bytes]:
    """Members of a JSON object for some rows: that the end is unknown, the node that is the same."""
    said = dict.fromkeys(drawing.open_ended.tolist(), b'"%s":false' % DURATION_ARGUMENT.encode())
    ids = graph.key(Key.NODE_ID).dense(len(graph), -1) if drawing.nodes else drawing.open_ended
    for row, node in drawing.nodes.items():
        add_member(said, row, b'"%s":%d' % (NODE_ARGUMENT.encode(), ids[node]))
    return said


def add_member(members: dict[int, bytes], row: int, member: bytes) -> None:
    """Puts a member behind those that the row has."""
    members[row] = members[row] + b"," + member if row in members else member


def memberships(job: Job, rank: int) -> Mapping[int, bytes]:
    """For the rows of a rank that stand for its part in a collective: members of a JSON object."""
    mine = np.flatnonzero(job.participations.rank == rank)
    which = job.participations.collective[mine]
    last = np.where(job.collectives.skew[which] == UNKNOWN, UNKNOWN, job.collectives.last_rank[which])
    rest = [
        waited + _lastness(last_rank, rank)
        for waited, last_rank in zip(
            _waits_membership(job.participations.wait[mine]), last.tolist(), strict=True
        )
    ]
    labels = [group_label(group) for group in job.groups]
    groups = job.collectives.group[which].tolist()
    numbers = numbers_in_group(job.collectives, which).tolist()
    names = [f"{labels[group]} #{number}" for group, number in zip(groups, numbers, strict=True)]
    places: dict[int, list[int]] = {}
    for column in job.participations.event_columns():
        rows = getattr(job.participations, column)[mine]
        known = np.flatnonzero(rows != UNKNOWN)
        for place, row in zip(known.tolist(), rows[known].tolist(), strict=True):
            places.setdefault(row, []).append(place)
    key = b'"%s":' % GROUP_ARGUMENT.encode()
    return {
        row: key + quoted(", ".join([names[place] for place in of])) + rest[of[-1]]
        for row, of in places.items()
    }


def _waits_membership(wait: Int64s) -> list[bytes]:
    key = b',"%s":' % WAIT_ARGUMENT.encode()
    return [
        key + text if known else b""
        for text, known in zip(micros(wait), (wait != UNKNOWN).tolist(), strict=True)
    ]


def _lastness(last_rank: int, rank: int) -> bytes:
    if last_rank == UNKNOWN:
        return b""
    if last_rank == rank:
        return b',"%s":true' % LAST_ARGUMENT.encode()
    return b',"%s":%d' % (AWAITED_ARGUMENT.encode(), last_rank)


# Arguments of the slices and instants on the tracks of process groups.


@dataclass(frozen=True, slots=True)
class Grouped:
    """Participations by collective, where those of each begin, and how their ranks are written."""

    order: Int64s
    begins: Int64s
    keys: Texts
    """For each rank, the beginning of its wait."""

    def of(self, collectives: Int64s) -> tuple[Int64s, Int64s]:
        """The participations of these collectives one after the other, and where those of each begin."""
        first, counts = self.begins[collectives], np.diff(self.begins)[collectives]
        cuts = np.concatenate([[0], np.cumsum(counts)])
        return self.order[np.arange(cuts[-1]) + np.repeat(first - cuts[:-1], counts)], cuts


def grouped_parts(job: Job) -> Grouped:
    """The participations of a job by collective."""
    parts = job.participations
    order = np.argsort(parts.collective, kind="stable")
    begins = np.searchsorted(parts.collective[order], np.arange(len(job.collectives) + 1))
    ranks = int(parts.rank.max(initial=-1)) + 1
    return Grouped(order, begins, table((b'"rank %d":' % rank for rank in range(ranks)), ranks))


def facts_of(job: Job, parts: Grouped, rows: Int64s, open_ended: Bools) -> list[bytes]:
    """What is known of collectives, as JSON objects."""
    whole = job.collectives
    mine, cuts = parts.of(rows)
    present, absent = _ranks(job, rows, mine, cuts)
    always = np.ones(len(rows), np.bool_)
    skew, duration = whole.skew[rows], whole.duration[rows]
    rates = [np.round(rate[rows], 3) for rate in (whole.algorithm_gb_s, whole.bus_gb_s)]
    verdicts = _texts(job, whole.verdict[rows])
    columns = [
        _members_group_facts("sequence", numbers(numbers_in_group(whole, rows)), always),
        _members_group_facts("ranks", present, always),
        _members_group_facts("missing ranks", absent, np.array([bool(text) for text in absent])),
        _members_group_facts("bytes", numbers(whole.bytes[rows]), whole.bytes[rows] != UNKNOWN),
        _members_group_facts(
            "last rank", numbers(whole.last_rank[rows].astype(np.int64)), whole.last_rank[rows] != UNKNOWN
        ),
        _members_group_facts("skew_us", micros(skew), skew != UNKNOWN),
        _members_group_facts("duration_us", micros(duration), duration != UNKNOWN),
        _members_group_facts("algorithm GB/s", numbers(rates[0]), np.isfinite(rates[0])),
        _members_group_facts("bus GB/s", numbers(rates[1]), np.isfinite(rates[1])),
        _members_group_facts("verdict", verdicts, whole.verdict[rows] != UNKNOWN),
        _members_group_facts(DURATION_ARGUMENT, [b"false"] * len(rows), open_ended),
        _waits(job, parts, mine, cuts),
    ]
    return [b"{%s}" % b"".join(texts)[1:] for texts in zip(*columns, strict=True)]


def _texts(job: Job, codes: Int32s) -> list[bytes]:
    """Texts as JSON; empty where unknown."""
    distinct, which = np.unique(codes, return_inverse=True)
    texts = [b"" if code == UNKNOWN else quoted(job.strings[code]) for code in distinct.tolist()]
    return [texts[number] for number in which.tolist()]


def _members_group_facts(name: str, values: list[bytes], known: Bools) -> list[bytes]:
    """A member with a comma before it, or nothing where it is not known."""
    key = b',"%s":' % name.encode()
    return [key + value if tells else b"" for value, tells in zip(values, known.tolist(), strict=True)]


def _ranks(job: Job, rows: Int64s, mine: Int64s, cuts: Int64s) -> tuple[list[bytes], list[bytes]]:
    """Who took part and who of the group did not: few sets of ranks take part in many collectives."""
    texts: dict[tuple[int, bytes], tuple[bytes, bytes]] = {}
    found = []
    ranks, groups = job.participations.rank[mine], job.collectives.group[rows].tolist()
    for group, (low, high) in zip(groups, pairwise(cuts.tolist()), strict=True):
        key = group, ranks[low:high].tobytes()
        if key not in texts:
            present = set(ranks[low:high].tolist())
            absent = set(job.groups[group].ranks) - present
            texts[key] = _listed(present), _listed(absent)
        found.append(texts[key])
    return [present for present, _ in found], [absent for _, absent in found]


def _listed(ranks: set[int]) -> bytes:
    return quoted(str(Numbers.of(ranks))) if ranks else b""


def _waits(job: Job, parts: Grouped, mine: Int64s, cuts: Int64s) -> list[bytes]:
    """The waits of those who took part, or nothing where none is known."""
    wait, ranks = job.participations.wait[mine], job.participations.rank[mine]
    listed = wait != UNKNOWN
    for number in np.flatnonzero(np.diff(cuts) > MOST_WAITS).tolist():
        low, high = cuts[number : number + 2].tolist()
        listed[low + np.argsort(-wait[low:high], kind="stable")[MOST_WAITS:]] = False
    kept = np.flatnonzero(listed)
    texts = [
        key + text for key, text in zip(parts.keys[ranks[kept]].tolist(), micros(wait[kept]), strict=True)
    ]
    ends = np.searchsorted(kept, cuts).tolist()
    key = b',"%s":{' % WAIT_ARGUMENT.encode()
    return [
        b"%s%s}" % (key, b",".join(texts[low:high])) if low < high else b"" for low, high in pairwise(ends)
    ]


def arrival_facts(arrivals: Arrivals) -> list[bytes]:
    """The arguments of the last arrivals, as JSON objects."""
    known = zip(numbers(arrivals.rank), micros(arrivals.skew), strict=True)
    return [b'{"rank":%s,"skew_us":%s}' % pair for pair in known]
