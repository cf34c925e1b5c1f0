"""Entries of the journal as they were recorded, read again from their dumps."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.diagnosis import Entry
from tracelink.journal import Journal
from tracelink.plugins import Retelling


def entries_at(journal: Journal, rows: Sequence[int]) -> dict[int, Entry]:
    """The entries in these rows, as far as their dumps can be read again; each dump is read once."""
    by_rank: dict[int, list[int]] = {}
    for row in rows:
        by_rank.setdefault(int(journal.rank[row]), []).append(row)
    found: dict[int, Entry] = {}
    for rank, own in by_rank.items():
        payloads = journal.recordings[rank].payloads
        if isinstance(payloads, Retelling):
            places = {int(journal.records.place[row]): row for row in own}
            found |= {places[place]: entry for place, entry in payloads.entries(sorted(places)).items()}
    return found
