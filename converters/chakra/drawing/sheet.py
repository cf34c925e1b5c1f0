"""One rank's nodes with all that is needed to draw any part of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.converters.chakra.census import kinds_of
from tracelink.converters.chakra.drawing.nesting import Nesting
from tracelink.converters.chakra.drawing.scene import Box, Subject
from tracelink.converters.chakra.drawing.spans import NodeSpans
from tracelink.converters.chakra.precedence import Precedence
from tracelink.converters.chakra.roles import (
    COMMUNICATION,
    ON_DEVICE,
    ROLES,
    Role,
    Roles,
    among,
    roles_of,
)
from tracelink.converters.chakra.schema import Name
from tracelink.converters.chakra.table import NodeTable, unsigned
from tracelink.converters.chakra.times import durations_ns
from tracelink.events import Bools

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
        on_device = among(roles, *ON_DEVICE) & ~nodes.on_host()
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
        self.groups = nodes.attribute(Name.GROUP).texts(count)
        self.group_names = nodes.attribute(Name.GROUP_NAME).texts(count)

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
    numbers: list[int] = nodes.attribute(name).whole_numbers(len(nodes), UNSAID).tolist()
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
    communicating = among(sheet.roles, *COMMUNICATION).tolist()
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
