"""Collectives and messages one by one: selected by group, sorted, with the ranks that enter them last."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise, repeat
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import UNSET, UnsetType

from tracelink._join.quantities import Quantity
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int32s, Int64s, Table
from tracelink._model.communications import Collectives, Participations, Verdict
from tracelink._model.errors import UsageError, did_you_mean, printable
from tracelink._model.fields import (
    Bytes,
    Count,
    Doc,
    GigabytesPerSecond,
    Identifier,
    Nanoseconds,
    Percent,
    RankNumber,
    Ranks,
    Row,
    Shown,
    SignedNanoseconds,
    UnixNanoseconds,
)
from tracelink._model.findings import Finding
from tracelink._model.job import LinkedJob
from tracelink._model.results import Result, ResultTable, known
from tracelink._model.tables import evidence_names, texts_of
from tracelink._model.text import group_label, number
from tracelink._model.trace import ProcessGroup

GroupName = Annotated[str | None, Doc("Name of the process group.")]
GroupDescription = Annotated[
    str | None, Doc("What the group is for, as the program declared it; empty if it did not.")
]


def _time(event: str) -> Any:
    return Doc(f"When {event}, on the reference clock; null if not known.")


def _average(quantity: str) -> Any:
    return Doc(
        f"Average {quantity} of the rank's GPU meanwhile; absent unless metrics are among the inputs, null if there "
        "is no sample of that time."
    )


class Participation(Row, frozen=True):
    """One rank's part in a collective."""

    rank: RankNumber
    enqueued_ns: Annotated[UnixNanoseconds | None, _time("the rank requested it")]
    start_ns: Annotated[UnixNanoseconds | None, _time("the rank entered")]
    end_ns: Annotated[UnixNanoseconds | None, _time("the rank left")]
    wait_ns: Annotated[Nanoseconds | None, Doc("From the entry of this rank to that of the last rank.")]
    evidence: Annotated[
        str,
        Doc(
            "What start and end were taken from.",
            extra_json_schema={"enum": ["none", "recorder", "annotation", "kernel"]},
        ),
    ]
    state: Annotated[str | None, Doc("State that the flight recorder reported.")]
    sm_clock_mhz: Annotated[float | None, _average("SM clock")] | UnsetType = UNSET
    memory_clock_mhz: Annotated[float | None, _average("memory clock")] | UnsetType = UNSET
    power_w: Annotated[float | None, _average("power")] | UnsetType = UNSET
    temperature_c: Annotated[float | None, _average("temperature")] | UnsetType = UNSET
    utilization_percent: Annotated[Percent | None, _average("utilization")] | UnsetType = UNSET


class Collective(Row, frozen=True):
    """One communication across ranks."""

    group: GroupName
    description: GroupDescription
    ranks: Annotated[Ranks, Doc("The ranks of the group; those that take part if no source lists them.")]
    sequence: Annotated[Identifier | None, Doc("Its number within the group, as sources recorded it.")]
    order: Annotated[Identifier | None, Doc("Its position among the group's collectives.")]
    operation: str | None
    type: Annotated[str | None, Doc("Type of the numbers that are exchanged.")]
    bytes: Annotated[
        Bytes | None, Doc("Size of this operation as nccl-tests counts it."), Shown("size", drop=4)
    ]
    start_ns: Annotated[UnixNanoseconds | None, _time("the first rank entered"), Shown(drop=2)]
    end_ns: Annotated[UnixNanoseconds | None, _time("the last rank left")]
    duration_ns: Annotated[SignedNanoseconds | None, Doc("From the last entry to the last exit.")]
    skew_ns: Annotated[Nanoseconds | None, Doc("From the first entry to the last.")]
    wait_ns: Annotated[
        Nanoseconds | None, Doc("How long all ranks together waited for the last one."), Shown(drop=1)
    ]
    last_rank: Annotated[RankNumber | None, Doc("The rank that entered last.")]
    algorithm_gb_s: Annotated[
        GigabytesPerSecond | None, Doc("As nccl-tests defines it, in 10^9 bytes per second.")
    ]
    bus_gb_s: Annotated[
        GigabytesPerSecond | None,
        Doc("As nccl-tests defines it, in 10^9 bytes per second."),
        Shown("bus", drop=5),
    ]
    verdict: Verdict | None
    participations: Sequence[Participation]


