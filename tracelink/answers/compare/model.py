"""The result of `compare`, as `tracelink diff --json` prints it. Times are ns of one step, averages over ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from tracelink.answers.model.results import Count, Nanoseconds, Note
from tracelink.answers.rank.costs import StepPart
from tracelink.model.errors import UsageError, choices
from tracelink.model.results import ResultTable, as_html, as_text
from tracelink.model.text import number

if TYPE_CHECKING:
    import pandas
    import pyarrow

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


class GateState(StrEnum):
    """What became of a gate."""

    PASSED = "passed"
    FAILED = "failed"
    WITHIN_VARIATION = "within_variation"
    """The change exceeds the limit, but not the variation between steps: the gate passes."""
    NOT_DECIDED = "not_decided"
    """The runs are not comparable."""


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


class CauseChange(Struct, frozen=True):
    """A part of the change of the step."""

    what: Annotated[str, Meta(description="An operator, a kernel, a copy, or the cause of idle time.")]
    part: StepPart
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
    """The duration of a step, or of a recording without steps."""

    before_ns: Nanoseconds
    after_ns: Nanoseconds
    delta_ns: int
    before_steps: Count
    after_steps: Count
    interval: Interval | None = None
    whole_recordings: Annotated[
        bool, Meta(description="Neither run has steps: whole recordings are compared.")
    ] = False


class PartChange(Struct, frozen=True):
    """One of the four parts of a step; their changes add up to that of the step."""

    part: StepPart
    before_ns: Nanoseconds
    after_ns: Nanoseconds
    delta_ns: int


class Gate(Struct, frozen=True):
    """A limit for a change, and whether the change exceeds it."""

    gate: str
    state: GateState
    before_ns: Nanoseconds
    after_ns: Nanoseconds
    limit_ns: Annotated[int, Meta(description="The largest change that passes.")]

    @property
    def failed(self) -> bool:
        """True if the change exceeds the limit and the variation between steps, and the runs are comparable."""
        return self.state is GateState.FAILED


class Comparison(Struct, frozen=True):
    """Result of `tracelink diff --json`."""

    comparable: bool
    why_not: Sequence[str]
    step: StepChange
    parts: Sequence[PartChange]
    causes: Annotated[
        Sequence[CauseChange], Meta(description="Add up to the change of the step; the largest first.")
    ]
    gates: Sequence[Gate]
    notes: Sequence[Note]

    @property
    def failed(self) -> bool:
        """True if a gate failed; gates of runs that are not comparable are not decided."""
        return any(gate.failed for gate in self.gates)

    def __repr__(self) -> str:
        return as_text(*self._overview())

    def _repr_html_(self) -> str:
        return as_html(*self._overview())

    def _overview(self) -> tuple[str, dict[str, str]]:
        from tracelink.answers.compare.words import gate_in_words, headline

        gates = {f"gate {index}": gate_in_words(gate) for index, gate in enumerate(self.gates, 1)}
        parts = {"verdict": headline(self), "not comparable": " ".join(self.why_not), **gates}
        parts["tables"] = ", ".join(f"{name} {number(len(self.table(name)))}" for name in TABLES)
        return "Comparison", {name: text for name, text in parts.items() if text}

    def table(self, name: str) -> ResultTable[Any]:
        """Returns one table of the comparison.

        Args:
            name: "causes", "kernels" (of the causes), "parts", "gates" or "notes".

        Raises:
            UsageError: There is no such table.
        """
        if name not in TABLES:
            raise UsageError(f"there is no table {name!r}", advice=choices(name, TABLES))
        rows: Sequence[Any] = getattr(self, name, ())
        match name:
            case "causes":
                rows = [CauseRow.of(cause) for cause in self.causes]
            case "kernels":
                rows = [KernelRow.of(cause, kernel) for cause in self.causes for kernel in cause.kernels]
        plotted = [column for column in TABLES[name].__struct_fields__ if column == "delta_ns"]
        return ResultTable.of_rows(TABLES[name], rows, title=name.capitalize(), plotted=plotted)

    def to_pandas(self, name: str) -> pandas.DataFrame:
        """Returns one table as a pandas frame; see `table` for the names.

        Raises:
            UsageError: There is no such table; or pandas is not installed: install the extra `pandas`.
        """
        return self.table(name).to_pandas()

    def to_arrow(self, name: str) -> pyarrow.Table:
        """Returns one table as an Arrow table; see `table` for the names.

        Raises:
            UsageError: There is no such table; or pyarrow is not installed: install the extra `arrow`.
        """
        return self.table(name).to_arrow()


# Rows of tables, without anything nested


class CauseRow(Struct, frozen=True):
    """One cause; the change is between `low_ns` and `high_ns` with 95 % confidence."""

    what: str
    part: str
    status: str
    delta_ns: int
    before_ns: int
    after_ns: int
    before_count: float | None
    after_count: float | None
    low_ns: int | None
    high_ns: int | None

    @classmethod
    def of(cls, cause: CauseChange) -> CauseRow:
        """The row of a cause."""
        low, high = (cause.interval.low_ns, cause.interval.high_ns) if cause.interval else (None, None)
        return cls(
            cause.what,
            cause.part,
            cause.status,
            cause.delta_ns,
            cause.before_ns,
            cause.after_ns,
            cause.before_count,
            cause.after_count,
            low,
            high,
        )


class KernelRow(Struct, frozen=True):
    """One kernel, operator or copy of a cause."""

    name: str
    what: str
    delta_ns: int
    before_ns: int
    after_ns: int
    before_count: float
    after_count: float

    @classmethod
    def of(cls, cause: CauseChange, kernel: KernelChange) -> KernelRow:
        """The row of a kernel of a cause."""
        change = kernel.after_ns - kernel.before_ns
        counts = kernel.before_count, kernel.after_count
        return cls(kernel.name, cause.what, change, kernel.before_ns, kernel.after_ns, *counts)


TABLES: Mapping[str, type[Struct]] = {
    "causes": CauseRow,
    "kernels": KernelRow,
    "parts": PartChange,
    "gates": Gate,
    "notes": Note,
}
"""The names of the tables of a comparison, and their rows."""
