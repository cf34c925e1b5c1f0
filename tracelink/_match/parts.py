"""Parts of a job that are matched one by one: which calls belong to which part, and what each part must know.

A part has whole groups, in the order of the groups. A group with too many calls is divided: its collectives by their
numbers, if all have one, and its messages by the ranks that send them, if all receives name these. So what is
matched in the parts, one after the other, is what is matched in all calls at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from tracelink._match.groups import Groups, resolve_groups
from tracelink._match.messages import group_of_ends, peers_of_ends
from tracelink._match.outlines import (
    Coverage,
    References,
    Roster,
    Spans,
    Stack,
    is_one_of,
    references_of,
    used_codes,
)
from tracelink._model.columns import UNKNOWN, Int32s, Int64s, StringTable, stable_order, starts_of
from tracelink._model.communications import Calls, RankCalls, Verdict
from tracelink._model.operations import POINT_TO_POINT, Operation

# Which part each call is matched in.


class Cuts(Struct, frozen=True):
    """The part of each group's calls of one kind."""

    part: Int32s
    """By the row of the group plus one: the first entry is of calls without a group."""
    bounds: dict[int, Int64s]
    """For a divided group the numbers from which on calls are in the next part."""

    def parts_of(self, group: Int32s, number: Int64s) -> Int32s:
        """The part of each call."""
        part = self.part[group + 1]
        for row, bounds in self.bounds.items():
            inside = np.flatnonzero(group == row)
            part[inside] += np.searchsorted(bounds, number[inside], "right").astype(np.int32)
        return part


