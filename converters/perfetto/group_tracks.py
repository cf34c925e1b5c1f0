"""A track for each process group: what its ranks did together, from the first entering to the last leaving."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import orjson

from tracelink.communications import UNKNOWN
from tracelink.converters.perfetto.header import unclosed
from tracelink.converters.perfetto.layout import named
from tracelink.converters.perfetto.membership import group_label, numbers_in_group
from tracelink.converters.perfetto.numbering import Numbering
from tracelink.converters.perfetto.parts import Block, spans
from tracelink.converters.perfetto.schema import COLLECTIVE_CATEGORY, DURATION_ARGUMENT
from tracelink.converters.perfetto.slices import CHUNK, NEXT
from tracelink.converters.perfetto.text import micros, quoted
from tracelink.events import NO_TIME, Bools, Int64s
from tracelink.findings import Finding, Severity
from tracelink.job import Job
from tracelink.ranges import Numbers

PROCESS = "collectives"
MOST_WAITS = 64
"""Waits that a slice lists at most: the longest."""

MOST_MEMBERS = 48
"""Characters of the list of a group's members in the name of its track."""

BLOCK_ROWS = 1 << 14
"""Collectives of a piece: less is not worth a process."""

FEW_MEMBERS = 8
"""So many are listed one by one."""

