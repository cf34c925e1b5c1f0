"""The scene of a drawing: nodes as boxes in time, folded to a depth and limited in number, and their arrows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import log2

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._io.sources import Source
from tracelink._model.columns import MICROSECOND, UNKNOWN, Bools, Int64s, scatter
from tracelink._model.errors import UnreadableError, UsageError, printable
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.selection import Numbers, View
from tracelink._model.text import fine_span, shortened, size
from tracelink.converters.chakra.census import Precedence, cycle, earliest, kinds_of
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


class Subject(Struct, frozen=True):
    """The nodes of one rank that are to be drawn."""

    path: str
    nodes: NodeTable
    rank: int | None = None


class Box(Struct, frozen=True):
    """A node, together with the nodes in it that are too deep to be drawn."""

    key: str
    """Its id, made unique."""
    rank: int | None
    id: int
    name: str
    role: Role
    kind: str
    """The kind of communication, such as `all_reduce` or `send`; empty for other nodes."""
    lane: str
    begin: float
    """The start of the box: nanoseconds if the scene has times; likewise `end`."""
    end: float
    start_ns: int | None
    duration_ns: int
    """Of all its nodes together."""
    parts: int = 1
    """The number of its nodes."""
    bytes: int | None = None
    group: str = ""
    group_name: str = ""
    peer: int | None = None
    """The rank that it sends to or receives from."""
    tag: int | None = None
    inside: int | None = None
    """The index of the box that encloses it."""


class Arrow(Struct, frozen=True):
    """A dependency: `effect` waits for `cause`, both indices of boxes."""

    cause: int
    effect: int
    data: bool
    control: bool


class Scene(Struct, frozen=True):
    """Boxes in order of time, and arrows between them."""

    boxes: Sequence[Box]
    arrows: Sequence[Arrow]
    timed: bool
    """True if positions are recorded times; else they follow from dependencies."""
    nodes: int
    """The number of nodes in the traces."""
    origin_ns: float = 0
    """The start of the first of all nodes, drawn or not."""
    first: float = 0
    """The start of the time that is drawn, until `last`; boxes can begin before and end after."""
    last: float = 0
    findings: Sequence[Finding] = ()


# Texts of a drawing. Names come out of a trace, so they are bounded, and show whatever cannot be seen.


LONGEST_NAME = 400
"""Letters of a name, where all of it is to be read."""

QUALIFIERS = re.compile(
    r"^(?:(?:static |inline )*(?:void|int|float|bool|auto) )?(?:(?:\w+|\(anonymous namespace\))::)+(?=\w)"
)
"""Qualifiers before the name of a kernel."""


def visible(text: str, most: int = LONGEST_NAME) -> str:
    """The text in at most so many letters, with everything spelled out that no printer would show."""
    return printable(shortened(text, most))


def short_name(box: Box) -> str:
    """The name without the qualifiers of C++ kernels."""
    name = box.name[:LONGEST_NAME]
    bare = QUALIFIERS.sub("", name.removeprefix("void ")) if "(" in name or "<" in name else name
    return visible(bare or name or box.role.value)


def group_of(box: Box) -> str:
    """`group 3 (tp)`, or `all ranks`."""
    if not box.group:
        return "all ranks"
    return f"group {visible(box.group, 60)}" + (f" ({visible(box.group_name, 60)})" if box.group_name else "")


def facts(box: Box, origin_ns: float) -> list[str]:
    """All details of a box, a line each."""
    lines = [visible(box.name) or "(no name)"]
    rank = "" if box.rank is None else f", rank {box.rank}"
    lines.append(f"{box.kind or box.role.value}, id {box.id}{rank}, {box.lane}")
    when = [f"takes {fine_span(box.duration_ns)}"]
    if box.start_ns is not None:
        when.insert(0, f"starts at {fine_span(int(box.start_ns - origin_ns))}")
    lines.append(", ".join(when))
    if box.kind:
        lines.append(", ".join([*([] if box.bytes is None else [size(box.bytes)]), group_of(box)]))
    if box.peer is not None:
        tag = "" if box.tag is None else f", tag {box.tag}"
        lines.append(f"{'to' if box.role == 'send' else 'from'} rank {box.peer}{tag}")
    if box.parts > 1:
        lines.append(f"represents {box.parts:,} nodes: itself and those inside it")
    return lines


# Nesting: which node encloses which.


class Nesting(Struct, frozen=True):
    """The nesting of nodes. Device work is not nested in the operator that launched it."""

    parent: Sequence[int]
    """The row of the node that encloses each node, or UNKNOWN."""
    level: Sequence[int]
    """The depth of each node; 1 is outermost."""

    @classmethod
    def of(cls, nodes: NodeTable, on_device: Bools) -> Nesting:
        """Nesting by the first control dependency on the same side, host or device."""
        outer, inner = nodes.rows_of(nodes.control), nodes.control.owners
        fits = (outer >= 0) & (outer != inner)
        fits[fits] = on_device[outer[fits]] == on_device[inner[fits]]
        parent = scatter(len(nodes), inner[fits][::-1], outer[fits][::-1])
        return cls.of_parents(parent.tolist())

    @classmethod
    def of_parents(cls, parent: list[int]) -> Nesting:
        """Nesting by parents; a cycle of parents is broken at one node."""
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
        """All rows, each after the node that encloses it."""
        order: list[int] = np.argsort(np.array(self.level, np.int64), kind="stable").tolist()
        return order

    def drawn_as(self, wanted: Bools, depth: int | None) -> Int64s:
        """For each wanted row the row of its box: itself, or the node at `depth` that encloses it; else UNKNOWN."""
        drawn = [UNKNOWN] * len(self.parent)
        for row in self.outermost_first():
            outer = self.parent[row]
            if outer != UNKNOWN and drawn[outer] != UNKNOWN:
                drawn[row] = drawn[outer]
            if wanted[row] and (drawn[row] == UNKNOWN or depth is None or self.level[row] <= depth):
                drawn[row] = row
        return np.where(wanted, np.array(drawn, np.int64), UNKNOWN)


# Positions in time: recorded times, or, without any, the order of dependencies.


UNIT_PER_DOUBLING = 0.25
"""Without times, doubling the duration of a node adds so much of the shortest length."""


class NodeSpans(Struct, frozen=True):
    """The start and end of each box: nanoseconds if `timed`, else lengths that increase with durations."""

    begin: list[float]
    end: list[float]
    timed: bool

    @classmethod
    def of(cls, nodes: NodeTable, precedence: Precedence, nesting: Nesting, on_device: Bools) -> NodeSpans:
        """Nodes without an inclusive duration reach to the end of the nodes that they enclose."""
        starts, inclusive = starts_ns(nodes), inclusive_ns(nodes)
        started = _has_start(starts, inclusive)
        if not any(started):
            return _by_order(nodes, precedence, nesting, on_device)
        begin: list[float] = list(starts)
        end: list[float] = [start + duration for start, duration in zip(starts, inclusive, strict=True)]
        own = durations_ns(nodes)
        open_ended = [
            not device and own[row] == inclusive[row] for row, device in enumerate(on_device.tolist())
        ]
        _stretch(begin, end, started, open_ended, nesting)
        _fill(begin, end, started, nesting)
        return cls(begin, end, timed=True)


def _has_start(starts: Sequence[int], durations: Sequence[int]) -> list[bool]:
    """Nodes with a start; a 0 is a start if the other nodes start soon after it, else it is unknown."""
    first = min(filter(None, starts), default=0)
    last = max(map(sum, zip(starts, durations, strict=True)), default=0)
    zero_is_time = 0 < first <= last - first
    return [bool(start) or zero_is_time for start in starts]


def _by_order(nodes: NodeTable, precedence: Precedence, nesting: Nesting, on_device: Bools) -> NodeSpans:
    """Every node as early as its dependencies allow, with a length that increases with its duration."""
    lengths = [1 + UNIT_PER_DOUBLING * log2(1 + duration / MICROSECOND) for duration in durations_ns(nodes)]
    begin = list(earliest(precedence, lengths, through_cycles=True).begins)
    end = [start + length for start, length in zip(begin, lengths, strict=True)]
    _stretch(begin, end, [True] * len(begin), (~on_device).tolist(), nesting)
    return NodeSpans(begin, end, timed=False)


def _stretch(
    begin: list[float], end: list[float], started: list[bool], open_ended: Sequence[bool], nesting: Nesting
) -> None:
    """Gives nodes the start of the nodes that they enclose if they have none, and their end if it is open."""
    without = [not known for known in started]
    for row in reversed(nesting.outermost_first()):
        outer = nesting.parent[row]
        if outer == UNKNOWN or not started[row]:
            continue
        if without[outer]:
            begin[outer] = min(begin[outer], begin[row]) if started[outer] else begin[row]
            started[outer] = True
        if without[outer] or open_ended[outer]:
            end[outer] = max(end[outer], end[row])


def _fill(begin: list[float], end: list[float], started: Sequence[bool], nesting: Nesting) -> None:
    """Nodes still without a start begin with the node that encloses them, or with the first node."""
    first = min(time for time, known in zip(begin, started, strict=True) if known)
    for row in nesting.outermost_first():
        if not started[row]:
            outer = nesting.parent[row]
            begin[row] = first if outer == UNKNOWN else begin[outer]
            end[row] += begin[row]


# All nodes of one rank.

_MISSING = -(1 << 62)


class RankNodes(Struct, frozen=True):
    """The nodes of one rank with their dependencies, nesting and positions in time."""

    subject: Subject
    precedence: Precedence
    nesting: Nesting
    spans: NodeSpans
    roles: Roles
    on_device: Bools

    @classmethod
    def of(cls, subject: Subject) -> RankNodes:
        """Prepares all nodes."""
        nodes = subject.nodes
        roles = roles_of(nodes)
        on_device = has_role(roles, *ON_DEVICE) & ~nodes.on_host()
        precedence = Precedence.of(nodes)
        nesting = Nesting.of(nodes, on_device)
        spans = NodeSpans.of(nodes, precedence, nesting, on_device)
        return cls(subject, precedence, nesting, spans, roles, on_device)

    def within(self, first: float | None, last: float | None) -> Bools:
        """Nodes that overlap this time."""
        if first is None and last is None:
            return np.ones(len(self.subject.nodes), np.bool_)
        begin, end = self.spans.begin, self.spans.end
        inside = [
            (last is None or start < last) and (first is None or stop > first or start == stop == first)
            for start, stop in zip(begin, end, strict=True)
        ]
        return np.array(inside, np.bool_)

    def boxes(self, drawn_as: Sequence[int]) -> dict[int, Box]:
        """A box for each node that is drawn, by row; other nodes are part of a box."""
        table, parts = _Table(self), dict[int, list[int]]()
        for row, shown in enumerate(drawn_as):
            if shown >= 0:
                parts.setdefault(shown, []).append(row)
        return {row: table.box(row, parts[row]) for row in sorted(parts)}


class _Table:
    """The columns that boxes are made of."""

    def __init__(self, rank: RankNodes) -> None:
        nodes, count = rank.subject.nodes, len(rank.subject.nodes)
        self.rank = rank
        self.durations = durations_ns(nodes)
        self.kinds = kinds_of(nodes)
        self.lanes = _lanes(nodes, rank)
        self.bytes, self.tags = _numbers(nodes, Name.COMM_SIZE), _numbers(nodes, Name.COMM_TAG)
        self.sources, self.targets = _numbers(nodes, Name.COMM_SOURCE), _numbers(nodes, Name.COMM_TARGET)
        self.groups = nodes.attribute(Name.GROUP).strings(count)
        self.group_names = nodes.attribute(Name.GROUP_NAME).strings(count)

    def box(self, row: int, parts: Sequence[int]) -> Box:
        subject, spans = self.rank.subject, self.rank.spans
        role, number = ROLES[self.rank.roles[row]], unsigned(subject.nodes.id[row])
        message = role in (Role.SEND, Role.RECV)
        communicates = row in self.kinds
        return Box(
            key=str(number) if subject.rank is None else f"{subject.rank}:{number}",
            rank=subject.rank,
            id=number,
            name=subject.nodes.text(row),
            role=role,
            kind=self.kinds.get(row, ""),
            lane=self.lanes[row],
            begin=min(spans.begin[part] for part in parts),
            end=max(spans.end[part] for part in parts),
            start_ns=int(spans.begin[row]) if spans.timed else None,
            duration_ns=sum(self.durations[part] for part in parts),
            parts=len(parts),
            bytes=self.bytes[row] if communicates else None,
            group=self.groups[row] if communicates else "",
            group_name=self.group_names[row] if communicates else "",
            peer=(self.targets if role is Role.SEND else self.sources)[row] if message else None,
            tag=self.tags[row] if message else None,
        )


def _numbers(nodes: NodeTable, name: Name) -> list[int | None]:
    """An integer attribute of each node; None if it has none."""
    numbers = nodes.attribute(name).integers(len(nodes), _MISSING).tolist()
    return [None if number == _MISSING else number for number in numbers]


def _lanes(nodes: NodeTable, rank: RankNodes) -> list[str]:
    """The lane of each node: `thread 4`, `stream 7`."""
    threads, streams = _numbers(nodes, Name.THREAD), _numbers(nodes, Name.STREAM)
    devices = _numbers(nodes, Name.DEVICE)
    several = len({device for device, here in zip(devices, rank.on_device.tolist(), strict=True) if here}) > 1
    communicating = has_role(rank.roles, *COMMUNICATION).tolist()
    lanes = []
    for row, on_device in enumerate(rank.on_device.tolist()):
        if not on_device:
            lanes.append("host" if threads[row] is None else f"thread {threads[row]}")
            continue
        lane = "communication" if communicating[row] else "device"
        if streams[row] is not None:
            lane = f"stream {streams[row]}"
        on = f"device {devices[row]} " if several and devices[row] is not None else ""
        lanes.append(on + lane)
    return lanes


# Reading files.


def subjects_of(
    sources: Sequence[Source], ranks: Numbers | None, engine: Engine, findings: list[Finding]
) -> list[Subject]:
    """The nodes of every file, sorted by rank; only of `ranks` if given."""
    subjects = []
    for source in sources:
        with buffered(source, engine.meter.add) as (stream, opened):
            decoded = decode(stream)
            damage = opened.damage
        rank = _rank(source, decoded)
        if ranks is not None and rank is not None and rank not in ranks:
            continue
        subjects.append(Subject(source.path, decoded.nodes, rank))
        findings += _faults(source.path, decoded, damage)
    _check(subjects, sources, ranks)
    return sorted(subjects, key=lambda subject: -1 if subject.rank is None else subject.rank)


def _rank(source: Source, decoded: Decoded) -> int | None:
    """The rank that the user gave, else that of the metadata, else that of the name."""
    recorded = decoded.metadata_value(MetadataName.RANK)
    if source.rank is not None:
        return source.rank
    if isinstance(recorded, int) and recorded >= 0:
        return recorded
    return source.rank_hint.rank if source.rank_hint else None


def _check(subjects: Sequence[Subject], sources: Sequence[Source], ranks: Numbers | None) -> None:
    if not subjects:
        raise UsageError(f"--ranks: no file belongs to {ranks.called('rank') if ranks else 'these'}")
    if not any(len(subject.nodes) for subject in subjects):
        raise UnreadableError("the file has no nodes", source=sources[0].path)


def _faults(path: str, decoded: Decoded, damage: str) -> list[Finding]:
    """The faults in the bytes, one finding for each reason."""
    by_reason: dict[str, list[Fault]] = {}
    for fault in decoded.faults:
        by_reason.setdefault(fault.reason, []).append(fault)
    findings = [
        Finding(Severity.WARNING, reason, f"{path}: {found[0].message}.", len(found), path)
        for reason, found in by_reason.items()
    ]
    if damage and not decoded.faults:
        findings.append(Truncated(path, damage, len(decoded.nodes), "node").finding())
    return findings


# The scene of a drawing: nodes selected by time, folded to a depth and limited in number, with their arrows.

Bounds = tuple[float | None, float | None]
"""Start and end of a time window; None without a bound."""

_ARROWS_PER_NODE = 4
"""The limit of arrows, as a multiple of the limit of nodes."""

_DRAW_LESS = "--depth, --window and --ranks draw less"


class _Chosen(Struct, frozen=True):
    """The nodes of one rank that are drawn."""

    nodes: RankNodes
    drawn_as: Int64s
    """For each row the row of the box that it is part of, or UNKNOWN."""

    @property
    def rows(self) -> Int64s:
        return np.flatnonzero(self.drawn_as == np.arange(len(self.drawn_as)))


def compose(subjects: Sequence[Subject], view: View) -> Scene:
    """The scene of these ranks, with findings on what is not drawn."""
    findings = list[Finding]()
    ranks = _comparable([RankNodes.of(subject) for subject in subjects], findings)
    timed = all(rank.spans.timed for rank in ranks)
    origin = min((time for rank in ranks for time in rank.spans.begin), default=0)
    bounds = _bounds(view, origin, timed=timed)
    wanted = [rank.within(*bounds) for rank in ranks]
    if view.window and not any(rows.any() for rows in wanted):
        raise UsageError(
            "--window: no node is in this window", advice="Times count from the start of the first node."
        )
    depth = view.depth or _depth(ranks, wanted, view, findings)
    chosen = [
        _Chosen(rank, rank.nesting.drawn_as(rows, depth)) for rank, rows in zip(ranks, wanted, strict=True)
    ]
    chosen, bounds = _earliest(chosen, bounds, view, findings)
    boxes, box_of_row = _boxes(chosen)
    arrows = [
        arrow
        for rank, box in zip(chosen, box_of_row, strict=True)
        for arrow in arrows_of(rank.nodes.precedence, rank.drawn_as, box)
    ]
    if view.limit is not None:
        arrows = fewest(arrows, boxes, view.limit * _ARROWS_PER_NODE, findings)
    findings += [finding for rank in ranks for finding in _defects(rank)]
    nodes = sum(len(subject.nodes) for subject in subjects)
    return Scene(boxes, arrows, timed, nodes, origin, *_reach(boxes, bounds), findings)


def _bounds(view: View, origin: float, *, timed: bool) -> Bounds:
    if view.window is None:
        return None, None
    if not timed:
        raise UsageError(
            "--window: the nodes have no start times", advice="Draw less with --depth or --ranks."
        )
    return view.window.after(int(origin))


def _reach(boxes: Sequence[Box], bounds: Bounds) -> tuple[float, float]:
    """The time that the drawing shows."""
    first, last = bounds
    begin, end = min((box.begin for box in boxes), default=0), max((box.end for box in boxes), default=0)
    return begin if first is None else max(begin, first), end if last is None else min(end, last)


def _comparable(ranks: Sequence[RankNodes], findings: list[Finding]) -> list[RankNodes]:
    """The ranks with times; if no rank has times, all ranks."""
    timed = [rank for rank in ranks if rank.spans.timed]
    for rank in ranks:
        if timed and not rank.spans.timed and len(rank.subject.nodes):
            path = rank.subject.path
            message = (
                f"{path} is not drawn: its nodes have no times, unlike those of other files. Draw it alone."
            )
            findings.append(Finding(Severity.WARNING, "without_times", message, source=path))
    return timed or list(ranks)


def _depth(
    ranks: Sequence[RankNodes], wanted: Sequence[Bools], view: View, findings: list[Finding]
) -> int | None:
    """The greatest depth with few enough nodes; None if all depths fit or none."""
    if view.limit is None or not ranks:
        return None
    levels = np.concatenate(
        [np.array(rank.nesting.level, np.int64)[rows] for rank, rows in zip(ranks, wanted, strict=True)]
    )
    fitting = np.flatnonzero(np.cumsum(np.bincount(levels)) <= view.limit)
    if len(levels) <= view.limit or not len(fitting) or not fitting[-1]:
        return None
    depth = int(fitting[-1])
    message = (
        f"drawn to depth {depth} of {levels.max()}: {len(levels):,} nodes exceed the limit of {view.limit:,}."
        f" Deeper nodes are part of the box that encloses them; {_DRAW_LESS}, --limit {len(levels)} draws all."
    )
    findings.append(Finding(Severity.WARNING, "folded", message))
    return depth


def _earliest(
    chosen: list[_Chosen], bounds: Bounds, view: View, findings: list[Finding]
) -> tuple[list[_Chosen], Bounds]:
    """The boxes that start first, up to the limit, and the time up to the first one that is not drawn."""
    begins = sorted(
        (rank.nodes.spans.begin[row], number, row)
        for number, rank in enumerate(chosen)
        for row in rank.rows.tolist()
    )
    if view.limit is None or len(begins) <= view.limit:
        return chosen, bounds
    kept = [set[int]() for _ in chosen]
    for _, number, row in begins[: view.limit]:
        kept[number].add(row)
    message = (
        f"only the first {view.limit:,} of {len(begins):,} nodes are drawn, because more are not readable:"
        f" {_DRAW_LESS}, --limit {len(begins)} draws all."
    )
    findings.append(Finding(Severity.WARNING, "not_drawn", message, len(begins) - view.limit))
    end = begins[view.limit][0]
    if end > begins[view.limit - 1][0]:
        bounds = bounds[0], end
    fewer = [
        replace(rank, drawn_as=_only(rank.drawn_as, rows)) for rank, rows in zip(chosen, kept, strict=True)
    ]
    return fewer, bounds


def _only(drawn_as: Int64s, rows: set[int]) -> Int64s:
    keeps = np.isin(drawn_as, np.array(sorted(rows), np.int64))
    return np.where(keeps, drawn_as, UNKNOWN)


def _boxes(chosen: Sequence[_Chosen]) -> tuple[list[Box], list[dict[int, int]]]:
    """All boxes in order of time, and for each rank the index of the box of a row."""
    made = [rank.nodes.boxes(rank.drawn_as.tolist()) for rank in chosen]
    order = sorted(
        (box.begin, -box.end, number, row) for number, boxes in enumerate(made) for row, box in boxes.items()
    )
    box_of_row = [dict[int, int]() for _ in chosen]
    for index, (_, _, number, row) in enumerate(order):
        box_of_row[number][row] = index
    seen = dict[str, int]()
    boxes = []
    for _, _, number, row in order:
        box = made[number][row]
        seen[box.key] = seen.get(box.key, 0) + 1
        suffix = f"@{seen[box.key]}" if seen[box.key] > 1 else ""
        inside = _enclosing_box(chosen[number], row, box_of_row[number])
        boxes.append(replace(box, key=box.key + suffix, inside=inside))
    return boxes, box_of_row


def _enclosing_box(rank: _Chosen, row: int, box_of_row: dict[int, int]) -> int | None:
    parent = rank.nodes.nesting.parent[row]
    return None if parent == UNKNOWN else box_of_row.get(int(rank.drawn_as[parent]))


def _defects(rank: RankNodes) -> Iterator[Finding]:
    """Dependencies that cannot be drawn, and cycles."""
    precedence, path = rank.precedence, rank.subject.path
    if precedence.missing:
        message = "dependencies on nodes that do not exist are not drawn."
        yield Finding(Severity.WARNING, "missing_dependencies", message, precedence.missing, path)
    if precedence.itself:
        message = "dependencies of nodes on themselves are not drawn."
        yield Finding(Severity.WARNING, "own_dependencies", message, precedence.itself, path)
    if rows := cycle(precedence, earliest(precedence, [1] * precedence.count)):
        ids = " → ".join(str(unsigned(int(rank.subject.nodes.id[row]))) for row in [*rows[:8], rows[0]])
        message = "nodes depend on each other in a cycle: they and the nodes behind them never run."
        yield Finding(Severity.WARNING, "cycle", message, len(rows), path, ids)


# Arrows.


def arrows_of(precedence: Precedence, drawn_as: Int64s, box_of_row: Mapping[int, int]) -> list[Arrow]:
    """The dependencies between boxes, without duplicates; those within a box are left out."""
    cause, effect = drawn_as[precedence.cause], drawn_as[precedence.effect]
    between = (cause >= 0) & (effect >= 0) & (cause != effect)
    pair, first = np.unique(cause[between] * precedence.count + effect[between], return_inverse=True)
    data, control = np.zeros(len(pair), np.bool_), np.zeros(len(pair), np.bool_)
    np.logical_or.at(data, first, precedence.data[between])
    np.logical_or.at(control, first, precedence.control[between])
    causes, effects = np.divmod(pair, max(precedence.count, 1))
    columns = causes.tolist(), effects.tolist(), data.tolist(), control.tolist()
    return [
        Arrow(box_of_row[before], box_of_row[after], *kinds)
        for before, after, *kinds in zip(*columns, strict=True)
    ]


def fewest(arrows: list[Arrow], boxes: Sequence[Box], most: int, findings: list[Finding]) -> list[Arrow]:
    """At most this many arrows: for each box those from the causes that ended last."""
    if len(arrows) <= most:
        return arrows
    latest = sorted(range(len(arrows)), key=lambda index: -boxes[arrows[index].cause].end)
    seen = [0] * len(boxes)
    rank = [0] * len(arrows)
    for index in latest:
        rank[index] = seen[arrows[index].effect]
        seen[arrows[index].effect] += 1
    totals = np.cumsum(np.bincount(rank))
    per_box = max(int(np.searchsorted(totals, most, side="right")), 1)
    kept = [arrow for arrow, number in zip(arrows, rank, strict=True) if number < per_box]
    message = (
        f"only {len(kept):,} of {len(arrows):,} dependencies are drawn: for each node those on the"
        f" {per_box:,} that ended last. --window and --depth draw less; a .graphml has all of them."
    )
    findings.append(Finding(Severity.WARNING, "edges_not_drawn", message, len(arrows) - len(kept)))
    return kept
