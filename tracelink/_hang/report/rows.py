"""The tables of entries and of their stacks. Each dump is read again, a few hundred entries at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from operator import mul
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from tracelink._hang.examine import Examined
from tracelink._hang.facts.journal import Journal
from tracelink._hang.facts.messages import Matching, MessageEnds, find_message_ends, match_messages
from tracelink._hang.facts.participation import Outcome, Parts, find_outcomes, parts_of
from tracelink._hang.report import schema
from tracelink._model.columns import UNKNOWN, Int8s, Int64s, Integers, distinct
from tracelink._model.errors import ChangedError, UnreadableError, encodable
from tracelink._model.findings import Finding, Severity
from tracelink._model.operations import item_bytes, operation_of, type_named
from tracelink._model.records import Details, Frame, Recording, State, Texts, own_frames
from tracelink._store.schema import Batch
from tracelink.converters.flight_recorder.schema import FRAME_FILE, FRAME_LINE, FRAME_NAME

LARGEST = (1 << 63) - 1
"""The largest value of an integer column."""
LONGEST = 1 << 16
"""Bytes of one stored text; many entries can refer to one huge list of the dump."""
REPEATED = 1 << 12
"""Texts up to this size are usually repeated, and decoded once."""
DEEPEST = 1024
"""Stored frames of a stack; Python's own limit is similar."""
DIGEST = 16
MISSING = (b"", b"null")
NO_STACK = (b"", b"null", b"[]")
TENSORS = ("sizes", "types", "elements", "bytes")
TIMES = ("created", "started", "completed")
AS_RECORDED = ("place", "sequence", "point_to_point", "retired", "timeout_ms")
OUTCOMES = [outcome.name.lower() for outcome in Outcome]
STATES = [*(state.name.lower() for state in State if state >= 0), None]
Objects = npt.NDArray[np.object_]

LEFT_OUT = {
    "sizes_left_out": "lists of sizes or dtypes are too long and were not stored",
    "stacks_unreadable": "distinct stacks are invalid and were not stored",
    "stacks_cut": "stacks are too deep and were truncated",
    "entries_unread": "entries could not be read again for their sizes and stacks",
}
"""What findings count, by their reasons."""
UNREAD_RUN = 512
_NO_TEXT = Texts((), np.full(1, UNKNOWN))
UNREAD = Details(0, _NO_TEXT, _NO_TEXT, _NO_TEXT, _NO_TEXT, _NO_TEXT, duration_ms=(None,))
"""An entry that could not be read again."""


def integer(value: object) -> int | None:
    """The value if an integer column can hold it."""
    return value if type(value) is int and -LARGEST <= value <= LARGEST else None


# Identifiers of rows.


class Numbering(Struct, frozen=True):
    """Identifiers of rows; UNKNOWN is none.

    Groups and entries are identified by their rows in the journal, collectives by their order.
    """

    journal: Journal
    parts: Parts
    collective: Int64s
    """Of each entry of the journal."""
    ends: MessageEnds
    """The sends and receives."""
    message: Int64s
    """The message of each send and receive."""
    members: Mapping[int, frozenset[int]]
    """The ranks of each group."""
    groups_by_name: Mapping[tuple[str, str], Sequence[int]]
    """Rows of groups by name and description."""

    def group_of(self, name: str, description: str, ranks: Sequence[int] = ()) -> int | None:
        """The group of this name; of several the one that contains these ranks."""
        rows = self.groups_by_name.get((name, description), ())
        fitting = (row for row in rows if self.members[row].issuperset(ranks))
        return next(fitting, rows[0] if rows else None)


def numbering_of(examined: Examined) -> Numbering:
    """The identifiers of everything that was examined."""
    journal = examined.journal
    parts = parts_of(journal)
    ends = find_message_ends(journal, find_outcomes(journal))
    groups_by_name: dict[tuple[str, str], list[int]] = {}
    for row, described in enumerate(journal.groups):
        groups_by_name.setdefault((described.name, described.description), []).append(row)
    return Numbering(
        journal,
        parts,
        _collectives(journal),
        ends,
        _messages(match_messages(journal, parts, ends)),
        _members(journal),
        groups_by_name,
    )