class Message(Row, frozen=True):
    """A send and its receive."""

    group: GroupName
    description: GroupDescription
    source: Annotated[RankNumber | None, Doc("The rank that sends."), Shown("from")]
    target: Annotated[RankNumber | None, Doc("The rank that receives."), Shown("to")]
    tag: Annotated[Identifier | None, Shown(drop=1)]
    order: Annotated[Identifier | None, Doc("Its position among the messages of this pair, group and tag.")]
    bytes: Annotated[Bytes | None, Doc("Bytes sent."), Shown("size")]
    sent_ns: Annotated[UnixNanoseconds | None, _time("the send started")]
    received_ns: Annotated[UnixNanoseconds | None, _time("the receive ended")]
    verdict: Annotated[Verdict | None, Shown(drop=2)]


class Totals(Row, frozen=True):
    """All collectives that were selected, listed or not."""

    collectives: Count
    messages: Count
    groups: Count
    ranks: Annotated[Count, Doc("Ranks that take part in any of them.")]
    verdicts: Annotated[Mapping[Verdict, Count], Doc("Collectives by verdict.")]
    without_start: Annotated[
        Count, Doc("Collectives whose skew and wait are based on the times of the calls.")
    ]
    slowest: Annotated[Collective | None, Doc("The one with the longest duration.")]
    largest_skew_ns: Nanoseconds | None
    clock_uncertainty_ns: Annotated[
        Nanoseconds, Doc("The largest error of the difference between two clocks, where it is bounded.")
    ]
    unbounded: Annotated[bool, Doc("Whether the offsets of some clocks have no bounds.")]
    significant: Annotated[Count, Doc("Collectives whose skew exceeds the uncertainty of the clocks.")]
    last: Annotated[
        Sequence[LastRank], Doc("The rank that is last in most of these; several if equally often.")
    ]


class LastRank(Row, frozen=True):
    """A rank that enters collectives last."""

    rank: RankNumber
    count: Annotated[Count, Doc("In how many collectives it is last.")]
    collectives: Annotated[Count, Doc("In how many it takes part.")]
    waited_for_ns: Annotated[Nanoseconds, Doc("How long other ranks waited for it in total.")]


class Listing(Result, frozen=True):
    """Collectives and messages, sorted."""

    collectives: Sequence[Collective]
    messages: Sequence[Message]
    unmatched: Annotated[Sequence[Collective], Doc("Calls that were matched with no call of another rank.")]
    totals: Totals
    first_ns: Annotated[UnixNanoseconds | None, Doc("The first event of the job.")]
    job_ranks: Annotated[Count, Doc("Ranks that were read.")]
    sorted_by: Order
    findings: Sequence[Finding]

    drawn_by = "tracelink._time.collectives.listing_report"

    @property
    def rows(self) -> Sequence[Collective]:
        """The collectives, then the calls that were not matched."""
        return [*self.collectives, *self.unmatched]

    def tables(self) -> dict[str, ResultTable[Any]]:
        """Returns the tables: collectives and unmatched calls, the part of each rank in them, and messages."""
        parts = [(index, part) for index, row in enumerate(self.rows) for part in row.participations]
        values = {
            name: [known(getattr(part, name)) for _, part in parts]
            for name in Participation.__struct_fields__
        }
        numbered = {**values, "collective": [index for index, _ in parts]}
        return {
            "collectives": ResultTable.of_rows(Collective, self.rows, title="Collectives"),
            "participations": ResultTable.of(PartRow, numbered, title="Participations"),
            "messages": ResultTable.of_rows(Message, self.messages, title="Messages"),
            "findings": ResultTable.of_rows(Finding, self.findings, title="Findings"),
        }


class PartRow(Participation, frozen=True):
    """A participation as a row of its own table."""

    collective: Annotated[Identifier, Doc("The row of the table of collectives.")] = 0


# Selection by group, and sorting.


Rows = npt.NDArray[np.intp] | Int64s