UNITS = ("B", "kB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class Spans:
    """Collectives that are drawn, by group and start, and the lane of each within its group."""

    row: Int64s
    start: Int64s
    end: Int64s
    open_ended: Bools
    """Whether it is not known when the last rank left."""
    lane: Int64s


def group_tracks(job: Job, base: int, numbering: Numbering) -> Block[list[Finding]]:
    """The text of all groups' tracks."""
    drawn = spans_of(job)
    findings = []
    if missing := len(job.collectives) - len(drawn.row):
        message = "collectives of which no source tells a time have no slice on their group's track"
        findings.append(Finding(Severity.INFO, "collective_without_time", message, missing))
    group = job.collectives.group[drawn.row].astype(np.int64)
    lanes = int(drawn.lane.max(initial=0)) + 1
    seats, seat = np.unique(group * lanes + drawn.lane, return_inverse=True)
    process, tids = numbering.seat(1), [numbering.seat(2 + number) for number in range(len(seats))]
    names = _track_names(job, [divmod(code, lanes) for code in seats.tolist()])
    head = unclosed(_metadata(process, tids, names)) if tids else b""
    openings = [
        b'%s{"ph":"X","cat":"%s","pid":%d,"tid":%d,"name":'
        % (NEXT, COLLECTIVE_CATEGORY.encode(), process, tid)
        for tid in tids
    ]
    sheet = _Sheet(job, base, drawn, seat, openings, _parts_of_collectives(job))
    pieces = [partial(_write, sheet, low, high) for low, high in spans(0, len(drawn.row), BLOCK_ROWS)]
    return Block(head, pieces, len(pieces) > 1, findings)


def spans_of(job: Job) -> Spans:
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
    open_ended = entered & (whole.end == NO_TIME)
    end = np.where(whole.end == NO_TIME, latest, whole.end)
    row = np.flatnonzero(start != NO_TIME)
    row = row[np.lexsort((start[row], whole.group[row]))]
    start, end = start[row], np.maximum(end, start)[row]
    return Spans(row, start, end, open_ended[row], _lanes(whole.group[row].astype(np.int64), start, end))


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


def _track_names(job: Job, seats: Sequence[tuple[int, int]]) -> list[str]:
    """A name for each lane of each group; of groups with equal names and members, with the source's name too."""
    titles: dict[int, str] = {}
    for number in dict.fromkeys(group for group, _ in seats):
        group = job.groups[number]
        title = f"group {group_label(group)}" + (f" [{_members(group.ranks)}]" if group.ranks else "")
        titles[number] = f"{title} #{group.name}" if title in titles.values() else title
    return [titles[group] + (f" ({lane + 1})" if lane else "") for group, lane in seats]


def _members(ranks: Sequence[int]) -> str:
    text = ", ".join(map(str, ranks)) if len(ranks) <= FEW_MEMBERS else str(Numbers.of(ranks))
    if len(text) <= MOST_MEMBERS:
        return text
    return f"{text[:MOST_MEMBERS].rpartition(',')[0]}, … of {len(ranks)}"


def _metadata(process: int, tids: Sequence[int], names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The names of the tracks, before those of all ranks."""
    yield named("process_name", process, 0, {"name": PROCESS})
    yield named("process_labels", process, 0, {"labels": PROCESS})
    yield named("process_sort_index", process, 0, {"sort_index": 0})
    for tid, name in zip(tids, names, strict=True):
        yield named("thread_name", process, tid, {"name": name})
        yield named("thread_sort_index", process, tid, {"sort_index": tid})


@dataclass(frozen=True, slots=True)
class _Sheet:
    """All that the text of collectives is made of."""

    job: Job
    base: int
    drawn: Spans
    seat: Int64s
    openings: Sequence[bytes]
    parts: tuple[Int64s, Int64s]
    """Participations by collective, and where those of each begin."""


def _parts_of_collectives(job: Job) -> tuple[Int64s, Int64s]:
    order = np.argsort(job.participations.collective, kind="stable")
    begins = np.searchsorted(job.participations.collective[order], np.arange(len(job.collectives) + 1))
    return order, begins


def _write(sheet: _Sheet, low: int, high: int) -> Iterator[bytes]:
    drawn, job = sheet.drawn, sheet.job
    for at in range(low, high, CHUNK):
        some = slice(at, min(at + CHUNK, high))
        rows = drawn.row[some]
        texts = []
        for seat, row, number, open_ended, start, duration in zip(
            sheet.seat[some].tolist(),
            rows.tolist(),
            numbers_in_group(job.collectives, rows).tolist(),
            drawn.open_ended[some].tolist(),
            micros(drawn.start[some] - sheet.base),
            micros(drawn.end[some] - drawn.start[some]),
            strict=True,
        ):
            facts = {"sequence": number, **_facts(sheet, row)}
            if open_ended:
                facts[DURATION_ARGUMENT] = False
            texts.append(
                b'%s%s,"ts":%s,"dur":%s,"args":%s'
                % (sheet.openings[seat], quoted(_name(job, row)), start, duration, orjson.dumps(facts))
            )
        yield b"".join(texts)


def _name(job: Job, row: int) -> str:
    size = int(job.collectives.bytes[row])
    operation = _text(job, job.collectives.operation[row]) or "collective"
    return operation if size == UNKNOWN else f"{operation} {readable_bytes(size)}"


def _facts(sheet: _Sheet, row: int) -> dict[str, Any]:
    """What is known of one collective, by the names that a user reads."""
    job, (order, begins) = sheet.job, sheet.parts
    whole, mine = job.collectives, order[begins[row] : begins[row + 1]]
    ranks = job.participations.rank[mine]
    facts: dict[str, Any] = {"ranks": str(Numbers.of(ranks.tolist()))}
    known = {
        "bytes": int(whole.bytes[row]),
        "last rank": int(whole.last_rank[row]),
        "skew_us": _microseconds(whole.skew[row]),
        "duration_us": _microseconds(whole.duration[row]),
    }
    facts |= {name: value for name, value in known.items() if value != UNKNOWN}
    rates = {"algorithm GB/s": whole.algorithm_gb_s[row], "bus GB/s": whole.bus_gb_s[row]}
    facts |= {name: round(float(rate), 3) for name, rate in rates.items() if np.isfinite(rate)}
    if verdict := _text(job, whole.verdict[row]):
        facts["verdict"] = verdict
    wait = job.participations.wait[mine]
    longest = np.sort(np.argsort(-wait, kind="stable")[:MOST_WAITS])
    waits = {
        f"rank {rank}": _microseconds(waited)
        for rank, waited in zip(ranks[longest].tolist(), wait[longest].tolist(), strict=True)
        if waited != UNKNOWN
    }
    return facts | ({"wait_us": waits} if waits else {})


def _microseconds(nanoseconds: int) -> float | int:
    return UNKNOWN if nanoseconds == UNKNOWN else int(nanoseconds) / 1000


def _text(job: Job, code: int) -> str:
    return "" if code == UNKNOWN else job.strings[int(code)]


def readable_bytes(size: int) -> str:
    """A size in two or three digits: 4.2 MB."""
    value, unit = float(size), 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.1f} {UNITS[unit]}" if unit and value < 99.95 else f"{value:.0f} {UNITS[unit]}"
