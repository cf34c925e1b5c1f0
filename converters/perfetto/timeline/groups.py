"""Tracks of process groups: what their ranks did together, from the first entry to the last exit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tracelink._model.collectives import Collectives
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int64s
from tracelink._model.findings import Finding, Severity
from tracelink._model.job import Job
from tracelink._model.ranges import Numbers
from tracelink._model.trace import ProcessGroup
from tracelink.converters.perfetto.timeline.hangs import Hangs, LastArrivals, last_arrivals_of
from tracelink.converters.perfetto.timeline.layout import Numbering
from tracelink.converters.perfetto.timeline.schema import CAUSE_SUFFIX, HUNG_SUFFIX

# Names of groups and collectives.


UNDEFINED = frozenset({"", "undefined"})
"""Descriptions that torch uses when none was given."""


def group_label(group: ProcessGroup) -> str:
    """The name of a group for people: its description, or its own name without one."""
    return group.name if group.description in UNDEFINED else group.description


def sequence_numbers(collectives: Collectives, rows: Int64s) -> Int64s:
    """The number of each collective within its group: the recorded sequence number, or its order."""
    given = collectives.sequence[rows]
    return np.where(given == UNKNOWN, collectives.order[rows], given)


UNITS = ("B", "kB", "MB", "GB", "TB")


def collective_names(job: Job, rows: Int64s, hangs: Hangs) -> tuple[list[str], Int64s]:
    """Operation, size, and missing ranks if it hangs: the distinct names, and the index of each collective's name."""
    kinds = np.stack([job.collectives.operation[rows].astype(np.int64), job.collectives.bytes[rows]])
    distinct, which = np.unique(kinds, axis=1, return_inverse=True)
    names = []
    for operation, size in distinct.T.tolist():
        text = job.strings[operation] if operation != UNKNOWN else "collective"
        names.append(text if size == UNKNOWN else f"{text} {readable_bytes(size)}")
    which = which.ravel()
    for index in np.flatnonzero(hangs.collectives[rows]).tolist():
        names.append(hangs.hung_name(names[which[index]], int(rows[index])))
        which[index] = len(names) - 1
    return names, which


def readable_bytes(size: int) -> str:
    """A size in two or three digits: 4.2 MB."""
    value, unit = float(size), 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.1f} {UNITS[unit]}" if unit and value < 99.95 else f"{value:.0f} {UNITS[unit]}"


# Tracks.


GROUPS_PROCESS = "collectives"
WAITS_NAME = "waits of any rank"
MAX_MEMBER_LIST = 48
"""Longest list of a group's members in the name of its track, in characters."""


SUFFIXES = (CAUSE_SUFFIX, HUNG_SUFFIX, "")
"""Suffixes of tracks in their order: collectives that are the cause of a hang come first, then those that follow."""

LISTED_MEMBERS = 8
"""Groups of at most this size list their members one by one."""


class DrawnCollectives(Struct, frozen=True):
    """Collectives that are drawn, by group and start, with their lanes within their groups."""

    row: Int64s
    start: Int64s
    end: Int64s
    open_ended: Bools
    """Whether the exit of the last rank is unknown."""
    hung: Bools
    lane: Int64s


class GroupTracks(Struct, frozen=True):
    """The collectives that are drawn, and their process and threads."""

    drawn: DrawnCollectives
    process: int
    tids: Sequence[int]
    names: Sequence[str]
    titles: Sequence[str]
    """Names of groups, without the number of the lane."""
    track: Int64s
    """For each collective the index of its thread in `tids`."""
    arrivals: LastArrivals
    findings: list[Finding]
    summary: int
    """The number of the track of what any rank waits in: in native traces that of the process."""


