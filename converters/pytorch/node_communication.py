"""Statements of execution-trace nodes on communication, and the storages that they read and write."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from tracelink._model.communications import (
    Sizes,
    Statement,
    elements_of,
    number_in,
    rank_in,
    shape_of,
    sizes_in,
    stated_by,
    stated_by_inputs,
    text_in,
)
from tracelink._model.operations import (
    COLLECTIVE_ANNOTATION,
    COLLECTIVE_OPERATOR,
    RECORD_OPERATOR,
    Operation,
    item_bytes,
    operation_of,
    type_named,
)
from tracelink._model.trace import StorageUses
from tracelink.converters.pytorch import node_schema

MOST_MEMBERS = 1 << 20


def communicates(name: str) -> bool:
    """True if a node with this name describes communication."""
    return bool(COLLECTIVE_OPERATOR.match(name) or COLLECTIVE_ANNOTATION.match(name))


def statement_of(node: Mapping[str, Any], attributes: Mapping[str, Any]) -> Statement:
    """The statement of one node."""
    name, inputs = text_in(node.get("name")), _Values(node, "input")
    record = _Record.of(inputs.values) if name == RECORD_OPERATOR else None
    if record is not None:
        return _recorded(record, attributes, inputs, _Values(node, "output"))
    statement = stated_by_inputs(name, inputs)
    if node_schema.FUNCTIONAL.match(name) and len(inputs):
        statement.group = text_in(inputs.value(len(inputs) - 1))
    return statement


def _recorded(record: _Record, attributes: Mapping[str, Any], inputs: _Values, outputs: _Values) -> Statement:
    statement = stated_by(record.operation)
    statement.group = record.group_name or text_in(attributes.get(node_schema.GROUP_NAME))
    statement.point_to_point |= record.counts_messages
    if record.counts_messages or not statement.point_to_point:
        statement.sequence = record.sequence
    if operation_of(statement.operation) == Operation.WAIT:
        # the other inputs of a wait are fillers, and do not describe what it waits for
        return statement
    statement.size = record.size
    statement.members = record.members
    given = inputs.sizes(0) if record.tensors else None
    statement.shape = shape_of(given)
    if node_schema.COLLECTIVE in attributes:
        statement.elements_in = number_in(attributes.get(node_schema.ELEMENTS_IN))
        statement.elements_out = number_in(attributes.get(node_schema.ELEMENTS_OUT))
        statement.type = text_in(attributes.get(node_schema.NUMBER_TYPE))
        statement.name_peer(record.rank)
    elif record.tensors:
        statement.elements_in, statement.elements_out = elements_of(given), elements_of(outputs.sizes(0))
        statement.type = inputs.type(0)
    return statement


class _Record(Struct, frozen=True):
    """The inputs of `record_param_comms`; after the tensors, if there are any, they have a fixed order."""

    tensors: bool
    sequence: int
    counts_messages: bool
    group_name: str
    rank: int
    """The rank itself; since 1.1.0 the peer of a message, and the root of a rooted operation."""
    operation: str
    size: int
    members: str

    @classmethod
    def of(cls, values: Sequence[Any]) -> _Record | None:
        """The record in these inputs; None if they have a different layout."""
        tensors = len(values) > 4 and isinstance(values[4], str) and not isinstance(values[3], str)
        rest = values[1:] if tensors else values
        if len(rest) < 4 or not isinstance(rest[3], str):
            return None
        sequence, group, rank, operation = rest[:4]
        pair = sequence if isinstance(sequence, list) and len(sequence) == 2 else (sequence, False)
        start, stride, size = (
            rest[6:9] if len(rest) >= 9 else (None, None, rest[6] if len(rest) > 6 else None)
        )
        return cls(
            tensors=tensors,
            sequence=number_in(pair[0]),
            counts_messages=pair[1] is True,
            group_name=_group_name(group),
            rank=rank_in(rank),
            operation=text_in(operation),
            size=rank_in(size),
            members=_members(rank_in(start), rank_in(stride), rank_in(size)),
        )


def _group_name(group: Any) -> str:
    """The name in [name, description]; before 1.0.3 a number of this process, 0 without a group."""
    if isinstance(group, list):
        return text_in(group[0]) if group else ""
    number = number_in(group)
    return str(number) if number > 0 else text_in(group)


def _members(start: int, stride: int, size: int) -> str:
    """The ranks of a group with evenly spaced ranks; others have an invalid stride."""
    if start < 0 or stride <= 0 or not 0 < size <= MOST_MEMBERS:
        return ""
    return str(list(range(start, start + size * stride, stride)))


class _Values:
    """The inputs or outputs of a node, in either layout."""

    def __init__(self, node: Mapping[str, Any], which: str) -> None:
        values_of = node.get(f"{which}s")
        if not isinstance(values_of, dict):
            values_of = {
                "values": values_of,
                "shapes": node.get(f"{which}_shapes"),
                "types": node.get(f"{which}_types"),
            }
        self.values = _list(values_of.get("values"))
        self.shapes = _list(values_of.get("shapes"))
        self.types = _list(values_of.get("types"))

    def __len__(self) -> int:
        return len(self.values)

    def sizes(self, index: int) -> Sizes | None:
        """The sizes of the tensors in one value."""
        shape = self.shapes[index] if index < len(self.shapes) else None
        return [[]] if shape == [] and self._kind(index).startswith("Tensor(") else sizes_in(shape)

    def type(self, index: int) -> str:
        """The element type of one value."""
        found = node_schema.TENSOR_TYPE.search(self._kind(index))
        name = type_named(found[1]) if found else ""
        return name if item_bytes(name) is not None else ""

    def value(self, index: int) -> Any:
        """One value, or None."""
        return self.values[index] if index < len(self.values) else None

    def _kind(self, index: int) -> str:
        return text_in(self.types[index]) if index < len(self.types) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# Storages of the tensors that execution-trace nodes read and write.

INPUTS = msgspec.json.Decoder(node_schema.InputsText)
OBJECT = msgspec.json.Decoder(node_schema.ValuesText)
VALUE_LIST = msgspec.json.Decoder(list[msgspec.Raw])


class StorageReader:
    """Collects the storages that nodes read and write; nodes come one at a time, in any order."""

    def __init__(self) -> None:
        self._row, self._storage = array("q"), array("q")
        self._reads, self._writes = array("q"), array("q")

    def add(self, row: int, text: bytes) -> None:
        """Adds the JSON text of the node at `row`; a text without tensors adds nothing."""
        mark = node_schema.OUTPUTS_MARK.search(text)
        outputs = mark.start() if mark else len(text)
        inputs = text.find(node_schema.INPUTS_KEY, outputs)
        if inputs == -1:
            read, written = (
                node_schema.STORAGE.findall(text, 0, outputs),
                node_schema.STORAGE.findall(text, outputs),
            )
        else:
            read, written = (
                node_schema.STORAGE.findall(text, inputs),
                node_schema.STORAGE.findall(text, outputs, inputs),
            )
        if node_schema.WRITTEN in text:
            written = _written(text, read, written)
        elif read and written and not set(read).isdisjoint(written) and node_schema.RESULTS in text:
            written = [storage for storage in written if storage not in read]
        if read or written:
            self._row.append(row)
            self._reads.append(len(read))
            self._writes.append(len(written))
            self._storage.extend(map(int, read))
            self._storage.extend(map(int, written))

    def uses(self) -> StorageUses:
        """The uses of all nodes so far."""
        counts = np.stack([self._reads, self._writes], axis=1).ravel()
        row = np.repeat(np.repeat(self._row, 2), counts)
        writes = np.repeat(np.arange(len(counts)) % 2, counts)
        found = np.stack([row, writes, self._storage]).astype(np.int64)
        row, writes, storage = np.unique(found[:, found[2] != node_schema.NO_STORAGE], axis=1)
        return StorageUses(row, storage, writes == 1)


def _written(text: bytes, read: list[bytes], written: list[bytes]) -> list[bytes]:
    """The storages that a node writes, if its schema has arguments that it writes to."""
    schema = node_schema.OPERATOR_SCHEMA.search(text)
    if not schema:
        return written
    arguments, returned = written_arguments(schema[1])
    if returned:
        return written
    passed = [
        storage for value in _inputs_at(text, arguments) for storage in node_schema.STORAGE.findall(value)
    ]
    return passed + [storage for storage in written if storage not in read]


@lru_cache(maxsize=4096)
def written_arguments(schema: bytes) -> tuple[tuple[int, ...], bool]:
    """The indexes of the arguments that an operator writes to, and whether it returns all of them.

    `aten::add_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)`: argument 0, which is returned.
    """
    arguments, _, results = schema.decode(errors="replace").partition("(")[2].rpartition(") -> ")
    depth, parts = 0, [""]
    for character in arguments:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    types = [text.strip() for text in parts if text.strip() != "*"]
    mark = node_schema.WRITTEN.decode()
    written = tuple(index for index, text in enumerate(types) if mark in text)
    return written, len(written) == results.count(mark)


def _inputs_at(text: bytes, indexes: tuple[int, ...]) -> list[bytes]:
    """The inputs at these indexes."""
    inputs = bytes(INPUTS.decode(text).inputs)
    values = OBJECT.decode(inputs).values if inputs.startswith(b"{") else VALUE_LIST.decode(inputs)
    return [bytes(values[index]) for index in indexes if index < len(values)]
