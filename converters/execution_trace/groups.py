"""Process groups, from the node that lists them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tracelink.converters.execution_trace.nodes import whole
from tracelink.converters.execution_trace.schema import Group
from tracelink.ranks import LARGEST_RANK
from tracelink.trace import ProcessGroup

GROUPS = msgspec.json.Decoder(list[Group])


def groups_of(nodes: Iterable[Mapping[str, Any]]) -> tuple[list[ProcessGroup], int]:
    """The groups that the nodes list, each once, and how many of the nodes cannot be read."""
    groups: dict[ProcessGroup, None] = {}
    unreadable = 0
    for node in nodes:
        try:
            for text in _texts(node):
                groups |= dict.fromkeys(map(_group, GROUPS.decode(text)))
        except msgspec.DecodeError:
            unreadable += 1
    return list(groups), unreadable


def _texts(node: Mapping[str, Any]) -> Iterator[str]:
    inputs = node.get("inputs")
    values = inputs.get("values") if isinstance(inputs, dict) else inputs
    for value in values if isinstance(values, list) else ():
        if isinstance(value, str):
            yield value


def _group(group: Group) -> ProcessGroup:
    """The default group lists no ranks: it is all of them."""
    numbers = [whole(rank) for rank in (group.ranks if isinstance(group.ranks, list | dict) else ())]
    usable = all(number is not None and 0 <= number <= LARGEST_RANK for number in numbers)
    ranks = tuple(number for number in numbers if number is not None and usable)
    return ProcessGroup(
        name=str(group.pg_name or group.backend_id),
        description=str(group.pg_desc),
        ranks=ranks,
        size=whole(group.group_size) or len(ranks),
        backend=str(group.backend_config),
    )
