"""The tables of entries and of their stacks: each dump is read again, a few hundred entries at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from tracelink.analysis.parts import Outcome, outcomes
from tracelink.communications import UNKNOWN
from tracelink.converters.flight_database import schema
from tracelink.converters.flight_database.details import (
    NOTHING,
    Said,
    duration_of,
    said_by,
    tensors_of,
)
from tracelink.converters.flight_database.numbering import Numbering
from tracelink.converters.flight_database.rows import Batch, Lists, clean, flags, listed, times
from tracelink.converters.flight_database.tracebacks import Tracebacks
from tracelink.errors import UnreadableError
from tracelink.events import Int8s, Int64s
from tracelink.findings import Finding, Severity
from tracelink.operations import operation_of
from tracelink.records import Recording, State
from tracelink.trace import Payload

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
        operations = [journal.texts[code] for code in journal.requests.operation.tolist()]
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
