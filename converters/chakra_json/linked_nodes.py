"""Nodes of a linked trace: those of an execution trace with what the profile adds to them, and device work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from tracelink.converters.chakra_json import schema
from tracelink.converters.chakra_json.decimals import nanoseconds_of
from tracelink.converters.execution_trace.columns import TABLE, Columns
from tracelink.converters.execution_trace.nodes import NodeFormat, Piece, convert, decode, int64s, whole
from tracelink.converters.execution_trace.schema import FlatNode, Node, UsualNode
from tracelink.events import NO_TIME, UNFINISHED, Int64s
from tracelink.statements import Statement, text_in

START, DURATION, UNUSABLE = "start", "duration", "unusable"
CATEGORY, STREAM, OTHER_THREAD = "category", "stream", "other_thread"
WAITING, AWAITED = "waiting", "awaited"
"""Rows of nodes that waited for the device, and the ids of what each waited for: as many as there are, not nodes."""

ON_CPU = -1
"""The category of a node that is no device work; others are places in `schema.READ_CATEGORIES`, or behind them."""
NO_ID = int(np.iinfo(np.int64).min)

LINKED = (START, DURATION, UNUSABLE, CATEGORY, STREAM, OTHER_THREAD, WAITING, AWAITED)
CATEGORY_CODES = {name: code for code, name in enumerate(schema.READ_CATEGORIES)}


@dataclass(slots=True)
class LinkedColumns(Columns):
    """Everything in the node array."""

    chunks: dict[str, list[Int64s]] = field(default_factory=lambda: {name: [] for name in (*TABLE, *LINKED)})

    def add(self, offset: int, piece: Piece) -> None:
        """Takes in one piece."""
        piece.columns[WAITING] = piece.columns[WAITING] + self.nodes
        Columns.add(self, offset, piece)


def decode_linked(text: memoryview) -> Piece:
    """A piece that is valid JSON; raises `ValidationError` where a node is not as it should be."""
    return decode(memoryview(bytes(text)), FORMAT)


def convert_linked(values: list[Any]) -> Piece:
    """Nodes that only a lenient parser could read."""
    return convert(values, FORMAT)


def _complete(piece: Piece, nodes: Sequence[Any]) -> None:
    starts = [bytes(node.ts) for node in nodes]
    lengths = [bytes(node.inclusive_dur) for node in nodes]
    start, duration = nanoseconds_of(starts), nanoseconds_of(lengths)
    given = np.fromiter((text not in schema.NOT_GIVEN for text in starts), np.bool_, len(nodes))
    categories = [CATEGORY_CODES.get(node.cat, len(CATEGORY_CODES)) if node.cat else ON_CPU for node in nodes]
    expected = given | (int64s(categories) != ON_CPU)
    lost = (expected & (start == NO_TIME)) | ((start != NO_TIME) & (duration < 0))
    others = [NO_ID if node.inter_thread_dep is None else node.inter_thread_dep for node in nodes]
    awaited = [(row, number) for row, node in enumerate(nodes) for number in node.sync_dep or ()]
    piece.columns |= {
        START: start,
        DURATION: np.where((start == NO_TIME) | (duration < 0), UNFINISHED, duration),
        UNUSABLE: lost.astype(np.int64),
        CATEGORY: int64s(categories),
        STREAM: int64s([node.stream for node in nodes]),
        OTHER_THREAD: int64s(others),
        WAITING: int64s([row for row, _ in awaited]),
        AWAITED: int64s([number for _, number in awaited]),
    }
    groups = ((row, text_in(node.pg_name)) for row, node in enumerate(nodes) if node.cat)
    piece.stated += [(row, Statement("", group=group)) for row, group in groups if group]


def _loose(value: Mapping[str, Any]) -> Any:
    stream, other = whole(value.get(schema.STREAM)), whole(value.get(schema.OTHER_THREAD))
    awaited = value.get(schema.SYNCHRONISED)
    numbers = [whole(number) for number in awaited] if isinstance(awaited, list) else []
    return LooseNode(
        ts=_number(value.get(schema.STARTED)),
        inclusive_dur=_number(value.get(schema.INCLUSIVE)),
        inter_thread_dep=other,
        sync_dep=[number for number in numbers if number is not None],
        cat=text_in(value.get(schema.CATEGORY)),
        stream=0 if stream is None else stream,
        pg_name=text_in(value.get(schema.GROUP)),
    )


def _number(value: Any) -> msgspec.Raw:
    return msgspec.Raw(b"" if value is None else str(value).encode("ascii", "replace"))


ADDED: list[tuple[str, Any, Any]] = [
    (schema.STARTED, msgspec.Raw, msgspec.Raw()),
    (schema.INCLUSIVE, msgspec.Raw, msgspec.Raw()),
    (schema.OTHER_THREAD, int | None, None),
    (schema.SYNCHRONISED, list[int] | None, None),
    (schema.CATEGORY, str, ""),
    (schema.STREAM, int, 0),
    (schema.GROUP, str | None, None),
]
"""What the linker adds to a node, of which type, and what it is where it is missing."""

LooseNode = msgspec.defstruct("LooseNode", ADDED)


def _decoder(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(list[msgspec.defstruct(kind.__name__, ADDED, bases=(kind,), gc=False)])  # type: ignore[misc]


FORMAT = NodeFormat(_decoder(UsualNode), _decoder(Node), _decoder(FlatNode), _complete, _loose)
