"""Who exchanges how much with whom: messages by pair of ranks, and all-to-all operations as matrices."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from tracelink._model.columns import NO_TIME, UNKNOWN, Int64s, Table, distinct, starts_of
from tracelink._model.communications import Participations, Verdict
from tracelink._model.graph import EventGraph, recorded_payloads
from tracelink._model.job import LinkedJob
from tracelink._model.operations import Operation
from tracelink._time.collectives.costs import scope_of_ranks
from tracelink._time.model.communication import Exchange, PairRow

# Messages.


def pair_rows(job: LinkedJob) -> list[PairRow]:
    """A row for each pair of ranks, in the order of the ranks."""
    table = job.messages
    if not len(table):
        return []
    numbers, _ = distinct(table.source, table.target)
    order = np.argsort(numbers, kind="stable")
    return [_pair_row(job, rows) for rows in np.split(order, starts_of(numbers[order])[1:])]


def _pair_row(job: LinkedJob, rows: Int64s) -> PairRow:
    table = job.messages
    ends = int(table.source[rows[0]]), int(table.target[rows[0]])
    matched = rows[(table.sent[rows] != NO_TIME) & (table.received[rows] != NO_TIME)]
    latency = np.maximum(table.received[matched] - table.sent[matched], 0)
    rated = (table.bytes[matched] > 0) & (latency > 0)
    rates = table.bytes[matched][rated] / latency[rated]
    known = (table.bytes[rows] != UNKNOWN).all()
    lost = sum(job.strings[code] == Verdict.UNMATCHED for code in table.verdict[rows].tolist() if code >= 0)
    return PairRow(
        *ends,
        scope_of_ranks(job, ends),
        len(rows),
        lost,
        int(table.bytes[rows].sum()) if known else None,
        int(np.median(latency)) if len(latency) else None,
        int(latency.min()) if len(latency) else None,
        float(np.median(rates)) if len(rates) else None,
    )


# All-to-all: what each rank sends to each. The worker of a rank reads the parts from the arguments of its events.


class Splits(Table, frozen=True):
    """One row for each part that a rank sends to another one in an all-to-all operation."""

    participation: Int64s
    position: Int64s
    """The position of the receiving rank in the group; UNKNOWN if all parts are equal."""
    share: Int64s
    """The size of the part in the units of the source: rows or elements."""


class _SplitSizes(msgspec.Struct):
    """How the input is divided; a list as text, which ends with `...` if it is cut after 30 ranks."""

    parts: str = msgspec.field(name="In split size", default="")


_DECODER = msgspec.json.Decoder(_SplitSizes)
_EVEN = "[]"
_LIST = re.compile(r"\[\d{1,18}(,\s*\d{1,18})*\]")


def splits_of(graph: EventGraph, job: LinkedJob, rank: int) -> Splits:
    """The parts that one rank sends in all-to-all operations; none where they were not recorded, or are cut off.

    Args:
        graph: The events of the rank.
        job: The job; its events are not read.
        rank: The rank.
    """
    participations, events = _stating_splits(job)
    own = job.participations.rank[participations] == rank
    by_event = dict(zip(events[own].tolist(), participations[own].tolist(), strict=True))
    rows: list[tuple[int, int, int]] = []
    for row, text in recorded_payloads(graph, np.array(sorted(by_event), np.int64)) if by_event else ():
        parts = _recorded_parts(text)
        if parts == _EVEN:
            rows.append((by_event[row], UNKNOWN, 1))
        elif _LIST.fullmatch(parts):
            shares = enumerate(map(int, parts[1:-1].split(",")))
            rows += [(by_event[row], position, share) for position, share in shares]
    columns = np.array(rows, np.int64).reshape(-1, 3)
    return Splits(columns[:, 0], columns[:, 1], columns[:, 2])


def events_with_splits(job: LinkedJob) -> dict[int, Int64s]:
    """By rank, the events whose arguments state the parts of an all-to-all."""
    participations, events = _stating_splits(job)
    rank = job.participations.rank[participations]
    order = np.argsort(rank, kind="stable")
    starts = starts_of(rank[order])
    return dict(zip(rank[order][starts].tolist(), np.split(events[order], starts[1:]), strict=False))


def _stating_splits(job: LinkedJob) -> tuple[Int64s, Int64s]:
    """The participations in all-to-all operations that have an event with arguments, and these events."""
    table = job.participations
    rows = np.flatnonzero(_all_to_all(job)[table.collective])
    event = np.where(table.kernel[rows] == UNKNOWN, table.operator[rows], table.kernel[rows])
    known = event != UNKNOWN
    return rows[known], event[known]


def _recorded_parts(text: bytes | memoryview) -> str:
    try:
        return _DECODER.decode(text).parts
    except msgspec.DecodeError:
        return ""


def _all_to_all(job: LinkedJob) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    codes = [code for code, text in enumerate(job.strings) if text == Operation.ALL_TO_ALL]
    return np.isin(job.collectives.operation, codes)


def exchanges_of(job: LinkedJob, splits: Splits) -> list[Exchange]:
    """A matrix for each group with all-to-all operations."""
    table, parts = job.collectives, job.participations
    chosen = _all_to_all(job)
    result = []
    for group in np.unique(table.group[chosen]).tolist():
        collectives = chosen & (table.group == group)
        rows = np.flatnonzero(collectives[parts.collective])
        result.append(_exchange(job, group, int(np.count_nonzero(collectives)), rows, splits))
    return result


def _exchange(job: LinkedJob, group: int, count: int, rows: Int64s, splits: Splits) -> Exchange:
    parts = job.participations
    ranks = list(job.groups[group].ranks) or np.unique(parts.rank[rows]).tolist()
    index = {rank: position for position, rank in enumerate(ranks)}
    rows = rows[np.isin(parts.rank[rows], ranks)]
    matrix = _matrix(parts, rows, ranks, index, splits)
    if matrix is not None:
        sent, received = matrix.sum(axis=1), matrix.sum(axis=0)
    else:
        sent, received = (_sums(column, parts, rows, ranks) for column in (parts.bytes_in, parts.bytes_out))
    return Exchange(
        group,
        job.groups[group].name,
        ranks,
        count,
        None if sent is None else sent.tolist(),
        None if received is None else received.tolist(),
        None if received is None or not received.sum() else round(float(received.max() / received.mean()), 4),
        None if matrix is None else matrix.tolist(),
    )


def _sums(column: Int64s, parts: Participations, rows: Int64s, ranks: Sequence[int]) -> Int64s | None:
    """The sum of a column for each rank; None if a value is unknown."""
    if (column[rows] == UNKNOWN).any():
        return None
    sums = np.zeros(max(ranks, default=0) + 1, np.int64)
    np.add.at(sums, parts.rank[rows], column[rows])
    return sums[ranks]


def _matrix(
    parts: Participations, rows: Int64s, ranks: Sequence[int], index: Mapping[int, int], splits: Splits
) -> Int64s | None:
    """The bytes from each rank to each; None if any size or part is unknown."""
    if (parts.bytes_in[rows] == UNKNOWN).any() or not len(rows):
        return None
    mine = splits.take(np.isin(splits.participation, rows))
    if len(np.unique(mine.participation)) < len(rows):
        return None
    matrix = np.zeros((len(ranks), len(ranks)), np.int64)
    for row in rows.tolist():
        share = mine.share[mine.participation == row]
        if len(share) == 1:
            share = np.ones(len(ranks), np.int64)
        if len(share) != len(ranks) or not share.sum():
            return None
        reached = np.append(0, np.cumsum(share)) * int(parts.bytes_in[row]) // int(share.sum())
        matrix[index[int(parts.rank[row])]] += np.diff(reached)
    return matrix
