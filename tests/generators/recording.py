"""What one synthetic rank records, before a format writes it; times are true ns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from generators.job import Group


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor on the rank's device."""

    number: int
    storage: int
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def strides(self) -> list[int]:
        return [prod(self.shape[place + 1 :]) for place in range(len(self.shape))]


Input = Tensor | list[Tensor] | int | float | str | bool | list[int] | list[str]


@dataclass(slots=True)
class Operation:
    """An operator or an annotation, as the profiler and the execution trace both see it."""

    name: str
    thread: int
    start: int
    external_id: int
    record_function: int
    event_index: int
    node: int
    parent_node: int
    inputs: Sequence[Input] = ()
    outputs: Sequence[Input] = ()
    category: str = "cpu_op"
    sequence: int = -1
    forward_thread: int = 0
    scope: int = 0
    duration: int = 0
    communication: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a collective, by their names in a profile."""


@dataclass(slots=True)
class Event:
    """Anything else in a profile: a Python function, a call of the CUDA runtime, work of a device, an allocation."""

    category: str
    name: str
    lane: int
    """A logical thread, or a stream."""
    start: int
    duration: int
    args: dict[str, Any]
    kernels: int = 0
    """How much work of the device a call leads to."""

    @property
    def correlation(self) -> int:
        return int(self.args["correlation"])

    @property
    def linked(self) -> dict[str, Any]:
        """What names the operator around a call."""
        return {name: value for name, value in self.args.items() if name == "External id"}


@dataclass(slots=True)
class Footprint:
    """What a communication leaves in a profile: `External id`s of operators, correlations of calls."""

    operations: range = range(0)
    calls: range = range(0)


@dataclass(frozen=True, slots=True)
class Participation:
    """One rank's part in a collective."""

    rank: int
    group: Group
    operation: str
    """The name without the library: `all_reduce`, `send 0->1`."""
    sequence: int
    point_to_point: bool
    order: int
    """Number among all operations of the group on this rank."""
    record: int
    external_id: int
    record_function: int
    footprint: Footprint
    sequences: tuple[int, int]
    """How many collectives, and how many messages or batches, the group had issued by then."""
    correlation: int = 0
    enqueued: int = 0
    started: int = 0
    finished: int = 0
    shapes: tuple[tuple[int, ...], ...] = ()
    """Of what goes out and of what comes in; none of what closes a batch."""
    kernel: str = ""
    """Empty for a member of a batch, which has no kernel of its own."""
    peers: tuple[int, int] | None = None
    """Of a message: source and destination, as global ranks."""
    message: int = 0
    """Number among the messages of the same group and peers."""
    batched: bool = False


@dataclass(slots=True)
class Recording:
    """Everything that one rank recorded."""

    rank: int
    operations: list[Operation] = field(default_factory=list)
    """In the order in which they ended."""
    frames: list[Event] = field(default_factory=list)
    calls: list[Event] = field(default_factory=list)
    gpu: list[Event] = field(default_factory=list)
    memory: list[Event] = field(default_factory=list)
    participations: list[Participation] = field(default_factory=list)
    backward_of: list[tuple[Operation, Operation]] = field(default_factory=list)
    """(forward, backward)."""
    window: tuple[int, int] = (0, 0)
