"""Which collectives a user wants to see, and in what order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelink.analysis.arrivals import lost_time
from tracelink.cli.together import Rows
from tracelink.cli.voice import printable
from tracelink.collectives import Verdict
from tracelink.communications import UNKNOWN
from tracelink.errors import UsageError
from tracelink.events import NO_TIME, Bools, Int64s
from tracelink.job import Job
from tracelink.ranges import Numbers
from tracelink.trace import ProcessGroup


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
