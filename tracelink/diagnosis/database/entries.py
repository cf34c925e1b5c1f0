"""Entries and stacks, read again in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tracelink.converters.flight_recorder.schema import CURRENT, FRAME_FILE, FRAME_LINE, FRAME_NAME
from tracelink.diagnosis.database import schema
from tracelink.diagnosis.database.storage import LARGEST, Batch, Lists, clean, flags, listed, times, whole
from tracelink.diagnosis.examine import Examined
from tracelink.diagnosis.explain import own_frames
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.messages import Matching, MessageEnds, match_messages, message_ends
from tracelink.diagnosis.participation import Outcome, Parts, outcomes, parts_of
from tracelink.errors import Finding, Severity, UnreadableError
from tracelink.model.columns import UNKNOWN, Int8s, Int32s, Int64s, distinct
from tracelink.model.operations import POINT_TO_POINT, item_bytes, operation_of, type_named
from tracelink.model.records import Frame, Recording, State
from tracelink.model.trace import Payload

# What the tables call their rows by, and which rows of others these lead to.


@dataclass(frozen=True, slots=True)
class Numbering:
    """Groups and entries go by their rows in the journal, collectives by their order; UNKNOWN is none."""

    journal: Journal
    parts: Parts
    group: Int32s
    """Of each collective."""
    sequence: Int64s
    """Of each collective."""
    collective: Int64s
    """Of each entry of the journal."""
    ends: MessageEnds
    """The sends and receives."""
    message: Int64s
    """Of each of these."""
    members: Mapping[int, frozenset[int]]
    """The ranks of each group."""
    named: Mapping[tuple[str, str], Sequence[int]]
    """Groups by name and description."""
    by_sequence: Mapping[tuple[int, int], int]
    """Collectives by group and number."""

    def group_of(self, name: str, description: str, ranks: Sequence[int] = ()) -> int | None:
        """The group of this name; of several the one that has these ranks."""
        rows = self.named.get((name, description), ())
        fitting = (row for row in rows if self.members[row].issuperset(ranks))
        return next(fitting, rows[0] if rows else None)

    def collective_of(self, group: int | None, sequence: int | None, operation: str = "") -> int | None:
        """The collective of this number in a group; None for messages."""
        if group is None or sequence is None or operation_of(operation) in POINT_TO_POINT:
            return None
        return self.by_sequence.get((group, sequence))


def numbering_of(examined: Examined) -> Numbering:
    """The numbers of everything that was examined."""
    journal = examined.journal
    parts = parts_of(journal)
    _, first = np.unique(parts.collective, return_index=True)
    group, sequence = parts.group[first], parts.sequence[first]
    ends = message_ends(journal, outcomes(journal))
    named: dict[tuple[str, str], list[int]] = {}
    for row, one in enumerate(journal.groups):
        named.setdefault((one.name, one.description), []).append(row)
    return Numbering(
        journal,
        parts,
        group,
        sequence,
        _collectives(journal, group, sequence),
        ends,
        _messages(match_messages(journal, parts, ends)),
        _members(journal),
        named,
        {pair: row for row, pair in enumerate(zip(group.tolist(), sequence.tolist(), strict=True))},
    )


def _collectives(journal: Journal, group: Int32s, sequence: Int64s) -> Int64s:
    """The collective of each entry."""
    records = journal.records
    collective = np.full(len(records), UNKNOWN, np.int64)
    if not len(group):
        return collective
    number, _ = distinct(
        np.concatenate([group, records.group]),
        np.concatenate([sequence, records.sequence]),
    )
    known = np.full(int(number.max()) + 1, UNKNOWN, np.int64)
    known[number[: len(group)]] = np.arange(len(group))
    collective = known[number[len(group) :]]
    collective[records.point_to_point] = UNKNOWN
    return collective


def _messages(matching: Matching) -> Int64s:
    """The message of each end: one for two ends that belong together."""
    own = np.arange(len(matching.partner))
    first = np.where(matching.partner == UNKNOWN, own, np.minimum(own, matching.partner))
    number: Int64s = (np.cumsum(first == own) - 1)[first]
    return number


def _members(journal: Journal) -> dict[int, frozenset[int]]:
    """As described, and whoever has an entry of the group."""
    members = {row: set(group.ranks) for row, group in enumerate(journal.groups)}
    named = np.flatnonzero(journal.records.group != UNKNOWN)
    if len(named):
        _, first = distinct(journal.records.group[named], journal.rank[named])
        rows = named[first]
        pairs = zip(journal.records.group[rows].tolist(), journal.rank[rows].tolist(), strict=True)
        for row, rank in pairs:
            members[row].add(rank)
    return {row: frozenset(ranks) for row, ranks in members.items()}


# What an entry says beyond its columns, out of its JSON: tensors, device time, and its stack as it stands there.


LONGEST = 1 << 16
"""Bytes of one text that is kept; more is a trap, for many entries can refer to one list in the dump."""

REPEATED = 1 << 12
"""Texts up to here come again, and are looked at once."""

NOT_SAID = (b"", b"null")

Sizes = list[list[int]]


class Said(
    msgspec.Struct,
    gc=False,
    rename={
        "stack": CURRENT.frames,
        "input_sizes": CURRENT.input_sizes,
        "output_sizes": CURRENT.output_sizes,
        "input_types": CURRENT.input_types,
        "output_types": CURRENT.output_types,
        "duration": CURRENT.duration,
    },
):
    """The parts of an entry as the JSON that they are."""

    stack: msgspec.Raw = msgspec.Raw()
    input_sizes: msgspec.Raw = msgspec.Raw()
    output_sizes: msgspec.Raw = msgspec.Raw()
    input_types: msgspec.Raw = msgspec.Raw()
    output_types: msgspec.Raw = msgspec.Raw()
    duration: msgspec.Raw = msgspec.Raw()


NOTHING = Said()
said_by = msgspec.json.Decoder(Said).decode
sizes_in = msgspec.json.Decoder(Sizes).decode
types_in = msgspec.json.Decoder(list[str]).decode
number_in = msgspec.json.Decoder(float).decode


class Tensors(NamedTuple):
    """What goes in or comes out: as recorded, and how much it is."""

    sizes: str | None
    types: str | None
    elements: int | None
    bytes: int | None
    left_out: int = 0
    """How many of the texts are too long to be kept."""


def tensors_of(sizes: msgspec.Raw, types: msgspec.Raw) -> Tensors:
    """The tensors of one direction."""
    pair = bytes(sizes), bytes(types)
    return _known(*pair) if len(pair[0]) + len(pair[1]) <= REPEATED else _measured(*pair)


def duration_of(raw: msgspec.Raw) -> float | None:
    """A time in ms, or None if there is none."""
    text = bytes(raw)
    if text in NOT_SAID:
        return None
    try:
        return number_in(text)
    except msgspec.DecodeError:
        return None


def _measured(sizes: bytes, types: bytes) -> Tensors:
    elements = _elements(sizes)
    left_out = (len(sizes) > LONGEST) + (len(types) > LONGEST)
    return Tensors(_kept(sizes), _kept(types), _sum(elements), _sum(_bytes(elements, types)), left_out)


_known = lru_cache(maxsize=4096)(_measured)


def _kept(text: bytes) -> str | None:
    return None if text in NOT_SAID or len(text) > LONGEST else text.decode()


def _elements(sizes: bytes) -> list[int] | None:
    """Of each tensor."""
    try:
        return [_product(tensor) for tensor in sizes_in(sizes)]
    except (msgspec.DecodeError, OverflowError):
        return None


def _product(sizes: list[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
        if size < 0 or product > LARGEST:
            raise OverflowError
    return product


def _bytes(elements: list[int] | None, types: bytes) -> list[int] | None:
    if elements is None:
        return None
    try:
        items = [item_bytes(type_named(name)) for name in types_in(types)] if elements else []
    except msgspec.DecodeError:
        return None
    if len(items) != len(elements) or None in items:
        return None
    return [count * (item or 0) for count, item in zip(elements, items, strict=True)]


def _sum(parts: list[int] | None) -> int | None:
    total = None if parts is None else sum(parts)
    return total if total is not None and total <= LARGEST else None


# Stacks to rows: each different one once, known by a digest of what it says.


DEEPEST = 1024
"""Frames that are kept of one stack: Python's own limit is about as many."""

