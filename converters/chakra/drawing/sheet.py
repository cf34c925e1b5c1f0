"""One rank's nodes ready to be drawn; boxes, labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

import numpy as np

from tracelink.converters.chakra.census import Precedence, earliest, kinds_of
from tracelink.converters.chakra.decode import Decoded, Fault, buffered, decode
from tracelink.converters.chakra.schema import MetadataName, Name
from tracelink.converters.chakra.table import (
    COMMUNICATION,
    ON_DEVICE,
    ROLES,
    NodeTable,
    Role,
    Roles,
    durations_ns,
    has_role,
    inclusive_ns,
    roles_of,
    starts_ns,
    unsigned,
)
from tracelink.engine import Engine
from tracelink.errors import Finding, Severity, UnreadableError, UsageError
from tracelink.io.sources import Source
from tracelink.model.columns import MICROSECOND, MILLISECOND, SECOND, UNKNOWN, Bools, Int64s
from tracelink.model.ranges import Numbers

# What a drawing shows: boxes and arrows, whatever is made of them.


@dataclass(frozen=True, slots=True)
class Subject:
    """The nodes of one rank, as they are to be drawn."""

    path: str
    nodes: NodeTable
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Box:
    """A node, with those that lie deeper in it than is drawn."""

    key: str
    """Its id, with what tells it from others of the same id; no other box has the same."""
    rank: int | None
    id: int
    name: str
    role: Role
    kind: str
    """What it communicates: `all_reduce`, `send`; empty for all others."""
    lane: str
    begin: float
    """From here to `end` it is drawn: nanoseconds, where the scene has times."""
    end: float
    start_ns: int | None
    duration_ns: int
    """Of all its nodes together."""
    parts: int = 1
    """How many nodes it stands for."""
    bytes: int | None = None
    group: str = ""
    group_name: str = ""
    peer: int | None = None
    """The rank that it sends to or receives from."""
    tag: int | None = None
    inside: int | None = None
    """The place of the box around it."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """From the box at one place to that at another one, which waits for it."""

    cause: int
    effect: int
    data: bool
    control: bool


@dataclass(frozen=True, slots=True)
class Scene:
    """Boxes in order of time, and arrows between their places in that order."""

    boxes: Sequence[Box]
    arrows: Sequence[Arrow]
    timed: bool
    """Whether boxes lie where the traces say that they were; else where dependencies put them."""
    nodes: int
    """How many the traces have."""
    origin_ns: float = 0
    """When the first of all nodes begins, drawn or not."""
    first: float = 0
    """From here to `last` the picture reaches; boxes can begin before and end behind."""
    last: float = 0
    findings: Sequence[Finding] = ()


# Texts of a drawing. Names come out of a trace, so they are bounded, and show whatever cannot be seen.


LONGEST_NAME = 400
"""Letters of a name, where all of it is to be read."""

QUALIFIERS = re.compile(
    r"^(?:(?:static |inline )*(?:void|int|float|bool|auto) )?(?:(?:\w+|\(anonymous namespace\))::)+(?=\w)"
)
"""What stands before the own name of a kernel."""

UNITS = ((SECOND, "s"), (MILLISECOND, "ms"), (MICROSECOND, "µs"))
KILO = 1000


def visible(text: str, most: int = LONGEST_NAME) -> str:
    """The text in at most so many letters, with everything spelled out that no printer would show."""
    if len(text) > most:
        text = text[: most - 1] + "…"
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def short_name(box: Box) -> str:
    """The name without what kernels of C++ carry before it."""
    name = box.name[:LONGEST_NAME]
    bare = QUALIFIERS.sub("", name.removeprefix("void ")) if "(" in name or "<" in name else name
    return visible(bare or name or box.role.value)


def duration(ns: float) -> str:
    """12.3 µs."""
    for unit, name in UNITS:
        if abs(ns) >= unit:
            return f"{ns / unit:,.4g} {name}" if ns < KILO * unit else f"{ns / unit:,.0f} {name}"
    return f"{ns:.0f} ns"


def size(count: int) -> str:
    """12.3 MB."""
    value, units = float(count), iter(("kB", "MB", "GB", "TB", "PB"))
    unit = "B"
    while value >= KILO and (following := next(units, "")):
        value, unit = value / KILO, following
    return f"{value:.4g} {unit}"


def group_of(box: Box) -> str:
    """`group 3 (tp)`, or that it is all ranks."""
    if not box.group:
        return "all ranks"
    return f"group {visible(box.group, 60)}" + (f" ({visible(box.group_name, 60)})" if box.group_name else "")


def facts(box: Box, origin_ns: float) -> list[str]:
    """Everything that is to be said of a box, a line each."""
    lines = [visible(box.name) or "(no name)"]
    rank = "" if box.rank is None else f", rank {box.rank}"
    lines.append(f"{box.kind or box.role.value}, id {box.id}{rank}, {box.lane}")
    when = [f"takes {duration(box.duration_ns)}"]
    if box.start_ns is not None:
        when.insert(0, f"starts at {duration(box.start_ns - origin_ns)}")
    lines.append(", ".join(when))
    if box.kind:
        lines.append(", ".join([*([] if box.bytes is None else [size(box.bytes)]), group_of(box)]))
    if box.peer is not None:
        tag = "" if box.tag is None else f", tag {box.tag}"
        lines.append(f"{'to' if box.role == 'send' else 'from'} rank {box.peer}{tag}")
    if box.parts > 1:
        lines.append(f"stands for {box.parts:,} nodes: itself and those inside it")
    return lines


# Which node encloses which, and how deep each lies.


@dataclass(frozen=True, slots=True)
class Nesting:
    """For each row what encloses it, or -1, and how many nodes lie around it and itself.

    Work of a device is not inside the operator that launched it: it runs beside it.
    """

    parent: Sequence[int]
    level: Sequence[int]

    @classmethod
    def of(cls, nodes: NodeTable, on_device: Bools) -> Nesting:
        """The first control dependency that is on the same side encloses a node."""
        around, inside = nodes.rows_of(nodes.control), nodes.control.owners
        fits = (around >= 0) & (around != inside)
        fits[fits] = on_device[around[fits]] == on_device[inside[fits]]
        parent = np.full(len(nodes), UNKNOWN, np.int64)
        parent[inside[fits][::-1]] = around[fits][::-1]
        return cls.of_parents(parent.tolist())

    @classmethod
    def of_parents(cls, parent: list[int]) -> Nesting:
        """A circle of parents is cut open at one place."""
        level = [0] * len(parent)
        on_path = -1
        for row in range(len(parent)):
            path = []
            while not level[row]:
                level[row] = on_path
                path.append(row)
                if parent[row] == UNKNOWN:
                    break
                if level[parent[row]] == on_path:
                    parent[row] = UNKNOWN
                    break
                row = parent[row]
            for row in reversed(path):
                level[row] = 1 if parent[row] == UNKNOWN else level[parent[row]] + 1
        return cls(parent, level)

    def outermost_first(self) -> list[int]:
        """All rows, each behind what encloses it."""
        order: list[int] = np.argsort(np.array(self.level, np.int64), kind="stable").tolist()
        return order

    def drawn_as(self, wanted: Bools, depth: int | None) -> Int64s:
        """For each wanted row the one that it is drawn as, which is itself or lies around it at `depth`; else -1."""
        drawn = [UNKNOWN] * len(self.parent)
        for row in self.outermost_first():
            around = self.parent[row]
            if around != UNKNOWN and drawn[around] != UNKNOWN:
                drawn[row] = drawn[around]
            if wanted[row] and (drawn[row] == UNKNOWN or depth is None or self.level[row] <= depth):
                drawn[row] = row
        return np.where(wanted, np.array(drawn, np.int64), UNKNOWN)


# Where in time each node lies: by what the trace says, or, where it says nothing, by what waits for what.


UNIT_PER_DOUBLING = 0.25
"""Without times a node that takes twice as long is longer by so much of the length of one that takes none."""


@dataclass(frozen=True, slots=True)
class NodeSpans:
    """From where to where each node is drawn: nanoseconds if `timed`, else lengths that only follow the durations."""

    begin: list[float]
    end: list[float]
    timed: bool

    @classmethod
    def of(cls, nodes: NodeTable, precedence: Precedence, nesting: Nesting, on_device: Bools) -> NodeSpans:
        """What encloses others reaches as far as they do, where it does not say how far it reaches."""
        starts, inclusive = starts_ns(nodes), inclusive_ns(nodes)
        said = _said_spans(starts, inclusive)
        if not any(said):
            return _by_order(nodes, precedence, nesting, on_device)
        begin: list[float] = list(starts)
        end: list[float] = [start + duration for start, duration in zip(starts, inclusive, strict=True)]
        own = durations_ns(nodes)
        open_ended = [
            not device and own[row] == inclusive[row] for row, device in enumerate(on_device.tolist())
        ]
        _stretch(begin, end, said, open_ended, nesting)
        _fill(begin, end, said, nesting)
        return cls(begin, end, timed=True)


def _said_spans(starts: Sequence[int], durations: Sequence[int]) -> list[bool]:
    """Which nodes say when they begin: a 0 says it where the others begin not long after, and else says nothing."""
    first = min(filter(None, starts), default=0)
    last = max(map(sum, zip(starts, durations, strict=True)), default=0)
    zero_is_time = 0 < first <= last - first
    return [bool(start) or zero_is_time for start in starts]


def _by_order(nodes: NodeTable, precedence: Precedence, nesting: Nesting, on_device: Bools) -> NodeSpans:
    """Every node as early as what it waits for lets it be, and a little longer the longer it takes."""
    lengths = [1 + UNIT_PER_DOUBLING * log2(1 + duration / MICROSECOND) for duration in durations_ns(nodes)]
    begin = list(earliest(precedence, lengths, through_cycles=True).begins)
    end = [start + length for start, length in zip(begin, lengths, strict=True)]
    _stretch(begin, end, [True] * len(begin), (~on_device).tolist(), nesting)
    return NodeSpans(begin, end, timed=False)


def _stretch(
    begin: list[float], end: list[float], said: list[bool], open_ended: Sequence[bool], nesting: Nesting
) -> None:
    """What encloses others gets their begin, if it has none, and their end, if it is open-ended."""
    without = [not known for known in said]
    for row in reversed(nesting.outermost_first()):
        around = nesting.parent[row]
        if around == UNKNOWN or not said[row]:
            continue
        if without[around]:
            begin[around] = min(begin[around], begin[row]) if said[around] else begin[row]
            said[around] = True
        if without[around] or open_ended[around]:
            end[around] = max(end[around], end[row])


def _fill(begin: list[float], end: list[float], said: Sequence[bool], nesting: Nesting) -> None:
    """What is still without a time begins with what encloses it, or with the first of all."""
    first = min(time for time, known in zip(begin, said, strict=True) if known)
    for row in nesting.outermost_first():
        if not said[row]:
            around = nesting.parent[row]
            begin[row] = first if around == UNKNOWN else begin[around]
            end[row] += begin[row]


# One rank's nodes with all that is needed to draw any part of them.


UNSAID = -(1 << 62)


@dataclass(frozen=True, slots=True)
class Sheet:
    """The nodes of one rank, where they lie, and what lies in what."""

    subject: Subject
    precedence: Precedence
    nesting: Nesting
    spans: NodeSpans
    roles: Roles
    on_device: Bools

    @classmethod
    def of(cls, subject: Subject) -> Sheet:
        """Looks at all nodes once."""
        nodes = subject.nodes
        roles = roles_of(nodes)
        on_device = has_role(roles, *ON_DEVICE) & ~nodes.on_host()
        precedence = Precedence.of(nodes)
        nesting = Nesting.of(nodes, on_device)
        spans = NodeSpans.of(nodes, precedence, nesting, on_device)
        return cls(subject, precedence, nesting, spans, roles, on_device)

    def within(self, first: float | None, last: float | None) -> Bools:
        """Which nodes lie, with any part of them, between these times."""
        if first is None and last is None:
            return np.ones(len(self.subject.nodes), np.bool_)
        begin, end = self.spans.begin, self.spans.end
        inside = [
            (last is None or start < last) and (first is None or stop > first or start == stop == first)
            for start, stop in zip(begin, end, strict=True)
        ]
        return np.array(inside, np.bool_)

    def boxes(self, drawn_as: Sequence[int]) -> dict[int, Box]:
        """A box for each node that is drawn as itself, by row; the others add to them."""
        table = _Table(self)
        parts, durations, begin, end = (
            [0] * len(drawn_as),
            [0] * len(drawn_as),
            dict[int, float](),
            dict[int, float](),
        )
        for row, shown in enumerate(drawn_as):
            if shown >= 0:
                parts[shown] += 1
                durations[shown] += table.durations[row]
                begin[shown] = min(begin.get(shown, self.spans.begin[row]), self.spans.begin[row])
                end[shown] = max(end.get(shown, self.spans.end[row]), self.spans.end[row])
        return {
            row: table.box(row, parts[row], durations[row], begin[row], end[row])
            for row, shown in enumerate(drawn_as)
            if row == shown
        }


class _Table:
    """The columns that boxes are made of."""

    def __init__(self, sheet: Sheet) -> None:
        nodes, count = sheet.subject.nodes, len(sheet.subject.nodes)
        self.sheet = sheet
        self.durations = durations_ns(nodes)
        self.kinds = kinds_of(nodes)
        self.ids = [unsigned(number) for number in nodes.id.tolist()]
        self.lanes = _lanes(nodes, sheet)
        self.bytes = _numbers(nodes, Name.COMM_SIZE)
        self.tags = _numbers(nodes, Name.COMM_TAG)
        self.sources = _numbers(nodes, Name.COMM_SOURCE)
        self.targets = _numbers(nodes, Name.COMM_TARGET)
        self.groups = nodes.attribute(Name.GROUP).strings(count)
        self.group_names = nodes.attribute(Name.GROUP_NAME).strings(count)

    def box(self, row: int, parts: int, duration: int, begin: float, end: float) -> Box:
        subject, spans = self.sheet.subject, self.sheet.spans
        role = ROLES[self.sheet.roles[row]]
        peers = self.targets if role is Role.SEND else self.sources
        message = role in (Role.SEND, Role.RECV)
        communicates = row in self.kinds
        return Box(
            key=str(self.ids[row]) if subject.rank is None else f"{subject.rank}:{self.ids[row]}",
            rank=subject.rank,
            id=self.ids[row],
            name=subject.nodes.text(row),
            role=role,
            kind=self.kinds.get(row, ""),
            lane=self.lanes[row],
            begin=begin,
            end=end,
            start_ns=int(spans.begin[row]) if spans.timed else None,
            duration_ns=duration,
            parts=parts,
            bytes=_said(self.bytes[row]) if communicates else None,
            group=self.groups[row] if communicates else "",
            group_name=self.group_names[row] if communicates else "",
            peer=_said(peers[row]) if message else None,
            tag=_said(self.tags[row]) if message else None,
        )


def _numbers(nodes: NodeTable, name: Name) -> list[int]:
    numbers: list[int] = nodes.attribute(name).integers(len(nodes), UNSAID).tolist()
    return numbers


def _said(number: int) -> int | None:
    return None if number == UNSAID else number


def _lanes(nodes: NodeTable, sheet: Sheet) -> list[str]:
    """Where each node runs: `thread 4`, `stream 7`."""
    threads, streams = _numbers(nodes, Name.THREAD), _numbers(nodes, Name.STREAM)
    devices = _numbers(nodes, Name.DEVICE)
    several = (
        len({device for device, here in zip(devices, sheet.on_device.tolist(), strict=True) if here}) > 1
    )
    communicating = has_role(sheet.roles, *COMMUNICATION).tolist()
    lanes = []
    for row, on_device in enumerate(sheet.on_device.tolist()):
        if not on_device:
            lanes.append("host" if threads[row] == UNSAID else f"thread {threads[row]}")
            continue
        lane = "communication" if communicating[row] else "device"
        if streams[row] != UNSAID:
            lane = f"stream {streams[row]}"
        on = f"device {devices[row]} " if several and devices[row] != UNSAID else ""
        lanes.append(on + lane)
    return lanes


# The ranks that are drawn, out of files.


def subjects_of(
    sources: Sequence[Source], ranks: Numbers | None, engine: Engine, findings: list[Finding]
) -> list[Subject]:
    """The nodes of every file, in order of rank; where `ranks` are asked for, of those."""
    subjects = []
    for source in sources:
        with buffered(source, engine.meter.add) as (stream, opened):
            decoded = decode(stream)
            damage = opened.damage
        rank = _rank(source, decoded)
        if ranks is not None and rank is not None and rank not in ranks:
            continue
        subjects.append(Subject(source.path, decoded.nodes, rank))
        findings += _faults(source.path, decoded.faults, damage)
    _check(subjects, sources, ranks)
    return sorted(subjects, key=lambda subject: -1 if subject.rank is None else subject.rank)


def _rank(source: Source, decoded: Decoded) -> int | None:
    """What the user says, else the metadata, else the name."""
    said = decoded.metadata_value(MetadataName.RANK)
    if source.rank is not None:
        return source.rank
    if isinstance(said, int) and said >= 0:
        return said
    return source.rank_hint.rank if source.rank_hint else None


def _check(subjects: Sequence[Subject], sources: Sequence[Source], ranks: Numbers | None) -> None:
    if not subjects:
        raise UsageError(f"--ranks: no file is of {ranks.called('rank') if ranks else 'these'}")
    if not any(len(subject.nodes) for subject in subjects):
        raise UnreadableError("there are no nodes in it", source=sources[0].path)


def _faults(path: str, faults: Sequence[Fault], damage: str) -> list[Finding]:
    """What was wrong with the bytes, each reason once."""
    by_reason: dict[str, list[Fault]] = {}
    for fault in faults:
        by_reason.setdefault(fault.reason, []).append(fault)
    found = [
        Finding(Severity.WARNING, reason, f"{path}: {alike[0].message}.", len(alike), path)
        for reason, alike in by_reason.items()
    ]
    if damage and not faults:
        found.append(Finding(Severity.WARNING, "truncated", f"{path}: {damage}.", source=path))
    return found
