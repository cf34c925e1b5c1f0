"""The tables of `tracelink collectives`: collectives and messages, selected, sorted, as text or JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tracelink.cli.documents import results
from tracelink.cli.terminal import EMPTY, Page, more, show_findings
from tracelink.diagnosis.timeline import Arrivals, arrivals, lost_time
from tracelink.model.collectives import Participations, Verdict
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int64s
from tracelink.model.errors import UsageError, did_you_mean, printable
from tracelink.model.job import Job
from tracelink.model.ranges import Numbers
from tracelink.model.tables import evidence_names, texts_of
from tracelink.model.text import (
    counted,
    lowered,
    moment,
    number,
    ranks_in_words,
    shortened,
    size,
    span,
)
from tracelink.model.trace import ProcessGroup

# Columns of collectives, participations and messages: names instead of codes, None for unknown values.


Row = dict[str, Any]
Table = dict[str, list[Any]]
Rows = npt.NDArray[np.intp] | Int64s


def collective_columns(job: Job, rows: Rows) -> Table:
    """The columns of these collectives."""
    table = job.collectives
    return {
        **_groups(job, table.group[rows]),
        "ranks": _members(job, rows),
        "sequence": plain(table.sequence[rows]),
        "order": plain(table.order[rows]),
        "operation": _texts(job, table.operation[rows]),
        "type": _texts(job, table.type[rows]),
        "bytes": plain(table.bytes[rows]),
        "start_ns": times(table.start[rows]),
        "end_ns": times(table.end[rows]),
        "duration_ns": plain(table.duration[rows]),
        "skew_ns": plain(table.skew[rows]),
        "wait_ns": plain(lost_time(table, job.participations)[rows]),
        "last_rank": plain(table.last_rank[rows]),
        "algorithm_gb_s": _rates(table.algorithm_gb_s[rows]),
        "bus_gb_s": _rates(table.bus_gb_s[rows]),
        "verdict": _texts(job, table.verdict[rows]),
    }


def participation_rows(job: Job, selected: Rows) -> list[list[Row]]:
    """For each of these collectives, a row for each rank that takes part."""
    table = job.participations
    order, bounds = _parts_of(job, selected)
    rows = rows_of(
        {
            "rank": table.rank[order].tolist(),
            "enqueued_ns": times(table.enqueued[order]),
            "start_ns": times(table.start[order]),
            "end_ns": times(table.end[order]),
            "wait_ns": plain(table.wait[order]),
            "evidence": evidence_names(table.evidence[order]).tolist(),
            "state": _texts(job, table.state[order]),
            **_metrics(job, order),
        }
    )
    return [rows[first:last] for first, last in pairwise(bounds)]


def _metrics(job: Job, parts: Rows) -> Table:
    """Averages of the metrics of each participation's GPU; no column without metrics."""
    if not job.metric_tracks:
        return {}
    from tracelink.metrics.during import averages, columns_in_json

    table = job.participations.take(parts)
    return columns_in_json(averages((job.metric_tracks, job.metrics), table.rank, table.start, table.end))


def ranks_in(job: Job, rows: Rows) -> list[list[int]]:
    """The ranks that take part in each of these collectives."""
    order, bounds = _parts_of(job, rows)
    ranks = job.participations.rank[order].tolist()
    return [ranks[first:last] for first, last in pairwise(bounds)]


def message_columns(job: Job, rows: Rows) -> Table:
    """The columns of these messages."""
    table = job.messages
    return {
        **_groups(job, table.group[rows]),
        "source": plain(table.source[rows]),
        "target": plain(table.target[rows]),
        "tag": plain(table.tag[rows]),
        "order": plain(table.order[rows]),
        "bytes": plain(table.bytes[rows]),
        "sent_ns": times(table.sent[rows]),
        "received_ns": times(table.received[rows]),
        "verdict": _texts(job, table.verdict[rows]),
    }


def verdicts(job: Job) -> npt.NDArray[np.object_]:
    """The verdict on each collective."""
    return np.array([*job.strings, None], dtype=object)[job.collectives.verdict]


