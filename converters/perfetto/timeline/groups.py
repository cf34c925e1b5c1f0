"""Tracks of process groups, which show what their ranks did together, and the counters that tracelink derives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Float64s, Int64s, Table
from tracelink._model.communications import Collectives
from tracelink._model.events import COUNT, GPU_WORK, Counters, Relation, Track, TrackKind
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import EventGraph
from tracelink._model.job import LinkedJob
from tracelink._model.selection import Numbers
from tracelink._model.trace import ProcessGroup
from tracelink.converters.perfetto.timeline.drawing import first_free_lanes
from tracelink.converters.perfetto.timeline.hangs import Hangs, LastArrivals, last_arrivals_of
from tracelink.converters.perfetto.timeline.layout import Numbering, stream_name
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


def collective_names(job: LinkedJob, rows: Int64s, hangs: Hangs) -> tuple[list[str], Int64s]:
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
    """True if the exit of the last rank is unknown."""
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


def group_tracks(job: LinkedJob, hangs: Hangs, numbering: Numbering) -> GroupTracks:
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


def drawn_collectives(job: LinkedJob, hangs: Hangs) -> DrawnCollectives:
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
        lane[low:high] = first_free_lanes(start[low:high].tolist(), end[low:high].tolist())
    return lane


def _titles(job: LinkedJob, groups: Sequence[int]) -> list[str]:
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


def _hung_findings(job: LinkedJob, hangs: Hangs) -> list[Finding]:
    rows = np.flatnonzero(hangs.collectives)
    if not len(rows):
        return []
    names, which = collective_names(job, rows, hangs)
    message = "collectives hang and are drawn to the end of the trace; `tracelink diagnose` explains why"
    return [Finding(Severity.WARNING, "hung_collectives", message, len(rows), example=names[which[0]])]


# Levels: the values of counters after changes, several of which may be simultaneous.


MIN_SAMPLES = 4096
"""A job always keeps this many samples."""


EVENTS_PER_SAMPLE = 32
"""Of more samples, one for this many events is kept: to a viewer two samples weigh as much as a slice."""


KEPT_PER_STRETCH = 3
"""Of a run of samples that is thinned, the lowest, the highest and the last are kept."""


class Levels(Table, frozen=True):
    """Samples by counter and time. A counter is 0 before its first sample; no sample repeats the value before it."""

    counter: Int64s
    time: Int64s
    value: Int64s


def levels_of(counter: Int64s, time: Int64s, change: Int64s) -> Levels:
    """The values of counters after these changes; simultaneous changes are added up."""
    order = np.lexsort((time, counter))
    counter, time = counter[order], time[order]
    last = np.flatnonzero((np.diff(counter, append=-1) != 0) | (np.diff(time, append=0) != 0))
    total = np.cumsum(change[order])[last]
    levels = Levels(counter[last], time[last], total)
    begins = _begins(levels)
    before = np.append(0, total)[begins]
    value = total - np.repeat(before, np.diff(begins, append=len(levels)))
    return _without_repeats(Levels(levels.counter, levels.time, value))


def thinned(levels: Levels, events: int) -> Levels:
    """At most as many samples as are worth it for so many events; counters with few samples keep all of them."""
    most = max(MIN_SAMPLES, events // EVENTS_PER_SAMPLE)
    if len(levels) <= most:
        return levels
    begins = _begins(levels)
    counts = np.diff(begins, append=len(levels))
    shares = _shares(counts, most)
    samples_per_stretch = np.where(
        counts <= shares, 1, -(-KEPT_PER_STRETCH * counts // np.maximum(shares, 1))
    )
    index = (np.arange(len(levels)) - np.repeat(begins, counts)) // np.repeat(samples_per_stretch, counts)
    last = (np.diff(levels.counter, append=-1) != 0) | (np.diff(index, append=-1) != 0)
    ends = np.flatnonzero(last)
    by_value = np.lexsort((levels.value, np.cumsum(last) - last))
    keep = last
    keep[by_value[ends]] = True
    keep[by_value[np.append(0, ends[:-1] + 1)]] = True
    return _without_repeats(levels.take(keep))


def _shares(counts: Int64s, most: int) -> Int64s:
    """The number of samples that each counter may keep: a counter with few leaves the rest to the others."""
    shares, left = np.zeros_like(counts), most
    for number, index in enumerate(np.argsort(counts).tolist()):
        shares[index] = min(int(counts[index]), left // (len(counts) - number))
        left -= int(shares[index])
    return shares


def _begins(levels: Levels) -> Int64s:
    """The index of the first sample of each counter."""
    return np.flatnonzero(np.diff(levels.counter, prepend=-1))


def _without_repeats(levels: Levels) -> Levels:
    before = np.append(0, levels.value)[: len(levels)]
    before[_begins(levels)] = 0
    return levels.take(levels.value != before)


# Counters of all ranks together: collectives in flight, and the bus bandwidth of each group.


GIGABYTES_A_SECOND = "GB/s"


IN_FLIGHT = "collectives in flight"


KILOBYTES_PER_GIGABYTE = 10**6
HIGHEST_RATE = 1 << 53
"""Higher rates, in KB/s, come from damaged sizes."""
"""Kilobytes in a gigabyte: rates are added up as integers, so that exactly 0 is left after the last one ends."""


class GroupCounters(Struct, frozen=True):
    """Counters in the process of all groups, and their samples."""

    numbers: Sequence[int]
    """Numbers of their tracks, after those of all lanes."""
    names: Sequence[str]
    units: Sequence[str]
    counter: Int64s
    """For each sample the index of its counter."""
    time: Int64s
    value: Float64s


def group_counters(job: LinkedJob, tracks: GroupTracks, numbering: Numbering) -> GroupCounters:
    """Collectives of all groups in flight, and the bus bandwidth of each group with a known one."""
    open_now = _in_flight(tracks)
    speed, groups = _bus_bandwidth(job, tracks)
    levels = thinned(
        Levels(
            np.concatenate([open_now.counter, speed.counter + 1]),
            np.concatenate([open_now.time, speed.time]),
            np.concatenate([open_now.value, speed.value]),
        ),
        job.events,
    )
    counters = [(IN_FLIGHT, COUNT)]
    counters += [(f"bus {GIGABYTES_A_SECOND}, {group}", GIGABYTES_A_SECOND) for group in groups]
    used, counter = np.unique(levels.counter, return_inverse=True)
    first = 2 + len(tracks.tids)
    return GroupCounters(
        [numbering.id_of(number) for number in range(first, first + len(used))],
        [counters[index][0] for index in used.tolist()],
        [counters[index][1] for index in used.tolist()],
        counter,
        levels.time,
        np.where(levels.counter == 0, levels.value, levels.value / KILOBYTES_PER_GIGABYTE),
    )


def _in_flight(tracks: GroupTracks) -> Levels:
    """+1 when the first rank enters, -1 when the last one leaves; a collective that never ends stays in flight."""
    drawn = tracks.drawn
    ends = drawn.end[~drawn.open_ended]
    return levels_of(
        np.zeros(len(drawn.start) + len(ends), np.int64),
        np.concatenate([drawn.start, ends]),
        np.repeat([1, -1], [len(drawn.start), len(ends)]),
    )


def _bus_bandwidth(job: LinkedJob, tracks: GroupTracks) -> tuple[Levels, list[str]]:
    """The rate from the last entry to the last exit, over which it was measured; 0 between collectives."""
    rows = tracks.drawn.row
    kilobytes = (job.collectives.bus_gb_s[rows] * KILOBYTES_PER_GIGABYTE).round()
    rate = np.where(kilobytes < HIGHEST_RATE, kilobytes, 0).astype(np.int64)
    rated = np.flatnonzero(rate)
    _, first, counter = np.unique(job.collectives.group[rows[rated]], return_index=True, return_inverse=True)
    end, duration = job.collectives.end[rows[rated]], job.collectives.duration[rows[rated]]
    levels = levels_of(
        np.tile(counter, 2),
        np.concatenate([end - duration, end]),
        np.concatenate([rate[rated], -rate[rated]]),
    )
    return levels, [tracks.titles[track] for track in tracks.track[rated[first]].tolist()]


# Outstanding kernels of each stream: launched and not yet ended.


OUTSTANDING = "outstanding kernels"


def with_outstanding(graph: EventGraph, numbering: Numbering) -> EventGraph:
    """The graph of one rank with a counter for each stream that has work: +1 at its launch, -1 at its end."""
    work = np.flatnonzero(graph.events.of_kind(*GPU_WORK) & graph.events.timed)
    counters, counter_of_track = _counters(graph, work, numbering)
    if not counters:
        return graph
    counter = counter_of_track[graph.events.track[work]]
    work, counter = work[counter >= 0], counter[counter >= 0]
    ended = graph.events.duration[work] != UNKNOWN
    levels = levels_of(
        np.concatenate([counter, counter[ended]]),
        np.concatenate([_launched(graph)[work], graph.events.end[work[ended]]]),
        np.repeat([1, -1], [len(work), int(np.count_nonzero(ended))]),
    )
    levels = thinned(levels, len(graph))
    first = len(graph.tracks)
    samples = Counters(
        (first + levels.counter).astype(np.int32), levels.time, levels.value.astype(np.float64)
    )
    return replace(
        graph,
        tracks=[*graph.tracks, *counters],
        counters=Counters.concatenate([graph.counters, samples]),
    )


def _launched(graph: EventGraph) -> Int64s:
    """The time at which each event was launched: the start of its innermost launch, or its own start without one."""
    events, launches = graph.events, graph.edges.where(Relation.LAUNCHES)
    launched = np.full(len(events), NO_TIME)
    np.maximum.at(launched, launches.target, events.start[launches.source])
    known = launched != NO_TIME
    return np.where(known, np.minimum(launched, events.start), events.start)


def _counters(graph: EventGraph, work: Int64s, numbering: Numbering) -> tuple[Sequence[Track], Int64s]:
    """A counter for each stream with work, and the counter of each track or -1; two tracks can be the same stream."""
    counters: dict[tuple[str, str], Track] = {}
    numbers = np.full(len(graph.tracks), -1, np.int64)
    for row in np.unique(graph.events.track[work]).tolist():
        track = graph.tracks[row]
        if track.kind != TrackKind.STREAM:
            continue
        stream = track.process, track.identity
        if stream not in counters:
            label = f"rank {numbering.rank(track.rank)} {OUTSTANDING}, {stream_name(track)}"
            counters[stream] = Track(TrackKind.COUNTER, *stream, label, track.rank, unit=COUNT)
        numbers[row] = list(counters).index(stream)
    return list(counters.values()), numbers
