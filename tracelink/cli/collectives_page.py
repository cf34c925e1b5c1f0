"""Which rows, their columns and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelink.cli.documents import Document, findings_document
from tracelink.cli.terminal import NOTHING, Page, show_findings
from tracelink.diagnosis.timeline import Arrivals, arrivals, lost_time
from tracelink.errors import UsageError, printable
from tracelink.model.collectives import Participations, Verdict
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int64s
from tracelink.model.graph import evidence_of, texts_of
from tracelink.model.job import Job
from tracelink.model.trace import ProcessGroup
from tracelink.ranges import Numbers
from tracelink.text import counted, number, size, span

# What ranks did together, row by row: names in place of codes, None for what is not known.


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


# Shared definitions


def collectives_document(job: Job, choice: Choice) -> Document:
    """The result of `collectives`."""
    rows = rows_of(collective_columns(job, choice.collectives))
    parts = participation_rows(job, choice.collectives)
    collectives = [row | {"participations": those} for row, those in zip(rows, parts, strict=True)]
    return {
        "collectives": [row for row in collectives if row["verdict"] != Verdict.UNMATCHED],
        "messages": rows_of(message_columns(job, choice.messages)),
        "unmatched": [row for row in collectives if row["verdict"] == Verdict.UNMATCHED],
        "findings": findings_document(job.findings),
    }


# Which collectives a user wants to see, and in what order.


class Order(StrEnum):
    """By what collectives are sorted."""

    SKEW = "skew"
    DURATION = "duration"
    WAIT = "wait"
    BYTES = "bytes"
    BANDWIDTH = "bandwidth"
    START = "start"
    VERDICT = "verdict"


Key = tuple[npt.NDArray[Any], Bools]
"""What rows are sorted by, the smallest first, and where it is known."""

WORST_FIRST = (Verdict.MISMATCH, Verdict.MISSING, Verdict.UNMATCHED, Verdict.PARTIAL, Verdict.COMPLETE)


@dataclass(frozen=True, slots=True)
class Choice:
    """Rows of collectives and of messages, in order."""

    order: Order
    collectives: Rows
    messages: Rows

    @classmethod
    def of(cls, job: Job, group: str | None, order: Order) -> Choice:
        """Those of a group (of all, where none is named); what is not known stands last."""
        groups = np.append(groups_named(job.groups, group), group is None)
        messages = MESSAGE_KEYS.get(order, _durations_of_messages)
        return cls(
            order,
            _sorted(np.flatnonzero(groups[job.collectives.group]), KEYS[order](job), _starts(job)),
            _sorted(np.flatnonzero(groups[job.messages.group]), messages(job), _sendings(job)),
        )

    def first(self, count: int | None) -> Choice:
        """At most so many of each."""
        return Choice(self.order, self.collectives[:count], self.messages[:count])


def _sorted(rows: Rows, key: Key, start: Key) -> Rows:
    values, known = (column[rows] for column in key)
    times, timed = (column[rows] for column in start)
    order = np.lexsort((np.where(timed, times, 0), ~timed, np.where(known, values, 0), ~known))
    chosen: Rows = rows[order]
    return chosen


def groups_named(groups: Sequence[ProcessGroup], wanted: str | None) -> Bools:
    """Which groups a user means: by name or description, else by a part of either."""
    if wanted is None:
        return np.ones(len(groups), np.bool_)
    for means in (_is, _has):
        named = np.array([means(group, wanted) for group in groups], np.bool_)
        if named.any():
            return named
    known = ", ".join(dict.fromkeys(label(group) for group in groups))
    advice = f"There are: {known}." if known else "The sources name no group."
    raise UsageError(f"--group: there is no group {wanted!r}", advice=advice)


def label(group: ProcessGroup) -> str:
    """The name of a group, and its description where it has one."""
    return printable(" ".join(dict.fromkeys(text for text in (group.name, group.description) if text)))


def labels(job: Job) -> list[str]:
    """What to call each group: its ranks are told where name and description are not enough."""
    plain = [label(group) for group in job.groups]
    return [
        text if plain.count(text) == 1 else f"{text} [{Numbers.of(group.ranks)}]".strip()
        for text, group in zip(plain, job.groups, strict=True)
    ]


def _is(group: ProcessGroup, wanted: str) -> bool:
    return wanted in (group.name, group.description)


def _has(group: ProcessGroup, wanted: str) -> bool:
    return wanted.casefold() in f"{group.name}\n{group.description}".casefold()


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
    places = {verdict.value: place for place, verdict in enumerate(WORST_FIRST)}
    texts = [*(places.get(text, UNKNOWN) for text in job.strings), UNKNOWN]
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
"""By anything else messages are sorted by how long they took."""


# What `collectives` shows: who keeps whom waiting, and a table.


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
MESSAGES = ("group", "from", "to", "tag", "bytes", "sent", "took", "verdict")
MESSAGE_NUMBERS = ("from", "to", "tag", "bytes", "sent", "took")

SMALLEST_RATE = 0.001

NAME = 32
ABSENT = 16
"""Letters that are shown of a group's name, and of a list of ranks."""


