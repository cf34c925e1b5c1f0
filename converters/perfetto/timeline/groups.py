"""Tracks of process groups; what is said of their parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.converters.perfetto.timeline.hangs import Arrivals, Hangs, arrivals_of
from tracelink.converters.perfetto.timeline.layout import Numbering
from tracelink.converters.perfetto.timeline.schema import (
    HUNG_SUFFIX,
)
from tracelink.errors import Finding, Severity
from tracelink.model.collectives import Collectives
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int64s
from tracelink.model.job import Job
from tracelink.model.trace import ProcessGroup
from tracelink.ranges import Numbers

# What the events of a rank say of the collectives that they are parts of.


UNDEFINED = frozenset({"", "undefined"})
"""What torch describes a group as where nobody else does."""


def group_label(group: ProcessGroup) -> str:
    """How a group is called: by what it is for, else by its name."""
    return group.name if group.description in UNDEFINED else group.description


def numbers_in_group(collectives: Collectives, rows: Int64s) -> Int64s:
    """What collectives are called within their group: the number that sources give, else the place."""
    given = collectives.sequence[rows]
    return np.where(given == UNKNOWN, collectives.order[rows], given)


# What a group's track says of each collective: its name, and what is known of it as arguments.


UNITS = ("B", "kB", "MB", "GB", "TB")


def names_of(job: Job, rows: Int64s, hangs: Hangs) -> tuple[list[str], Int64s]:
    """Operation and size, and who is missing where it hangs: the distinct names, and which one each collective has."""
    kinds = np.stack([job.collectives.operation[rows].astype(np.int64), job.collectives.bytes[rows]])
    distinct, which = np.unique(kinds, axis=1, return_inverse=True)
    names = []
    for operation, size in distinct.T.tolist():
        text = job.strings[operation] if operation != UNKNOWN else "collective"
        names.append(text if size == UNKNOWN else f"{text} {readable_bytes(size)}")
    which = which.ravel()
    for place in np.flatnonzero(hangs.collectives[rows]).tolist():
        names.append(hangs.named(names[which[place]], int(rows[place])))
        which[place] = len(names) - 1
    return names, which


def readable_bytes(size: int) -> str:
    """A size in two or three digits: 4.2 MB."""
    value, unit = float(size), 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.1f} {UNITS[unit]}" if unit and value < 99.95 else f"{value:.0f} {UNITS[unit]}"


# A track for each process group: what its ranks did together, from the first entering to the last leaving.


PROCESS = "collectives"
MOST_MEMBERS = 48
"""Characters of the list of a group's members in the name of its track."""


FEW_MEMBERS = 8
"""So many are listed one by one."""


@dataclass(frozen=True, slots=True)
class Spans:
    """Collectives that are drawn, by group and start, and the lane of each within its group and what hangs of it."""

    row: Int64s
    start: Int64s
    end: Int64s
    open_ended: Bools
    """Whether it is not known when the last rank left."""
    hung: Bools
    lane: Int64s


@dataclass(frozen=True, slots=True)
class GroupSeats:
    """The collectives that are drawn, and the process and threads that they stand on."""

    drawn: Spans
    process: int
    tids: Sequence[int]
    names: Sequence[str]
    titles: Sequence[str]
    """Names of groups, without what tells the lanes of a group apart."""
    seat: Int64s
    """For each collective, the place of its thread in `tids`."""
    arrivals: Arrivals
    findings: list[Finding]


