"""What an event and its arguments say of communication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracelink.communications import UNKNOWN
from tracelink.converters.kineto.schema import (
    COLLECTIVE,
    ELEMENTS_IN,
    ELEMENTS_OUT,
    GROUP_NAME,
    GROUP_RANKS,
    GROUP_SIZE,
    INPUT_DIMS,
    INPUT_TYPES,
    INPUT_VALUES,
    NUMBER_IN_GROUP,
    NUMBER_TYPE,
    PEER,
    RECEIVER,
    SENDER,
    UNKNOWN_MEMBERS,
)
from tracelink.dtypes import item_bytes, type_named
from tracelink.operations import Operation, operation_of
from tracelink.signatures import stated_by_inputs
from tracelink.statements import (
    Sizes,
    Statement,
    number_in,
    rank_in,
    sizes_in,
    stated_by,
    text_in,
)


def statement_of(name: str, arguments: Mapping[str, Any]) -> Statement:
    """What an event says, by its name and its own arguments."""
    if COLLECTIVE in arguments:
        return _recorded(text_in(arguments[COLLECTIVE]) or name, arguments)
    return stated_by_inputs(name, _Inputs(arguments)) if INPUT_DIMS in arguments else stated_by(name)


def _recorded(operation: str, arguments: Mapping[str, Any]) -> Statement:
    """What `record_param_comms` says, or the kernel that it is copied to."""
    statement = stated_by(operation)
    statement.group = text_in(arguments.get(GROUP_NAME))
    statement.sequence = number_in(arguments.get(NUMBER_IN_GROUP))
    if operation_of(statement.operation) == Operation.WAIT:
        # The rest of a wait are fillers, and not of what it waits for.
        return statement
    statement.elements_in = number_in(arguments.get(ELEMENTS_IN))
    statement.elements_out = number_in(arguments.get(ELEMENTS_OUT))
    statement.type = text_in(arguments.get(NUMBER_TYPE))
    statement.size = rank_in(arguments.get(GROUP_SIZE))
    members = text_in(arguments.get(GROUP_RANKS))
    statement.members = "" if members == UNKNOWN_MEMBERS else members
    statement.source, statement.target = rank_in(arguments.get(SENDER)), rank_in(arguments.get(RECEIVER))
    statement.global_ranks = (statement.source, statement.target) != (UNKNOWN, UNKNOWN)
    if not statement.global_ranks:
        statement.name_peer(rank_in(arguments.get(PEER)))
    return statement


class _Inputs:
    """The inputs of an operator as far as they were recorded."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.dims = _list(arguments.get(INPUT_DIMS))
        self.types = _list(arguments.get(INPUT_TYPES))
        self.values = _list(arguments.get(INPUT_VALUES))

    def __len__(self) -> int:
        return len(self.dims)

    def sizes(self, place: int) -> Sizes | None:
        """The sizes of the tensors in one input; those of a list were not recorded before 2024."""
        dims = _at(self.dims, place)
        return [[]] if dims == [] and self.type(place) else sizes_in(dims)

    def type(self, place: int) -> str:
        """The type of the numbers in one input; empty where it is a list, whose type is not recorded."""
        name = type_named(text_in(_at(self.types, place)))
        return name if item_bytes(name) is not None else ""

    def value(self, place: int) -> Any:
        """The text of one input that is a number."""
        return _at(self.values, place)


def _at(values: Sequence[Any], place: int) -> Any:
    return values[place] if place < len(values) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
