"""The result of `compare`, as `tracelink diff --json` prints it. Times are ns of one step, averages over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Struct

from tracelink._compile.model import CompileDiff
from tracelink._model.fields import Count, Doc, Nanoseconds, Row, Shown, SignedNanoseconds
from tracelink._model.findings import Finding
from tracelink._model.results import Result, rows_of
from tracelink._time.rank.costs import StepPart

Calls = Annotated[float | None, Doc("Calls per step and rank; null for waits and idle time.")]


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


class GateState(StrEnum):
    """What became of a gate."""

    PASSED = "passed"
    FAILED = "failed"
    WITHIN_VARIATION = "within_variation"
    """The change exceeds the limit, but not the variation between steps: the gate passes."""
    NOT_DECIDED = "not_decided"
    """The runs are not comparable."""


class Change(Row, frozen=True, kw_only=True):
    """What something takes before and after."""

    before_ns: Annotated[Nanoseconds, Shown("before")]
    after_ns: Annotated[Nanoseconds, Shown("after")]
    delta_ns: Annotated[SignedNanoseconds, Shown("change", signed=True)]

    plotted = ("delta_ns",)


class UncertainChange(Change, frozen=True, kw_only=True):
    """A change between two bounds with 95 % confidence, by the variation between steps."""

    low_ns: Annotated[
        SignedNanoseconds | None,
        Doc("The lower bound of the change; null with fewer than 3 steps on a side."),
        Shown("at least", 2, signed=True),
    ] = None
    high_ns: Annotated[
        SignedNanoseconds | None, Doc("The upper bound."), Shown("at most", 1, signed=True)
    ] = None

    @property
    def within_variation(self) -> bool:
        """True if the change is not larger than the variation between steps."""
        return self.low_ns is not None and self.high_ns is not None and self.low_ns <= 0 <= self.high_ns


class KernelChange(Change, frozen=True):
    """One kernel, operator or copy of a cause."""

    name: str
    what: Annotated[str, Doc("The cause.")]
    before_count: Annotated[float, Doc("Per step and rank.")]
    after_count: float


class CauseChange(UncertainChange, frozen=True):
    """A part of the change of the step."""

    what: Annotated[
        str, Doc("An operator, a kernel, a copy, or the cause of idle time."), Shown("cause", longest=70)
    ]
    part: Annotated[StepPart, Shown(drop=5)]
    status: Status
    before_count: Annotated[Calls, Shown("calls before", 4)] = None
    after_count: Annotated[Calls, Shown("calls after", 3)] = None
    kernels: Annotated[Sequence[KernelChange], Doc("Its kernels, the largest change first.")] = ()


class StepChange(UncertainChange, frozen=True):
    """The duration of a step, or of a recording without steps."""

    before_steps: Count
    after_steps: Count
    whole_recordings: Annotated[bool, Doc("Neither run has steps: whole recordings are compared.")] = False


class PartChange(Change, frozen=True):
    """One of the four parts of a step; their changes add up to that of the step."""

    part: StepPart


class Gate(Change, frozen=True):
    """A limit for a change, and whether the change exceeds it."""

    gate: str
    state: GateState
    limit_ns: Annotated[SignedNanoseconds, Doc("The largest change that passes."), Shown("limit")]

    @property
    def failed(self) -> bool:
        """True if the change exceeds the limit and the variation between steps, and the runs are comparable."""
        return self.state is GateState.FAILED


class Comparison(Result, frozen=True):
    """Result of `tracelink diff --json`."""

    comparable: bool
    why_not: Sequence[str]
    step: Annotated[StepChange, Doc("Of no steps if only logs of torch.compile are compared.")]
    parts: Sequence[PartChange]
    causes: Annotated[Sequence[CauseChange], Doc("Add up to the change of the step; the largest first.")]
    gates: Sequence[Gate]
    findings: Annotated[Sequence[Finding], Doc("What must be known to read the numbers.")]
    compile: Annotated[CompileDiff | None, Doc("Null unless both runs have logs of torch.compile.")] = None

    drawn_by = "tracelink._time.compare.report"

    @property
    def failed(self) -> bool:
        """True if a gate failed, or torch.compile does worse; gates of runs that differ too much are not decided."""
        return any(gate.failed for gate in self.gates) or bool(self.compile and self.compile.is_worse)

    def table_rows(self) -> dict[str, tuple[type[Struct], Sequence[Any]]]:
        """Returns the rows of each table by name: causes, kernels, parts, gates, findings, compilations."""
        kernels = [kernel for cause in self.causes for kernel in cause.kernels]
        compiled = rows_of(self.compile) if self.compile else {}
        return {**rows_of(self), "kernels": (KernelChange, kernels), **compiled}
