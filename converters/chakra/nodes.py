"""A plan as columns of nodes, in the order of their ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelink.communications import UNKNOWN
from tracelink.converters.chakra.group_numbers import GroupNumbers
from tracelink.converters.chakra.plan import Plan
from tracelink.converters.chakra.program import FIRST_ID
from tracelink.converters.chakra.schema import KINDS, Category, Name, NodeType
from tracelink.converters.chakra.table import Attribute, NodeTable
from tracelink.events import Bools, EventKind, Int64s, Key
from tracelink.excerpt import NONE

CATEGORIES = {
    EventKind.OPERATOR: Category.OPERATOR,
    EventKind.ANNOTATION: Category.ANNOTATION,
    EventKind.NODE: Category.NODE,
    EventKind.RECORD: Category.RECORD,
    EventKind.KERNEL: Category.KERNEL,
    EventKind.MEMCPY: Category.MEMCPY,
    EventKind.MEMSET: Category.MEMSET,
}
MICROSECOND = 1000
UNNAMED = "(no name)"
"""Statistics and timelines of simulators know nodes by name."""
RECORDED = {
    Name.RECORD_FUNCTION: (Key.RECORD_FUNCTION, 0),
    Name.SEQUENCE: (Key.SEQUENCE, -1),
    Name.SCOPE: (Key.SCOPE, 0),
    Name.FORWARD_THREAD: (Key.FORWARD_THREAD, 0),
}
"""What readers of these traces expect of every operator, and what it is where no source says it."""


def table_of(plan: Plan, groups: GroupNumbers, strings: Sequence[str]) -> NodeTable:
    """The nodes; `strings` are the texts of the job, of which communication is told."""
    spots, order = plan.spots, plan.turns.spot
    communication = spots.communication[order]
    told = np.append(plan.communications.type, np.uint8(NodeType.COMP))
    own, _, timed = _lengths(plan)
    return NodeTable(
        np.arange(len(order)) + FIRST_ID,
        plan.part.events.name[spots.row[order]],
        told[communication],
        _starts(plan),
        np.where(timed, (own + MICROSECOND // 2) // MICROSECOND, 0),
        plan.waiting.links,
        plan.control,
        [text or UNNAMED for text in plan.part.graph.strings],
        {
            str(name): Attribute.of(KINDS[name], rows, values)
            for name, rows, values in _attributes(plan, groups, strings)
            if len(rows)
        },
    )


def _starts(plan: Plan) -> Int64s:
    """Microseconds; 0 where no time at all is known, and nodes are only put in order."""
    known = bool(plan.host.timed.any()) or len(plan.device) > 0
    return np.maximum(plan.turns.time[plan.turns.spot], 0) // MICROSECOND * known


Column = tuple[Name, Int64s, npt.NDArray[Any] | Sequence[Any]]


def _attributes(plan: Plan, groups: GroupNumbers, strings: Sequence[str]) -> Iterator[Column]:
    order = plan.turns.spot
    everything = np.arange(len(order))
    on_host, talks = plan.spots.on_host[order], plan.spots.communication[order] != NONE
    yield Name.IS_CPU_OP, everything, (on_host & ~talks).astype(np.int64)
    yield from _recorded(plan)
    yield Name.STREAM, everything, _identities(plan, plan.spots.row[order], ~on_host)
    yield from _times(plan)
    yield Name.CATEGORY, everything, _categories(plan)
    device = np.flatnonzero(~on_host)
    yield Name.DEVICE, device, _devices(plan)[device]
    correlation = plan.part.key(Key.CORRELATION, NONE)[plan.spots.row[order]]
    launched = np.flatnonzero(~on_host & (correlation != NONE))
    yield Name.CORRELATION, launched, correlation[launched]
    yield from _communication(plan, groups, strings)


def _recorded(plan: Plan) -> Iterator[Column]:
    """What is known of operators; device work has it from the operator that launched it."""
    host, order = plan.host, plan.turns.spot
    place = plan.spots.place[order]
    place = np.where(place == NONE, np.append(plan.spots.place, NONE)[plan.spots.parent[order]], place)
    rows = np.flatnonzero(place != NONE)
    place = place[rows]
    for name, (key, default) in RECORDED.items():
        absent = np.iinfo(np.int64).min
        values = np.append(plan.part.key(key, absent), absent)
        noted, ran = values[host.node[place]], values[host.row[place]]
        found = np.where(noted == absent, ran, noted)
        yield name, rows, np.where(found == absent, default, found)
    yield (
        Name.THREAD,
        rows,
        _identities(plan, host.row[place], np.ones(len(rows), np.bool_), host.lane[place]),
    )


def _identities(plan: Plan, rows: Int64s, wanted: Bools, tracks: Int64s | None = None) -> Int64s:
    """The number of each row's thread or stream; 0 where it is not wanted or no number."""
    numbers = np.array([_number(track.identity) for track in plan.part.graph.tracks] + [0], np.int64)
    track = plan.part.events.track[rows] if tracks is None else tracks
    return np.where(wanted, numbers[track], 0)


