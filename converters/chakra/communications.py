"""What each rank has to write as communication: its part in every collective, and its end of every message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelink.collectives import Messages
from tracelink.communications import UNKNOWN
from tracelink.converters.chakra.schema import TYPE_OF_OPERATION, NodeType
from tracelink.converters.chakra.sizes import consumer_sizes
from tracelink.converters.chakra.turns import turns_of_job
from tracelink.events import Columns, EventKind, Events, Int32s, Int64s
from tracelink.job import Job, event_of
from tracelink.operations import Operation


@dataclass(frozen=True, slots=True)
class Communicating(Columns):
    """One row for each node of communication that is to be written, of one rank or of all."""

    rank: Int32s
    row: Int64s
    """The event that becomes the node, or UNKNOWN; several messages can share one."""
    node: Int64s
    """The node of the execution trace that asked for it, or UNKNOWN."""
    operator: Int64s
    """The operator that asked for it, where it is another event; or UNKNOWN."""
    type: npt.NDArray[np.uint8]
    collective: Int64s
    """Row of the job's collectives, or UNKNOWN for a message."""
    collective_type: Int64s
    """UNKNOWN for a message, and for a collective that Chakra has no word for."""
    operation: Int32s
    """Code of the job's strings; UNKNOWN for messages."""
    group: Int32s
    """Row of the job's groups, or UNKNOWN."""
    size: Int64s
    """Bytes as consumers take them, or UNKNOWN."""
    bytes_in: Int64s
    bytes_out: Int64s
    source: Int64s
    target: Int64s
    tag: Int64s
    root: Int64s
    sequence: Int64s
    element_type: Int32s
    turn: Int64s
    """The place among everything that the ranks do together, the same for all who take part."""
    most: Int64s
    """The largest size that any of its ranks tells; UNKNOWN where nobody has asked."""
    lacking: Int64s
    """How many of those who are written should take part and do not; UNKNOWN where nobody has asked."""

    def __len__(self) -> int:
        return len(self.rank)

    @classmethod
    def of(cls, count: int, **columns: Any) -> Communicating:
        """What is not given is unknown."""
        unknown = np.full(count, UNKNOWN, np.int64)
        return cls(*(np.asarray(columns.get(column.name, unknown)) for column in fields(cls)))

    @classmethod
    def concatenate(cls, parts: Sequence[Communicating]) -> Communicating:
        """All of all parts, in order."""
        return cls(
            *(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(cls))
        )

    def take(self, rows: Any) -> Communicating:
        """Some of them."""
        return Communicating(*(getattr(self, column.name)[rows] for column in fields(self)))

    def of_rank(self, rank: int) -> Communicating:
        """Those of one rank that anything is recorded of."""
        return self.take((self.rank == rank) & ((self.row != UNKNOWN) | (self.node != UNKNOWN)))

    def settled(self, events: Events) -> Communicating:
        """The same in the order of their events, where an operator, or its node, stands for what has no other.

        An entry of the recorder becomes no node beside an execution trace or a profile.
        """
        recorded = (self.row == UNKNOWN) | np.append(events.of_kind(EventKind.RECORD), False)[self.row]
        asked = np.where(self.operator != UNKNOWN, self.operator, self.node)
        row = np.where(recorded & (asked != UNKNOWN), asked, self.row)
        return replace(self, row=row).take(np.lexsort((self.turn, row)))


def communicating(job: Job) -> Communicating:
    """Everything that the ranks of a job do together, by what was matched across them."""
    messages = job.messages
    turn = turns_of_job(job)
    collectives, turn = turn[: len(job.collectives)], turn[len(job.collectives) :]
    return Communicating.concatenate(
        [
            _collectives(job, collectives),
            _ends(messages, NodeType.COMM_SEND, messages.source, messages.send, messages.send_node, turn),
            _ends(
                messages, NodeType.COMM_RECV, messages.target, messages.receive, messages.receive_node, turn
            ),
        ]
    )


def participants_of(told: Communicating) -> dict[int, tuple[int, ...]]:
    """The ranks that are seen in each group."""
    known = told.group != UNKNOWN
    pairs = np.unique(np.stack([told.group[known], told.rank[known]]), axis=1)
    return {group: tuple(pairs[1][pairs[0] == group].tolist()) for group in np.unique(pairs[0]).tolist()}


def collective_groups(told: Communicating) -> list[int]:
    """The rows of the groups that have collectives."""
    groups: list[int] = np.unique(told.group[(told.collective != UNKNOWN) & (told.group != UNKNOWN)]).tolist()
    return groups


def usable(told: Communicating) -> tuple[Communicating, Mapping[str, int]]:
    """What can be written as communication, and how much cannot, by what is not known of it."""
    messages = told.collective == UNKNOWN
    lacking = {
        "operation": ~messages & (told.collective_type == UNKNOWN),
        "size": told.size == UNKNOWN,
        "peer": messages & ((told.source == UNKNOWN) | (told.target == UNKNOWN)),
    }
    unusable, counts = np.zeros(len(told), np.bool_), dict[str, int]()
    for name, lacks in lacking.items():
        if count := int(np.count_nonzero(lacks & ~unusable)):
            counts[name] = count
        unusable |= lacks
    return told.take(np.flatnonzero(~unusable)), counts


def _collectives(job: Job, turn: Int64s) -> Communicating:
    parts, whole = job.participations, job.collectives
    place = parts.collective
    types = {
        code: TYPE_OF_OPERATION[Operation(text)]
        for code, text in enumerate(job.strings)
        if text in TYPE_OF_OPERATION
    }
    kind = np.array([types.get(code, UNKNOWN) for code in range(len(job.strings))] + [UNKNOWN], np.int64)
    return Communicating.of(
        len(parts),
        rank=parts.rank,
        row=event_of(parts),
        node=parts.node,
        operator=parts.operator,
        type=np.full(len(parts), NodeType.COMM_COLL, np.uint8),
        collective=place,
        collective_type=kind[whole.operation[place]],
        operation=whole.operation[place],
        group=whole.group[place],
        size=consumer_sizes(job),
        bytes_in=parts.bytes_in,
        bytes_out=parts.bytes_out,
        root=whole.root[place].astype(np.int64),
        sequence=whole.sequence[place],
        element_type=whole.type[place],
        turn=turn[place],
    )


def _ends(
    messages: Messages, kind: NodeType, rank: Int32s, row: Int64s, node: Int64s, turn: Int64s
) -> Communicating:
    chosen = np.flatnonzero((row != UNKNOWN) | (node != UNKNOWN))
    count = len(chosen)
    unknown = np.full(count, UNKNOWN, np.int32)
    return Communicating.of(
        count,
        rank=rank[chosen],
        row=row[chosen],
        node=node[chosen],
        type=np.full(count, kind, np.uint8),
        operation=unknown,
        group=messages.group[chosen],
        size=messages.bytes[chosen],
        source=messages.source[chosen].astype(np.int64),
        target=messages.target[chosen].astype(np.int64),
        tag=np.maximum(messages.tag[chosen], 0),
        element_type=unknown,
        turn=turn[chosen],
    )
