"""What nodes say of communication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracelink.converters.pytorch.node_schema import (
    COLLECTIVE,
    ELEMENTS_IN,
    ELEMENTS_OUT,
    FUNCTIONAL,
    GROUP_NAME,
    NUMBER_TYPE,
    RECORD,
    TENSOR_TYPE,
)
from tracelink.model.communications import (
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
from tracelink.model.operations import (
    COLLECTIVE_ANNOTATION,
    COLLECTIVE_OPERATOR,
    Operation,
    item_bytes,
    operation_of,
    type_named,
)

MOST_MEMBERS = 1 << 20


def communicates(name: str) -> bool:
    """Whether a node of this name says something of communication."""
    return bool(COLLECTIVE_OPERATOR.match(name) or COLLECTIVE_ANNOTATION.match(name))


def statement_of(node: Mapping[str, Any], attributes: Mapping[str, Any]) -> Statement:
    """What one node says."""
    name, inputs = text_in(node.get("name")), _Values(node, "input")
    record = _Record.of(inputs.values) if name == RECORD else None
    if record is not None:
        return _recorded(record, attributes, inputs, _Values(node, "output"))
    statement = stated_by_inputs(name, inputs)
    if FUNCTIONAL.match(name) and len(inputs):
        statement.group = text_in(inputs.value(len(inputs) - 1))
    return statement


def _recorded(record: _Record, attributes: Mapping[str, Any], inputs: _Values, outputs: _Values) -> Statement:
    statement = stated_by(record.operation)
    statement.group = record.group_name or text_in(attributes.get(GROUP_NAME))
    statement.point_to_point |= record.counts_messages
    if record.counts_messages or not statement.point_to_point:
        statement.sequence = record.sequence
    if operation_of(statement.operation) == Operation.WAIT:
        # The rest of a wait are fillers, and not of what it waits for.
        return statement
    statement.size = record.size
    statement.members = record.members
    given = inputs.sizes(0) if record.tensors else None
    statement.shape = shape_of(given)
    if COLLECTIVE in attributes:
        statement.elements_in = number_in(attributes.get(ELEMENTS_IN))
        statement.elements_out = number_in(attributes.get(ELEMENTS_OUT))
        statement.type = text_in(attributes.get(NUMBER_TYPE))
        statement.name_peer(record.rank)
    elif record.tensors:
        statement.elements_in, statement.elements_out = elements_of(given), elements_of(outputs.sizes(0))
        statement.type = inputs.type(0)
    return statement


@dataclass(frozen=True, slots=True)
class _Record:
    """The inputs of `record_param_comms`; behind the tensors, where there are any, they stand in one order."""

    tensors: bool
    sequence: int
    counts_messages: bool
    group_name: str
    rank: int
    """The rank itself; since 1.1.0 the other end of a message, and the root of what has one."""
    operation: str
    size: int
    members: str

    @classmethod
    def of(cls, values: Sequence[Any]) -> _Record | None:
        """The record that these inputs are; None if they are not laid out like one."""
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
    """The name in [name, description]; before 1.0.3 a number that only this process knows, 0 for no group."""
    if isinstance(group, list):
        return text_in(group[0]) if group else ""
    number = number_in(group)
    return str(number) if number > 0 else text_in(group)


def _members(start: int, stride: int, size: int) -> str:
    """The ranks of a group whose ranks are evenly spaced; others are told by a stride that is none."""
    if start < 0 or stride <= 0 or not 0 < size <= MOST_MEMBERS:
        return ""
    return str(list(range(start, start + size * stride, stride)))


class _Values:
    """The inputs or outputs of a node, in either layout."""

    def __init__(self, node: Mapping[str, Any], which: str) -> None:
        told = node.get(f"{which}s")
        if not isinstance(told, dict):
            told = {
                "values": told,
                "shapes": node.get(f"{which}_shapes"),
                "types": node.get(f"{which}_types"),
            }
        self.values = _list(told.get("values"))
        self.shapes = _list(told.get("shapes"))
        self.types = _list(told.get("types"))

    def __len__(self) -> int:
        return len(self.values)

    def sizes(self, place: int) -> Sizes | None:
        """The sizes of the tensors in one of them."""
        shape = self.shapes[place] if place < len(self.shapes) else None
        return [[]] if shape == [] and self._kind(place).startswith("Tensor(") else sizes_in(shape)

    def type(self, place: int) -> str:
        """The type of the numbers in one of them."""
        found = TENSOR_TYPE.search(self._kind(place))
        name = type_named(found[1]) if found else ""
        return name if item_bytes(name) is not None else ""

    def value(self, place: int) -> Any:
        """One of them."""
        return self.values[place] if place < len(self.values) else None

    def _kind(self, place: int) -> str:
        return text_in(self.types[place]) if place < len(self.types) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
