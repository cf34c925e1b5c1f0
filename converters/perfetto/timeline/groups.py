"""Tracks of process groups; what is said of their parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tracelink.converters.perfetto.json.text import Texts, micros, numbers, quoted, table
from tracelink.converters.perfetto.timeline.blocks import Wanted
from tracelink.converters.perfetto.timeline.derived import (
    Arrivals,
    Hangs,
    arrivals_of,
)
from tracelink.converters.perfetto.timeline.drawing import Drawing
from tracelink.converters.perfetto.timeline.layout import (
    AWAITED_ARGUMENT,
    COLLECTIVE,
    DURATION_ARGUMENT,
    GROUP_ARGUMENT,
    HUNG_SUFFIX,
    LAST_ARGUMENT,
    LINK,
    NODE_ARGUMENT,
    WAIT_ARGUMENT,
    Numbering,
)
from tracelink.errors import Finding, Severity
from tracelink.model.collectives import Collectives
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int32s, Int64s
from tracelink.model.events import Key
from tracelink.model.graph import EventGraph
from tracelink.model.job import PARTICIPATION_ROWS, Job
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


def memberships(job: Job, rank: int) -> Mapping[int, bytes]:
    """For the rows of a rank that stand for its part in a collective: members of a JSON object."""
    mine = np.flatnonzero(job.participations.rank == rank)
    which = job.participations.collective[mine]
    last = np.where(job.collectives.skew[which] == UNKNOWN, UNKNOWN, job.collectives.last_rank[which])
    rest = [
        waited + _lastness(last_rank, rank)
        for waited, last_rank in zip(
            _waits_membership(job.participations.wait[mine]), last.tolist(), strict=True
        )
    ]
    labels = [group_label(group) for group in job.groups]
    groups = job.collectives.group[which].tolist()
    numbers = numbers_in_group(job.collectives, which).tolist()
    names = [f"{labels[group]} #{number}" for group, number in zip(groups, numbers, strict=True)]
    places: dict[int, list[int]] = {}
    for column in PARTICIPATION_ROWS:
        rows = getattr(job.participations, column)[mine]
        known = np.flatnonzero(rows != UNKNOWN)
        for place, row in zip(known.tolist(), rows[known].tolist(), strict=True):
            places.setdefault(row, []).append(place)
    key = b'"%s":' % GROUP_ARGUMENT.encode()
    return {
        row: key + quoted(", ".join([names[place] for place in of])) + rest[of[-1]]
        for row, of in places.items()
    }


def _waits_membership(wait: Int64s) -> list[bytes]:
    key = b',"%s":' % WAIT_ARGUMENT.encode()
    return [
        key + text if known else b""
        for text, known in zip(micros(wait), (wait != UNKNOWN).tolist(), strict=True)
    ]


def _lastness(last_rank: int, rank: int) -> bytes:
    if last_rank == UNKNOWN:
        return b""
    if last_rank == rank:
        return b',"%s":true' % LAST_ARGUMENT.encode()
    return b',"%s":%d' % (AWAITED_ARGUMENT.encode(), last_rank)


# What a group's track says of each collective: its name, and what is known of it as arguments.


MOST_WAITS = 64
"""Waits that a slice lists at most: the longest."""

UNITS = ("B", "kB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class Grouped:
    """Participations by collective, where those of each begin, and how their ranks are written."""

    order: Int64s
    begins: Int64s
    keys: Texts
    """For each rank, the beginning of its wait."""

    def of(self, collectives: Int64s) -> tuple[Int64s, Int64s]:
        """The participations of these collectives one after the other, and where those of each begin."""
        first, counts = self.begins[collectives], np.diff(self.begins)[collectives]
        cuts = np.concatenate([[0], np.cumsum(counts)])
        return self.order[np.arange(cuts[-1]) + np.repeat(first - cuts[:-1], counts)], cuts


def grouped_parts(job: Job) -> Grouped:
    """The participations of a job by collective."""
    parts = job.participations
    order = np.argsort(parts.collective, kind="stable")
    begins = np.searchsorted(parts.collective[order], np.arange(len(job.collectives) + 1))
    ranks = int(parts.rank.max(initial=-1)) + 1
    return Grouped(order, begins, table((b'"rank %d":' % rank for rank in range(ranks)), ranks))


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


def facts_of(job: Job, parts: Grouped, rows: Int64s, open_ended: Bools) -> list[bytes]:
    """What is known of collectives, as JSON objects."""
    whole = job.collectives
    mine, cuts = parts.of(rows)
    present, absent = _ranks(job, rows, mine, cuts)
    always = np.ones(len(rows), np.bool_)
    skew, duration = whole.skew[rows], whole.duration[rows]
    rates = [np.round(rate[rows], 3) for rate in (whole.algorithm_gb_s, whole.bus_gb_s)]
    verdicts = _texts(job, whole.verdict[rows])
    columns = [
        _members_group_facts("sequence", numbers(numbers_in_group(whole, rows)), always),
        _members_group_facts("ranks", present, always),
        _members_group_facts("missing ranks", absent, np.array([bool(text) for text in absent])),
        _members_group_facts("bytes", numbers(whole.bytes[rows]), whole.bytes[rows] != UNKNOWN),
        _members_group_facts(
            "last rank", numbers(whole.last_rank[rows].astype(np.int64)), whole.last_rank[rows] != UNKNOWN
        ),
        _members_group_facts("skew_us", micros(skew), skew != UNKNOWN),
        _members_group_facts("duration_us", micros(duration), duration != UNKNOWN),
        _members_group_facts("algorithm GB/s", numbers(rates[0]), np.isfinite(rates[0])),
        _members_group_facts("bus GB/s", numbers(rates[1]), np.isfinite(rates[1])),
        _members_group_facts("verdict", verdicts, whole.verdict[rows] != UNKNOWN),
        _members_group_facts(DURATION_ARGUMENT, [b"false"] * len(rows), open_ended),
        _waits(job, parts, mine, cuts),
    ]
    return [b"{%s}" % b"".join(texts)[1:] for texts in zip(*columns, strict=True)]


def _texts(job: Job, codes: Int32s) -> list[bytes]:
    """Texts as JSON; empty where unknown."""
    distinct, which = np.unique(codes, return_inverse=True)
    texts = [b"" if code == UNKNOWN else quoted(job.strings[code]) for code in distinct.tolist()]
    return [texts[number] for number in which.tolist()]


def _members_group_facts(name: str, values: list[bytes], known: Bools) -> list[bytes]:
    """A member with a comma before it, or nothing where it is not known."""
    key = b',"%s":' % name.encode()
    return [key + value if tells else b"" for value, tells in zip(values, known.tolist(), strict=True)]


def _ranks(job: Job, rows: Int64s, mine: Int64s, cuts: Int64s) -> tuple[list[bytes], list[bytes]]:
    """Who took part and who of the group did not: few sets of ranks take part in many collectives."""
    texts: dict[tuple[int, bytes], tuple[bytes, bytes]] = {}
    found = []
    ranks, groups = job.participations.rank[mine], job.collectives.group[rows].tolist()
    for group, (low, high) in zip(groups, pairwise(cuts.tolist()), strict=True):
        key = group, ranks[low:high].tobytes()
        if key not in texts:
            present = set(ranks[low:high].tolist())
            absent = set(job.groups[group].ranks) - present
            texts[key] = _listed(present), _listed(absent)
        found.append(texts[key])
    return [present for present, _ in found], [absent for _, absent in found]


def _listed(ranks: set[int]) -> bytes:
    return quoted(str(Numbers.of(ranks))) if ranks else b""


def _waits(job: Job, parts: Grouped, mine: Int64s, cuts: Int64s) -> list[bytes]:
    """The waits of those who took part, or nothing where none is known."""
    wait, ranks = job.participations.wait[mine], job.participations.rank[mine]
    listed = wait != UNKNOWN
    for number in np.flatnonzero(np.diff(cuts) > MOST_WAITS).tolist():
        low, high = cuts[number : number + 2].tolist()
        listed[low + np.argsort(-wait[low:high], kind="stable")[MOST_WAITS:]] = False
    kept = np.flatnonzero(listed)
    texts = [
        key + text for key, text in zip(parts.keys[ranks[kept]].tolist(), micros(wait[kept]), strict=True)
    ]
    ends = np.searchsorted(kept, cuts).tolist()
    key = b',"%s":{' % WAIT_ARGUMENT.encode()
    return [
        b"%s%s}" % (key, b",".join(texts[low:high])) if low < high else b"" for low, high in pairwise(ends)
    ]


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


SaidOf = Mapping[str, Mapping[int, bytes]]
"""For each argument that others stand in, the rows that have it: its members as those of a JSON object."""


def said_of(graph: EventGraph, drawing: Drawing, job: Job, wanted: Wanted) -> SaidOf:
    """What is said of the events of one rank that are drawn."""
    if wanted == Wanted.NONE:
        return {}
    shown = drawing.shown.tolist()
    parts = memberships(job, graph.ranks[0].rank)
    return {
        LINK: said_of_links(graph, drawing),
        COLLECTIVE: {row: members for row, members in parts.items() if shown[row]},
    }


def said_of_links(graph: EventGraph, drawing: Drawing) -> dict[int, bytes]:
    """Members of a JSON object for some rows: that the end is unknown, the node that is the same."""
    said = dict.fromkeys(drawing.open_ended.tolist(), b'"%s":false' % DURATION_ARGUMENT.encode())
    ids = graph.key(Key.NODE_ID).dense(len(graph), -1) if drawing.nodes else drawing.open_ended
    for row, node in drawing.nodes.items():
        add_member(said, row, b'"%s":%d' % (NODE_ARGUMENT.encode(), ids[node]))
    return said


def add_member(members: dict[int, bytes], row: int, member: bytes) -> None:
    """Puts a member behind those that the row has."""
    members[row] = members[row] + b"," + member if row in members else member
