"""What a rank does with others: all that must be kept of it when the next is read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.converters.chakra.schema import CollectiveType, Name, NodeType
from tracelink.converters.chakra.validation.groups import NOWHERE
from tracelink.converters.chakra.validation.trace import Told, Trace
from tracelink.events import Bools, Int64s

UNKNOWN = -1
"""A type, a size, a peer or a tag that a node does not state, or not as a number."""


@dataclass(frozen=True, slots=True)
class Collectives:
    """The collectives of a rank as a simulator begins them."""

    node: Int64s
    group: Int64s
    type: Int64s
    size: Int64s

    def of(self, group: int) -> Collectives:
        """Those of one group."""
        return self.where(self.group == group)

    def where(self, chosen: Bools) -> Collectives:
        """Some of them."""
        return Collectives(self.node[chosen], self.group[chosen], self.type[chosen], self.size[chosen])

    def __len__(self) -> int:
        return len(self.node)

    def called(self, place: int) -> str:
        """One of them in words."""
        kind, size = int(self.type[place]), int(self.size[place])
        known = 0 <= kind < len(CollectiveType)
        name = CollectiveType(kind).name if known else "collective of unknown type"
        return f"{name} of {'unknown size' if size == UNKNOWN else f'{size:,} bytes'}"


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of a rank, by row."""

    node: Int64s
    sent: Bools
    peer: Int64s
    tag: Int64s
    size: Int64s
    complete: Bools
    """Which state peer, tag and size."""


def collectives_of(trace: Trace) -> Collectives:
    """The collectives of a rank."""
    order = trace.issued.rows
    rows = order[trace.nodes.type[order] == NodeType.COMM_COLL]
    return Collectives(
        trace.nodes.id[rows],
        trace.group[rows],
        _known(trace.number(Name.COMM_TYPE))[rows],
        _known(trace.number(Name.COMM_SIZE))[rows],
    )


def messages_of(trace: Trace) -> Messages:
    """The messages of a rank."""
    rows = np.flatnonzero(trace.nodes.of_type(NodeType.COMM_SEND, NodeType.COMM_RECV))
    sent = trace.nodes.type[rows] == NodeType.COMM_SEND
    target, source = trace.number(Name.COMM_TARGET), trace.number(Name.COMM_SOURCE)
    tag, size = trace.number(Name.COMM_TAG), trace.number(Name.COMM_SIZE)
    known = np.where(sent, target.known[rows], source.known[rows])
    return Messages(
        trace.nodes.id[rows],
        sent,
        np.where(sent, _known(target)[rows], _known(source)[rows]),
        tag.values[rows],
        size.values[rows],
        known & tag.known[rows] & size.known[rows],
    )


def in_no_group(collectives: Collectives) -> Collectives:
    """Those whose group nobody knows."""
    return collectives.where(collectives.group == NOWHERE)


def _known(told: Told) -> Int64s:
    return np.where(told.known, told.values, UNKNOWN)
