"""The result of `compare`, as `tracelink diff --json` prints it. Times are ns of one step, averages over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from tracelink.answers.model.results import Count, Nanoseconds, Note
from tracelink.answers.rank.costs import CostOf

Per = Annotated[float, Meta(ge=0)]


class Status(StrEnum):
    """How a cause changed."""

    NEW = "new"
    GONE = "gone"
    MORE = "more"
    """It occurs more often in a step, and takes more time."""
    FEWER = "fewer"
    """It occurs less often in a step, and takes less time."""
    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    """The change is not larger than the variation between steps."""


class Interval(Struct, frozen=True):
    """The change is between these two with 95 % confidence, by the variation between steps."""

    low_ns: int
    high_ns: int


class KernelChange(Struct, frozen=True):
    """One kernel, operator or copy of a cause."""

    name: str
    before_ns: Nanoseconds
    after_ns: Nanoseconds
    before_count: Per
    """Per step and rank."""
    after_count: Per


class Cause(Struct, frozen=True):
    """A part of the change of the step."""

    what: Annotated[str, Meta(description="An operator, a kernel, a copy, or the cause of idle time.")]
    part: CostOf
    status: Status
    delta_ns: int
    before_ns: Nanoseconds
    after_ns: Nanoseconds
    before_count: Annotated[
        float | None, Meta(description="Calls per step and rank; null for waits and idle time.")
    ] = None
    after_count: float | None = None
    interval: Annotated[Interval | None, Meta(description="Null with fewer than 3 steps on a side.")] = None
    kernels: Annotated[
        Sequence[KernelChange], Meta(description="Its kernels, the largest change first.")
    ] = ()


class StepChange(Struct, frozen=True):
    """The duration of a step."""

    before_ns: Nanoseconds
    after_ns: Nanoseconds
    delta_ns: int
    before_steps: Count
    after_steps: Count
    interval: Interval | None = None


class PartChange(Struct, frozen=True):
    """One of the four parts of a step; their changes add up to that of the step."""

    part: CostOf
    before_ns: Nanoseconds
    after_ns: Nanoseconds
    delta_ns: int


class Gate(Struct, frozen=True):
    """A limit for a change, and whether the change exceeds it."""

    gate: str
    failed: bool
    before_ns: Nanoseconds
    after_ns: Nanoseconds
    limit_ns: Annotated[int, Meta(description="The largest change that passes.")]
    uncertain: Annotated[
        bool,
        Meta(description="The change exceeds the limit, but not the variation between steps: it passes."),
    ] = False


class Comparison(Struct, frozen=True):
    """Result of `tracelink diff --json`."""

    comparable: bool
    why_not: Sequence[str]
    step: StepChange
    parts: Sequence[PartChange]
    causes: Annotated[
        Sequence[Cause], Meta(description="Add up to the change of the step; the largest first.")
    ]
    gates: Sequence[Gate]
    notes: Sequence[Note]

    @property
    def failed(self) -> bool:
        """Whether a gate failed."""
        return any(gate.failed for gate in self.gates)