def rows_of(columns: Table) -> list[Row]:
    """The rows of a table."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def plain(column: npt.NDArray[Any]) -> list[Any]:
    """The numbers of a column; None if UNKNOWN."""
    return _known(column, column != UNKNOWN)


def times(column: Int64s) -> list[Any]:
    """The times of a column; None if NO_TIME."""
    return _known(column, column != NO_TIME)


def _rates(column: npt.NDArray[np.float64]) -> list[Any]:
    return _known(column, np.isfinite(column))


def _known(column: npt.NDArray[Any], known: npt.NDArray[np.bool_]) -> list[Any]:
    values: list[Any] = column.tolist()
    for index in np.flatnonzero(~known).tolist():
        values[index] = None
    return values


def _texts(job: Job, codes: npt.NDArray[np.int32]) -> list[Any]:
    texts: list[Any] = texts_of(job.strings, codes).tolist()
    return texts


def _groups(job: Job, groups: npt.NDArray[np.int32]) -> Table:
    return {
        "group": texts_of([group.name for group in job.groups], groups).tolist(),
        "description": texts_of([group.description for group in job.groups], groups).tolist(),
    }


def _members(job: Job, rows: Rows) -> list[list[int]]:
    """The ranks of each collective's group; if no source lists them, the ranks that take part."""
    listed = [list(group.ranks) for group in job.groups] + [[]]
    members = [listed[group] for group in job.collectives.group[rows].tolist()]
    if all(members):
        return members
    return [ranks or taking_part for ranks, taking_part in zip(members, ranks_in(job, rows), strict=True)]


def _parts_of(job: Job, selected: Rows) -> tuple[Int64s, list[int]]:
    """The participations in these collectives, in order, and the bounds of those of each collective."""
    collective = job.participations.collective
    order = np.argsort(collective, kind="stable")
    bounds = np.searchsorted(collective[order], np.arange(len(job.collectives) + 1))
    first, length = bounds[:-1][selected], np.diff(bounds)[selected]
    begin = np.append(0, np.cumsum(length))
    rows = np.arange(begin[-1]) + np.repeat(first - begin[:-1], length)
    return order[rows], begin.tolist()


# The result for `--json`.


def collectives_document(job: Job, selected: CollectiveRows) -> results.Collectives:
    """The result of `collectives`."""
    rows = rows_of(collective_columns(job, selected.collectives))
    parts = participation_rows(job, selected.collectives)
    collectives = [
        results.Collective(**row, participations=[results.Participation(**part) for part in ranks])
        for row, ranks in zip(rows, parts, strict=True)
    ]
    return results.Collectives(
        collectives=[row for row in collectives if row.verdict != Verdict.UNMATCHED],
        messages=[results.Message(**row) for row in rows_of(message_columns(job, selected.messages))],
        unmatched=[row for row in collectives if row.verdict == Verdict.UNMATCHED],
        findings=results.findings_of(job.findings),
    )


# Selection by group, and sorting.


class Order(StrEnum):
    """Sort order of collectives."""

    SKEW = "skew"
    DURATION = "duration"
    WAIT = "wait"
    BYTES = "bytes"
    BANDWIDTH = "bandwidth"
    START = "start"
    VERDICT = "verdict"


Key = tuple[npt.NDArray[Any], Bools]
"""The values that rows are sorted by, the smallest first, and which of them are known."""

WORST_FIRST = (Verdict.MISMATCH, Verdict.MISSING, Verdict.UNMATCHED, Verdict.PARTIAL, Verdict.COMPLETE)


class CollectiveRows(Struct, frozen=True):
    """Rows of collectives and of messages, sorted."""

    order: Order
    collectives: Rows
    messages: Rows

    @classmethod
    def of(cls, job: Job, group: str | None, order: Order) -> CollectiveRows:
        """The rows of a group (None: of all groups), sorted; unknown values last."""
        groups = np.append(groups_named(job.groups, group), group is None)
        messages = MESSAGE_KEYS.get(order, _durations_of_messages)
        return cls(
            order,
            _sorted(np.flatnonzero(groups[job.collectives.group]), KEYS[order](job), _starts(job)),
            _sorted(np.flatnonzero(groups[job.messages.group]), messages(job), _sendings(job)),
        )

    def first(self, count: int | None) -> CollectiveRows:
        """The first `count` collectives and messages; all if None."""
        return CollectiveRows(self.order, self.collectives[:count], self.messages[:count])