def group_seats(job: Job, hangs: Hangs, numbering: Numbering) -> GroupSeats:
    """A thread for each lane of each group; what hangs has threads of its own, which come first."""
    drawn = spans_of(job, hangs)
    findings = _hung_findings(job, hangs)
    if missing := len(job.collectives) - len(drawn.row):
        message = "collectives of which no source tells a time have no slice on their group's track"
        findings.append(Finding(Severity.INFO, "collective_without_time", message, missing))
    lanes = int(drawn.lane.max(initial=0)) + 1
    place = job.collectives.group[drawn.row].astype(np.int64) * lanes + drawn.lane
    taken, seat = np.unique(~drawn.hung * np.int64(len(job.groups) * lanes) + place, return_inverse=True)
    tids = [numbering.seat(2 + number) for number in range(len(taken))]
    clear, taken = np.divmod(taken, len(job.groups) * lanes)
    titles = _titles(job, (taken // lanes).tolist())
    titles = [
        title if fine else title + HUNG_SUFFIX for title, fine in zip(titles, clear.tolist(), strict=True)
    ]
    numbers = (taken % lanes + 1).tolist()
    names = [title + (f" ({lane})" if lane > 1 else "") for title, lane in zip(titles, numbers, strict=True)]
    awaited = np.isin(drawn.row, [row for row, ranks in hangs.missing.items() if ranks])
    arrivals = arrivals_of(job, drawn.row, drawn.start, drawn.end, awaited)
    return GroupSeats(drawn, numbering.seat(1), tids, names, titles, seat, arrivals, findings)


def spans_of(job: Job, hangs: Hangs) -> Spans:
    """When each collective took place, as far as anything tells: where nobody entered, when ranks asked for it."""
    whole, parts = job.collectives, job.participations
    earliest, latest = np.full(len(whole), np.iinfo(np.int64).max), np.full(len(whole), NO_TIME)
    np.minimum.at(
        earliest,
        parts.collective,
        np.where(parts.enqueued == NO_TIME, np.iinfo(np.int64).max, parts.enqueued),
    )
    np.maximum.at(latest, parts.collective, parts.enqueued)
    entered = whole.start != NO_TIME
    start = np.where(entered, whole.start, np.where(latest == NO_TIME, NO_TIME, earliest))
    np.maximum.at(latest, parts.collective, np.maximum(parts.start, parts.end))
    hung = hangs.collectives
    open_ended = (entered & (whole.end == NO_TIME)) | hung
    end = np.where(hung, hangs.end, np.where(whole.end == NO_TIME, latest, whole.end))
    row = np.flatnonzero(start != NO_TIME)
    row = row[np.lexsort((start[row], whole.group[row]))]
    start, end, hung = start[row], np.maximum(end, start)[row], hung[row]
    lane, group = np.zeros(len(row), np.int64), whole.group[row].astype(np.int64)
    for some in (np.flatnonzero(hung), np.flatnonzero(~hung)):
        lane[some] = _lanes(group[some], start[some], end[some])
    return Spans(row, start, end, open_ended[row], hung, lane)


def _lanes(group: Int64s, start: Int64s, end: Int64s) -> Int64s:
    """Lanes without any overlap: a collective that is open around another does not hold it."""
    lane = np.zeros(len(group), np.int64)
    if not len(group):
        return lane
    turns = np.unique(np.concatenate([start, end]), return_inverse=True)[1].astype(np.int64)
    base = group * (int(turns.max()) + 1)
    opens, closes = turns[: len(group)] + base, turns[len(group) :] + base
    reached = np.maximum.accumulate(closes)
    for number in np.unique(group[1:][opens[1:] < reached[:-1]]).tolist():
        low, high = np.searchsorted(group, [number, number + 1]).tolist()
        lane[low:high] = _apart(start[low:high].tolist(), end[low:high].tolist())
    return lane


def _apart(starts: list[int], ends: list[int]) -> list[int]:
    """For spans in the order of their starts the first lane that is free."""
    free: list[int] = []
    chosen = []
    for start, end in zip(starts, ends, strict=True):
        lane = next((lane for lane, until in enumerate(free) if until <= start), len(free))
        free[lane : lane + 1] = [end]
        chosen.append(lane)
    return chosen


def _titles(job: Job, groups: Sequence[int]) -> list[str]:
    """A name for each group; of groups with equal names and members, with the source's name too."""
    titles: dict[int, str] = {}
    for number in dict.fromkeys(groups):
        group = job.groups[number]
        title = f"group {group_label(group)}" + (f" [{_members(group.ranks)}]" if group.ranks else "")
        titles[number] = f"{title} #{group.name}" if title in titles.values() else title
    return [titles[group] for group in groups]


def _members(ranks: Sequence[int]) -> str:
    text = ", ".join(map(str, ranks)) if len(ranks) <= FEW_MEMBERS else str(Numbers.of(ranks))
    if len(text) <= MOST_MEMBERS:
        return text
    return f"{text[:MOST_MEMBERS].rpartition(',')[0]}, … of {len(ranks)}"


def _hung_findings(job: Job, hangs: Hangs) -> list[Finding]:
    rows = np.flatnonzero(hangs.collectives)
    if not len(rows):
        return []
    names, which = names_of(job, rows, hangs)
    message = "collectives hang: they are drawn to the end of the trace; `tracelink diagnose` says why"
    return [Finding(Severity.WARNING, "hung_collectives", message, len(rows), example=names[which[0]])]


# What tracelink found out of single events, as more arguments of theirs: of links without an arrow, of collectives.
