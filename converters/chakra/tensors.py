"""What a node of the execution trace says beside its times: inputs, outputs, and the signature of its operator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

import msgspec
import numpy as np

from tracelink.converters.chakra.encoding import INPUTS, OUTPUTS
from tracelink.converters.chakra.host import TIMED
from tracelink.converters.chakra.plan import Plan
from tracelink.converters.chakra.schema import KINDS, Name
from tracelink.converters.chakra.wire import attribute
from tracelink.converters.kineto.schema import INPUT_DIMS, INPUT_TYPES, INPUT_VALUES
from tracelink.events import EventKind, Int64s
from tracelink.excerpt import NONE, Excerpt
from tracelink.wire import delimited

VALUES, SHAPES, TYPES = 1, 2, 3
NOTHING = msgspec.Raw(b"[]")
SIGNATURE = re.compile(
    rb'"op_schema"\s*,\s*(?:"type"\s*:\s*"string"\s*,\s*"value"|"string_val")\s*:\s*("[^"\\]*")'
)
FORWARD_PARENT = re.compile(
    rb'"fw_parent"\s*,\s*(?:"type"\s*:\s*"uint64"\s*,\s*"value"|"int64_val")\s*:\s*(\d{1,18})\b'
)
"""As execution traces and the JSON form of Chakra traces spell attributes."""


class Tensors(msgspec.Struct, frozen=True):
    """The inputs or the outputs of a node since 1.0.2."""

    values: msgspec.Raw = NOTHING
    shapes: msgspec.Raw = NOTHING
    types: msgspec.Raw = NOTHING


class NodeText(msgspec.Struct):
    """What of a node is passed on as it is."""

    inputs: Tensors = Tensors()
    outputs: Tensors = Tensors()


class FlatText(msgspec.Struct):
    """The same in the layout of 1.0.1."""

    inputs: msgspec.Raw = NOTHING
    input_shapes: msgspec.Raw = NOTHING
    input_types: msgspec.Raw = NOTHING
    outputs: msgspec.Raw = NOTHING
    output_shapes: msgspec.Raw = NOTHING
    output_types: msgspec.Raw = NOTHING


class OperatorText(msgspec.Struct):
    """What a profile says of an operator's inputs."""

    values: msgspec.Raw = msgspec.field(name=INPUT_VALUES, default=NOTHING)
    shapes: msgspec.Raw = msgspec.field(name=INPUT_DIMS, default=NOTHING)
    types: msgspec.Raw = msgspec.field(name=INPUT_TYPES, default=NOTHING)


OPERATOR = msgspec.json.Decoder(OperatorText)
TEXT = msgspec.json.Decoder(NodeText)
FLAT = msgspec.json.Decoder(FlatText)
ATTRIBUTES, OTHER_ATTRIBUTES = b'"attrs"', b'"attr"'
FOREIGN = re.compile(rb"true|false|null|NaN|Infinity|[\\\n\x80-\xff]")
"""What JSON spells in another way than Python, or over several lines."""
QUOTE = b'"'
"""A text is what another Chakra trace has spelt already."""
INPUTS_MARK = b'"inputs"'
SHAPES_RECORDED = b'"%s"' % INPUT_DIMS.encode()


def fields_by_row(part: Excerpt, observe: Callable[[int, bytes], None]) -> dict[int, bytes]:
    """What every node of a rank says, as protobuf fields, by its row; of operators where most have no node.

    Every node's text is shown to `observe` with the row of its event, for texts cost much to read.
    """
    nodes, operators = part.rows(EventKind.NODE), part.rows(*TIMED)
    fields: dict[int, bytes] = {}
    for row, text in texts_of(part, nodes):
        observe(row, text)
        fields[row] = fields_of(text)
    if len(nodes) < len(operators) // 2:
        fields |= {row: fields_of_operator(text) for row, text in texts_of(part, operators)}
    return fields


def fields_of_nodes(plan: Plan, by_row: Mapping[int, bytes]) -> list[bytes]:
    """The fields of each node; work on a device has those of what launched it."""
    spots, order = plan.spots, plan.turns.spot
    place = np.where(spots.place == NONE, np.append(spots.place, NONE)[spots.parent], spots.place)[order]
    host = plan.host
    row = np.append(np.where(host.node == NONE, host.row, host.node), NONE)[place]
    return [by_row.get(row, b"") for row in row.tolist()]


def texts_of(part: Excerpt, rows: Int64s) -> Iterator[tuple[int, bytes]]:
    """The texts of nodes as their sources have them, in the order of the sources."""
    events, graph = part.events, part.graph
    for source in np.unique(events.source[rows]).tolist():
        mine = rows[events.source[rows] == source]
        mine = mine[np.argsort(events.payload[mine], kind="stable")]
        numbers = events.payload[mine]
        for first, texts in graph.payloads[source].batches(int(numbers[0]), int(numbers[-1]) + 1):
            begin, end = np.searchsorted(numbers, [first, first + len(texts)]).tolist()
            for row, number in zip(mine[begin:end].tolist(), numbers[begin:end].tolist(), strict=True):
                yield row, bytes(texts[number - first])


def fields_of_operator(text: bytes) -> bytes:
    """What a profile recorded of an operator's inputs, or what a linked node passes on."""
    if SHAPES_RECORDED in text:
        said = OPERATOR.decode(text)
        return delimited(INPUTS, _lists(Tensors(said.values, said.shapes, said.types)))
    return fields_of(text) if INPUTS_MARK in text else b""


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
    begin = max(text.rfind(ATTRIBUTES), text.rfind(OTHER_ATTRIBUTES), 0)
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