def _sorted(rows: Rows, key: Key, start: Key) -> Rows:
    values, known = (column[rows] for column in key)
    times, timed = (column[rows] for column in start)
    order = np.lexsort((np.where(timed, times, 0), ~timed, np.where(known, values, 0), ~known))
    ordered: Rows = rows[order]
    return ordered


def groups_named(groups: Sequence[ProcessGroup], name: str | None) -> Bools:
    """The groups with this name or description; if there are none, those that contain it."""
    if name is None:
        return np.ones(len(groups), np.bool_)
    for matches in (_is_called, _contains):
        named = np.array([matches(group, name) for group in groups], np.bool_)
        if named.any():
            return named
    if not groups:
        raise UsageError(f"--group: unknown group {name!r}", advice="The sources contain no groups.")
    names = [printable(name) for group in groups for name in (group.name, group.description)]
    words = [word for name in names for word in (name, *re.split(r"[\W_]+", name))]
    known = list(dict.fromkeys(label(group) for group in groups))
    more = f" and {number(len(known) - GROUPS)} more" if len(known) > GROUPS else ""
    advice = f"{did_you_mean(name, words)} Known groups: {', '.join(known[:GROUPS])}{more}."
    raise UsageError(f"--group: unknown group {name!r}", advice=advice.strip())


def label(group: ProcessGroup) -> str:
    """The name of a group, with its description if present: `5 (tp)`."""
    name, description = printable(group.name), printable(group.description)
    return f"{name} ({description})" if name and description not in ("", name) else name or description


def labels(job: Job) -> list[str]:
    """A unique label of each group: with its ranks if name and description are ambiguous."""
    plain = [label(group) for group in job.groups]
    return [
        text if plain.count(text) == 1 else f"{text} [{Numbers.of(group.ranks)}]".strip()
        for text, group in zip(plain, job.groups, strict=True)
    ]


def _is_called(group: ProcessGroup, name: str) -> bool:
    return name in (group.name, group.description)


def _contains(group: ProcessGroup, name: str) -> bool:
    return name.casefold() in f"{group.name}\n{group.description}".casefold()


def _largest_first(column: Callable[[Job], Int64s]) -> Callable[[Job], Key]:
    def key(job: Job) -> Key:
        values = column(job)
        return -values, values != UNKNOWN

    return key


def _starts(job: Job) -> Key:
    return job.collectives.start, job.collectives.start != NO_TIME


def _sendings(job: Job) -> Key:
    return job.messages.sent, job.messages.sent != NO_TIME


def _durations_of_messages(job: Job) -> Key:
    sent, received = job.messages.sent, job.messages.received
    return sent - received, (sent != NO_TIME) & (received != NO_TIME)


def _sizes_of_messages(job: Job) -> Key:
    return -job.messages.bytes, job.messages.bytes != UNKNOWN


def _bandwidths(job: Job) -> Key:
    return job.collectives.bus_gb_s, np.isfinite(job.collectives.bus_gb_s)


def _verdicts(job: Job) -> Key:
    severity = {verdict.value: index for index, verdict in enumerate(WORST_FIRST)}
    texts = [*(severity.get(text, UNKNOWN) for text in job.strings), UNKNOWN]
    values = np.array(texts, np.int64)[job.collectives.verdict]
    return values, values != UNKNOWN


KEYS: Mapping[Order, Callable[[Job], Key]] = {
    Order.SKEW: _largest_first(lambda job: job.collectives.skew),
    Order.DURATION: _largest_first(lambda job: job.collectives.duration),
    Order.WAIT: _largest_first(lambda job: lost_time(job.collectives, job.participations)),
    Order.BYTES: _largest_first(lambda job: job.collectives.bytes),
    Order.BANDWIDTH: _bandwidths,
    Order.START: _starts,
    Order.VERDICT: _verdicts,
}

MESSAGE_KEYS: Mapping[Order, Callable[[Job], Key]] = {Order.START: _sendings, Order.BYTES: _sizes_of_messages}
"""For every other order, messages are sorted by duration."""


# The page: a summary, and tables of collectives and messages.


