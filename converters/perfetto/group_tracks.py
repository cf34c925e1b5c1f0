"""A track for each process group: what its ranks did together, from the first entering to the last leaving."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tracelink.converters.perfetto.arrivals import Arrivals, arrivals_of
from tracelink.converters.perfetto.derived.groups import GroupCounters, group_counters
from tracelink.converters.perfetto.group_facts import Grouped, facts_of, grouped_parts, names_of
from tracelink.converters.perfetto.header import unclosed
from tracelink.converters.perfetto.hung import Hangs
from tracelink.converters.perfetto.layout import named
from tracelink.converters.perfetto.marks import TIME, sample_opening, samples
from tracelink.converters.perfetto.membership import group_label
from tracelink.converters.perfetto.numbering import Numbering
from tracelink.converters.perfetto.parts import Block, Piece, spans
from tracelink.converters.perfetto.schema import (
    ARRIVAL_CATEGORY,
    COLLECTIVE_CATEGORY,
    HUNG_COLOUR,
    HUNG_SUFFIX,
)
from tracelink.converters.perfetto.slices import ARGUMENTS, CHUNK, DURATION, NEXT
from tracelink.converters.perfetto.text import micros, quoted, table
from tracelink.converters.perfetto.wanted import Wanted
from tracelink.events import NO_TIME, Bools, Int64s
from tracelink.findings import Finding, Severity
from tracelink.job import Job
from tracelink.ranges import Numbers

PROCESS = "collectives"
MOST_MEMBERS = 48
"""Characters of the list of a group's members in the name of its track."""

BLOCK_ROWS = 1 << 14
"""Collectives of a piece: less is not worth a process."""

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


def group_tracks(
    job: Job, hangs: Hangs, base: int, numbering: Numbering, wanted: Wanted
) -> Block[list[Finding]]:
    """The text of all groups' tracks."""
    seats = group_seats(job, hangs, numbering)
    head = unclosed(_metadata(seats)) if seats.tids else b""
    sheet = _Sheet(
        job, hangs, base, seats, _openings(b'"X"', COLLECTIVE_CATEGORY, seats), grouped_parts(job), wanted
    )
    pieces: list[Piece] = [
        partial(_write, sheet, low, high) for low, high in spans(0, len(seats.seat), BLOCK_ROWS)
    ]
    large = len(pieces) > 1
    if seats.tids:
        pieces.append(partial(_write_counters, group_counters(job, seats, numbering), seats.process, base))
    return Block(head, pieces, large, seats.findings)


def _write_counters(counters: GroupCounters, process: int, base: int) -> Iterator[bytes]:
    openings = [sample_opening(name, process) for name in counters.names]
    yield from samples(table(openings, len(openings)), counters.counter, counters.time - base, counters.value)


def _openings(phase: bytes, category: str, seats: GroupSeats) -> list[bytes]:
    """For each thread the text of an event up to its name."""
    form = b'%s{"ph":%s,"cat":"%s","pid":%d,"tid":%d,"name":'
    return [form % (NEXT, phase, category.encode(), seats.process, tid) for tid in seats.tids]


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


def _metadata(seats: GroupSeats) -> Iterator[dict[str, Any]]:
    """The names of the tracks, before those of all ranks."""
    process = seats.process
    yield named("process_name", process, 0, {"name": PROCESS})
    yield named("process_labels", process, 0, {"labels": PROCESS})
    yield named("process_sort_index", process, 0, {"sort_index": 0})
    for tid, name in zip(seats.tids, seats.names, strict=True):
        yield named("thread_name", process, tid, {"name": name})
        yield named("thread_sort_index", process, tid, {"sort_index": tid})


@dataclass(frozen=True, slots=True)
class _Sheet:
    """All that the text of collectives is made of."""

    job: Job
    hangs: Hangs
    base: int
    seats: GroupSeats
    openings: Sequence[bytes]
    parts: Grouped
    wanted: Wanted


def _write(sheet: _Sheet, low: int, high: int) -> Iterator[bytes]:
    drawn, job = sheet.seats.drawn, sheet.job
    for at in range(low, high, CHUNK):
        some = slice(at, min(at + CHUNK, high))
        pieces = [b""] * (7 * len(drawn.row[some]))
        pieces[0::7] = [sheet.openings[seat] for seat in sheet.seats.seat[some].tolist()]
        names, which = names_of(job, drawn.row[some], sheet.hangs)
        texts = [quoted(name) for name in names]
        pieces[1::7] = [texts[number] for number in which.tolist()]
        pieces[2::7] = [TIME] * len(drawn.row[some])
        pieces[3::7] = micros(drawn.start[some] - sheet.base)
        pieces[4::7] = [DURATION] * len(drawn.row[some])
        pieces[5::7] = micros(drawn.end[some] - drawn.start[some])
        if sheet.wanted != Wanted.NONE:
            facts = facts_of(job, sheet.parts, drawn.row[some], drawn.open_ended[some])
            pieces[6::7] = [ARGUMENTS + text for text in facts]
        for place in np.flatnonzero(drawn.hung[some]).tolist():
            pieces[7 * place + 6] = HUNG_COLOUR + pieces[7 * place + 6]
        yield b"".join([*pieces, *_arrivals(sheet, sheet.seats.arrivals.within(some.start, some.stop))])


def _arrivals(sheet: _Sheet, arrivals: Arrivals) -> list[bytes]:
    """The text of instants."""
    if not len(arrivals):
        return []
    openings = _openings(b'"i","s":"t"', ARRIVAL_CATEGORY, sheet.seats)
    names, which = arrivals.names()
    texts = [quoted(name) for name in names]
    pieces = [TIME] * (5 * len(arrivals))
    pieces[0::5] = [openings[seat] for seat in sheet.seats.seat[arrivals.place].tolist()]
    pieces[1::5] = [texts[number] for number in which.tolist()]
    pieces[3::5] = micros(arrivals.time - sheet.base)
    pieces[4::5] = (
        [b""] * len(arrivals)
        if sheet.wanted == Wanted.NONE
        else [ARGUMENTS + text for text in arrivals.facts()]
    )
    return pieces


def _hung_findings(job: Job, hangs: Hangs) -> list[Finding]:
    rows = np.flatnonzero(hangs.collectives)
    if not len(rows):
        return []
    names, which = names_of(job, rows, hangs)
    message = "collectives hang: they are drawn to the end of the trace; `tracelink diagnose` says why"
    return [Finding(Severity.WARNING, "hung_collectives", message, len(rows), example=names[which[0]])]