class Order(StrEnum):
    """Sort order of collectives."""

    SKEW = "skew"
    DURATION = "duration"
    WAIT = "wait"
    BYTES = "bytes"
    BANDWIDTH = "bandwidth"
    START = "start"
    VERDICT = "verdict"


class _Key(NamedTuple):
    """The values that rows are sorted by, the smallest first, and which of them are known."""

    values: npt.NDArray[Any]
    known: Bools


WORST_FIRST = (Verdict.MISMATCH, Verdict.MISSING, Verdict.UNMATCHED, Verdict.PARTIAL, Verdict.COMPLETE)
GROUPS = 24
"""Groups that an error lists."""


def listing(
    job: LinkedJob,
    *,
    group: str | None = None,
    order: Order = Order.SKEW,
    limit: int | None = None,
    messages: bool = True,
) -> Listing:
    """Lists the collectives and messages of a job.

    Args:
        job: What `tracelink.collectives` returns.
        group: Only groups with this name or description; if there are none, those that contain it.
        order: The largest first, but the lowest bandwidth, the earliest start and the worst verdict; unknown ones last.
        limit: At most so many of each are listed; all are counted.
        messages: Whether messages are listed.

    Raises:
        UsageError: There is no such group.
    """
    groups = np.append(groups_named(job.groups, group), group is None)
    timed = _Key(job.collectives.start, job.collectives.start != NO_TIME)
    rows = _sorted(np.flatnonzero(groups[job.collectives.group]), _KEYS[order](job), timed)
    sent = _Key(job.messages.sent, job.messages.sent != NO_TIME)
    key = _MESSAGE_KEYS.get(order, _durations_of_messages)(job)
    sent_rows = _sorted(np.flatnonzero(groups[job.messages.group]), key, sent)
    listed = _collectives(job, rows[:limit])
    return Listing(
        [row for row in listed if row.verdict != Verdict.UNMATCHED],
        _messages(job, sent_rows[:limit]) if messages else [],
        [row for row in listed if row.verdict == Verdict.UNMATCHED],
        _totals(job, rows, len(sent_rows)),
        job.first_ns,
        len(job.ranks),
        order,
        job.findings,
    )


def _sorted(rows: Rows, key: _Key, start: _Key) -> Rows:
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
    known = list(dict.fromkeys(group_label(group.name, group.description) for group in groups))
    more = f" and {number(len(known) - GROUPS)} more" if len(known) > GROUPS else ""
    advice = f"{did_you_mean(name, words)} Known groups: {', '.join(known[:GROUPS])}{more}."
    raise UsageError(f"--group: unknown group {name!r}", advice=advice.strip())


def _is_called(group: ProcessGroup, name: str) -> bool:
    return name in (group.name, group.description)


def _contains(group: ProcessGroup, name: str) -> bool:
    return name.casefold() in f"{group.name}\n{group.description}".casefold()


def _largest_first(column: Callable[[LinkedJob], Int64s]) -> Callable[[LinkedJob], _Key]:
    def key(job: LinkedJob) -> _Key:
        values = column(job)
        return _Key(-values, values != UNKNOWN)

    return key


def _durations_of_messages(job: LinkedJob) -> _Key:
    sent, received = job.messages.sent, job.messages.received
    return _Key(sent - received, (sent != NO_TIME) & (received != NO_TIME))


def _verdicts(job: LinkedJob) -> _Key:
    severity = {verdict.value: index for index, verdict in enumerate(WORST_FIRST)}
    texts = [*(severity.get(text, UNKNOWN) for text in job.strings), UNKNOWN]
    values = np.array(texts, np.int64)[job.collectives.verdict]
    return _Key(values, values != UNKNOWN)


_KEYS: Mapping[Order, Callable[[LinkedJob], _Key]] = {
    Order.SKEW: _largest_first(lambda job: job.collectives.skew),
    Order.DURATION: _largest_first(lambda job: job.collectives.duration),
    Order.WAIT: _largest_first(lambda job: lost_time(job.collectives, job.participations)),
    Order.BYTES: _largest_first(lambda job: job.collectives.bytes),
    Order.BANDWIDTH: lambda job: _Key(job.collectives.bus_gb_s, np.isfinite(job.collectives.bus_gb_s)),
    Order.START: lambda job: _Key(job.collectives.start, job.collectives.start != NO_TIME),
    Order.VERDICT: _verdicts,
}

