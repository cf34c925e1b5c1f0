"""Collectives in which ranks do not name the same root. Dumps do not tell it; profiles and execution traces do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelink.analysis.comparing import Aspect
from tracelink.analysis.disagreements import Disagreement
from tracelink.analysis.parts import Parts
from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Columns, Int32s, Int64s
from tracelink.journal import Journal
from tracelink.linking.coding import distinct, starts_of
from tracelink.operations import ROOTED, operation_of
from tracelink.records import State
from tracelink.trace import ProcessGroup


@dataclass(frozen=True, slots=True)
class Roots(Columns):
    """One row for each call of which a root is known."""

    group: Int32s
    """Row of the journal's groups."""
    sequence: Int64s
    rank: Int32s
    root: Int64s
    """Its place in the group."""

    def __len__(self) -> int:
        return len(self.group)

    @classmethod
    def of(cls, rows: Collection[tuple[int, int, int, int]] = ()) -> Roots:
        """Roots from plain numbers."""
        table = np.array(list(rows), np.int64).reshape(-1, 4)
        return cls(table[:, 0].astype(np.int32), table[:, 1], table[:, 2].astype(np.int32), table[:, 3])


NO_ROOTS = Roots.of()


def root_disagreements(
    journal: Journal, parts: Parts, roots: Roots, judged: Collection[int]
) -> list[Disagreement]:
    """Those of all collectives but the ones that are `judged` already."""
    if not len(roots):
        return []
    root = _by_part(parts, roots)
    rows = np.flatnonzero(root != UNKNOWN)
    starts = starts_of(parts.round[rows])
    if not len(starts):
        return []
    differ = np.maximum.reduceat(root[rows], starts) != np.minimum.reduceat(root[rows], starts)
    ends = np.append(starts[1:], len(rows))
    found = (
        _disagreement(journal, parts, rows[starts[one] : ends[one]], root)
        for one in np.flatnonzero(differ).tolist()
        if int(parts.round[rows[starts[one]]]) not in judged
    )
    return [one for one in found if one]


def rooted_entries(journal: Journal) -> Bools:
    """Which entries of the journal are of something that has a root."""
    rooted = [operation_of(journal.texts[code]) in ROOTED for code in journal.requests.operation.tolist()]
    found: Bools = np.array([*rooted, False], np.bool_)[journal.records.request]
    return found


def hangs_with_a_root(journal: Journal) -> bool:
    """Whether the last that some rank did has a root and is not finished."""
    last = journal.bounds[1:][np.diff(journal.bounds) > 0] - 1
    open_ended = (journal.records.state[last] < State.COMPLETED) & (journal.records.retired[last] != 1)
    return bool((rooted_entries(journal)[last] & open_ended).any())


def _by_part(parts: Parts, roots: Roots) -> Int64s:
    """The root that each part names, or UNKNOWN."""
    count = len(parts)
    columns: list[Any] = [
        np.concatenate([getattr(parts, name), getattr(roots, name)]) for name in ("group", "sequence", "rank")
    ]
    number = distinct(*columns)[0] if len(columns[0]) else columns[0]
    root = np.full(int(number.max(initial=-1)) + 1, UNKNOWN, np.int64)
    root[number[count:]] = roots.root
    found: Int64s = root[number[:count]]
    return found


def _disagreement(journal: Journal, parts: Parts, rows: Int64s, root: Int64s) -> Disagreement | None:
    group = journal.groups[int(parts.group[rows[0]])]
    if _all_name_themselves(group, parts.rank[rows].tolist(), root[rows].tolist()):
        return None
    values, label, count = np.unique(root[rows], return_inverse=True, return_counts=True)
    most = int(count.argmax())
    tie = bool(np.count_nonzero(count == count[most]) > 1)
    odd = int(rows[label != most][0])
    others, own = _rank_at(group, int(values[most])), _rank_at(group, int(root[odd]))
    return Disagreement(
        int(parts.group[odd]),
        int(parts.sequence[odd]),
        int(parts.round[odd]),
        Aspect.ROOT,
        tuple(parts.rank[rows if tie else rows[label != most]].tolist()),
        tie,
        int(rows[label == most][0]),
        odd,
        f"root {own} or root {others}" if tie else f"root {own}, the others with root {others}",
    )


def _all_name_themselves(group: ProcessGroup, ranks: list[int], roots: list[int]) -> bool:
    """Old profiles name the rank itself where newer ones name the root."""
    return all(_rank_at(group, root) == rank for rank, root in zip(ranks, roots, strict=True))


def _rank_at(group: ProcessGroup, place: int) -> int:
    return group.ranks[place] if place < len(group.ranks) else place
