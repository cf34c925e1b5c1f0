"""What the tables call their rows by, and which rows of others these lead to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.analysis.channels import Matching, match
from tracelink.analysis.ends import Ends, ends_of
from tracelink.analysis.parts import Parts, outcomes, parts_of
from tracelink.communications import UNKNOWN
from tracelink.events import Int32s, Int64s
from tracelink.examining import Examined
from tracelink.journal import Journal
from tracelink.linking.coding import distinct
from tracelink.operations import POINT_TO_POINT, operation_of


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
    ends: Ends
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
    _, first = np.unique(parts.round, return_index=True)
    group, sequence = parts.group[first], parts.sequence[first]
    ends = ends_of(journal, outcomes(journal))
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
        _messages(match(journal, parts, ends)),
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
