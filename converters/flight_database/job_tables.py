"""The tables of ranks, groups and members."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from tracelink.converters.flight_database import schema
from tracelink.converters.flight_database.numbering import Numbering
from tracelink.converters.flight_database.rows import Batch, clean
from tracelink.diagnosis import Diagnosis
from tracelink.journal import Journal

WHOLE, BROKEN_OFF, UNREADABLE, MISSING = "whole", "broken_off", "unreadable", "missing"


def ranks_table(journal: Journal, diagnosis: Diagnosis, numbering: Numbering) -> Batch:
    """Every rank that any table names."""
    ranks = _ranks(journal, diagnosis, numbering)
    read = [journal.recordings.get(rank) for rank in ranks]
    counts = dict(zip(journal.ranks.tolist(), np.diff(journal.bounds).tolist(), strict=True))
    reasons = [diagnosis.unreadable.get(rank) for rank in ranks]
    return Batch(
        schema.RANKS.name,
        {
            "rank": ranks,
            "dump": [_dump(journal, diagnosis, rank) for rank in ranks],
            "reason": [clean(reason) if reason else None for reason in reasons],
            "path": [clean(one.source.path) if one else None for one in read],
            "version": [clean(one.source.version) if one else None for one in read],
            "entries": [counts.get(rank, 0) for rank in ranks],
            "overwritten": [one.overwritten if one else None for one in read],
        },
    )


def _dump(journal: Journal, diagnosis: Diagnosis, rank: int) -> str:
    if rank in journal.recordings:
        return BROKEN_OFF if journal.recordings[rank].broken_off else WHOLE
    return UNREADABLE if rank in diagnosis.unreadable else MISSING


def _ranks(journal: Journal, diagnosis: Diagnosis, numbering: Numbering) -> list[int]:
    named = {
        *journal.recordings,
        *diagnosis.missing,
        *diagnosis.unreadable,
        *chain.from_iterable(numbering.members.values()),
        *chain.from_iterable((*one.culprits, *one.waiting) for one in diagnosis.problems),
        *(one.rank for one in diagnosis.lateness),
    }
    return sorted(named)


def groups_table(journal: Journal) -> Batch:
    """Every group."""
    return Batch(
        schema.GROUPS.name,
        {
            "id": list(range(len(journal.groups))),
            "name": [clean(group.name) for group in journal.groups],
            "description": [clean(group.description) for group in journal.groups],
            "size": [group.size or len(group.ranks) or None for group in journal.groups],
        },
    )


def members_table(journal: Journal, diagnosis: Diagnosis, numbering: Numbering) -> Batch:
    """Every rank of every group, and how far it is there."""
    standing = {
        (numbering.group_of(one.group, one.description, one.ranks), rank): one
        for one in diagnosis.standings
        for rank in one.ranks
    }
    columns: dict[str, list[Any]] = {column.name: [] for column in schema.MEMBERS.columns}
    for row, group in enumerate(journal.groups):
        positions = {rank: position for position, rank in enumerate(group.ranks)}
        for rank in sorted(numbering.members[row]):
            stands = standing.get((row, rank))
            sequence = stands.sequence if stands else None
            values = {
                "group_id": row,
                "rank": rank,
                "position": positions.get(rank),
                "stage": stands.stage.value if stands else None,
                "sequence": sequence,
                "collective_id": numbering.collective_of(row, sequence),
            }
            for name, value in values.items():
                columns[name].append(value)
    return Batch(schema.MEMBERS.name, columns)