def _devices(plan: Plan) -> Int64s:
    numbers = np.array([_number(track.process) for track in plan.part.graph.tracks] + [0], np.int64)
    return numbers[plan.part.events.track[plan.spots.row[plan.turns.spot]]]


def _number(text: str) -> int:
    """A number of at most 63 bits, else 0."""
    fits = text.isascii() and text.removeprefix("-").isdecimal() and len(text) < len(str(1 << 63))
    return int(text) if fits else 0


def _lengths(plan: Plan) -> tuple[Int64s, Int64s, Bools]:
    """Of each node how long it ran itself, how long with what it encloses, and whether that is known."""
    host, events, order = plan.host, plan.part.events, plan.turns.spot
    place, row = plan.spots.place[order], plan.spots.row[order]
    on_host = place != NONE
    length = np.maximum(events.duration[row], 0)
    own = np.where(on_host, np.append(host.own, 0)[place], length)
    inclusive = np.where(on_host, np.append(host.inclusive, 0)[place], length)
    return own, inclusive, np.where(on_host, np.append(host.timed, False)[place], True)


def _times(plan: Plan) -> Iterator[Column]:
    own, inclusive, timed = _lengths(plan)
    rows = np.flatnonzero(timed)
    order = plan.turns.spot
    yield Name.START, rows, plan.part.events.start[plan.spots.row[order]][rows]
    yield Name.DURATION, rows, own[rows]
    longer = np.flatnonzero(timed & (inclusive != own))
    yield Name.INCLUSIVE, longer, inclusive[longer]
    waits = np.append(plan.host.waited, 0)[plan.spots.place[order]]
    waiting = np.flatnonzero(waits > 0)
    yield Name.WAITED, waiting, waits[waiting]


def _categories(plan: Plan) -> list[str]:
    names = [str(CATEGORIES.get(kind, Category.NODE)) for kind in EventKind]
    kinds = plan.part.events.kind[plan.spots.row[plan.turns.spot]]
    return list(map(names.__getitem__, kinds.tolist()))


def _communication(plan: Plan, groups: GroupNumbers, strings: Sequence[str]) -> Iterator[Column]:
    communication = plan.spots.communication[plan.turns.spot]
    rows = np.flatnonzero(communication != NONE)
    told = plan.communications.take(communication[rows])
    numbers: Mapping[Name, Int64s] = {
        Name.COMM_TYPE: told.collective_type,
        Name.COMM_SIZE: told.size,
        Name.COMM_SOURCE: told.source,
        Name.COMM_TARGET: told.target,
        Name.COMM_TAG: told.tag,
        Name.ROOT: told.root,
        Name.BYTES_IN: told.bytes_in,
        Name.BYTES_OUT: told.bytes_out,
        Name.COLLECTIVE: told.collective,
        Name.COLLECTIVE_SEQUENCE: told.sequence,
    }
    for name, values in numbers.items():
        known = values != UNKNOWN
        yield name, rows[known], values[known]
    texts = [*strings, ""]
    for name, codes in ((Name.OPERATION, told.operation), (Name.ELEMENT_TYPE, told.element_type)):
        known = codes != UNKNOWN
        yield name, rows[known], [texts[code] for code in codes[known].tolist()]
    of_groups = told.group.tolist()
    yield Name.GROUP, rows, [str(groups.number(group)) for group in of_groups]
    known = told.group != UNKNOWN
    yield Name.GROUP_NAME, rows[known], [groups.names[group] for group in told.group[known].tolist()]
