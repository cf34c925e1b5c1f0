"""What ranks did together, row by row: names in place of codes, None for what is not known."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelink.analysis.arrivals import lost_time
from tracelink.communications import UNKNOWN
from tracelink.events import NO_TIME, Int64s
from tracelink.job import Job
from tracelink.views import evidence_of, texts_of

Row = dict[str, Any]
Table = dict[str, list[Any]]
Rows = npt.NDArray[np.intp] | Int64s


def collective_columns(job: Job, chosen: Rows) -> Table:
    """The columns of the chosen collectives."""
    table = job.collectives
    return {
        **_groups(job, table.group[chosen]),
        "ranks": _members(job, chosen),
        "sequence": plain(table.sequence[chosen]),
        "order": plain(table.order[chosen]),
        "operation": _texts(job, table.operation[chosen]),
        "type": _texts(job, table.type[chosen]),
        "bytes": plain(table.bytes[chosen]),
        "start_ns": times(table.start[chosen]),
        "end_ns": times(table.end[chosen]),
        "duration_ns": plain(table.duration[chosen]),
        "skew_ns": plain(table.skew[chosen]),
        "wait_ns": plain(lost_time(table, job.participations)[chosen]),
        "last_rank": plain(table.last_rank[chosen]),
        "algorithm_gb_s": _rates(table.algorithm_gb_s[chosen]),
        "bus_gb_s": _rates(table.bus_gb_s[chosen]),
        "verdict": _texts(job, table.verdict[chosen]),
    }


def participation_rows(job: Job, chosen: Rows) -> list[list[Row]]:
    """For each of the chosen collectives a row for each rank that takes part."""
    table = job.participations
    order, bounds = _parts_of(job, chosen)
    rows = rows_of(
        {
            "rank": table.rank[order].tolist(),
            "enqueued_ns": times(table.enqueued[order]),
            "start_ns": times(table.start[order]),
            "end_ns": times(table.end[order]),
            "wait_ns": plain(table.wait[order]),
            "evidence": evidence_of(table.evidence[order]).tolist(),
            "state": _texts(job, table.state[order]),
        }
    )
    return [rows[first:last] for first, last in pairwise(bounds)]


def ranks_in(job: Job, chosen: Rows) -> list[list[int]]:
    """The ranks that take part in each of the chosen collectives."""
    order, bounds = _parts_of(job, chosen)
    ranks = job.participations.rank[order].tolist()
    return [ranks[first:last] for first, last in pairwise(bounds)]


def message_columns(job: Job, chosen: Rows) -> Table:
    """The columns of the chosen messages."""
    table = job.messages
    return {
        **_groups(job, table.group[chosen]),
        "source": plain(table.source[chosen]),
        "target": plain(table.target[chosen]),
        "tag": plain(table.tag[chosen]),
        "order": plain(table.order[chosen]),
        "bytes": plain(table.bytes[chosen]),
        "sent_ns": times(table.sent[chosen]),
        "received_ns": times(table.received[chosen]),
        "verdict": _texts(job, table.verdict[chosen]),
    }


def verdicts(job: Job) -> npt.NDArray[np.object_]:
    """What is to be said of each collective."""
    return np.array([*job.strings, None], dtype=object)[job.collectives.verdict]


def rows_of(columns: Table) -> list[Row]:
    """The rows of a table."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def plain(column: npt.NDArray[Any]) -> list[Any]:
    """The numbers of a column."""
    return _known(column, column != UNKNOWN)


def times(column: Int64s) -> list[Any]:
    """The times of a column."""
    return _known(column, column != NO_TIME)


def _rates(column: npt.NDArray[np.float64]) -> list[Any]:
    return _known(column, np.isfinite(column))


def _known(column: npt.NDArray[Any], known: npt.NDArray[np.bool_]) -> list[Any]:
    values: list[Any] = column.tolist()
    for place in np.flatnonzero(~known).tolist():
        values[place] = None
    return values


def _texts(job: Job, codes: npt.NDArray[np.int32]) -> list[Any]:
    texts: list[Any] = texts_of(job.strings, codes).tolist()
    return texts


def _groups(job: Job, groups: npt.NDArray[np.int32]) -> Table:
    return {
        "group": texts_of([group.name for group in job.groups], groups).tolist(),
        "description": texts_of([group.description for group in job.groups], groups).tolist(),
    }


def _members(job: Job, chosen: Rows) -> list[list[int]]:
    """The ranks of each collective's group; where no source lists them, those that take part."""
    listed = [list(group.ranks) for group in job.groups] + [[]]
    members = [listed[group] for group in job.collectives.group[chosen].tolist()]
    if all(members):
        return members
    return [ranks or taking_part for ranks, taking_part in zip(members, ranks_in(job, chosen), strict=True)]


def _parts_of(job: Job, chosen: Rows) -> tuple[Int64s, list[int]]:
    """The participations in each of the chosen collectives, one after the other, and where those of each begin."""
    collective = job.participations.collective
    order = np.argsort(collective, kind="stable")
    bounds = np.searchsorted(collective[order], np.arange(len(job.collectives) + 1))
    first, length = bounds[:-1][chosen], np.diff(bounds)[chosen]
    begin = np.append(0, np.cumsum(length))
    places = np.arange(begin[-1]) + np.repeat(first - begin[:-1], length)
    return order[places], begin.tolist()
