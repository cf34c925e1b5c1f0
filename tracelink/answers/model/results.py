"""The results of `summarize`, as `tracelink summary --json` prints them. Times are ns; instants count from 1970.

docs/answers.md defines every number.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, overload

from msgspec import Meta, Struct

from tracelink.answers.model.communication import CollectiveRow, Communication
from tracelink.model.findings import Severity
from tracelink.model.results import as_html, as_text

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from tracelink.answers.model.tables import BreakdownRow, CauseRow, PathRow, StepRow
    from tracelink.model.results import ResultTable

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


class Cause(StrEnum):
    """Why nothing ran on a rank, or only communication or copies."""

    HOST_BOUND = "host_bound"
    """The next work was not launched yet; what the host did then is in `during`."""
    DATA_LOADING = "data_loading"
    """The next work was not launched yet: the thread that launched it waited for data."""
    SYNCHRONIZATION = "synchronization"
    """The next work was not launched yet: the thread that launched it was in a call that waits for the device."""
    LAUNCH_BOUND = "launch_bound"
    """The next work was being launched: from the start of the call to the start of the work."""
    KERNEL_GAP = "kernel_gap"
    """The next work had been launched; the device took this time between two kernels."""
    STREAM_DEPENDENCY = "stream_dependency"
    """The next work had been launched, and waited for work of another stream."""
    WAITING_FOR_RANK = "waiting_for_rank"
    """The rank was in a collective or a message that another rank had not entered yet."""
    TRANSFER = "transfer"
    """All ranks were in the collective or the message: the time of the data on its way."""
    COPY = "copy"
    """A copy ran; its direction is in `during`."""
    NOT_RECORDED = "not_recorded"
    """No thread of the process has events at this time."""
    UNKNOWN = "unknown"
    """The recording does not say."""


COMPILATION = "compilation"
BETWEEN = "between recorded events"
NO_LAUNCH = "the launch of the next work was not recorded"
LAUNCHED = "the next work had been launched, and what held it back was not recorded"
NOTHING_LAUNCHED = "nothing to compute was launched"
NOT_MATCHED = "not matched with other ranks"
"""Values of `Portion.during`; the others name an activity of the host or a kind of copies."""


class Portion(Struct, frozen=True):
    """A part of the idle or exposed time, and its cause."""

    cause: Cause
    ns: Nanoseconds
    rank: Annotated[int | None, Meta(description="The rank that was waited for.")] = None
    during: Annotated[
        str, Meta(description="What the host did then, the kind of copy, or what is unknown.")
    ] = ""


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
    exposed_copies: Annotated[Sequence[Portion], Meta(description="Adds up to exposed_copy_ns.")] = ()


PARTS = ("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
"""The fields of steps that add up to the duration."""


class RankSummary(Struct, frozen=True):
    """One rank."""

    rank: RankNumber
    host: str
    work: WorkIn
    steps: Sequence[Step]
    recording: Annotated[
        Step | None, Meta(description="From the first to the last work of the recording, without causes.")
    ] = None
    streams: Annotated[Sequence[Stream], Meta(description="The busiest first.")] = ()
    launches: Launches | None = None
    memory: Sequence[Memory] = ()
    later_work_ns: Annotated[
        Nanoseconds, Meta(description="Device work that ran in a later step than its launch.")
    ] = 0


class KernelRow(Struct, frozen=True):
    """All kernels of one name on all ranks."""

    name: str
    count: Count
    total_ns: Nanoseconds
    ranks: Annotated[Count, Meta(description="Number of ranks that ran it.")]
    share: Annotated[float, Meta(description="Of the time of all kernels.")]
    low_ns: Annotated[Nanoseconds, Meta(description="The shortest.")]
    high_ns: Annotated[Nanoseconds, Meta(description="The longest.")]
    communication: bool
    queue_ns: Annotated[
        Nanoseconds, Meta(description="From the end of the launch until its stream was free, of all.")
    ]
    launch_ns: Annotated[
        Nanoseconds,
        Meta(description="From then, or from the end of the launch, until it started, of all."),
    ]
    operator: Annotated[str, Meta(description="The innermost operator around most of its launches.")]
    module: Annotated[
        str,
        Meta(description="The same of classes of modules; of backward work that of the forward operator."),
    ]
    line: Annotated[str, Meta(description="The same of functions of the program.")]
    source_lines: Annotated[str, Meta(description="Lines of the program that a generated kernel computes.")]
    stack: Annotated[
        Sequence[str],
        Meta(
            description="The calls around the launch of the longest, innermost first; of the longest kernels."
        ),
    ] = ()


class OperatorRow(Struct, frozen=True):
    """All operators of one name on all ranks."""

    name: str
    count: Count
    total_ns: Annotated[
        Nanoseconds, Meta(description="On the host, without calls within calls of the same name.")
    ]
    self_ns: Annotated[Nanoseconds, Meta(description="On the host, without what they call.")]
    device_ns: Annotated[
        Nanoseconds, Meta(description="Of the device work that they launch, also through others.")
    ]
    ranks: Count


class ShapeRow(Struct, frozen=True):
    """All operators of one name that launch device work themselves, with inputs of the same shapes and types."""

    name: str
    shapes: Annotated[str, Meta(description="Sizes and types of the inputs, as recorded with record_shapes.")]
    count: Count
    total_ns: Nanoseconds
    self_ns: Nanoseconds
    device_ns: Nanoseconds
    ranks: Count


class ModuleRow(Struct, frozen=True):
    """All calls of one module (`nn.Module: Linear_3`) on all ranks."""

    name: str
    count: Count
    total_ns: Nanoseconds
    self_ns: Nanoseconds
    device_ns: Annotated[Nanoseconds, Meta(description="Of forward work.")]
    backward_device_ns: Annotated[
        Nanoseconds, Meta(description="Of the backward work of operators that it called.")
    ]
    ranks: Count


class LineRow(Struct, frozen=True):
    """All calls of one Python function on all ranks: `train.py(20): step`."""

    name: str
    count: Count
    total_ns: Nanoseconds
    self_ns: Nanoseconds
    device_ns: Nanoseconds
    ranks: Count


class GapRow(Struct, frozen=True):
    """Idle time before work whose launch came late, by what launched it."""

    operator: Annotated[str, Meta(description="The innermost operator around the launch.")]
    within: Annotated[str, Meta(description="The outermost operator or annotation, other than a step.")]
    line: Annotated[str, Meta(description="The innermost function of the program.")]
    count: Count
    idle_ns: Nanoseconds
    ranks: Count


class WaitRow(Struct, frozen=True):
    """Calls in which the host waits for the device, by where they were made."""

    call: str
    operator: str
    line: str
    count: Count
    host_ns: Annotated[Nanoseconds, Meta(description="In these calls.")]
    idle_ns: Annotated[Nanoseconds, Meta(description="Idle time that began during them.")]
    ranks: Count


class Stream(Struct, frozen=True):
    """One stream of one rank, within the steps."""

    name: str
    device: str
    count: Count
    busy_ns: Nanoseconds
    communication_ns: Nanoseconds
    copy_ns: Nanoseconds


class Launches(Struct, frozen=True):
    """How work got onto the devices of one rank."""

    count: Annotated[Count, Meta(description="Works that were launched.")]
    unknown: Annotated[Count, Meta(description="Works whose launch was not recorded.")]
    calls: Annotated[Count, Meta(description="Calls that launched them.")]
    calls_ns: Annotated[Nanoseconds, Meta(description="Time of these calls.")]
    queue_p50_ns: Nanoseconds
    queue_p90_ns: Nanoseconds
    launch_p50_ns: Nanoseconds
    launch_p90_ns: Nanoseconds
    shorter_than_launch: Annotated[Count, Meta(description="Kernels that are shorter than their launch.")]
    graph_launches: Count
    graph_work: Annotated[Count, Meta(description="Works that graphs contain.")]
    graph_ns: Annotated[Nanoseconds, Meta(description="Time of these works.")]


class Memory(Struct, frozen=True):
    """One counter of memory of one rank, within the steps."""

    counter: str
    peak_bytes: Count
    peak_at_ns: int
    peak_in: Annotated[str, Meta(description="The innermost operator at that time.")]
    first_bytes: Count
    last_bytes: Count
    over_time: Annotated[
        Sequence[tuple[int, Count]], Meta(description="Times, and the largest value until the next one.")
    ]


class PathStep(Struct, frozen=True):
    """The critical path in one step: from its begin on the first rank to that of the next one."""

    step: Annotated[int | None, Meta(description="Null: not all ranks recorded the same steps.")]
    start_ns: int
    length_ns: Nanoseconds
    by_kind: dict[str, Nanoseconds]
    by_rank: dict[str, Nanoseconds]


class PathPart(Struct, frozen=True):
    """All parts of the critical path of one kind and name."""

    kind: str
    name: Annotated[str, Meta(description="The kernel or operator; of delays, what was delayed.")]
    total_ns: Nanoseconds
    count: Count


class CriticalPath(Struct, frozen=True):
    """The chain of causes that ended last, across ranks. Each division adds up to the length."""

    length_ns: Annotated[
        Nanoseconds, Meta(description="From the begin of the first step to the end of the last.")
    ]
    by_kind: dict[str, Nanoseconds]
    by_rank: dict[str, Nanoseconds]
    by_module: Annotated[
        dict[str, Nanoseconds],
        Meta(description="By module, else by annotation of the program; empty name: outside of all."),
    ]
    steps: Sequence[PathStep]
    longest: Annotated[Sequence[PathPart], Meta(description="The parts that take most time.")]
    uncertainty_ns: Annotated[
        Nanoseconds | None,
        Meta(description="Possible error of clocks where it changes ranks; null if unbounded."),
    ]
    contradicted: Annotated[
        Count, Meta(description="Parts of collectives that ended before another rank came, by the clocks.")
    ]


class WhatIf(Struct, frozen=True):
    """How long all steps together would take if something were different, by replay."""

    question: str
    answered: Annotated[
        bool,
        Meta(
            description="False: the replay of the unchanged job is off by more than 3 %, or times are wrong."
        ),
    ]
    why_not: str
    steps: Count
    recorded_ns: Nanoseconds
    replayed_ns: Annotated[Nanoseconds, Meta(description="The replay of the unchanged job.")]
    error: Annotated[float, Meta(description="Of that replay, as a part of the recorded time.")]
    expected_ns: Annotated[int | None, Meta(description="Null: no answer.")]
    saving_ns: int | None
    share: Annotated[float | None, Meta(description="The saving as a part of the recorded time.")]
    changed: Annotated[
        Count, Meta(description="Number of pieces of threads and streams with another duration.")
    ]
    notes: Sequence[str]


class StepTime(Struct, frozen=True):
    """Durations of steps: of each step that of its slowest rank."""

    count: Count
    mean: Nanoseconds = 0
    p50: Nanoseconds = 0
    p90: Nanoseconds = 0
    low: Nanoseconds = 0
    high: Nanoseconds = 0


OWN = "summary."
"""How the reasons of notes begin that are about the summary itself; all others are findings of the inputs."""


class Note(Struct, frozen=True):
    """What must be known to read the numbers, or what does not fit."""

    severity: Severity
    reason: Annotated[str, Meta(description="The kind of note, for programs.")]
    message: str


class Summary(Struct, frozen=True):
    """Result of `tracelink summary --json`."""

    verdict: Annotated[Sequence[str], Meta(description="What holds the job back, in up to three sentences.")]
    ranks: Sequence[RankSummary]
    step_time: StepTime
    kernels: Annotated[Sequence[KernelRow], Meta(description="The longest first, as all tables.")]
    operators: Sequence[OperatorRow]
    modules: Sequence[ModuleRow]
    lines: Sequence[LineRow]
    gaps: Sequence[GapRow]
    waits: Sequence[WaitRow]
    shapes: Annotated[Sequence[ShapeRow], Meta(description="Empty unless they were requested.")]
    collectives: Annotated[
        Sequence[CollectiveRow], Meta(description="Those that ranks spent most time in first.")
    ]
    communication: Communication
    critical_path: Annotated[
        CriticalPath | None, Meta(description="Null: no rank has a profile, or times are wrong.")
    ]
    what_if: Annotated[Sequence[WhatIf], Meta(description="Empty without --what-if.")]
    notes: Sequence[Note]

    def __repr__(self) -> str:
        from tracelink.answers.model.tables import overview_of

        return as_text(*overview_of(self))

    def _repr_html_(self) -> str:
        from tracelink.answers.model.tables import overview_of

        return as_html(*overview_of(self))

    @overload
    def table(self, name: Literal["steps"]) -> ResultTable[StepRow]: ...

    @overload
    def table(self, name: Literal["breakdown"]) -> ResultTable[BreakdownRow]: ...

    @overload
    def table(self, name: Literal["causes"]) -> ResultTable[CauseRow]: ...

    @overload
    def table(self, name: Literal["kernels"]) -> ResultTable[KernelRow]: ...

    @overload
    def table(self, name: Literal["operators"]) -> ResultTable[OperatorRow]: ...

    @overload
    def table(self, name: Literal["modules"]) -> ResultTable[ModuleRow]: ...

    @overload
    def table(self, name: Literal["lines"]) -> ResultTable[LineRow]: ...

    @overload
    def table(self, name: Literal["critical_path"]) -> ResultTable[PathRow]: ...

    @overload
    def table(self, name: str) -> ResultTable[Any]: ...

    def table(self, name: str) -> ResultTable[Any]:
        """Returns one table of the summary.

        Args:
            name: "steps", "breakdown", "causes", "streams", "launches", "memory", "memory_over_time", "kernels",
                "operators", "modules", "lines", "gaps", "waits", "collectives", "what_if", "notes", "bandwidths",
                "late", "delays", "patterns", "pairs", "exchanges", "critical_path", "path_steps" or "path_parts".

        Raises:
            UsageError: There is no such table.
        """
        from tracelink.answers.model.tables import table_of

        return table_of(self, name)

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