def _collectives(journal: Journal) -> Int64s:
    """The collective of each entry, as `Parts` numbers them."""
    records = journal.records
    collective = np.full(len(records), UNKNOWN, np.int64)
    rows = np.flatnonzero(~records.point_to_point & (records.group != UNKNOWN) & (records.sequence >= 0))
    if len(rows):
        collective[rows], _ = distinct(records.group[rows], records.sequence[rows])
    return collective


def _messages(matching: Matching) -> Int64s:
    """The message of each end; both ends of a message have the same."""
    own = np.arange(len(matching.partner))
    first = np.where(matching.partner == UNKNOWN, own, np.minimum(own, matching.partner))
    number: Int64s = (np.cumsum(first == own) - 1)[first]
    return number


def _members(journal: Journal) -> dict[int, frozenset[int]]:
    """The members of each group: as described, and the ranks with an entry."""
    members = {row: set(group.ranks) for row, group in enumerate(journal.groups)}
    known = np.flatnonzero(journal.records.group != UNKNOWN)
    if len(known):
        _, first = distinct(journal.records.group[known], journal.rank[known])
        rows = known[first]
        pairs = zip(journal.records.group[rows].tolist(), journal.rank[rows].tolist(), strict=True)
        for row, rank in pairs:
            members[row].add(rank)
    return {row: frozenset(ranks) for row, ranks in members.items()}


# Tensors from their sizes and types as JSON.


decode_sizes = msgspec.json.Decoder(list[list[int]]).decode
decode_types = msgspec.json.Decoder(list[str]).decode


class Tensors(NamedTuple):
    """The tensors of one direction: as recorded, and their size."""

    sizes: str | None
    types: str | None
    elements: int | None
    bytes: int | None
    omitted: int
    """How many texts are too long to be stored."""


def tensors_of(sizes: bytes, types: bytes) -> Tensors:
    """The tensors of one direction."""
    return _known(sizes, types) if len(sizes) + len(types) <= REPEATED else _measured(sizes, types)


def _measured(sizes: bytes, types: bytes) -> Tensors:
    shapes: Any = _decoded(decode_sizes, sizes)
    elements = [_product(shape) for shape in shapes or ()]
    names = _decoded(decode_types, types) if elements else []
    items: list[Any] = [item_bytes(type_named(name)) for name in names or ()]
    counted = shapes is not None and None not in elements
    measured = counted and names is not None and len(items) == len(elements) and None not in items
    return Tensors(
        _stored(sizes),
        _stored(types),
        integer(sum(elements)) if counted else None,
        integer(sum(map(mul, elements, items))) if measured else None,
        (len(sizes) > LONGEST) + (len(types) > LONGEST),
    )


def _product(shape: Sequence[int]) -> Any:
    """The elements of a tensor; None if they are too many, before the product is long."""
    product = 1
    for size in shape:
        product *= size
        if size < 0 or product > LARGEST:
            return None
    return product


_known = lru_cache(maxsize=4096)(_measured)


def _decoded(decode: Callable[[bytes], Any], text: bytes) -> Any:
    """What a text says; None if it says something else."""
    try:
        return decode(text)
    except msgspec.DecodeError:
        return None


def _stored(text: bytes) -> str | None:
    return None if text in MISSING or len(text) > LONGEST else text.decode()


# Stacks to rows.


class FrameText(
    msgspec.Struct, gc=False, rename={"name": FRAME_NAME, "filename": FRAME_FILE, "line": FRAME_LINE}
):
    """A frame as in a dump."""

    name: str = ""
    filename: str = ""
    line: int | None = None


