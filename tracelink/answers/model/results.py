"""The results of `summarize`, as `tracelink summary --json` prints them. Times are ns; instants count from 1970.

docs/answers.md defines every number.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from tracelink.answers.model.communication import CollectiveRow, Communication
from tracelink.model.errors import Severity

Count = Annotated[int, Meta(ge=0)]
Nanoseconds = Annotated[int, Meta(ge=0)]
RankNumber = Annotated[int, Meta(ge=0)]


class WorkIn(StrEnum):
    """What compute and communication of a rank are the times of."""

    KERNELS = "kernels"
    """Kernels and copies on devices."""
    OPERATORS = "operators"
    """Operators on threads: the rank has no device work."""
    NOTHING = "nothing"
    """The rank has no event of a profiler."""


class IdleCause(StrEnum):
    """Why nothing ran."""

    UNKNOWN = "unknown"


class ExposureCause(StrEnum):
    """Why only communication ran."""

    UNKNOWN = "unknown"


class Portion(Struct, frozen=True):
    """A part of the idle or exposed time, and its cause."""

    cause: str
    ns: Nanoseconds
    rank: Annotated[int | None, Meta(description="The rank that was waited for.")] = None
    during: Annotated[str, Meta(description="What the host did then; empty if it does not matter.")] = ""


class Step(Struct, frozen=True):
    """One step of one rank. Compute, exposed communication, exposed copies and idle add up to the duration."""

    step: Annotated[int | None, Meta(description="Null: the recording has no steps; it is all of it.")]
    start_ns: int
    duration_ns: Nanoseconds
    compute_ns: Nanoseconds
    exposed_communication_ns: Nanoseconds
    exposed_copy_ns: Nanoseconds
    idle_ns: Nanoseconds
    communication_ns: Annotated[Nanoseconds, Meta(description="With what compute covers.")]
    copy_ns: Annotated[Nanoseconds, Meta(description="With what compute and communication cover.")]
    idle: Annotated[Sequence[Portion], Meta(description="Adds up to idle_ns.")] = ()
    exposed_communication: Annotated[
        Sequence[Portion], Meta(description="Adds up to exposed_communication_ns.")
    ] = ()


class RankSummary(Struct, frozen=True):
    """One rank."""

    rank: RankNumber
    host: str
    work: WorkIn
    steps: Sequence[Step]


class KernelRow(Struct, frozen=True):
    """All kernels of one name on all ranks."""

    name: str
    count: Count
    total_ns: Nanoseconds
    ranks: Annotated[Count, Meta(description="Number of ranks that ran it.")]
    share: Annotated[float, Meta(description="Of the time of all kernels.")]
    communication: bool


class CriticalPath(Struct, frozen=True):
    """The longest chain of causes through a step, across ranks."""

    length_ns: Nanoseconds
    by_kind: dict[str, Nanoseconds]
    by_rank: dict[str, Nanoseconds]


class StepTime(Struct, frozen=True):
    """Durations of steps: of each step that of its slowest rank."""

    count: Count
    mean: Nanoseconds = 0
    p50: Nanoseconds = 0
    p90: Nanoseconds = 0
    low: Nanoseconds = 0
    high: Nanoseconds = 0


class Note(Struct, frozen=True):
    """What must be known to read the numbers, or what does not fit."""

    severity: Severity
    message: str


class Summary(Struct, frozen=True):
    """Result of `tracelink summary --json`."""

    ranks: Sequence[RankSummary]
    step_time: StepTime
    kernels: Sequence[KernelRow]
    collectives: Annotated[
        Sequence[CollectiveRow], Meta(description="Those that ranks spent most time in first.")
    ]
    communication: Communication
    critical_path: CriticalPath | None
    notes: Sequence[Note]