DIGEST = 16
NO_STACK = (b"", b"null", b"[]")


class FrameText(
    msgspec.Struct, gc=False, rename={"name": FRAME_NAME, "filename": FRAME_FILE, "line": FRAME_LINE}
):
    """A frame as a dump has it."""

    name: str = ""
    filename: str = ""
    line: int | None = None


frames_in = msgspec.json.Decoder(list[FrameText]).decode


@dataclass(slots=True)
class Tracebacks:
    """The stacks that were seen, and those among them whose rows were not taken yet."""

    unreadable: int = 0
    cut: int = 0
    """Stacks that are too deep to be kept whole."""
    _known: dict[bytes, int | None] = field(default_factory=dict)
    _count: int = 0
    _rows: dict[str, list[Any]] = field(default_factory=dict)
    _frames: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begin()

    def number(self, raw: msgspec.Raw) -> int | None:
        """The number of a stack, None where there is none or it is no stack."""
        digest = blake2b(raw, digest_size=DIGEST).digest()
        if digest not in self._known:
            self._known[digest] = self._added(bytes(raw))
        return self._known[digest]

    def take(self) -> list[Batch]:
        """The rows of what was new since the last time."""
        taken = [Batch(schema.TRACEBACKS.name, self._rows), Batch(schema.FRAMES.name, self._frames)]
        self._begin()
        return taken

    def _begin(self) -> None:
        self._rows = {column.name: [] for column in schema.TRACEBACKS.columns}
        self._frames = {column.name: [] for column in schema.FRAMES.columns}

    def _added(self, raw: bytes) -> int | None:
        if raw in NO_STACK:
            return None
        try:
            said = frames_in(raw)
        except msgspec.DecodeError:
            self.unreadable += 1
            return None
        self.cut += len(said) > DEEPEST
        frames = [Frame(one.name, one.filename, whole(one.line) or 0) for one in said[:DEEPEST]]
        number, self._count = self._count, self._count + 1
        caller = own_frames(frames)[0]
        lines = [f'File "{one.filename}", line {one.line}, in {one.name}' for one in reversed(frames)]
        row = {
            "id": number,
            "text": "\n".join(lines),
            "name": caller.name,
            "filename": caller.filename,
            "line": caller.line or None,
        }
        for name, value in row.items():
            self._rows[name].append(value)
        self._frames["traceback_id"] += [number] * len(frames)
        self._frames["depth"] += range(len(frames))
        self._frames["name"] += [one.name for one in frames]
        self._frames["filename"] += [one.filename for one in frames]
        self._frames["line"] += [one.line or None for one in frames]
        return number


