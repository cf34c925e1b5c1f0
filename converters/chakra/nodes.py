"""A plan as columns of nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tracelink.converters.chakra.communications import GroupNumbers
from tracelink.converters.chakra.encode import attribute
from tracelink.converters.chakra.host import TIMED
from tracelink.converters.chakra.plan import FIRST_ID, Plan
from tracelink.converters.chakra.schema import (
    ATTRIBUTES_MARKS,
    FORWARD_PARENT,
    INPUTS,
    KINDS,
    OUTPUTS,
    SHAPES,
    SIGNATURE,
    TYPES,
    VALUES,
    Category,
    Kind,
    Name,
    NodeType,
)
from tracelink.converters.chakra.table import Attribute, Links, NodeTable
from tracelink.converters.pytorch.arguments import INPUT_DIMS_MARK, InputsText
from tracelink.converters.pytorch.node_schema import INPUTS_KEY, FlatTensorsText, Tensors, TensorsText
from tracelink.io.framing import delimited
from tracelink.model.columns import MICROSECOND, UNKNOWN, Bools, Int64s
from tracelink.model.events import EventKind, Key
from tracelink.model.graph import Excerpt, recorded_payloads

# A plan as columns of nodes, in the order of their ids.


CATEGORIES = {
    EventKind.OPERATOR: Category.OPERATOR,
    EventKind.ANNOTATION: Category.ANNOTATION,
    EventKind.NODE: Category.NODE,
    EventKind.RECORD: Category.RECORD,
    EventKind.KERNEL: Category.KERNEL,
    EventKind.MEMCPY: Category.MEMCPY,
    EventKind.MEMSET: Category.MEMSET,
}
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
    on_host, talks = plan.spots.on_host[order], plan.spots.communication[order] != UNKNOWN
    yield Name.IS_CPU_OP, everything, (on_host & ~talks).astype(np.int64)
    yield from _recorded(plan)
    yield Name.STREAM, everything, _identities(plan, plan.spots.row[order], ~on_host)
    yield from _times(plan)
    yield Name.CATEGORY, everything, _categories(plan)
    device = np.flatnonzero(~on_host)
    yield Name.DEVICE, device, _devices(plan)[device]
    correlation = plan.part.key(Key.CORRELATION, UNKNOWN)[plan.spots.row[order]]
    launched = np.flatnonzero(~on_host & (correlation != UNKNOWN))
    yield Name.CORRELATION, launched, correlation[launched]
    yield from _communication(plan, groups, strings)


def _recorded(plan: Plan) -> Iterator[Column]:
    """What is known of operators; device work has it from the operator that launched it."""
    host, order = plan.host, plan.turns.spot
    place = plan.spots.place[order]
    place = np.where(place == UNKNOWN, np.append(plan.spots.place, UNKNOWN)[plan.spots.parent[order]], place)
    rows = np.flatnonzero(place != UNKNOWN)
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
    on_host = place != UNKNOWN
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
    rows = np.flatnonzero(communication != UNKNOWN)
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


# What a node of the execution trace says beside its times: inputs, outputs, and the signature of its operator.


TEXT = msgspec.json.Decoder(TensorsText)
FLAT = msgspec.json.Decoder(FlatTensorsText)
OPERATOR = msgspec.json.Decoder(InputsText)
FOREIGN = re.compile(rb"true|false|null|NaN|Infinity|[\\\n\x80-\xff]")
"""What JSON spells in another way than Python, or over several lines."""
QUOTE = b'"'
"""A text is what another Chakra trace has spelt already."""


def fields_by_row(part: Excerpt, observe: Callable[[int, bytes], None]) -> dict[int, bytes]:
    """What every node of a rank says, as protobuf fields, by its row; of operators where most have no node.

    Every node's text is shown to `observe` with the row of its event, for texts cost much to read.
    """
    nodes, operators = part.rows(EventKind.NODE), part.rows(*TIMED)
    fields: dict[int, bytes] = {}
    for row, text in recorded_payloads(part.graph, nodes):
        whole = bytes(text)
        observe(row, whole)
        fields[row] = fields_of(whole)
    if len(nodes) < len(operators) // 2:
        fields |= {
            row: fields_of_operator(bytes(text)) for row, text in recorded_payloads(part.graph, operators)
        }
    return fields


def fields_of_nodes(plan: Plan, by_row: Mapping[int, bytes]) -> list[bytes]:
    """The fields of each node; work on a device has those of what launched it."""
    spots, order = plan.spots, plan.turns.spot
    place = np.where(spots.place == UNKNOWN, np.append(spots.place, UNKNOWN)[spots.parent], spots.place)[
        order
    ]
    host = plan.host
    row = np.append(np.where(host.node == UNKNOWN, host.row, host.node), UNKNOWN)[place]
    return [by_row.get(row, b"") for row in row.tolist()]


def fields_of_operator(text: bytes) -> bytes:
    """What a profile recorded of an operator's inputs, or what a linked node passes on."""
    if INPUT_DIMS_MARK in text:
        said = OPERATOR.decode(text)
        return delimited(INPUTS, _lists(Tensors(said.values, said.shapes, said.types)))
    return fields_of(text) if INPUTS_KEY in text else b""