HEADER = (
    "group",
    "sequence",
    "operation",
    "ranks",
    "bytes",
    "start",
    "duration",
    "skew",
    "wait",
    "last rank",
    "bus GB/s",
    "verdict",
)
NUMBERS = tuple(name for name in HEADER if name not in ("group", "operation", "ranks", "verdict"))
OPTIONAL = ("wait", "start", "ranks", "bytes")
MESSAGES = ("group", "from", "to", "tag", "bytes", "sent", "duration", "verdict")
MESSAGE_NUMBERS = ("from", "to", "tag", "bytes", "sent", "duration")

SLOWEST = "lowest SM MHz"
"""A column of the table if metrics are among the inputs."""

SMALLEST_RATE = 0.001

GROUPS = 24
"""Groups that an error lists."""

NAME = 32
ABSENT = 16
"""Characters of a group's name, and of a list of ranks; longer ones are shortened."""


def collectives_page(
    job: Job, selected: CollectiveRows, shown: int | None, *, list_messages: bool, verbose: bool
) -> str:
    """A summary of the selected rows, and tables of at most `shown` collectives and messages."""
    page = Page()
    rows, messages = selected.collectives, selected.messages
    if len(rows):
        _summarise(page, job, selected)
        page.line()
        _show_collectives(page, job, rows[:shown])
        _show_rest(page, rows, shown)
    else:
        page.line("No collectives: the sources record none, or none in the selected group.")
    if len(messages) and list_messages:
        page.line()
        _show_messages(page, job, messages[:shown])
        _show_rest(page, messages, shown)
    elif len(messages):
        page.line(f"{counted(len(messages), 'point-to-point message')} (--messages shows them).", "dim")
    show_findings(page, job.findings, verbose=verbose)
    return page.text


def _summarise(page: Page, job: Job, selected: CollectiveRows) -> None:
    rows = selected.collectives
    verdicts_of_rows = verdicts(job)[rows]
    unmatched = int(np.count_nonzero(verdicts_of_rows == Verdict.UNMATCHED))
    parts = _of_collectives(job.participations, rows)
    groups = len(np.unique(job.collectives.group[rows]))
    page.line(
        f"{counted(len(rows) - unmatched, 'collective')} in {counted(groups, 'group')}"
        f" on {counted(len(np.unique(parts.rank)), 'rank')}",
        "bold",
    )
    _show_slowest(page, job, rows)
    _show_skew(page, job, rows)
    counts = Counter(verdicts_of_rows.tolist())
    incomplete = [
        f"{number(counts[verdict])} {verdict}"
        for verdict in WORST_FIRST
        if counts[verdict] and verdict != Verdict.COMPLETE
    ]
    if incomplete:
        advice = "" if selected.order is Order.VERDICT else " (--sort verdict lists them first)"
        page.line(f"Not complete: {', '.join(incomplete)}{advice}.", "yellow")
    table = job.collectives
    if untimed := np.count_nonzero((table.start[rows] == NO_TIME) & (table.skew[rows] != UNKNOWN)):
        page.line(
            f"{counted(int(untimed), 'collective')} without start times: "
            "skew and wait are based on the times of the calls."
        )


def _of_collectives(participations: Participations, rows: Rows) -> Participations:
    selected = np.isin(participations.collective, rows)
    return Participations(*(column[selected] for column in participations.columns().values()))


def _show_slowest(page: Page, job: Job, rows: Rows) -> None:
    slowest = rows[[np.argmax(job.collectives.duration[rows])]]
    (row,) = rows_of(collective_columns(job, slowest))
    if row["duration_ns"] is not None:
        group = _short(labels(job), int(job.collectives.group[slowest[0]]))
        sequence = "" if row["sequence"] is None else f" #{row['sequence']}"
        page.line(f"Slowest: {row['operation']}{sequence} of group {group}, {span(row['duration_ns'])}.")


