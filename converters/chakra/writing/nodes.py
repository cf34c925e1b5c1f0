"""The nodes of a plan as columns, and the inputs, outputs and signatures of its operators as protobuf fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec
import numpy as np

from tracelink._io.framing import delimited
from tracelink._io.salvage import PLAIN
from tracelink._model.columns import MICROSECOND, UNKNOWN, Bools, Int64s
from tracelink._model.events import EventKind, Key
from tracelink._model.graph import Excerpt, recorded_payloads
from tracelink.converters.chakra import schema
from tracelink.converters.chakra.decode import attribute
from tracelink.converters.chakra.schema import FIRST_ID
from tracelink.converters.chakra.table import Column, NodeTable, attributes_by_name
from tracelink.converters.chakra.writing.communications import GroupNumbers
from tracelink.converters.chakra.writing.plan import Plan
from tracelink.converters.chakra.writing.slots import TIMED
from tracelink.converters.pytorch.arguments import INPUT_DIMS_MARK, OperatorInputs
from tracelink.converters.pytorch.node_schema import INPUTS_KEY, FlatTensorsText, Tensors, TensorsText

UNNAMED = "(no name)"
"""Statistics and timelines of simulators identify nodes by name."""
_RECORDED = {
    schema.Name.RECORD_FUNCTION: (Key.RECORD_FUNCTION, 0),
    schema.Name.SEQUENCE: (Key.SEQUENCE, -1),
    schema.Name.SCOPE: (Key.SCOPE, 0),
    schema.Name.FORWARD_THREAD: (Key.FORWARD_THREAD, 0),
}
"""Attributes that readers expect of every operator: the key of the graph, and the value if unknown."""


_TEXT = msgspec.json.Decoder(TensorsText)
_FLAT = msgspec.json.Decoder(FlatTensorsText)
_OPERATOR = msgspec.json.Decoder(OperatorInputs)
_NOT_PYTHON = re.compile(rb"true|false|null|NaN|Infinity|[\\\n\x80-\xff]")
"""Text that JSON writes in another way than Python, or over several lines."""
_QUOTE = b'"'
"""Starts a value from another Chakra trace, which is in Python syntax already."""


def table_of(plan: Plan, groups: GroupNumbers, strings: Sequence[str]) -> NodeTable:
    """The nodes in the order of their ids; `strings` are the names in the communication of the job."""
    order = plan.order.slot
    communication = plan.slots.communication[order]
    types = np.append(plan.communication.type, np.uint8(schema.NodeType.COMP))
    exclusive, _, timed = _durations(plan)
    return NodeTable(
        np.arange(len(order)) + FIRST_ID,
        plan.part.events.name[plan.rows],
        types[communication],
        _starts(plan),
        np.where(timed, (exclusive + MICROSECOND // 2) // MICROSECOND, 0),
        plan.data.links,
        plan.control,
        [name or UNNAMED for name in plan.part.graph.strings],
        attributes_by_name(_attributes(plan, groups, strings)),
    )


def _starts(plan: Plan) -> Int64s:
    """Microseconds; 0 if no time at all is known, and nodes are only ordered."""
    known = bool(plan.host.timed.any()) or len(plan.device) > 0
    return np.maximum(plan.order.time[plan.order.slot], 0) // MICROSECOND * known


def _attributes(plan: Plan, groups: GroupNumbers, strings: Sequence[str]) -> Iterator[Column]:
    order = plan.order.slot
    everything = np.arange(len(order))
    on_host, communicates = plan.slots.on_host[order], plan.slots.communication[order] != UNKNOWN
    yield schema.Name.IS_CPU_OP, everything, (on_host & ~communicates).astype(np.int64)
    yield from _recorded(plan)
    yield schema.Name.STREAM, everything, _identities(plan, plan.rows, ~on_host)
    yield from _times(plan)
    yield schema.Name.CATEGORY, everything, _categories(plan)
    device = np.flatnonzero(~on_host)
    yield schema.Name.DEVICE, device, _devices(plan)[device]
    correlation = plan.part.key(Key.CORRELATION, UNKNOWN)[plan.rows]
    launched = np.flatnonzero(~on_host & (correlation != UNKNOWN))
    yield schema.Name.CORRELATION, launched, correlation[launched]
    yield from _communication(plan, groups, strings)


def _recorded(plan: Plan) -> Iterator[Column]:
    """Attributes of operators; device work has those of the operator that launched it."""
    host, order = plan.host, plan.order.slot
    operator = _operators(plan)[order]
    rows = np.flatnonzero(operator != UNKNOWN)
    operator = operator[rows]
    for name, (key, default) in _RECORDED.items():
        missing = np.iinfo(np.int64).min
        values = np.append(plan.part.key(key, missing), missing)
        in_trace, in_profile = values[host.node[operator]], values[host.row[operator]]
        found = np.where(in_trace == missing, in_profile, in_trace)
        yield name, rows, np.where(found == missing, default, found)
    yield (
        schema.Name.THREAD,
        rows,
        _identities(plan, host.row[operator], np.ones(len(rows), np.bool_), host.lane[operator]),
    )


def _operators(plan: Plan) -> Int64s:
    """The index of each slot's host node; for device work, of the node that launched it; or UNKNOWN."""
    host = plan.slots.host
    return np.where(host == UNKNOWN, np.append(host, UNKNOWN)[plan.slots.parent], host)