def fields_of(text: bytes) -> bytes:
    """Inputs, outputs and signature as protobuf fields; nothing of what is laid out in another way."""
    inputs, outputs = _tensors(text)
    return delimited(INPUTS, _lists(inputs)) + delimited(OUTPUTS, _lists(outputs)) + _said(text)


def _tensors(text: bytes) -> tuple[Tensors, Tensors]:
    try:
        node = TEXT.decode(text)
        return node.inputs, node.outputs
    except msgspec.DecodeError:
        pass
    try:
        flat = FLAT.decode(text)
    except msgspec.DecodeError:
        return Tensors(), Tensors()
    return (
        Tensors(flat.inputs, flat.input_shapes, flat.input_types),
        Tensors(flat.outputs, flat.output_shapes, flat.output_types),
    )


def _said(text: bytes) -> bytes:
    begin = max(0, *map(text.rfind, ATTRIBUTES_MARKS))
    parent, signature = FORWARD_PARENT.search(text, begin), SIGNATURE.search(text, begin)
    return (_forward_parent(parent[1]) if parent else b"") + (_signature(signature[1]) if signature else b"")


@lru_cache(maxsize=4096)
def _signature(text: bytes) -> bytes:
    return attribute(Name.SIGNATURE, KINDS[Name.SIGNATURE], msgspec.json.decode(_valid(text)))


@lru_cache(maxsize=4096)
def _forward_parent(text: bytes) -> bytes:
    return attribute(Name.FORWARD_PARENT, KINDS[Name.FORWARD_PARENT], int(text))


def _lists(tensors: Tensors) -> bytes:
    return (
        delimited(VALUES, python_spelling(bytes(tensors.values)))
        + _often(SHAPES, bytes(tensors.shapes))
        + _often(TYPES, bytes(tensors.types))
    )


@lru_cache(maxsize=4096)
def _often(number: int, text: bytes) -> bytes:
    """Shapes and types are the same for many nodes."""
    return delimited(number, python_spelling(text))


def python_spelling(text: bytes) -> bytes:
    """A JSON text as Python spells the value: readers take these texts for Python's lists."""
    if text.startswith(QUOTE):
        spelt: str = msgspec.json.decode(_valid(text))
        return spelt.encode("utf-8", "replace")
    if FOREIGN.search(text):
        return repr(msgspec.json.decode(_valid(text))).encode("utf-8", "replace")
    return text


def _valid(text: bytes) -> bytes:
    """Bytes that are UTF-8, as protobuf wants texts."""
    return text if text.isascii() else text.decode("utf-8", "replace").encode()


# The time between operators of a thread, as nodes: what Python did there is part of how long a step takes.


IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Gaps:
    """Pauses of threads: each lies between two nodes, which are places in a table."""

    before: Int64s
    """The last node of the thread before the pause."""
    after: Int64s
    start: Int64s
    length: Int64s
    """Nanoseconds."""
    thread: Int64s

    def __len__(self) -> int:
        return len(self.after)