decode_frames = msgspec.json.Decoder(list[FrameText]).decode


class Tracebacks(Struct):
    """All distinct stacks, by a digest of their text, and the rows of the new ones."""

    unreadable: int = 0
    truncated: int = 0
    """Number of stacks that are too deep to be stored completely."""
    _known: dict[bytes, int | None] = field(default_factory=dict)
    _count: int = 0
    _rows: list[schema.TracebackRow] = field(default_factory=list)
    _frames: list[schema.FrameRow] = field(default_factory=list)

    def number(self, text: bytes) -> int | None:
        """The identifier of a stack; None if it is missing or invalid."""
        digest = blake2b(text, digest_size=DIGEST).digest()
        if digest not in self._known:
            self._known[digest] = self._add(text)
        return self._known[digest]

    def take(self) -> list[Batch]:
        """The rows of the stacks that are new since the last call."""
        taken = [Batch.of(schema.TracebackRow, self._rows), Batch.of(schema.FrameRow, self._frames)]
        self._rows, self._frames = [], []
        return taken

    def _add(self, raw: bytes) -> int | None:
        if raw in NO_STACK:
            return None
        try:
            recorded = decode_frames(raw)
        except msgspec.DecodeError:
            self.unreadable += 1
            return None
        self.truncated += len(recorded) > DEEPEST
        frames = [Frame(frame.name, frame.filename, integer(frame.line) or 0) for frame in recorded[:DEEPEST]]
        number, self._count = self._count, self._count + 1
        caller = own_frames(frames)[0]
        lines = [f'File "{frame.filename}", line {frame.line}, in {frame.name}' for frame in reversed(frames)]
        self._rows.append(
            schema.TracebackRow(number, "\n".join(lines), caller.name, caller.filename, caller.line or None)
        )
        self._frames += [
            schema.FrameRow(number, depth, frame.name, frame.filename, frame.line or None)
            for depth, frame in enumerate(frames)
        ]
        return number


# Entries read again, in batches.


class EntryTables(Struct):
    """Entries of all ranks, and findings."""

    numbering: Numbering
    findings: list[Finding] = field(default_factory=list)
    _tracebacks: Tracebacks = field(default_factory=Tracebacks)
    _omitted: int = 0
    _unreadable: int = 0

    def batches(self) -> Iterator[Batch]:
        """All entries, and the stacks that they are the first to have."""
        journal = self.numbering.journal
        from_journal = _JournalColumns.of(self.numbering)
        bounds = journal.bounds.tolist()
        for recording, begin, end in zip(journal.recordings.values(), bounds, bounds[1:], strict=False):
            done = begin
            indexes = journal.records.place[begin:end]
            for details in _details(recording):
                until = begin + int(np.searchsorted(indexes, details.first + len(details)))
                if until > done:
                    within = indexes[done - begin : until - begin] - details.first
                    yield from self._batch(from_journal, done, details, within)
                done = max(done, until)
            for first in range(done, end, UNREAD_RUN):
                rows = np.zeros(min(end - first, UNREAD_RUN), np.int64)
                yield from self._batch(from_journal, first, UNREAD, rows)
        self.findings += self._counted_findings()

    def _batch(
        self, from_journal: _JournalColumns, first: int, details: Details, rows: Int64s
    ) -> Iterator[Batch]:
        """The entries from `first` on, of which these rows of the details are parts."""
        texts = [details.input_sizes, details.input_types, details.output_sizes, details.output_types]
        unread = [part.row[rows] == UNKNOWN for part in (*texts, details.stack)]
        self._unreadable += int(np.count_nonzero(np.logical_or.reduce(unread)))
        stacks = [self._tracebacks.number(text) for text in details.stack.distinct]
        yield from self._tracebacks.take()
        yield Batch.of(
            schema.EntryRow,
            **from_journal.columns(first, first + len(rows)),
            **self._tensors("input", texts[0], texts[1], rows),
            **self._tensors("output", texts[2], texts[3], rows),
            duration_ms=_taken(details.duration_ms, rows),
            traceback_id=_taken([*stacks, None], details.stack.row[rows]),
        )

    def _tensors(self, direction: str, sizes: Texts, types: Texts, rows: Int64s) -> dict[str, Objects]:
        """The columns of the tensors of one direction; each combination of texts is measured once."""
        combination, first = distinct(sizes.row[rows], types.row[rows])
        pairs = zip(sizes.row[rows[first]].tolist(), types.row[rows[first]].tolist(), strict=True)
        size_texts, type_texts = [*sizes.distinct, b""], [*types.distinct, b""]
        found = [tensors_of(size_texts[size], type_texts[kind]) for size, kind in pairs]
        omitted = np.array([tensors.omitted for tensors in found], np.int64)
        self._omitted += int(omitted[combination].sum())
        parts = zip(TENSORS, zip(*found, strict=True), strict=False)
        return {f"{direction}_{name}": _taken(values, combination) for name, values in parts}

    def _counted_findings(self) -> Iterator[Finding]:
        counts = (self._omitted, self._tracebacks.unreadable, self._tracebacks.truncated, self._unreadable)
        for count, (reason, message) in zip(counts, LEFT_OUT.items(), strict=True):
            if count:
                yield Finding(Severity.WARNING, reason, f"{count} {message}", count)


