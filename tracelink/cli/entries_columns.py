"""Which columns of ranks fit a page: one for each rank, else equal ones as one, else those that stand out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from tracelink.cli.entries_table import Table
from tracelink.cli.voice import printable
from tracelink.ranges import Numbers

BETWEEN = 2
"""Blanks between two columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one rank, or of several whose cells are equal."""

    ranks: tuple[int, ...]
    cells: tuple[str, ...]
    odd: int
    """How many of the cells stand out."""

    @property
    def name(self) -> str:
        """`rank 3`, `ranks 0-2, 4-7`."""
        return Numbers.of(self.ranks).called("rank")

    @property
    def width(self) -> int:
        """Letters that it needs, if its name is wrapped between words."""
        return widest([*self.name.split(), *self.cells])


def widest(texts: Sequence[str]) -> int:
    """The letters of the longest."""
    return max((cell_len(printable(text)) for text in texts), default=0)


def columns_that_fit(table: Table, ranks: Sequence[int], room: int) -> tuple[list[Column], list[int]]:
    """The columns to show where there is room for so many letters, and the ranks that are left out."""
    single = [
        Column((rank,), cells, odd) for rank, cells, odd in zip(ranks, table.columns, table.odd, strict=True)
    ]
    for columns in (single, folded(single)):
        if _room(columns) <= room:
            return columns, []
    return _most_telling(columns, room)


def folded(single: Sequence[Column]) -> list[Column]:
    """Ranks with equal cells share a column."""
    alike: dict[tuple[str, ...], list[Column]] = defaultdict(list)
    for column in single:
        alike[column.cells].append(column)
    return [
        Column(tuple(rank for one in equal for rank in one.ranks), cells, equal[0].odd)
        for cells, equal in alike.items()
    ]


def _most_telling(columns: Sequence[Column], room: int) -> tuple[list[Column], list[int]]:
    """What stands out, then what stands for most ranks, as long as there is room; at least one column."""
    order = sorted(
        range(len(columns)), key=lambda place: (-columns[place].odd, -len(columns[place].ranks), place)
    )
    kept: set[int] = set()
    for place in order:
        wider = [columns[one] for one in (*kept, place)]
        if not kept or _room(wider) <= room:
            kept.add(place)
    left_out = [rank for place, one in enumerate(columns) if place not in kept for rank in one.ranks]
    return [columns[place] for place in sorted(kept)], sorted(left_out)


def _room(columns: Sequence[Column]) -> int:
    return sum(column.width + BETWEEN for column in columns) - BETWEEN
