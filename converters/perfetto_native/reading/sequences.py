"""What the first packet of a sequence says for all others: when they are, and what the numbers of texts mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.converters.perfetto_native.reading.messages import numbers_of, of_wire
from tracelink.converters.perfetto_native.schema import Entry, Packet, Table
from tracelink.events import Int32s, Int64s
from tracelink.fields import Fields, split_all
from tracelink.octets import Octets

Texts = Mapping[tuple[int, Table, int], str]
"""By sequence, table and number."""

WIDEST = 32
"""Bits of a text's number."""


def texts_of(
    octets: Octets, packets: Fields, sequence: Int32s
) -> Iterator[tuple[tuple[int, Table, int], str]]:
    """The texts of packets of these sequences."""
    owner, told = of_wire(packets, Packet.INTERNED)
    tables = split_all(octets, told.begin, told.end)
    for table in Table:
        place, read = of_wire(tables, table)
        entries = split_all(octets, read.begin, read.end)
        numbers = numbers_of(entries, Entry.NUMBER, len(place)).tolist()
        sequences = sequence[owner[place]].tolist()
        entry, text = of_wire(entries, Entry.TEXT)
        for at, begin, end in zip(entry.tolist(), text.begin.tolist(), text.end.tolist(), strict=True):
            yield (sequences[at], table, numbers[at]), octets.data[begin:end].decode(errors="replace")


def named(
    texts: Texts, table: Table, sequence: Int32s, number: Int32s | Int64s
) -> tuple[list[str | None], Int64s]:
    """The distinct texts that numbers name in their sequences, and for each number its place among them."""
    names, which = np.unique(sequence.astype(np.int64) << WIDEST | number, return_inverse=True)
    low = (1 << WIDEST) - 1
    return [texts.get((name >> WIDEST, table, name & low)) for name in names.tolist()], which


@dataclass(frozen=True, slots=True)
class Anchors:
    """Packets of which bundles say when they are: it holds even where the bundle before was lost."""

    row: Int64s
    time: Int64s

    def behind(self, rows: int) -> Anchors:
        """The same where the packets stand behind `rows` others."""
        return Anchors(self.row + rows, self.time)

    @classmethod
    def concatenate(cls, parts: Sequence[Anchors]) -> Anchors:
        """All of them."""
        none = [np.empty(0, np.int64)]
        rows, moments = ([*none, *column] for column in zip(*((p.row, p.time) for p in parts), strict=True))
        return cls(np.concatenate(rows), np.concatenate(moments))


def anchored(sequence: Int32s, step: Int64s, anchors: Anchors) -> Int64s:
    """When each packet is, also behind what was lost."""
    column = times(sequence, step)
    late = anchors.time - column[anchors.row]
    if not late.any():
        return column
    order = np.lexsort((anchors.row, sequence[anchors.row]))
    row, late = anchors.row[order], late[order]
    same = np.diff(sequence[row]) == 0
    late[1:] -= np.where(same, late[:-1], 0)
    step = step.copy()
    step[row] += late
    return times(sequence, step)


def times(sequence: Int32s, step: Int64s) -> Int64s:
    """When each packet is: the first of a sequence says it, all others how long they are behind the one before."""
    order = np.argsort(sequence, kind="stable")
    of_one = sequence[order]
    first = np.flatnonzero(np.diff(of_one, prepend=of_one[:1] - 1))
    total = np.cumsum(step[order])
    before = total[first] - step[order[first]]
    column = np.empty_like(total)
    column[order] = total - np.repeat(before, np.diff(first, append=len(order)))
    return column