def collectives_page(
    job: Job, choice: Choice, shown: int | None, *, list_messages: bool, verbose: bool
) -> str:
    """What is chosen in all, and at most `shown` rows of it."""
    page = Page()
    rows, messages = choice.collectives, choice.messages
    if len(rows):
        _summarise(page, job, choice)
        page.line()
        _show_collectives(page, job, rows[:shown])
        _show_more(page, rows, shown)
    else:
        page.line("no collectives: the sources record none, or none of what was asked for")
    if len(messages) and list_messages:
        page.line()
        _show_messages(page, job, messages[:shown])
        _show_more(page, messages, shown)
    elif len(messages):
        page.line(f"{counted(len(messages), 'message')} from rank to rank; --messages lists them", "dim")
    show_findings(page, job.findings, verbose=verbose)
    return page.text


def _summarise(page: Page, job: Job, choice: Choice) -> None:
    rows = choice.collectives
    words = verdicts(job)[rows]
    loose = int(np.count_nonzero(words == Verdict.UNMATCHED))
    parts = _of_collectives(job.participations, rows)
    groups = len(np.unique(job.collectives.group[rows]))
    page.line(
        f"{counted(len(rows) - loose, 'collective')} in {counted(groups, 'group')}"
        f" on {counted(len(np.unique(parts.rank)), 'rank')}",
        "bold",
    )
    _show_slowest(page, job, rows)
    _show_latest(page, job, arrivals(job.collectives, parts))
    counts = Counter(words.tolist())
    odd = [
        f"{number(counts[word])} {word}" for word in WORST_FIRST if counts[word] and word != Verdict.COMPLETE
    ]
    if odd:
        advice = "" if choice.order is Order.VERDICT else "; --sort verdict shows them first"
        page.line(f"not complete: {', '.join(odd)}{advice}", "yellow")
    table = job.collectives
    if asked := np.count_nonzero((table.start[rows] == NO_TIME) & (table.skew[rows] != UNKNOWN)):
        page.line(
            f"of {number(int(asked))} it is only known when ranks asked for them: their skew and wait rest on that"
        )
    _show_doubt(page, job)


def _of_collectives(participations: Participations, rows: Rows) -> Participations:
    wanted = np.isin(participations.collective, rows)
    return Participations(*(column[wanted] for column in participations.columns().values()))


def _show_slowest(page: Page, job: Job, rows: Rows) -> None:
    slowest = rows[[np.argmax(job.collectives.duration[rows])]]
    (row,) = rows_of(collective_columns(job, slowest))
    if row["duration_ns"] is not None:
        group = _short(labels(job), int(job.collectives.group[slowest[0]]))
        place = "" if row["sequence"] is None else f" {row['sequence']}"
        page.line(f"slowest: {row['operation']}{place} of group {group}: {span(row['duration_ns'])}")


def _show_latest(page: Page, job: Job, counts: Arrivals) -> None:
    if not len(counts):
        why = (
            "only one rank was read; name the traces of all"
            if len(job.ranks) == 1
            else "the sources do not tell when ranks entered"
        )
        page.line(f"who came last is not known: {why}")
        return
    latest = int(np.argmax(counts.last))
    share = counts.last[latest] / counts.collectives[latest]
    page.line(
        f"last most often: rank {counts.rank[latest]}, in {100 * share:.0f} % of its "
        f"{counted(int(counts.collectives[latest]), 'collective')}; "
        f"the others waited {span(int(counts.waited_for[latest]))} for it, all together"
    )