def group_tracks(job: Job, hangs: Hangs, numbering: Numbering) -> GroupTracks:
    """A thread for each lane of each group; collectives that hang have threads of their own, which come first."""
    drawn = drawn_collectives(job, hangs)
    findings = _hung_findings(job, hangs)
    if missing := len(job.collectives) - len(drawn.row):
        message = "collectives without a recorded time have no slice on the track of their group"
        findings.append(Finding(Severity.INFO, "collective_without_time", message, missing))
    lanes = int(drawn.lane.max(initial=0)) + 1
    code = job.collectives.group[drawn.row].astype(np.int64) * lanes + drawn.lane
    placed = np.where(hangs.causes[drawn.row], 0, np.where(drawn.hung, 1, 2)).astype(np.int64)
    codes, track = np.unique(placed * len(job.groups) * lanes + code, return_inverse=True)
    tids = [numbering.id_of(2 + number) for number in range(len(codes))]
    placed, codes = np.divmod(codes, len(job.groups) * lanes)
    titles = [
        title + SUFFIXES[suffix]
        for title, suffix in zip(_titles(job, (codes // lanes).tolist()), placed.tolist(), strict=True)
    ]
    numbers = (codes % lanes + 1).tolist()
    names = [title + (f" ({lane})" if lane > 1 else "") for title, lane in zip(titles, numbers, strict=True)]
    awaited = np.isin(drawn.row, [row for row, ranks in hangs.missing.items() if ranks])
    arrivals = last_arrivals_of(job, drawn.row, drawn.start, drawn.end, awaited)
    process = numbering.id_of(1)
    return GroupTracks(drawn, process, tids, names, titles, track, arrivals, findings, process)


def drawn_collectives(job: Job, hangs: Hangs) -> DrawnCollectives:
    """The start and end of each collective: when ranks entered, or when they requested it if none entered."""
    collectives, parts = job.collectives, job.participations
    earliest, latest = np.full(len(collectives), np.iinfo(np.int64).max), np.full(len(collectives), NO_TIME)
    np.minimum.at(
        earliest,
        parts.collective,
        np.where(parts.enqueued == NO_TIME, np.iinfo(np.int64).max, parts.enqueued),
    )
    np.maximum.at(latest, parts.collective, parts.enqueued)
    entered = collectives.start != NO_TIME
    start = np.where(entered, collectives.start, np.where(latest == NO_TIME, NO_TIME, earliest))
    np.maximum.at(latest, parts.collective, np.maximum(parts.start, parts.end))
    hung = hangs.collectives
    open_ended = (entered & (collectives.end == NO_TIME)) | hung
    end = np.where(hung, hangs.end, np.where(collectives.end == NO_TIME, latest, collectives.end))
    row = np.flatnonzero(start != NO_TIME)
    row = row[np.lexsort((start[row], collectives.group[row]))]
    start, end, hung = start[row], np.maximum(end, start)[row], hung[row]
    lane, group = np.zeros(len(row), np.int64), collectives.group[row].astype(np.int64)
    for rows in (np.flatnonzero(hung), np.flatnonzero(~hung)):
        lane[rows] = _lanes(group[rows], start[rows], end[rows])
    return DrawnCollectives(row, start, end, open_ended[row], hung, lane)


def _lanes(group: Int64s, start: Int64s, end: Int64s) -> Int64s:
    """Lanes on which nothing overlaps; a collective is never nested in another."""
    lane = np.zeros(len(group), np.int64)
    if not len(group):
        return lane
    turns = np.unique(np.concatenate([start, end]), return_inverse=True)[1].astype(np.int64)
    base = group * (int(turns.max()) + 1)
    opens, closes = turns[: len(group)] + base, turns[len(group) :] + base
    latest_end = np.maximum.accumulate(closes)
    for number in np.unique(group[1:][opens[1:] < latest_end[:-1]]).tolist():
        low, high = np.searchsorted(group, [number, number + 1]).tolist()
        lane[low:high] = _free_lanes(start[low:high].tolist(), end[low:high].tolist())
    return lane


def _free_lanes(starts: list[int], ends: list[int]) -> list[int]:
    """For intervals sorted by start, the first lane that is free."""
    free: list[int] = []
    chosen = []
    for start, end in zip(starts, ends, strict=True):
        lane = next((lane for lane, until in enumerate(free) if until <= start), len(free))
        free[lane : lane + 1] = [end]
        chosen.append(lane)
    return chosen


def _titles(job: Job, groups: Sequence[int]) -> list[str]:
    """A title for each group; groups with equal names and members also get their recorded name."""
    titles: dict[int, str] = {}
    for number in dict.fromkeys(groups):
        group = job.groups[number]
        title = f"group {group_label(group)}" + (f" [{_members(group.ranks)}]" if group.ranks else "")
        titles[number] = f"{title} #{group.name}" if title in titles.values() else title
    return [titles[group] for group in groups]


def _members(ranks: Sequence[int]) -> str:
    text = ", ".join(map(str, ranks)) if len(ranks) <= LISTED_MEMBERS else str(Numbers.of(ranks))
    if len(text) <= MAX_MEMBER_LIST:
        return text
    return f"{text[:MAX_MEMBER_LIST].rpartition(',')[0]}, … of {len(ranks)}"


def _hung_findings(job: Job, hangs: Hangs) -> list[Finding]:
    rows = np.flatnonzero(hangs.collectives)
    if not len(rows):
        return []
    names, which = collective_names(job, rows, hangs)
    message = "collectives hang and are drawn to the end of the trace; `tracelink diagnose` explains why"
    return [Finding(Severity.WARNING, "hung_collectives", message, len(rows), example=names[which[0]])]