class _Cutter:
    """Gives groups to parts, one after the other."""

    def __init__(self, groups: int, most: int) -> None:
        self._most = most
        self.part, self._filled = 0, 0
        self.collectives, self.messages = (Cuts(np.zeros(groups + 1, np.int32), {}) for _ in range(2))

    def add(self, cuts: Cuts, row: int, count: int, lowest: int, highest: int) -> None:
        """Adds calls of a group; these can be divided if their numbers, from lowest to highest, are known."""
        if self._filled and self._filled + count > self._most:
            self.part, self._filled = self.part + 1, 0
        cuts.part[row + 1] = self.part
        self._filled += count
        pieces = min(-(-count // self._most), highest - lowest + 1)
        if pieces > 1:
            width = highest - lowest + 1
            steps = [lowest + width * piece // pieces for piece in range(1, pieces)]
            cuts.bounds[row] = np.array(steps, np.int64)
            self.part, self._filled = self.part + pieces - 1, count // pieces


class _Sizes(Struct, frozen=True):
    """The references of all ranks to each group; the first entry is of calls without a group."""

    references: References
    rank: Int64s
    group: Int32s

    def total(self, counts: Int64s, groups: int, group: Int32s) -> list[int]:
        """The number of calls of each group."""
        result = np.zeros(groups + 1, np.int64)
        np.add.at(result, group + 1, counts)
        return list(result.tolist())

    def numbers(self, row: int) -> tuple[int, int]:
        """The first and last number of the collectives of a group; equal if one has no number."""
        chosen = (self.group == row) & (self.references.collectives > 0)
        first, last = self.references.first[chosen], self.references.last[chosen]
        known = (first != UNKNOWN).all()
        return (int(first.min()), int(last.max())) if known else (0, 0)

    def senders(self, row: int, groups: Groups, of_ends: Int32s) -> tuple[int, int]:
        """The first and last rank of the messages of a group; equal if a receive does not name its source."""
        chosen = (of_ends == row) & (self.references.ends > 0)
        members = groups.rows[row].ranks if row != UNKNOWN else ()
        unknown = self.references.any_source[chosen] | (self.references.source[chosen] >= len(members))
        return (min(members), max(members)) if members and not unknown.any() else (0, 0)


class Lists(Struct, frozen=True):
    """Lists of numbers of many ranks in two columns, which are read much faster than the lists."""

    values: Int32s
    bounds: Int64s

    @classmethod
    def of(cls, lists: Sequence[Int32s]) -> Lists:
        """The lists, one after the other."""
        bounds = np.cumsum([0, *map(len, lists)])
        return cls(np.concatenate([np.empty(0, np.int32), *lists]), bounds)

    def __getitem__(self, index: int) -> Int32s:
        return self.values[self.bounds[index] : self.bounds[index + 1]]


class Plan(Struct, frozen=True):
    """All that matching a part needs to know of all ranks."""

    strings: StringTable
    groups: Groups
    coverage: Coverage
    divided: Spans
    codes: Lists
    """For each rank of the coverage the common codes of the texts in its outline."""
    rows: Lists
    """For each rank the groups of the references in its outline."""
    collectives: Cuts
    messages: Cuts
    parts: int


def plan_of(roster: Roster, most: int) -> Plan:
    """Groups of the job, and its parts, each with `most` calls if that is possible."""
    groups, rows = resolve_groups(roster)
    strings = StringTable(roster.strings)
    for verdict in Verdict:
        strings[verdict.value]
    lengths = [len(one.references) for one in roster.outlines]
    ranks = np.array([one.rank for one in roster.outlines], np.int64)
    sizes = _Sizes(
        References.concatenate([one.references for one in roster.outlines]),
        np.repeat(ranks, lengths),
        np.concatenate([np.empty(0, np.int32), *rows]),
    )
    cutter = _cut(groups, sizes, most)
    return Plan(
        strings,
        groups,
        Coverage.of(roster),
        _divided(sizes, list(cutter.collectives.bounds)),
        Lists.of(roster.codes),
        Lists.of(rows),
        cutter.collectives,
        cutter.messages,
        cutter.part + 1,
    )


def _cut(groups: Groups, sizes: _Sizes, most: int) -> _Cutter:
    count = len(groups.rows)
    cutter = _Cutter(count, most)
    of_ends = group_of_ends(sizes.group, groups)
    collectives = sizes.total(sizes.references.collectives, count, sizes.group)
    messages = sizes.total(sizes.references.ends, count, of_ends)
    for row in range(UNKNOWN, count):
        if collectives[row + 1] and row != UNKNOWN:
            numbers = sizes.numbers(row) if collectives[row + 1] > most else (0, 0)
            cutter.add(cutter.collectives, row, collectives[row + 1], *numbers)
        if messages[row + 1]:
            senders = sizes.senders(row, groups, of_ends) if messages[row + 1] > most else (0, 0)
            cutter.add(cutter.messages, row, messages[row + 1], *senders)
    return cutter


def _divided(sizes: _Sizes, rows: Sequence[int]) -> Spans:
    """The numbers of each rank in groups whose collectives are divided."""
    chosen = np.isin(sizes.group, np.array(rows, np.int32)) & (sizes.references.collectives > 0)
    references = sizes.references
    return Spans.of(
        sizes.group[chosen].astype(np.int64),
        sizes.rank[chosen],
        references.first[chosen],
        references.last[chosen],
    )


# The calls of ranks, cut into pieces for the parts, and the pieces of a part put together.


class Piece(Calls, frozen=True):
    """Calls of one part, by rank in ascending order; `group` is the row of the group in place of its name."""

    rank: Int32s


IN_OUTLINES = ("members", "size", "shape")
"""Columns that calls have in common with the outline of their rank, and that matching does not need."""


def coded(rank: RankCalls, plan: Plan) -> Piece:
    """The calls of a rank with common codes and the rows of their groups."""
    index = int(np.searchsorted(plan.coverage.rank, rank.rank))
    codes = np.full(len(rank.strings) + 1, UNKNOWN, np.int32)
    codes[used_codes(rank)] = plan.codes[index]
    calls, rows, unknown = rank.calls, plan.rows[index], np.full(len(rank.calls), UNKNOWN, np.int32)
    columns = {name: getattr(calls, name) for name in Calls.__struct_fields__}
    columns |= {name: codes[columns[name]] for name in ("operation", "type", "state")}
    columns |= dict.fromkeys(IN_OUTLINES, unknown)
    columns["group"] = rows[references_of(rank)] if len(rows) else unknown
    return Piece(**columns, rank=np.full(len(calls), rank.rank, np.int32))


def cut(piece: Piece, plan: Plan) -> Iterator[tuple[int, Piece]]:
    """The calls by their parts; those that belong to no collective and no message are left out."""
    if plan.parts == 1:
        yield 0, piece
        return
    ends = np.flatnonzero(is_one_of(piece.operation, plan.strings, tuple(POINT_TO_POINT)))
    waits = is_one_of(piece.operation, plan.strings, (Operation.WAIT,))
    part = plan.collectives.parts_of(piece.group, piece.sequence)
    part[waits | (piece.group == UNKNOWN)] = UNKNOWN
    part[ends] = _parts_of_ends(piece.take(ends), plan)
    order = stable_order(part + 1)
    starts = starts_of(part[order])
    lengths = np.diff(np.append(starts, len(order)))
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        rows = order[start : start + length]
        if part[rows[0]] != UNKNOWN:
            yield int(part[rows[0]]), piece.take(rows)


def _parts_of_ends(ends: Piece, plan: Plan) -> Int32s:
    group = group_of_ends(ends.group, plan.groups)
    if not plan.messages.bounds:
        return plan.messages.part[group + 1]
    sends = is_one_of(ends.operation, plan.strings, (Operation.SEND,))
    source, _ = peers_of_ends(ends, ends.rank, group, sends, plan.groups)
    return plan.messages.parts_of(group, source)


def stacked(pieces: Sequence[Piece], plan: Plan) -> Stack:
    """The calls of one part."""
    whole = pieces[0] if len(pieces) == 1 else Piece.concatenate(pieces)
    return Stack(plan.strings, plan.coverage, whole, whole.rank, whole.group, plan.divided)