def _identities(plan: Plan, rows: Int64s, wanted: Bools, tracks: Int64s | None = None) -> Int64s:
    """The number of each row's thread or stream; 0 if it is not wanted or not a number."""
    numbers = np.array([_number(track.identity) for track in plan.part.graph.tracks] + [0], np.int64)
    track = plan.part.events.track[rows] if tracks is None else tracks
    return np.where(wanted, numbers[track], 0)


def _devices(plan: Plan) -> Int64s:
    numbers = np.array([_number(track.process) for track in plan.part.graph.tracks] + [0], np.int64)
    return numbers[plan.part.events.track[plan.rows]]


def _number(text: str) -> int:
    """An integer of at most 63 bits, else 0."""
    fits = text.isascii() and text.removeprefix("-").isdecimal() and len(text) < len(str(1 << 63))
    return int(text) if fits else 0


def _durations(plan: Plan) -> tuple[Int64s, Int64s, Bools]:
    """The exclusive and the inclusive duration of each node, and the nodes whose durations are known."""
    host, index = plan.host, plan.host_index
    on_host = index != UNKNOWN
    duration = np.maximum(plan.part.events.duration[plan.rows], 0)
    exclusive = np.where(on_host, np.append(host.exclusive, 0)[index], duration)
    inclusive = np.where(on_host, np.append(host.inclusive, 0)[index], duration)
    return exclusive, inclusive, np.where(on_host, np.append(host.timed, False)[index], True)


def _times(plan: Plan) -> Iterator[Column]:
    exclusive, inclusive, timed = _durations(plan)
    rows = np.flatnonzero(timed)
    yield schema.Name.START, rows, plan.part.events.start[plan.rows][rows]
    yield schema.Name.DURATION, rows, exclusive[rows]
    longer = np.flatnonzero(timed & (inclusive != exclusive))
    yield schema.Name.INCLUSIVE, longer, inclusive[longer]
    waited = np.append(plan.host.waited, 0)[plan.host_index]
    waiting = np.flatnonzero(waited > 0)
    yield schema.Name.WAITED, waiting, waited[waiting]


def _categories(plan: Plan) -> list[str]:
    categories = {kind: category for category, kind in schema.KIND_OF_CATEGORY.items()}
    names = [str(categories.get(kind, schema.Category.NODE)) for kind in EventKind]
    kinds = plan.part.events.kind[plan.rows]
    return list(map(names.__getitem__, kinds.tolist()))


def _communication(plan: Plan, groups: GroupNumbers, strings: Sequence[str]) -> Iterator[Column]:
    communication = plan.slots.communication[plan.order.slot]
    rows = np.flatnonzero(communication != UNKNOWN)
    written = plan.communication.take(communication[rows])
    numbers: Mapping[schema.Name, Int64s] = {
        schema.Name.COMM_TYPE: written.collective_type,
        schema.Name.COMM_SIZE: written.size,
        schema.Name.COMM_SOURCE: written.source,
        schema.Name.COMM_TARGET: written.target,
        schema.Name.COMM_TAG: written.tag,
        schema.Name.ROOT: written.root,
        schema.Name.BYTES_IN: written.bytes_in,
        schema.Name.BYTES_OUT: written.bytes_out,
        schema.Name.COLLECTIVE: written.collective,
        schema.Name.COLLECTIVE_SEQUENCE: written.sequence,
    }
    for name, values in numbers.items():
        known = values != UNKNOWN
        yield name, rows[known], values[known]
    names = [*strings, ""]
    for name, codes in (
        (schema.Name.OPERATION, written.operation),
        (schema.Name.ELEMENT_TYPE, written.element_type),
    ):
        known = codes != UNKNOWN
        yield name, rows[known], [names[code] for code in codes[known].tolist()]
    yield schema.Name.GROUP, rows, [str(groups.number(group)) for group in written.group.tolist()]
    known = written.group != UNKNOWN
    yield (
        schema.Name.GROUP_NAME,
        rows[known],
        [groups.names[group] for group in written.group[known].tolist()],
    )


