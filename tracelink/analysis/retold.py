"""Entries as their dumps tell them, with sizes and stacks: read again for those that are asked for."""

from __future__ import annotations

import numpy as np

from tracelink.diagnosis import Entry
from tracelink.errors import UnreadableError
from tracelink.events import Int64s
from tracelink.findings import Finding, Severity
from tracelink.journal import Journal
from tracelink.plugins import Retelling


def retold(journal: Journal, rows: Int64s) -> tuple[dict[int, Entry], list[Finding]]:
    """What these entries of the journal say; each dump is read once, and one that cannot be is a finding."""
    told: dict[int, Entry] = {}
    findings = []
    of_rank = np.searchsorted(journal.bounds, rows, side="right") - 1
    for number, recording in enumerate(journal.recordings.values()):
        wanted = rows[of_rank == number]
        if not len(wanted) or not isinstance(recording.payloads, Retelling):
            continue
        places = journal.records.place[wanted].tolist()
        try:
            found = recording.payloads.entries(places)
        except (UnreadableError, OSError) as error:
            message = f"its entries could not be read again for their sizes and stacks: {error}"
            findings.append(Finding(Severity.WARNING, "not_retold", message, source=recording.source.path))
            continue
        told.update(
            (row, found[place]) for row, place in zip(wanted.tolist(), places, strict=True) if place in found
        )
    return told, findings


def one_for_each_request(journal: Journal, rows: Int64s) -> Int64s:
    """The first of those of these entries that ask for the same: they have the same sizes."""
    ordered = np.sort(rows)
    _, first = np.unique(journal.records.request[ordered], return_index=True)
    found: Int64s = ordered[first]
    return found
