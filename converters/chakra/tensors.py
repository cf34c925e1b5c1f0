"""What a node of the execution trace says beside its times: inputs, outputs, and the signature of its operator."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec
import numpy as np

from tracelink.converters.chakra.host import TIMED
from tracelink.converters.chakra.plan import Plan
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
    Name,
)
from tracelink.converters.chakra.wire import attribute
from tracelink.converters.execution_trace.schema import INPUTS_KEY, FlatTensorsText, Tensors, TensorsText
from tracelink.converters.kineto.schema import INPUT_DIMS_MARK, InputsText
from tracelink.events import EventKind
from tracelink.excerpt import NONE, Excerpt, texts_of
from tracelink.wire import delimited

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
    for row, text in texts_of(part.graph, nodes):
        whole = bytes(text)
        observe(row, whole)
        fields[row] = fields_of(whole)
    if len(nodes) < len(operators) // 2:
        fields |= {row: fields_of_operator(bytes(text)) for row, text in texts_of(part.graph, operators)}
    return fields


def fields_of_nodes(plan: Plan, by_row: Mapping[int, bytes]) -> list[bytes]:
    """The fields of each node; work on a device has those of what launched it."""
    spots, order = plan.spots, plan.turns.spot
    place = np.where(spots.place == NONE, np.append(spots.place, NONE)[spots.parent], spots.place)[order]
    host = plan.host
    row = np.append(np.where(host.node == NONE, host.row, host.node), NONE)[place]
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
