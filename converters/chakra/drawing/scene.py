"""What a drawing shows: boxes and arrows, whatever is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracelink.converters.chakra.roles import Role
from tracelink.converters.chakra.table import NodeTable
from tracelink.findings import Finding


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