def gaps_of(lane: Int64s, thread: Int64s, outermost: Bools, start: Int64s, end: Int64s) -> Gaps:
    """The pauses of a microsecond and more; columns are by node, `lane` is negative for what is on no thread."""
    order = np.flatnonzero(lane >= 0)
    order = order[np.argsort(lane[order], kind="stable")]
    same = np.append(False, lane[order][1:] == lane[order][:-1]) if len(order) else np.zeros(0, np.bool_)
    ended = _latest_end(lane[order], end[order])
    before = np.concatenate([ended[:1], ended[:-1]])
    pause = start[order] - before
    found = np.flatnonzero(same & outermost[order] & (pause >= MICROSECOND))
    return Gaps(order[found - 1], order[found], before[found], pause[found], thread[order[found]])


def with_gaps(nodes: NodeTable, gaps: Gaps) -> NodeTable:
    """The nodes with one more for each pause: it follows what came before, and what comes after follows it."""
    count = len(nodes)
    where = np.argsort(gaps.after, kind="stable")
    place = np.arange(count) + np.searchsorted(gaps.after[where], np.arange(count), side="right")
    own = gaps.after[where] + np.arange(len(gaps))
    total = count + len(gaps)
    data = _linked(nodes.data, place, total, own, place[gaps.before[where]], place[gaps.after[where]])
    none = np.empty(0, np.int64)
    # What a pause follows can be shown later than it began.
    start = np.maximum(gaps.start[where] // MICROSECOND, nodes.start[gaps.before[where]])
    length = gaps.length[where]

    def merged(old: npt.NDArray[Any], new: int | Int64s) -> npt.NDArray[Any]:
        column = np.empty(total, old.dtype)
        column[place], column[own] = old, new
        return column

    return replace(
        nodes,
        id=np.arange(total) + FIRST_ID,
        name=merged(nodes.name, len(nodes.strings)),
        type=merged(nodes.type, NodeType.COMP),
        start=merged(nodes.start, start),
        duration=merged(nodes.duration, (length + MICROSECOND // 2) // MICROSECOND),
        data=data,
        control=_linked(nodes.control, place, total, none, none, none),
        strings=[*nodes.strings, IDLE],
        attributes=_attributes_gaps(nodes, gaps, where, place, own),
    )


def one_idle_node() -> NodeTable:
    """What stands for a rank of which nothing is a node: simulators need a node to begin with."""
    first, nothing = np.zeros(1, np.int64), Links.of([[]])
    said: dict[Name, Sequence[str] | Int64s] = {
        Name.IS_CPU_OP: first,
        Name.STREAM: first,
        Name.CATEGORY: [str(Category.IDLE)],
    }
    return NodeTable(
        first + FIRST_ID,
        np.zeros(1, np.int32),
        np.full(1, NodeType.COMP, np.uint8),
        first,
        first,
        nothing,
        nothing,
        [IDLE],
        {str(name): Attribute.of(KINDS[name], first, values) for name, values in said.items()},
    )


def _latest_end(lane: Int64s, end: Int64s) -> Int64s:
    """For each node the latest end among it and those before it in its lane."""
    times, rank = np.unique(end, return_inverse=True)
    number = lane * (len(times) + 1) + rank
    latest = np.maximum.accumulate(number) if len(number) else number
    return times[latest % (len(times) + 1)] if len(times) else end


def _linked(links: Links, place: Int64s, total: int, own: Int64s, before: Int64s, after: Int64s) -> Links:
    """The links by new places, with those from each pause to both sides."""
    owner = np.concatenate([place[links.owners], own, after])
    ids = np.concatenate([place[links.ids - FIRST_ID], before, own])
    order = np.lexsort((ids, owner))
    return Links(np.searchsorted(owner[order], np.arange(total + 1)), ids[order] + FIRST_ID)


def _attributes_gaps(
    nodes: NodeTable, gaps: Gaps, where: Int64s, place: Int64s, own: Int64s
) -> dict[str, Attribute]:
    told = {name: replace(column, rows=place[column.rows]) for name, column in nodes.attributes.items()}
    added: dict[Name, Sequence[Any] | Int64s] = {
        Name.IS_CPU_OP: np.ones(len(gaps), np.int64),
        Name.THREAD: gaps.thread[where],
        Name.STREAM: np.zeros(len(gaps), np.int64),
        Name.CATEGORY: [str(Category.IDLE)] * len(gaps),
        Name.START: gaps.start[where],
        Name.DURATION: gaps.length[where],
    }
    for name, values in added.items():
        kind: Kind = KINDS[name]
        old = told.get(name, Attribute.of(kind, np.empty(0, np.int64), []))
        rows = np.concatenate([old.rows, own])
        order = np.argsort(rows, kind="stable")
        every = [*old.values, *values]
        told[str(name)] = Attribute.of(kind, rows[order], [every[number] for number in order.tolist()])
    return told


# A rank without the nodes of its host: what device work and communication waited for through the host stays.


Reached = dict[int, int]
"""For each chain of nodes the last one in it that had to end before."""


def contracted(nodes: NodeTable, keep: Bools, lane: Int64s) -> NodeTable:
    """The nodes to keep, in the same order, by new ids and without control dependencies.

    Nodes must depend on earlier ones only. `lane` says what usually runs one after the other.
    """
    dependencies = list(_dependencies(nodes.rows_of(nodes.data), nodes.data.bounds, keep, lane))
    rows = np.flatnonzero(keep)
    place = np.cumsum(keep) - 1
    links = Links.of([(place[ids] + FIRST_ID).tolist() if len(ids) else [] for ids in dependencies])
    return replace(
        nodes,
        id=np.arange(len(rows)) + FIRST_ID,
        name=nodes.name[rows],
        type=nodes.type[rows],
        start=nodes.start[rows],
        duration=nodes.duration[rows],
        data=links,
        control=Links.of([[]] * len(rows)),
        attributes={
            name: kept for name, column in nodes.attributes.items() if len(kept := taken(column, keep))
        },
    )


def taken(column: Attribute, keep: Bools) -> Attribute:
    """The attribute of the nodes to keep, by their new places."""
    chosen = np.flatnonzero(keep[column.rows])
    values = (
        column.values[chosen]
        if isinstance(column.values, np.ndarray)
        else [column.values[place] for place in chosen.tolist()]
    )
    return Attribute((np.cumsum(keep) - 1)[column.rows[chosen]], values, column.kinds[chosen])


class _Chains:
    """Nodes that are kept, each after the one before it in its chain: the last of a chain stands for all.

    What shares a lane usually makes a chain; where a node of a lane did not wait for the one before, it does not.
    """

    def __init__(self) -> None:
        self._of_lane: dict[int, int] = {}
        self._last: list[int] = []
        self._known: list[Reached] = []

    def added(self, node: int, lane: int, reached: Reached) -> tuple[int, Sequence[int]]:
        """The chain of a node, and those that it waits for and the one before it in the chain did not."""
        chain = self._continued(lane, reached)
        self._of_lane[lane] = chain
        known = self._known[chain]
        fresh = {of: last for of, last in reached.items() if last > known.get(of, UNKNOWN)}
        known.update(fresh)
        self._last[chain] = node
        return chain, sorted(fresh.values())

    def _continued(self, lane: int, reached: Reached) -> int:
        usual = self._of_lane.get(lane, UNKNOWN)
        if usual != UNKNOWN and reached.get(usual) == self._last[usual]:
            return usual
        for chain, last in reached.items():
            if last == self._last[chain]:
                return chain
        self._last.append(UNKNOWN)
        self._known.append({})
        return len(self._last) - 1


def _dependencies(places: Int64s, bounds: Int64s, keep: Bools, lane: Int64s) -> Iterator[Sequence[int]]:
    """For each node that is kept those that it waits for, directly or through what is not kept."""
    waited, ends = places.tolist(), bounds.tolist()
    lanes, chains = lane.tolist(), _Chains()
    through: list[Reached] = []
    for node, kept in enumerate(keep.tolist()):
        reached = _reached(waited[ends[node] : ends[node + 1]], through)
        if not kept:
            through.append(reached)
            continue
        chain, dependencies = chains.added(node, lanes[node], reached)
        through.append({chain: node})
        yield dependencies


def _reached(before: Sequence[int], through: Sequence[Reached]) -> Reached:
    """What several nodes together had to wait for."""
    if len(before) == 1:
        return through[before[0]]
    reached: Reached = {}
    for node in before:
        for lane, last in through[node].items():
            if last > reached.get(lane, UNKNOWN):
                reached[lane] = last
    return reached
