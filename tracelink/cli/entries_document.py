"""Entries for a program: a row for each, with the row of the table that it stands in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from tracelink.analysis.advice import place_of
from tracelink.cli.entries_rows import Shown
from tracelink.cli.finding_document import Document, findings_document
from tracelink.cli.together import Row, Table, plain, rows_of, times
from tracelink.communications import UNKNOWN
from tracelink.diagnosis import Diagnosis, Frame
from tracelink.records import State
from tracelink.views import texts_of

STATES = {state.value: None if state is State.UNKNOWN else state.name.lower() for state in State}
RETIRED = {1: True, 0: False}


def entries_document(shown: Shown, diagnosis: Diagnosis, *, stacks: bool) -> Document:
    """What `diagnose --entries --json` prints."""
    matrix = shown.matrix
    return {
        "verdict": diagnosis.verdict,
        "ranks": {
            "shown": matrix.ranks.tolist(),
            "missing": list(diagnosis.missing),
            "unreadable": list(diagnosis.unreadable),
        },
        "rows": len(matrix),
        "earlier_entries": matrix.earlier,
        "entries": [
            row | ({"frames": [asdict(frame) for frame in frames]} if stacks else {})
            for row, frames in zip(rows_of(_columns(shown)), _stacks(shown), strict=True)
        ],
        "holes": _holes(shown),
        "findings": findings_document([*diagnosis.findings, *shown.findings]),
    }


def entries_table(shown: Shown, *, stacks: bool) -> Table:
    """What `diagnose --entries --csv` prints: sizes as `[[64, 16]]`, stacks from the innermost frame outwards."""
    columns = _columns(shown)
    for name in ("input_sizes", "output_sizes"):
        columns[name] = [None if sizes is None else str(sizes) for sizes in columns[name]]
    called = {"stack": [_called(frames) for frames in _stacks(shown)]} if stacks else {}
    return {**columns, **called}


def _columns(shown: Shown) -> Table:
    journal, records = shown.journal, shown.journal.records
    row, entries, closing = shown.entries()
    request = records.request[entries]
    told = [shown.of_request.get(number) for number in request.tolist()]
    source, target = (
        np.where(closing, UNKNOWN, ends[row]) for ends in (shown.matrix.source, shown.matrix.target)
    )
    return {
        "row": row.tolist(),
        "rank": journal.rank[entries].tolist(),
        "group": texts_of([group.name for group in journal.groups], records.group[entries]).tolist(),
        "description": texts_of(
            [group.description for group in journal.groups], records.group[entries]
        ).tolist(),
        "sequence": plain(records.sequence[entries]),
        "operation": texts_of(journal.texts, journal.requests.operation[request]).tolist(),
        "source": plain(source),
        "target": plain(target),
        "input_type": texts_of(journal.texts, journal.requests.type_in[request]).tolist(),
        "output_type": texts_of(journal.texts, journal.requests.type_out[request]).tolist(),
        "input_sizes": [None if one is None else [list(sizes) for sizes in one.input_sizes] for one in told],
        "output_sizes": [
            None if one is None else [list(sizes) for sizes in one.output_sizes] for one in told
        ],
        "state": [STATES[state] for state in records.state[entries].tolist()],
        "retired": [RETIRED.get(flag) for flag in records.retired[entries].tolist()],
        "created_ns": times(records.created[entries]),
        "started_ns": times(records.started[entries]),
        "completed_ns": times(records.completed[entries]),
        "timeout_ms": plain(records.timeout_ms[entries]),
    }


def _stacks(shown: Shown) -> list[tuple[Frame, ...]]:
    return [shown.stack(entry) for entry in shown.entries()[1].tolist()]


def _called(frames: Sequence[Frame]) -> str:
    return " < ".join(f"{place_of(frame)} {frame.name}" for frame in frames)


def _holes(shown: Shown) -> list[Row]:
    """Rows in which ranks have no entry that have to take part, or may have."""
    matrix = shown.matrix
    absent = matrix.member & (matrix.entry == UNKNOWN)
    return [
        {
            "row": row,
            "missing": matrix.ranks[absent[row] & ~matrix.lost[row]].tolist(),
            "lost": matrix.ranks[absent[row] & matrix.lost[row]].tolist(),
        }
        for row in np.flatnonzero(absent.any(axis=1)).tolist()
    ]