def _show_skew(page: Page, job: Job, rows: Rows) -> None:
    """The rank that is last most often in collectives whose skew exceeds the uncertainty of the clocks."""
    skew, uncertainty = job.collectives.skew[rows], _uncertainties(job)[rows]
    largest = int(skew.max())
    bounded = uncertainty[np.isfinite(uncertainty)]
    error = int(bounded.max(initial=0))
    unbounded = len(bounded) < len(uncertainty)
    significant = rows[skew > uncertainty]
    if largest != UNKNOWN and (unbounded or error) and not len(significant):
        clocks = (
            f"clock uncertainty is ±{span(error)}" if error else "the offsets of some clocks are unbounded"
        )
        page.line(f"No skew is significant: the largest is {span(largest)}, {clocks}.")
        return
    counts = arrivals(job.collectives, _of_collectives(job.participations, significant))
    _show_last(page, job, counts, len(significant), " with a significant skew" if unbounded or error else "")
    if error:
        page.line(
            f"Clock uncertainty is ±{span(error)}: {number(len(significant))} of "
            f"{counted(len(rows), 'skew')} {'is' if len(significant) == 1 else 'are'} significant.",
            "dim",
        )
    if unbounded:
        page.line(
            "Some skews may be wrong and are not counted: the offsets of some clocks are unbounded "
            "(see `tracelink clocks`).",
            "yellow",
        )


def _uncertainties(job: Job) -> npt.NDArray[np.float64]:
    """For each collective, the largest error of the difference between the clocks of two of its ranks, in ns.

    It is 0 if they share a clock, or clocks are not corrected, and infinite if it is unbounded.
    """
    numbers: dict[object, int] = {}
    clock = {
        rank.rank: numbers.setdefault(
            (rank.host or rank.rank, rank.clock_offset_ns, rank.clock_low_ns), len(numbers)
        )
        for rank in job.ranks
    }
    errors = {clock[rank.rank]: rank.clock_uncertainty_ns for rank in job.ranks}
    result = np.zeros(len(job.collectives))
    if all(error is None for error in errors.values()):
        return result
    parts = job.participations
    clock_of_rank = np.full(max(*clock, parts.rank.max(initial=0)) + 1, UNKNOWN, np.int64)
    clock_of_rank[list(clock)] = list(clock.values())
    pairs = np.stack([parts.collective, clock_of_rank[parts.rank]])
    collective, number = np.unique(pairs[:, pairs[1] != UNKNOWN], axis=1)
    error = np.array([np.inf if error is None else error for error in map(errors.get, range(len(errors)))])[
        number
    ]
    order = np.lexsort((-error, collective))
    collective, error = collective[order], error[order]
    _, first, clocks = np.unique(collective, return_index=True, return_counts=True)
    first = first[clocks > 1]
    result[collective[first]] = error[first] + error[first + 1]
    return result


def _show_last(page: Page, job: Job, counts: Arrivals, collectives: int, which: str) -> None:
    if not len(counts):
        reason = (
            "only one rank was read. Name the traces of all ranks."
            if len(job.ranks) == 1
            else "the sources do not record when ranks enter collectives."
        )
        page.line(f"The last ranks are unknown: {reason}")
        return
    most = int(counts.last.max())
    latest = np.flatnonzero(counts.last == most)
    if len(latest) > 1:
        page.line(
            f"No rank is last most often: {lowered(ranks_in_words(counts.rank[latest].tolist()))} are each last in "
            f"{number(most)} of {counted(collectives, 'collective')}{which}."
        )
        return
    (rank,) = latest.tolist()
    page.line(
        f"Most often last: rank {counts.rank[rank]}, in {number(most)} of its "
        f"{counted(int(counts.collectives[rank]), 'collective')}{which}; "
        f"the other ranks waited {span(int(counts.waited_for[rank]))} for it in total."
    )


def _show_collectives(page: Page, job: Job, rows: Rows) -> None:
    groups = labels(job)
    table = rows_of(collective_columns(job, rows))
    numbering = "sequence" if any(row["sequence"] is not None for row in table) else "order"
    complete = all(row["verdict"] == Verdict.COMPLETE for row in table)
    header = [numbering if name == "sequence" else name for name in HEADER]
    cells = [
        _cells(job, row, _short(groups, group), parts, numbering)
        for row, group, parts in zip(
            table, job.collectives.group[rows].tolist(), ranks_in(job, rows), strict=True
        )
    ]
    cells = [row[: len(header) - complete] for row in cells]
    header = header[: len(header) - complete]
    if job.metric_tracks:
        header.append(SLOWEST)
        for row, slowest in zip(cells, _slowest_clocks(job, rows), strict=True):
            row.append(slowest)
    _show_known(page, header, cells, complete=complete)
    if job.first_ns is not None and any(row["start_ns"] is not None for row in table):
        page.line(f"Starts count from the first event, at {moment(job.first_ns)}.", "dim")


