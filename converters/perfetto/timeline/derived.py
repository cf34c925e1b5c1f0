"""What no source has: counters, what hangs, who came last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tracelink.converters.perfetto.json.text import micros, numbers
from tracelink.converters.perfetto.timeline.layout import (
    HUNG_PREFIX,
    Numbering,
    stream_name,
)
from tracelink.diagnosis.hangs import LONG_FOR_A_FIRST_NS
from tracelink.diagnosis.timeline import NEVER, OPEN, PROGRESS, hung_of, missing_from
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Columns, Float64s, Int64s
from tracelink.model.events import COUNT, GPU_WORK, Counters, EventKind, Key, Relation, Track, TrackKind
from tracelink.model.graph import EventGraph
from tracelink.model.job import Job
from tracelink.ranges import Numbers

if TYPE_CHECKING:
    from tracelink.converters.perfetto.timeline.groups import GroupSeats


# Shared definitions


def drawn_samples(graph: EventGraph) -> Bools:
    """The samples that JSON has a number for."""
    return np.isfinite(graph.counters.value)


# Levels: what counters show from when on, out of changes that may happen at once.


FEW = 4096
"""So many samples are never too many."""

SHARE = 32
"""Of more there are at most as many as this part of the events: to a viewer two are a slice."""

KEPT = 3
"""Of successive samples that are too many, the lowest, the highest and the last are kept."""


@dataclass(frozen=True, slots=True)
class Levels(Columns):
    """Samples by counter and time; a counter shows 0 before its first, and none repeats what its counter shows."""

    counter: Int64s
    time: Int64s
    value: Int64s

    def __len__(self) -> int:
        return len(self.counter)

    def where(self, keep: Bools | Int64s) -> Levels:
        """Some of the samples."""
        return Levels(self.counter[keep], self.time[keep], self.value[keep])


def levels_of(counter: Int64s, time: Int64s, change: Int64s) -> Levels:
    """What counters show after these changes; of those at one time only the sum is seen."""
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
    """No more samples than are worth it beside so many events; counters with few samples keep all."""
    most = max(FEW, events // SHARE)
    if len(levels) <= most:
        return levels
    begins = _begins(levels)
    counts = np.diff(begins, append=len(levels))
    shares = _shares(counts, most)
    stretch = np.where(counts <= shares, 1, -(-KEPT * counts // np.maximum(shares, 1)))
    place = (np.arange(len(levels)) - np.repeat(begins, counts)) // np.repeat(stretch, counts)
    last = (np.diff(levels.counter, append=-1) != 0) | (np.diff(place, append=-1) != 0)
    ends = np.flatnonzero(last)
    by_value = np.lexsort((levels.value, np.cumsum(last) - last))
    keep = last
    keep[by_value[ends]] = True
    keep[by_value[np.append(0, ends[:-1] + 1)]] = True
    return _without_repeats(levels.where(keep))


def _shares(counts: Int64s, most: int) -> Int64s:
    """How many samples each counter may have: who needs less than others leaves them the rest."""
    shares, left = np.zeros_like(counts), most
    for number, place in enumerate(np.argsort(counts).tolist()):
        shares[place] = min(int(counts[place]), left // (len(counts) - number))
        left -= int(shares[place])
    return shares


def _begins(levels: Levels) -> Int64s:
    """Where the samples of each counter begin."""
    return np.flatnonzero(np.diff(levels.counter, prepend=-1))


def _without_repeats(levels: Levels) -> Levels:
    before = np.append(0, levels.value)[: len(levels)]
    before[_begins(levels)] = 0
    return levels.where(levels.value != before)


# Counters of what ranks do together: how many collectives are open, and how fast each group's are.


GIGABYTES_A_SECOND = "GB/s"

IN_FLIGHT = "collectives in flight"

KILOBYTES = 10**6
"""Of a gigabyte: rates are added up as whole numbers, so that nothing is left when all have ended."""


@dataclass(frozen=True, slots=True)
class GroupCounters:
    """Counters of the process of all groups, and their samples."""

    numbers: Sequence[int]
    """Those of their tracks, behind those of all lanes."""
    names: Sequence[str]
    units: Sequence[str]
    counter: Int64s
    """For each sample the place of its counter."""
    time: Int64s
    value: Float64s


def group_counters(job: Job, seats: GroupSeats, numbering: Numbering) -> GroupCounters:
    """Collectives of all groups in flight, and the bus bandwidth of each group of which one is known."""
    open_now = _in_flight(seats)
    speed, groups = _bus_bandwidth(job, seats)
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
    first = 2 + len(seats.tids)
    return GroupCounters(
        [numbering.seat(number) for number in range(first, first + len(used))],
        [counters[place][0] for place in used.tolist()],
        [counters[place][1] for place in used.tolist()],
        counter,
        levels.time,
        np.where(levels.counter == 0, levels.value, levels.value / KILOBYTES),
    )


def _in_flight(seats: GroupSeats) -> Levels:
    """+1 when the first rank enters, -1 when the last has left; one that never ends stays in flight."""
    drawn = seats.drawn
    ends = drawn.end[~drawn.open_ended]
    return levels_of(
        np.zeros(len(drawn.start) + len(ends), np.int64),
        np.concatenate([drawn.start, ends]),
        np.repeat([1, -1], [len(drawn.start), len(ends)]),
    )


def _bus_bandwidth(job: Job, seats: GroupSeats) -> tuple[Levels, list[str]]:
    """The rate from the last entering to the last leaving, over which it was measured, and 0 between collectives."""
    rows = seats.drawn.row
    rate = np.nan_to_num(job.collectives.bus_gb_s[rows] * KILOBYTES, posinf=0).round().astype(np.int64)
    rated = np.flatnonzero(rate)
    _, first, counter = np.unique(job.collectives.group[rows[rated]], return_index=True, return_inverse=True)
    end, duration = job.collectives.end[rows[rated]], job.collectives.duration[rows[rated]]
    levels = levels_of(
        np.tile(counter, 2),
        np.concatenate([end - duration, end]),
        np.concatenate([rate[rated], -rate[rated]]),
    )
    return levels, [seats.titles[seat] for seat in seats.seat[rated[first]].tolist()]


# Outstanding kernels: how much work of each stream has been launched and has not ended.


WHAT = "outstanding kernels"


def with_outstanding(graph: EventGraph, numbering: Numbering) -> EventGraph:
    """The graph of one rank with a counter for each stream that has work: +1 where it is launched, -1 at its end."""
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
    """When each event was launched: its innermost launch began last; without one, when it began itself."""
    events, launches = graph.events, graph.edges.where(Relation.LAUNCHES)
    launched = np.full(len(events), NO_TIME)
    np.maximum.at(launched, launches.target, events.start[launches.source])
    known = launched != NO_TIME
    return np.where(known, np.minimum(launched, events.start), events.start)


def _counters(graph: EventGraph, work: Int64s, numbering: Numbering) -> tuple[Sequence[Track], Int64s]:
    """A counter for each stream with work, and which of them each track has, or -1; two tracks can be one stream."""
    counters: dict[tuple[str, str], Track] = {}
    numbers = np.full(len(graph.tracks), -1, np.int64)
    for row in np.unique(graph.events.track[work]).tolist():
        track = graph.tracks[row]
        if track.kind != TrackKind.STREAM:
            continue
        stream = track.process, track.identity
        if stream not in counters:
            label = f"rank {numbering.rank(track.rank)} {WHAT}, {stream_name(track)}"
            counters[stream] = Track(TrackKind.COUNTER, *stream, label, track.rank, unit=COUNT)
        numbers[row] = list(counters).index(stream)
    return list(counters.values()), numbers


# What hangs of a job, and how that is drawn: to the end of the trace, under a name that says so, in one colour.


LEAST_SHARE = 10
"""Who joins last is drawn for at least one such part of the trace: what ends with it would not be seen."""

MOST_MISSING = 24
"""Characters of a list of missing ranks in a name."""


@dataclass(frozen=True, slots=True)
class Caught:
    """What one rank is caught in."""

    records: Int64s
    """The recorder's entries of collectives that hang."""
    since: int
    """When it entered the first of them, or NEVER: what it has asked for since then hangs as well."""
    end: int
    """To when that is drawn."""