_MESSAGE_KEYS: Mapping[Order, Callable[[LinkedJob], _Key]] = {
    Order.START: lambda job: _Key(job.messages.sent, job.messages.sent != NO_TIME),
    Order.BYTES: _largest_first(lambda job: job.messages.bytes),
}
"""For every other order, messages are sorted by duration."""


# Rows: names instead of codes, None for unknown values.


def _collectives(job: LinkedJob, rows: Rows) -> list[Collective]:
    table = job.collectives
    parts = _participations(job, rows)
    columns = [
        *_groups(job, table.group[rows]),
        _members(job, rows, parts),
        plain(table.sequence[rows]),
        plain(table.order[rows]),
        _texts(job, table.operation[rows]),
        _texts(job, table.type[rows]),
        plain(table.bytes[rows]),
        times(table.start[rows]),
        times(table.end[rows]),
        plain(table.duration[rows]),
        plain(table.skew[rows]),
        plain(lost_time(table, job.participations)[rows]),
        plain(table.last_rank[rows]),
        _rates(table.algorithm_gb_s[rows]),
        _rates(table.bus_gb_s[rows]),
        _texts(job, table.verdict[rows]),
        parts,
    ]
    return list(map(Collective, *columns))


def _participations(job: LinkedJob, selected: Rows) -> list[list[Participation]]:
    """For each of these collectives, the part of each rank that is in it."""
    table = job.participations
    order, bounds = _parts_of(job, selected)
    metrics = _metrics(job, order)
    parts = list(
        map(
            Participation,
            table.rank[order].tolist(),
            times(table.enqueued[order]),
            times(table.start[order]),
            times(table.end[order]),
            plain(table.wait[order]),
            evidence_names(table.evidence[order]).tolist(),
            _texts(job, table.state[order]),
            *(metrics.get(quantity) or repeat(UNSET) for quantity in Quantity),
        )
    )
    return [parts[first:last] for first, last in pairwise(bounds)]


def _metrics(job: LinkedJob, parts: Rows) -> Mapping[str, Sequence[float | None]]:
    """Averages of the metrics of each participation's GPU; no column without metrics."""
    if not job.metric_tracks:
        return {}
    from tracelink._join.during import averages, columns_in_json

    table = job.participations.take(parts)
    return columns_in_json(averages((job.metric_tracks, job.metrics), table.rank, table.start, table.end))


def _messages(job: LinkedJob, rows: Rows) -> list[Message]:
    table = job.messages
    columns = [
        *_groups(job, table.group[rows]),
        plain(table.source[rows]),
        plain(table.target[rows]),
        plain(table.tag[rows]),
        plain(table.order[rows]),
        plain(table.bytes[rows]),
        times(table.sent[rows]),
        times(table.received[rows]),
        _texts(job, table.verdict[rows]),
    ]
    return list(map(Message, *columns))


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


def _texts(job: LinkedJob, codes: npt.NDArray[np.int32]) -> list[Any]:
    texts: list[Any] = texts_of(job.strings, codes).tolist()
    return texts


def _groups(job: LinkedJob, groups: npt.NDArray[np.int32]) -> Iterator[list[Any]]:
    yield texts_of([group.name for group in job.groups], groups).tolist()
    yield texts_of([group.description for group in job.groups], groups).tolist()


def _members(job: LinkedJob, rows: Rows, parts: Sequence[Sequence[Participation]]) -> list[list[int]]:
    """The ranks of each collective's group; if no source lists them, the ranks that take part."""
    listed = [list(group.ranks) for group in job.groups] + [[]]
    members = [listed[group] for group in job.collectives.group[rows].tolist()]
    return [known or [part.rank for part in mine] for known, mine in zip(members, parts, strict=True)]