# The tables of entries and of their stacks: each dump is read again, a few hundred entries at a time.


OUTCOMES = {outcome.value: outcome.name.lower() for outcome in Outcome}
STATES = {state.value: None if state is State.UNKNOWN else state.name.lower() for state in State}


@dataclass(slots=True)
class EntryTables:
    """Entries rank by rank, and what did not fit on the way."""

    numbering: Numbering
    findings: list[Finding] = field(default_factory=list)
    _tracebacks: Tracebacks = field(default_factory=Tracebacks)
    _left_out: int = 0
    _unread: int = 0

    def batches(self) -> Iterator[Batch]:
        """All entries, and the stacks that they are the first to have."""
        journal = self.numbering.journal
        common = _Common.of(self.numbering)
        bounds = journal.bounds.tolist()
        for recording, begin, end in zip(journal.recordings.values(), bounds, bounds[1:], strict=False):
            done = begin
            places = journal.records.place[begin:end]
            for first, texts in _runs(recording):
                until = begin + int(np.searchsorted(places, first + len(texts)))
                if until > done:
                    said = _decoded(texts, (places[done - begin : until - begin] - first).tolist())
                    yield from self._batch(common, done, said)
                done = max(done, until)
            if done < end:
                yield from self._batch(common, done, [NOTHING] * (end - done))
        self.findings += self._found()

    def _batch(self, common: _Common, begin: int, said: Sequence[Said]) -> Iterator[Batch]:
        columns = common.columns(begin, begin + len(said))
        given = [tensors_of(one.input_sizes, one.input_types) for one in said]
        got = [tensors_of(one.output_sizes, one.output_types) for one in said]
        self._left_out += sum(tensors.left_out for tensors in chain(given, got))
        self._unread += said.count(NOTHING)
        stacks = [self._tracebacks.number(one.stack) for one in said]
        yield from self._tracebacks.take()
        yield Batch(
            schema.ENTRIES.name,
            {
                **columns,
                **{f"input_{name}": [one[place] for one in given] for place, name in enumerate(TENSORS)},
                **{f"output_{name}": [one[place] for one in got] for place, name in enumerate(TENSORS)},
                "duration_ms": [duration_of(one.duration) for one in said],
                "traceback_id": stacks,
            },
        )

    def _found(self) -> Iterator[Finding]:
        told = {
            "sizes_left_out": (self._left_out, "lists of sizes or types are too long to be kept"),
            "stacks_unreadable": (self._tracebacks.unreadable, "different stacks cannot be read"),
            "stacks_cut": (self._tracebacks.cut, "stacks are too deep to be kept whole"),
            "entries_unread": (self._unread, "entries could not be read again for their sizes and stacks"),
        }
        for reason, (count, message) in told.items():
            if count:
                yield Finding(Severity.WARNING, reason, f"{count} {message}", count)


