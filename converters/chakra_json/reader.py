"""Linked trace to rank trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from tracelink._io.engine import Engine
from tracelink._io.sources import Source
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int32s, Int64s, int64s, lookup
from tracelink._model.communications import Statement, text_in
from tracelink._model.events import Edges, EventKind, Key, KeyColumn, Relation, Track, TrackKind
from tracelink._model.findings import Finding, Severity
from tracelink._model.text import counted
from tracelink._model.trace import RankTrace
from tracelink.converters.chakra_json import schema
from tracelink.converters.pytorch import node_schema as traced
from tracelink.converters.pytorch.arguments import BASE_TIME, LATEST_US, base_time, decimal_nanoseconds
from tracelink.converters.pytorch.node_schema import SCOPE, THREAD, FlatNode, Node, PositionalNode
from tracelink.converters.pytorch.node_trace import NodeFile, Parents, keys_of, parents_of, without_loops
from tracelink.converters.pytorch.nodes import (
    ID,
    INDEX,
    NAME,
    PARENT,
    TABLE,
    NodeColumns,
    NodeFormat,
    Piece,
    convert,
    decode,
    integer_in,
)

# Decimal microseconds to nanoseconds: exactly, a column at a time.


LONGEST = 24
"""The most characters of a common number."""
MOST_DIGITS = 16
"""Of whole microseconds."""
DECIMALS = 3
"""Of nanoseconds."""
ZERO, MINUS, POINT, NOTHING = b"0-.\0"


def nanoseconds_of(texts: Sequence[bytes]) -> Int64s:
    """The nanoseconds of each number of microseconds; NO_TIME if it is empty or invalid."""
    if not texts:
        return np.empty(0, np.int64)
    usual, value = _usual(np.array([text[: LONGEST + 1] for text in texts], f"S{LONGEST + 1}"))
    for place in np.flatnonzero(~usual).tolist():
        value[place] = _unusual(texts[place])
    return value


def _usual(texts: np.ndarray[tuple[int], np.dtype[np.bytes_]]) -> tuple[Bools, Int64s]:
    """Plain decimals with few enough digits, and their values, character by character."""
    characters = texts.view(np.uint8).reshape(len(texts), LONGEST + 1)
    count = len(texts)
    value, digits, decimals = (np.zeros(count, np.int64) for _ in range(3))
    fraction = np.zeros(count, np.bool_)
    usual = (characters[:, -1] == NOTHING) & (characters[:, 0] != NOTHING)
    for place in range(LONGEST):
        character = characters[:, place]
        if not character.any():
            break
        digit = (character >= ZERO) & (character < ZERO + 10)
        point = character == POINT
        usual &= digit | (character == NOTHING) | (point & ~fraction) | ((character == MINUS) & (place == 0))
        value = np.where(
            digit & (digits + decimals < MOST_DIGITS + DECIMALS), value * 10 + character - ZERO, value
        )
        digits += digit & ~fraction
        decimals += digit & fraction
        fraction |= point
    usual &= (digits > 0) & (digits <= MOST_DIGITS) & (decimals <= DECIMALS)
    usual &= value <= LATEST_US * 10.0**decimals
    value *= 10 ** np.clip(DECIMALS - decimals, 0, DECIMALS)
    return usual, np.where(characters[:, 0] == MINUS, -value, value)


def _unusual(text: bytes) -> int:
    try:
        return decimal_nanoseconds(text.decode("ascii", "replace"))
    except ValueError:
        return NO_TIME


# Nodes of a linked trace: those of an execution trace with what the profile adds to them, and device work.


START, DURATION, UNUSABLE = "start", "duration", "unusable"
CATEGORY, STREAM, OTHER_THREAD = "category", "stream", "other_thread"
WAITING, AWAITED = "waiting", "awaited"
"""Rows of nodes that waited for the device, and the ids of what each waited for: as many as there are, not nodes."""

ON_CPU = -1
"""The category of a node that is no device work; others are places in `schema.READ_CATEGORIES`, or behind them."""
NO_ID = int(np.iinfo(np.int64).min)

LINKED = (START, DURATION, UNUSABLE, CATEGORY, STREAM, OTHER_THREAD, WAITING, AWAITED)
CATEGORY_CODES = {name: code for code, name in enumerate(schema.READ_CATEGORIES)}


class LinkedColumns(NodeColumns):
    """The columns of the node array."""

    chunks: dict[str, list[Int64s]] = field(default_factory=lambda: {name: [] for name in (*TABLE, *LINKED)})

    def add(self, offset: int, piece: Piece) -> None:
        """Takes in one piece."""
        piece.columns[WAITING] = piece.columns[WAITING] + self.nodes
        NodeColumns.add(self, offset, piece)


def decode_linked(text: memoryview) -> Piece:
    """A chunk of valid JSON; raises `ValidationError` if a node is invalid."""
    return decode(memoryview(bytes(text)), FORMAT_LINKED_NODES)


def convert_linked(values: list[Any]) -> Piece:
    """Nodes that only a lenient parser could read."""
    return convert(values, FORMAT_LINKED_NODES)


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
        DURATION: np.where((start == NO_TIME) | (duration < 0), UNKNOWN, duration),
        UNUSABLE: lost.astype(np.int64),
        CATEGORY: int64s(categories),
        STREAM: int64s([node.stream for node in nodes]),
        OTHER_THREAD: int64s(others),
        WAITING: int64s([row for row, _ in awaited]),
        AWAITED: int64s([number for _, number in awaited]),
    }
    groups = ((row, text_in(node.pg_name)) for row, node in enumerate(nodes) if node.cat)
    piece.statements += [(row, Statement("", group=group)) for row, group in groups if group]


def _loose(value: Mapping[str, Any]) -> Any:
    stream, other = integer_in(value.get(schema.STREAM)), integer_in(value.get(schema.OTHER_THREAD))
    awaited = value.get(schema.SYNCHRONISED)
    numbers = [integer_in(number) for number in awaited] if isinstance(awaited, list) else []
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
"""The fields that the linker adds to a node: key, type and default."""

LooseNode = msgspec.defstruct("LooseNode", ADDED)


def _decoder(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(list[msgspec.defstruct(kind.__name__, ADDED, bases=(kind,), gc=False)])  # type: ignore[misc]


FORMAT_LINKED_NODES = NodeFormat(
    _decoder(PositionalNode), _decoder(Node), _decoder(FlatNode), _complete, _loose
)


# Kind and track of the event of each node.


KINDS = np.array([*schema.READ_CATEGORIES.values(), EventKind.OTHER], np.uint8)
"""By the code of the category."""


class Places(Struct, frozen=True):
    """Kind and track of each node."""

    kind: npt.NDArray[np.uint8]
    track: Int32s
    tracks: list[Track]
    on_device: Bools


def places_of(table: Mapping[str, Int64s], process: str) -> Places:
    """Work on its stream, what has a time on its thread, all else among the nodes of its logical thread."""
    timed = table[START] != NO_TIME
    on_device = timed & (table[CATEGORY] != ON_CPU)
    annotation = table[SCOPE] == schema.USER_SCOPE
    kind = np.where(annotation, np.uint8(EventKind.ANNOTATION), np.uint8(EventKind.OPERATOR))
    kind[~timed] = EventKind.NODE
    kind[on_device] = KINDS[table[CATEGORY][on_device]]
    track = np.zeros(len(timed), np.int32)
    tracks: list[Track] = []
    for chosen, column, on, of, label in (
        (timed & ~on_device, THREAD, TrackKind.THREAD, process, "thread"),
        (on_device, STREAM, TrackKind.STREAM, "", "stream"),
        (~timed, THREAD, TrackKind.NODES, process, "logical thread"),
    ):
        numbers, number = np.unique(table[column][chosen], return_inverse=True)
        track[chosen] = len(tracks) + number
        tracks += [Track(on, of, str(identity), f"{label} {identity}") for identity in numbers.tolist()]
    return Places(kind, track, tracks, on_device)


# Edges that a linked trace declares: callers, launches, dependencies.


class Stated(Struct, frozen=True):
    """The edges, and the number of dependencies that cannot be an edge."""

    edges: Edges
    without_launch: int
    unknown: int


def stated_edges(table: Mapping[str, Int64s], parents: Parents, on_device: Bools) -> Stated:
    """Edges between rows. Waits of device work are copies of those of its node, and are left out."""
    ids = table[ID]
    child, caller = parents.column.rows, _earliest(ids, parents.column.values)
    work = on_device[child]
    other = np.flatnonzero((table[OTHER_THREAD] != NO_ID) & (table[CATEGORY] == ON_CPU))
    copied = table[CATEGORY][table[WAITING]] != ON_CPU
    waiting = np.concatenate([other, table[WAITING][~copied]])
    awaited = _earliest(ids, np.concatenate([table[OTHER_THREAD][other], table[AWAITED][~copied]]))
    known = (awaited != UNKNOWN) & (awaited != waiting)
    edges = [
        Edges.of_relation(Relation.CALLS, caller[~work], child[~work]),
        Edges.of_relation(Relation.LAUNCHES, caller[work], child[work]),
        Edges.of_relation(Relation.DEPENDS_ON, waiting[known], awaited[known]),
    ]
    without_launch = int(np.count_nonzero(on_device)) - int(np.count_nonzero(work))
    return Stated(Edges.concatenate(edges), without_launch, int(np.count_nonzero(awaited == UNKNOWN)))


def _earliest(ids: Int64s, wanted: Int64s) -> Int64s:
    """The first row with each id, or UNKNOWN."""
    found = lookup(ids[::-1], wanted)
    return np.where(found == UNKNOWN, UNKNOWN, len(ids) - 1 - found)


# Findings.


def unread_findings(
    path: str, table: Mapping[str, Int64s], stated: Stated, header: Mapping[str, object], base: int | None
) -> Iterator[Finding]:
    """All that is missing or cannot be used, in addition to the findings on every execution trace."""
    if unusable := int(np.count_nonzero(table[UNUSABLE])):
        text = f"{path}: {counted(unusable, 'node')} with an invalid time or duration, which is ignored."
        yield Finding(Severity.WARNING, "unusable_time", text, unusable, path)
    if stated.without_launch:
        text = (
            f"{path}: {stated.without_launch:,} kernels, copies and memsets have no node that launched them."
        )
        yield Finding(Severity.WARNING, "without_launch", text, stated.without_launch, path)
    if stated.unknown:
        text = f"{path}: {counted(stated.unknown, 'dependency')} on a node that is not in the file."
        yield Finding(Severity.WARNING, "unknown_dependency", text, stated.unknown, path)
    timed = bool((table[START] != NO_TIME).any())
    if base is None:
        text = f"{path}: {BASE_TIME} is not a valid time: {str(header[BASE_TIME])[:40]!r}; it is ignored."
        yield Finding(Severity.WARNING, "unusable_base_time", text, source=path)
    elif timed and BASE_TIME not in header:
        text = (
            f"{path}: times count from the base time of the profile, which the file does not contain; "
            "they are used unchanged."
        )
        yield Finding(Severity.INFO, "no_base_time", text, source=path)
    if not timed:
        text = f"{path}: no node has a time. Link the execution trace to the profile of the same run."
        yield Finding(Severity.WARNING, "without_times", text, source=path)


# Linked trace to rank trace.

PROFILE = "kineto"
"""The format that such a trace is made from, besides execution traces."""


class ChakraJsonReader:
    """Reads what `chakra_trace_link`, or the writer of this format, makes of an execution trace and a profile."""

    name = "chakra-json"

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """One event for each node: on its thread, on its stream, or without a time on its logical thread."""
        file = NodeFile.read(source, engine, LinkedColumns(), decode_linked, convert_linked)
        table, header = file.table, file.document.header
        base = base_time(header)
        places = places_of(table, "" if file.pid is None else str(file.pid))
        parents = _parents(table, file.columns)
        start, stated = table[START], stated_edges(table, parents, places.on_device)
        built = file.builder(self.name, (*traced.HEADER, BASE_TIME))
        built.events(
            table[NAME].astype(np.int32),
            np.where(start == NO_TIME, start, start + (base or 0)),
            table[DURATION],
            kind=places.kind,
            track=places.track,
            payload=table[INDEX],
        )
        keys, derived_from = _keys(table, parents, places), frozenset({PROFILE})
        trace = file.build(
            built, parents, tracks=places.tracks, keys=keys, edges=stated.edges, derived_from=derived_from
        )
        trace.findings.extend(unread_findings(source.path, table, stated, header, base))
        return trace


def _parents(table: Mapping[str, Int64s], columns: NodeColumns) -> Parents:
    """Device work without a launch has no parent; all other nodes have the root of their thread."""
    rows = np.flatnonzero(table[CATEGORY] == ON_CPU)
    ids, written, thread, name = (table[key][rows] for key in (ID, PARENT, traced.THREAD, NAME))
    found = parents_of(ids, written, thread, name, columns.names)
    work = np.flatnonzero((table[CATEGORY] != ON_CPU) & np.isin(table[PARENT], ids))
    column = KeyColumn(
        np.concatenate([rows[found.column.rows], work]),
        np.concatenate([found.column.values, table[PARENT][work]]),
    )
    column, looping = without_loops(table[ID], column)
    return Parents(column, rows[found.orphans], found.looping + looping)


def _keys(table: Mapping[str, Int64s], parents: Parents, places: Places) -> dict[Key, KeyColumn]:
    """Device work has copies of its node's attributes, which are not its own."""
    own = dict(table)
    for name, none in traced.COLUMNS.items():
        if name not in (traced.THREAD, traced.SCOPE):
            own[name] = np.where(places.on_device, none, table[name])
    return keys_of(own, parents)