NOT_CAUGHT = Caught(np.empty(0, np.int64), NEVER, 0)


@dataclass(frozen=True, slots=True)
class Hangs:
    """What hangs of a job."""

    collectives: Bools
    missing: Mapping[int, Numbers]
    """For each collective that hangs, who of its group has not joined."""
    caught: Mapping[int, Caught]
    """By rank, for those that wait in such a collective."""
    end: int
    """The end of the trace: to there all that hangs is drawn, on all ranks."""

    @classmethod
    def of(cls, job: Job) -> Hangs:
        """What hangs of this job."""
        hung, parts = hung_of(job), job.participations
        newest = int(parts.enqueued[hung.parts].max(initial=NO_TIME))
        first, last = job.first_ns or 0, job.last_ns or 0
        end = max(last, newest + (last - first) // LEAST_SHARE)
        rows = np.flatnonzero(hung.parts)
        caught = {
            rank: Caught(parts.record[rows[parts.rank[rows] == rank]], int(hung.since[rank]), end)
            for rank in np.unique(parts.rank[rows]).tolist()
        }
        missing = {
            row: Numbers.of(missing_from(job, row)) for row in np.flatnonzero(hung.collectives).tolist()
        }
        return cls(hung.collectives, missing, caught, end)

    def of_rank(self, rank: int) -> Caught:
        """What a rank is caught in."""
        return self.caught.get(rank, replace(NOT_CAUGHT, end=self.end))

    def named(self, name: str, collective: int) -> str:
        """The name of a collective that hangs: it says who is missing."""
        missing = self.missing[collective]
        who = missing.called("rank")
        if len(who) > MOST_MISSING:
            who = f"{sum(1 for _ in missing)} ranks"
        return f"{HUNG_PREFIX}{name}{f': {who} missing' if missing else ''}"


def hung_rows(graph: EventGraph, caught: Caught) -> Int64s:
    """The entries of a rank that hang: those it is caught in, and all later ones that are not finished either."""
    events = graph.events
    unfinished = events.of_kind(EventKind.RECORD) & events.timed & (events.duration == UNKNOWN)
    if not unfinished.any():
        return np.empty(0, np.int64)
    pending = unfinished & _told_to_be_open(graph)
    since = np.where(pending & (caught.end - events.start >= LONG_FOR_A_FIRST_NS), events.start, NEVER).min()
    hung = pending & (events.start >= min(int(since), caught.since))
    hung[caught.records] |= unfinished[caught.records]
    return np.flatnonzero(hung)


def with_hung_names(graph: EventGraph, rows: Int64s) -> EventGraph:
    """The graph in which the names of these rows say that they hang."""
    if not len(rows):
        return graph
    codes, which = np.unique(graph.events.name[rows], return_inverse=True)
    names = graph.events.name.copy()
    names[rows] = (len(graph.strings) + which).astype(names.dtype)
    strings = [*graph.strings, *(HUNG_PREFIX + graph.strings[code] for code in codes.tolist())]
    return replace(graph, strings=strings, events=replace(graph.events, name=names))


def _told_to_be_open(graph: EventGraph) -> Bools:
    """Entries of groups whose recorder tells what is finished, and that are not; nor is what closes their batch."""
    events = graph.events
    states = graph.key(Key.STATE).dense(len(events), -1)
    open_states, progress = (
        np.array([*(text in texts for text in graph.strings), False]) for texts in (OPEN, PROGRESS)
    )
    telling = np.zeros(len(graph.tracks), np.bool_)
    telling[events.track[progress[states]]] = True
    told: Bools = open_states[states] & telling[events.track] & ~_closed(graph)
    return told


def _closed(graph: EventGraph) -> Bools:
    """Whether an entry of the same numbers is finished: of a batch only the one that closes it tells that."""
    events = graph.events
    messages, collectives = (
        graph.key(key).dense(len(events), 0) for key in (Key.P2P_SEQUENCE, Key.COLLECTIVE_SEQUENCE)
    )
    rows = np.flatnonzero(events.of_kind(EventKind.RECORD))
    finished = events.duration[rows] != UNKNOWN
    _, batch = np.unique(
        np.stack([events.track[rows], messages[rows], collectives[rows]]), axis=1, return_inverse=True
    )
    closed = np.zeros(len(events), np.bool_)
    closed[rows] = np.isin(batch.ravel(), batch.ravel()[finished])
    return closed


# Who entered each collective last, and when: instants within slices, where ranks did not all enter at once.


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The last arrivals, in the order of their collectives."""

    place: Int64s
    """Of the collective among those that are drawn."""
    time: Int64s
    rank: Int64s
    skew: Int64s

    def __len__(self) -> int:
        return len(self.place)

    def within(self, low: int, high: int) -> Arrivals:
        """Those of some of the collectives that are drawn."""
        some = slice(*np.searchsorted(self.place, [low, high]).tolist())
        return Arrivals(self.place[some], self.time[some], self.rank[some], self.skew[some])

    def names(self) -> tuple[list[str], Int64s]:
        """The distinct names, and which one each has."""
        ranks, which = np.unique(self.rank, return_inverse=True)
        return [f"rank {rank} last" for rank in ranks.tolist()], which

    def facts(self) -> list[bytes]:
        """The arguments of each, as JSON objects."""
        known = zip(numbers(self.rank), micros(self.skew), strict=True)
        return [b'{"rank":%s,"skew_us":%s}' % pair for pair in known]


def arrivals_of(job: Job, row: Int64s, start: Int64s, end: Int64s, awaited: Bools) -> Arrivals:
    """Of these collectives, drawn from `start` to `end`; in those that are `awaited` nobody is the last yet."""
    skew, rank = job.collectives.skew[row], job.collectives.last_rank[row].astype(np.int64)
    place = np.flatnonzero((skew > 0) & (rank != UNKNOWN) & ~awaited & (end > start))
    time = np.minimum(start[place] + skew[place], end[place] - 1)
    return Arrivals(place, time, rank[place], skew[place])