# Inputs, outputs and signatures of operators, from the JSON of their sources.


def fields_by_row(part: Excerpt, observe: Callable[[int, bytes], None]) -> dict[int, bytes]:
    """The protobuf fields of every node by its row; those of operators too if most of them have no node.

    `observe` is called with the row and the JSON of every node, because reading it again would be slow.
    """
    nodes, operators = part.rows(EventKind.NODE), part.rows(*TIMED)
    fields: dict[int, bytes] = {}
    for row, text in recorded_payloads(part.graph, nodes):
        body = bytes(text)
        observe(row, body)
        fields[row] = fields_of(body)
    if len(nodes) < len(operators) // 2:
        fields |= {
            row: fields_of_operator(bytes(text)) for row, text in recorded_payloads(part.graph, operators)
        }
    return fields


def fields_of_nodes(plan: Plan, by_row: Mapping[int, bytes]) -> list[bytes]:
    """The fields of each node; device work has those of the operator that launched it."""
    host = plan.host
    operator = _operators(plan)[plan.order.slot]
    row = np.append(np.where(host.node == UNKNOWN, host.row, host.node), UNKNOWN)[operator]
    return [by_row.get(row, b"") for row in row.tolist()]


def fields_of_operator(text: bytes) -> bytes:
    """The fields of an operator of a profile or of a linked trace."""
    if INPUT_DIMS_MARK in text:
        inputs = _OPERATOR.decode(text)
        return delimited(schema.INPUTS, _lists(Tensors(inputs.values, inputs.shapes, inputs.types)))
    return fields_of(text) if INPUTS_KEY in text else b""


def fields_of(text: bytes) -> bytes:
    """The inputs, outputs and signature of a node as protobuf fields; empty for an unknown layout."""
    inputs, outputs = _tensors(text)
    return (
        delimited(schema.INPUTS, _lists(inputs))
        + delimited(schema.OUTPUTS, _lists(outputs))
        + _signature_fields(text)
    )


def _tensors(text: bytes) -> tuple[Tensors, Tensors]:
    try:
        node = _TEXT.decode(text)
        return node.inputs, node.outputs
    except msgspec.DecodeError:
        pass
    try:
        flat = _FLAT.decode(text)
    except msgspec.DecodeError:
        return Tensors(), Tensors()
    return (
        Tensors(flat.inputs, flat.input_shapes, flat.input_types),
        Tensors(flat.outputs, flat.output_shapes, flat.output_types),
    )


def _signature_fields(text: bytes) -> bytes:
    begin = max(0, *map(text.rfind, schema.ATTRIBUTES_MARKS))
    parent, signature = schema.FORWARD_PARENT.search(text, begin), schema.SIGNATURE.search(text, begin)
    return (_forward_parent(parent[1]) if parent else b"") + (_signature(signature[1]) if signature else b"")


@lru_cache(maxsize=4096)
def _signature(text: bytes) -> bytes:
    return attribute(schema.Name.SIGNATURE, schema.Name.SIGNATURE.kind, msgspec.json.decode(_utf8(text)))


@lru_cache(maxsize=4096)
def _forward_parent(text: bytes) -> bytes:
    return attribute(schema.Name.FORWARD_PARENT, schema.Name.FORWARD_PARENT.kind, int(text))


def _lists(tensors: Tensors) -> bytes:
    return (
        delimited(schema.VALUES, python_syntax(bytes(tensors.values)))
        + _cached(schema.SHAPES, bytes(tensors.shapes))
        + _cached(schema.TYPES, bytes(tensors.types))
    )


@lru_cache(maxsize=4096)
def _cached(number: int, text: bytes) -> bytes:
    """Shapes and types are equal in many nodes."""
    return delimited(number, python_syntax(text))


def python_syntax(text: bytes) -> bytes:
    """A JSON value in Python syntax: readers parse these strings as Python lists."""
    if text.startswith(_QUOTE):
        value: str = msgspec.json.decode(_utf8(text))
        return value.encode("utf-8", "replace")
    if _NOT_PYTHON.search(text):
        return repr(_plain(_utf8(text))).encode("utf-8", "replace")
    return text


def _plain(text: bytes) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.ValidationError:  # a number that is too large for a double
        return PLAIN.decode(text.decode())


def _utf8(text: bytes) -> bytes:
    """Valid UTF-8, as protobuf needs strings."""
    return text if text.isascii() else text.decode("utf-8", "replace").encode()