TENSORS = ("sizes", "types", "elements", "bytes")


def _runs(recording: Recording) -> Iterator[tuple[int, Sequence[Payload]]]:
    """What a dump says of its entries, as far as it can be read again."""
    with suppress(UnreadableError):  # the entries that are left are counted
        yield from recording.payloads.batches()


def _decoded(texts: Sequence[Payload], places: Sequence[int]) -> list[Said]:
    return [_said(texts[place]) for place in places]


def _said(text: Payload) -> Said:
    try:
        return said_by(text)
    except msgspec.DecodeError:
        return NOTHING


@dataclass(frozen=True, slots=True)
class _Common:
    """What the journal knows of entries."""

    numbering: Numbering
    operations: Sequence[str]
    kinds: Sequence[str]
    """Of each request."""
    outcome: Int8s
    message: Int64s
    source: Int64s
    target: Int64s
    """Ranks of the job, of each entry."""

    @classmethod
    def of(cls, numbering: Numbering) -> _Common:
        """The same for all entries."""
        journal = numbering.journal
        ends = numbering.ends
        outcome = outcomes(journal)
        outcome[ends.row] = ends.outcome
        operations = [journal.strings[code] for code in journal.requests.operation.tolist()]
        return cls(
            numbering,
            [clean(operation) for operation in operations],
            [clean(operation_of(operation)) for operation in operations],
            outcome,
            _of_ends(numbering, numbering.message),
            _of_ends(numbering, np.where(ends.sends, ends.rank, ends.peer)),
            _of_ends(numbering, np.where(ends.sends, ends.peer, ends.rank)),
        )

    def columns(self, begin: int, end: int) -> Lists:
        """The columns of the entries in [begin, end)."""
        journal, rows = self.numbering.journal, slice(begin, end)
        records = journal.records
        requests: list[int] = records.request[rows].tolist()
        columns: dict[str, list[Any]] = {
            "id": list(range(begin, end)),
            "rank": journal.rank[rows].tolist(),
            "place": records.place[rows].tolist(),
            "group_id": listed(records.group[rows]),
            "collective_id": listed(self.numbering.collective[rows]),
            "message_id": listed(self.message[rows]),
            "sequence": listed(records.sequence[rows]),
            "point_to_point": records.point_to_point[rows].tolist(),
            "operation": [self.operations[request] for request in requests],
            "operation_kind": [self.kinds[request] for request in requests],
            "source_rank": listed(self.source[rows]),
            "target_rank": listed(self.target[rows]),
            "state": [STATES[state] for state in records.state[rows].tolist()],
            "retired": flags(records.retired[rows]),
            "outcome": [OUTCOMES[outcome] for outcome in self.outcome[rows].tolist()],
            "created_ns": times(records.created[rows]),
            "started_ns": times(records.started[rows]),
            "completed_ns": times(records.completed[rows]),
            "timeout_ms": listed(records.timeout_ms[rows]),
        }
        return columns


def _of_ends(numbering: Numbering, values: Int64s) -> Int64s:
    """Values of sends and receives, for all entries."""
    column = np.full(len(numbering.journal), UNKNOWN, np.int64)
    column[numbering.ends.row] = values
    return column