def _details(recording: Recording) -> Iterator[Details]:
    """Parts of the entries of a dump, as far as they fit into memory; those that are left are counted."""
    try:
        yield from recording.payloads.details()
    except ChangedError:
        raise
    except UnreadableError:
        return


def _taken(values: Sequence[Any], rows: Integers) -> Objects:
    """The value of each row."""
    column = np.empty(len(values), object)
    column[:] = values
    return column[rows]


class _JournalColumns(Struct, frozen=True):
    """The columns of entries that the journal contains."""

    numbering: Numbering
    operations: Sequence[str]
    kinds: Sequence[str]
    """Of each request."""
    outcome: Int8s
    message: Int64s
    source: Int64s
    target: Int64s
    """Ranks of the job, for each entry."""

    @classmethod
    def of(cls, numbering: Numbering) -> _JournalColumns:
        """The values for all entries."""
        journal, ends = numbering.journal, numbering.ends
        outcome = find_outcomes(journal)
        outcome[ends.row] = ends.outcome
        operations = journal.recorded_operations()
        source, target = ends.ranks
        return cls(
            numbering,
            encodable(operations),
            encodable([operation_of(operation) for operation in operations]),
            outcome,
            *(_of_ends(numbering, values) for values in (numbering.message, source, target)),
        )

    def columns(self, first: int, end: int) -> dict[str, npt.NDArray[Any]]:
        """The columns of the entries in [first, end)."""
        journal, rows = self.numbering.journal, slice(first, end)
        records = journal.records
        same = {name: getattr(records, name)[rows] for name in AS_RECORDED}
        times = {f"{name}_ns": getattr(records, name)[rows] for name in TIMES}
        return {
            **same,
            **times,
            "id": np.arange(first, end),
            "rank": journal.rank[rows],
            "group_id": records.group[rows],
            "collective_id": self.numbering.collective[rows],
            "message_id": self.message[rows],
            "operation": _taken(self.operations, records.request[rows]),
            "operation_kind": _taken(self.kinds, records.request[rows]),
            "source_rank": self.source[rows],
            "target_rank": self.target[rows],
            "state": _taken(STATES, records.state[rows]),
            "outcome": _taken(OUTCOMES, self.outcome[rows]),
        }


def _of_ends(numbering: Numbering, values: Int64s) -> Int64s:
    """Values of sends and receives, for all entries."""
    column = np.full(len(numbering.journal), UNKNOWN, np.int64)
    column[numbering.ends.row] = values
    return column