def _show_doubt(page: Page, job: Job) -> None:
    """How far apart clocks can be: smaller skews say nothing."""
    doubts = [rank.clock_uncertainty_ns for rank in job.ranks]
    known = [doubt for doubt in doubts if doubt is not None]
    if known and len(known) < len(doubts):
        page.line("nothing bounds some clocks, so skews can be wrong; see `tracelink clocks`", "yellow")
    elif any(known):
        page.line(f"clocks are known to ± {span(max(known))}: smaller skews say nothing", "dim")


def _show_collectives(page: Page, job: Job, rows: Rows) -> None:
    groups = labels(job)
    table = rows_of(collective_columns(job, rows))
    place = "sequence" if any(row["sequence"] is not None for row in table) else "order"
    complete = all(row["verdict"] == Verdict.COMPLETE for row in table)
    header = [place if name == "sequence" else name for name in HEADER]
    cells = [
        _cells(job, row, _short(groups, group), parts, place)
        for row, group, parts in zip(
            table, job.collectives.group[rows].tolist(), ranks_in(job, rows), strict=True
        )
    ]
    _show_known(page, header[: len(header) - complete], cells, whole=complete)


def _show_known(page: Page, header: Sequence[str], cells: Sequence[Sequence[str]], *, whole: bool) -> None:
    """A table of those columns of which anything is known; who is absent is told however little room there is."""
    known = [place for place in range(len(header)) if any(row[place] != NOTHING for row in cells)]
    page.table(
        [header[place] for place in known],
        [[row[place] for place in known] for row in cells],
        numbers=[*NUMBERS, "order", *(["ranks"] if whole else [])],
        optional=[name for name in OPTIONAL if whole or name != "ranks"],
    )


def _cells(job: Job, row: Row, group: str, parts: Sequence[int], place: str) -> list[str]:
    return [
        group,
        _said(row[place]),
        _said(row["operation"]),
        _of_members(parts, row["ranks"]),
        NOTHING if row["bytes"] is None else size(row["bytes"]),
        _since(job, row["start_ns"]),
        _lasting(row["duration_ns"]),
        _lasting(row["skew_ns"]),
        _lasting(row["wait_ns"]),
        _said(row["last_rank"]),
        NOTHING if row["bus_gb_s"] is None else rate(row["bus_gb_s"]),
        _said(row["verdict"]),
    ]


def _of_members(parts: Sequence[int], members: Sequence[int]) -> str:
    """8, or 7 of 8, not 3."""
    absent = Numbers.of(set(members) - set(parts))
    if not absent:
        return number(len(parts))
    return f"{number(len(parts))} of {number(len(members))}, not {_cut(str(absent), ABSENT)}"


def _show_messages(page: Page, job: Job, rows: Rows) -> None:
    groups = labels(job)
    cells = [
        [
            _short(groups, group),
            _said(row["source"]),
            _said(row["target"]),
            _said(row["tag"]),
            NOTHING if row["bytes"] is None else size(row["bytes"]),
            _since(job, row["sent_ns"]),
            NOTHING
            if row["sent_ns"] is None or row["received_ns"] is None
            else span(row["received_ns"] - row["sent_ns"]),
            _said(row["verdict"]),
        ]
        for row, group in zip(
            rows_of(message_columns(job, rows)), job.messages.group[rows].tolist(), strict=True
        )
    ]
    page.table(MESSAGES, cells, numbers=MESSAGE_NUMBERS, optional=("tag", "verdict"))


def _show_more(page: Page, rows: Rows, shown: int | None) -> None:
    if shown is not None and len(rows) > shown:
        page.line(f"{number(len(rows) - shown)} more; --limit 0 shows all", "dim")


def _short(groups: Sequence[str], group: int) -> str:
    if not 0 <= group < len(groups):
        return NOTHING
    return _cut(groups[group], NAME)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _said(value: object) -> str:
    return NOTHING if value is None else str(value)


def _since(job: Job, time: int | None) -> str:
    return NOTHING if time is None or job.first_ns is None else span(time - job.first_ns)


def _lasting(ns: int | None) -> str:
    return NOTHING if ns is None else span(ns)


def rate(gb_s: float) -> str:
    """1,234, 12.3, 1.23, 0.012, <0.001."""
    if 0 < gb_s < SMALLEST_RATE:
        return f"<{SMALLEST_RATE}"
    digits = 0 if gb_s >= 100 else 1 if gb_s >= 10 else 2 if gb_s >= 1 else 3
    return f"{gb_s:,.{digits}f}"