def _parts_of(job: LinkedJob, selected: Rows) -> tuple[Int64s, list[int]]:
    """The participations in these collectives, in order, and the bounds of those of each collective."""
    collective = job.participations.collective
    order = np.argsort(collective, kind="stable")
    bounds = np.searchsorted(collective[order], np.arange(len(job.collectives) + 1))
    first, length = bounds[:-1][selected], np.diff(bounds)[selected]
    begin = np.append(0, np.cumsum(length))
    rows = np.arange(begin[-1]) + np.repeat(first - begin[:-1], length)
    return order[rows], begin.tolist()


# What is said of all collectives: the slowest, and the ranks that enter last.


def _totals(job: LinkedJob, rows: Rows, messages: int) -> Totals:
    table = job.collectives
    verdicts = Counter(np.array([*job.strings, None], dtype=object)[table.verdict[rows]].tolist())
    parts = _of_collectives(job.participations, rows)
    slowest = rows[[np.argmax(table.duration[rows])]] if len(rows) else rows
    skew, uncertainty = table.skew[rows], _uncertainties(job)[rows]
    bounded = uncertainty[np.isfinite(uncertainty)]
    largest = int(skew.max(initial=UNKNOWN))
    significant = rows[skew > uncertainty]
    return Totals(
        len(rows) - verdicts[Verdict.UNMATCHED],
        messages,
        len(np.unique(table.group[rows])),
        len(np.unique(parts.rank)),
        {verdict: verdicts[verdict] for verdict in WORST_FIRST if verdicts[verdict]},
        int(np.count_nonzero((table.start[rows] == NO_TIME) & (skew != UNKNOWN))),
        next((row for row in _collectives(job, slowest) if row.duration_ns is not None), None),
        None if largest == UNKNOWN else largest,
        int(bounded.max(initial=0)),
        len(bounded) < len(uncertainty),
        len(significant),
        _last(job, significant),
    )


def _of_collectives(participations: Participations, rows: Rows) -> Participations:
    selected = np.isin(participations.collective, rows)
    return Participations(*(column[selected] for column in participations.columns().values()))


def _uncertainties(job: LinkedJob) -> npt.NDArray[np.float64]:
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


def _last(job: LinkedJob, rows: Rows) -> list[LastRank]:
    """The ranks that are last most often in these collectives."""
    counts = arrivals(job.collectives, _of_collectives(job.participations, rows))
    if not len(counts):
        return []
    latest = np.flatnonzero(counts.last == counts.last.max())
    columns = (counts.rank, counts.last, counts.collectives, counts.waited_for)
    return list(map(LastRank, *(column[latest].tolist() for column in columns)))


# Which ranks arrive last, and what that costs the others.


class Arrivals(Table, frozen=True):
    """One row for each rank that takes part in a collective with known arrival times."""

    rank: Int32s
    collectives: Int64s
    """In how many of them it takes part."""
    last: Int64s
    """At how many it arrived last."""
    waited: Int64s
    """How long it waited for others in total, in ns."""
    waited_for: Int64s
    """How long others waited for it in total, in ns."""


def arrivals(collectives: Collectives, participations: Participations) -> Arrivals:
    """Counts over all collectives; if all ranks arrive at the same time, none is last."""
    compared = (collectives.skew > 0)[participations.collective] & (participations.wait != UNKNOWN)
    collective, wait = participations.collective[compared], participations.wait[compared]
    ranks, index = np.unique(participations.rank[compared], return_inverse=True)
    last = participations.rank[compared] == collectives.last_rank[collective]
    lost = lost_time(collectives, participations)
    waited, waited_for = np.zeros(len(ranks), np.int64), np.zeros(len(ranks), np.int64)
    np.add.at(waited, index, wait)
    np.add.at(waited_for, index[last], lost[collective[last]])
    return Arrivals(
        ranks,
        np.bincount(index, minlength=len(ranks)),
        np.bincount(index[last], minlength=len(ranks)),
        waited,
        waited_for,
    )


def lost_time(collectives: Collectives, participations: Participations) -> Int64s:
    """How long all ranks of each collective waited in total, in ns, or UNKNOWN."""
    known = participations.wait != UNKNOWN
    lost = np.zeros(len(collectives), np.int64)
    np.add.at(lost, participations.collective[known], participations.wait[known])
    lost[np.bincount(participations.collective[known], minlength=len(collectives)) == 0] = UNKNOWN
    return lost