def _slowest_clocks(job: Job, rows: Rows) -> list[str]:
    """The lowest SM clock of each collective's GPUs, and its rank: `1,100 (rank 3)`."""
    cells = []
    for parts in participation_rows(job, rows):
        clocks = [
            (part["sm_clock_mhz"], part["rank"]) for part in parts if part.get("sm_clock_mhz") is not None
        ]
        cells.append(f"{min(clocks)[0]:,.0f} (rank {min(clocks)[1]})" if clocks else EMPTY)
    return cells


def _show_known(page: Page, header: Sequence[str], cells: Sequence[Sequence[str]], *, complete: bool) -> None:
    """A table without empty columns; the column of ranks is dispensable only if no rank is missing."""
    known = [column for column in range(len(header)) if any(row[column] != EMPTY for row in cells)]
    page.table(
        [header[column] for column in known],
        [[row[column] for column in known] for row in cells],
        numbers=[*NUMBERS, SLOWEST, "order", *(["ranks"] if complete else [])],
        optional=[name for name in OPTIONAL if complete or name != "ranks"],
    )


def _cells(job: Job, row: Row, group: str, parts: Sequence[int], numbering: str) -> list[str]:
    return [
        group,
        _cell(row[numbering]),
        _cell(row["operation"]),
        _ranks_cell(parts, row["ranks"]),
        EMPTY if row["bytes"] is None else size(row["bytes"]),
        _since(job, row["start_ns"]),
        _span_cell(row["duration_ns"]),
        _span_cell(row["skew_ns"]),
        _span_cell(row["wait_ns"]),
        _cell(row["last_rank"]),
        EMPTY if row["bus_gb_s"] is None else rate(row["bus_gb_s"]),
        _cell(row["verdict"]),
    ]


def _ranks_cell(parts: Sequence[int], members: Sequence[int]) -> str:
    """`8`, or `7 of 8, not 3`."""
    absent = Numbers.of(set(members) - set(parts))
    if not absent:
        return number(len(parts))
    return f"{number(len(parts))} of {number(len(members))}, not {shortened(str(absent), ABSENT)}"


def _show_messages(page: Page, job: Job, rows: Rows) -> None:
    groups = labels(job)
    cells = [
        [
            _short(groups, group),
            _cell(row["source"]),
            _cell(row["target"]),
            _cell(row["tag"]),
            EMPTY if row["bytes"] is None else size(row["bytes"]),
            _since(job, row["sent_ns"]),
            EMPTY
            if row["sent_ns"] is None or row["received_ns"] is None
            else span(row["received_ns"] - row["sent_ns"]),
            _cell(row["verdict"]),
        ]
        for row, group in zip(
            rows_of(message_columns(job, rows)), job.messages.group[rows].tolist(), strict=True
        )
    ]
    page.table(MESSAGES, cells, numbers=MESSAGE_NUMBERS, optional=("tag", "verdict"))


def _show_rest(page: Page, rows: Rows, shown: int | None) -> None:
    if shown is not None and len(rows) > shown:
        page.line(more(len(rows) - shown, "row", "--limit 0"), "dim")


def _short(groups: Sequence[str], group: int) -> str:
    if not 0 <= group < len(groups):
        return EMPTY
    return shortened(groups[group], NAME)


def _cell(value: object) -> str:
    return EMPTY if value is None else str(value)


def _since(job: Job, time: int | None) -> str:
    return EMPTY if time is None or job.first_ns is None else span(time - job.first_ns)


def _span_cell(ns: int | None) -> str:
    return EMPTY if ns is None else span(ns)


def rate(gb_s: float) -> str:
    """`1,234`, `12.3`, `1.23`, `0.012`, `<0.001`."""
    if 0 < gb_s < SMALLEST_RATE:
        return f"<{SMALLEST_RATE}"
    digits = 0 if gb_s >= 100 else 1 if gb_s >= 10 else 2 if gb_s >= 1 else 3
    return f"{gb_s:,.{digits}f}"
