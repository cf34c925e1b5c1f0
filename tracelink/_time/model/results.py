"""The results of `tracelink.summary`, as its command prints them with --json. Times are ns; instants count from 1970.

docs/answers.md defines every number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Struct

from tracelink._model.clock import Clock
from tracelink._model.fields import (
    Bytes,
    Count,
    Doc,
    Identifier,
    Nanoseconds,
    RankNumber,
    Row,
    Share,
    Shown,
    SignedNanoseconds,
    UnixNanoseconds,
)
from tracelink._model.findings import Finding
from tracelink._model.records import readable_name
from tracelink._model.results import Result, rows_of
from tracelink._model.text import kernel_in_words
from tracelink._time.model.communication import CollectiveRow, Communication


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


NAME = Shown(longest=44, text=readable_name)
LINE = Shown("line", 2, 44, text=readable_name)
"""How names of calls, and functions of the program, are shown."""


class Portion(Row, frozen=True):
    """A part of the idle or exposed time, and its cause."""

    cause: Cause
    ns: Nanoseconds
    rank: Annotated[RankNumber | None, Doc("The rank that was waited for.")] = None
    during: Annotated[str, Doc("What the host did then, the kind of copy, or what is unknown.")] = ""


PARTS = ("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
"""The fields of steps that add up to the duration."""


class Step(Row, frozen=True):
    """One step of one rank. Compute, exposed communication, exposed copies and idle add up to the duration."""

    rank: RankNumber
    step: Annotated[Identifier | None, Doc("Null: the recording has no steps; it is all of it.")]
    start_ns: UnixNanoseconds
    duration_ns: Nanoseconds
    compute_ns: Nanoseconds
    exposed_communication_ns: Nanoseconds
    exposed_copy_ns: Annotated[Nanoseconds, Shown("exposed copies")]
    idle_ns: Nanoseconds
    communication_ns: Annotated[Nanoseconds, Doc("With what compute covers.")]
    copy_ns: Annotated[Nanoseconds, Doc("With what compute and communication cover.")]
    idle: Annotated[Sequence[Portion], Doc("Adds up to idle_ns.")] = ()
    exposed_communication: Annotated[Sequence[Portion], Doc("Adds up to exposed_communication_ns.")] = ()
    exposed_copies: Annotated[Sequence[Portion], Doc("Adds up to exposed_copy_ns.")] = ()

    plotted = PARTS


class BreakdownRow(Row, frozen=True):
    """All steps of one rank, or of several."""

    rank: RankNumber
    steps: Annotated[Count, Shown(drop=1)]
    duration_ns: Annotated[Nanoseconds, Shown("all steps")]
    step_ns: Annotated[Nanoseconds, Doc("The mean duration of a step."), Shown("a step")]
    compute_ns: Nanoseconds
    exposed_communication_ns: Nanoseconds
    exposed_copy_ns: Annotated[Nanoseconds, Shown("exposed copies")]
    idle_ns: Nanoseconds
    compute_share: Annotated[Share, Doc("Of the duration, as all shares.")]
    exposed_communication_share: Annotated[Share, Shown("comm.")]
    exposed_copy_share: Annotated[Share, Shown("copies")]
    idle_share: Share

    plotted = PARTS

    @classmethod
    def of(cls, rank: int, steps: Sequence[Step]) -> BreakdownRow:
        """The sums of at least one step."""
        sums = {name: sum(getattr(step, name) for step in steps) for name in ("duration_ns", *PARTS)}
        whole = sums["duration_ns"] or 1
        shares = {f"{name.removesuffix('_ns')}_share": sums[name] / whole for name in PARTS}
        return cls(rank, len(steps), step_ns=sums["duration_ns"] // len(steps), **sums, **shares)


EXPLAINED = {
    "idle": "idle",
    "exposed_communication": "exposed communication",
    "exposed_copies": "exposed copies",
}
"""The fields of steps with causes, and what the table of causes calls them."""


class CauseRow(Row, frozen=True):
    """One cause of idle or exposed time in all steps of one rank."""

    rank: RankNumber
    part: str
    cause: Cause
    waited_for: Annotated[RankNumber | None, Doc("The rank that was waited for.")]
    during: Annotated[str, Doc("What the host did then.")]
    total_ns: Nanoseconds
    share: Annotated[Share, Doc("Of the duration of the steps.")]

    plotted = ("total_ns",)


class Stream(Row, frozen=True):
    """One stream of one rank, within the steps."""

    rank: RankNumber
    name: Annotated[str, Shown("stream")]
    device: str
    count: Annotated[Count, Shown("works")]
    busy_ns: Nanoseconds
    communication_ns: Nanoseconds
    copy_ns: Annotated[Nanoseconds, Shown("copies")]

    plotted = ("busy_ns",)


class Launches(Row, frozen=True):
    """How work got onto the devices of one rank."""

    rank: RankNumber
    count: Annotated[Count, Doc("Works that were launched."), Shown("works")]
    unknown: Annotated[Count, Doc("Works whose launch was not recorded."), Shown("launch unknown")]
    calls: Annotated[Count, Doc("Calls that launched them.")]
    calls_ns: Annotated[Nanoseconds, Doc("Time of these calls."), Shown("in calls")]
    queue_p50_ns: Annotated[Nanoseconds, Shown("queued, median")]
    queue_p90_ns: Annotated[Nanoseconds, Shown("queued, p90")]
    queue_p99_ns: Annotated[
        Nanoseconds, Doc("Of work behind other work of its stream."), Shown("queued, p99")
    ]
    launch_p50_ns: Annotated[Nanoseconds, Shown("launching, median")]
    launch_p90_ns: Annotated[Nanoseconds, Shown("launching, p90")]
    shorter_than_launch: Annotated[Count, Doc("Kernels that are shorter than their launch.")]
    graph_launches: Count
    graph_work: Annotated[Count, Doc("Works that graphs contain."), Shown("works of graphs")]
    graph_ns: Annotated[Nanoseconds, Doc("Time of these works."), Shown("time of graphs")]

    plotted = ("launch_p50_ns", "queue_p50_ns")


class Memory(Row, frozen=True):
    """One counter of memory of one rank, within the steps."""

    rank: RankNumber
    counter: str
    peak_bytes: Bytes
    peak_at_ns: Annotated[UnixNanoseconds, Shown("at")]
    peak_in: Annotated[str, Doc("The innermost operator at that time."), Shown("in")]
    first_bytes: Bytes
    last_bytes: Bytes
    over_time: Annotated[
        Sequence[tuple[UnixNanoseconds, Bytes]], Doc("Times, and the largest value until the next one.")
    ] = ()

    plotted = ("peak_bytes",)


class MemorySample(Row, frozen=True):
    """The most memory from one time until the next one."""

    rank: RankNumber
    counter: str
    time_ns: UnixNanoseconds
    used_bytes: Bytes

    plotted = ("used_bytes",)


class Metric(Row, frozen=True):
    """One gauge of one rank or device, such as the power of a GPU."""

    rank: Identifier
    device: str
    gauge: str
    unit: str
    over_time: Annotated[
        Sequence[tuple[UnixNanoseconds, float]], Doc("Times and values; of many samples some.")
    ] = ()


class RankSummary(Row, frozen=True):
    """One rank."""

    rank: RankNumber
    host: str
    work: WorkIn
    steps: Sequence[Step]
    recording: Annotated[
        Step | None, Doc("From the first to the last work of the recording, without causes.")
    ] = None
    streams: Annotated[Sequence[Stream], Doc("The busiest first.")] = ()
    launches: Launches | None = None
    memory: Sequence[Memory] = ()
    later_work_ns: Annotated[Nanoseconds, Doc("Device work that ran in a later step than its launch.")] = 0


class KernelTotal(Row, frozen=True):
    """All kernels of one name on a rank, and where most of their time was launched."""

    name: Annotated[str, Shown("kernel", longest=62, text=kernel_in_words)]
    communication: bool
    count: Count
    total_ns: Nanoseconds
    low_ns: Annotated[Nanoseconds, Doc("The shortest."), Shown("shortest")]
    high_ns: Annotated[Nanoseconds, Doc("The longest."), Shown("longest")]
    queue_ns: Annotated[
        Nanoseconds, Doc("From the end of the launch until its stream was free, of all."), Shown("queued")
    ]
    launch_ns: Annotated[
        Nanoseconds,
        Doc("From then, or from the end of the launch, until it started, of all."),
        Shown("launching"),
    ]
    operator: Annotated[
        str, Doc("The innermost operator around most of its launches."), Shown("launched by", 3, 36)
    ]
    module: Annotated[
        str, Doc("The same of classes of modules; of backward work that of the forward operator.")
    ]
    line: Annotated[str, Doc("The same of functions of the program."), LINE]
    source_lines: Annotated[
        str, Doc("Lines of the program that a generated kernel computes."), Shown("computes", 1, 44)
    ]
    stack: Annotated[
        Sequence[str],
        Doc("The calls around the launch of the longest, innermost first; of the longest kernels."),
        Shown(hidden=True),
    ]


class KernelRow(KernelTotal, frozen=True):
    """All kernels of one name on all ranks."""

    mean_ns: Nanoseconds
    ranks: Annotated[Count, Doc("Number of ranks that ran it.")]
    share: Annotated[Share, Doc("Of the time of all kernels.")]


class CallRow(Row, frozen=True):
    """All calls of one name on all ranks."""

    name: Annotated[str, NAME]
    count: Count
    total_ns: Annotated[Nanoseconds, Doc("On the host, without calls within calls of the same name.")]
    self_ns: Annotated[Nanoseconds, Doc("On the host, without what they call.")]
    device_ns: Annotated[
        Nanoseconds, Doc("Of the device work that they launch, also through others."), Shown("on devices")
    ]
    ranks: Annotated[Count, Shown(drop=1)]


class OperatorRow(CallRow, frozen=True):
    """All operators of one name on all ranks."""


class ShapeRow(CallRow, frozen=True):
    """All operators of one name that launch device work themselves, with inputs of the same shapes and types."""

    shapes: Annotated[
        str,
        Doc("Sizes and types of the inputs, as recorded with record_shapes."),
        Shown("inputs", longest=80),
    ]


class ModuleRow(CallRow, frozen=True):
    """All calls of one module (`nn.Module: Linear_3`) on all ranks; `device_ns` is that of forward work."""

    backward_device_ns: Annotated[
        Nanoseconds,
        Doc("Of the backward work of operators that it called."),
        Shown("backward on devices", 2),
    ]


class LineRow(CallRow, frozen=True):
    """All calls of one Python function on all ranks: `train.py(20): step`."""


class GapRow(Row, frozen=True):
    """Idle time before work whose launch came late, by what launched it."""

    operator: Annotated[str, Doc("The innermost operator around the launch."), Shown(longest=44)]
    within: Annotated[
        str,
        Doc("The outermost operator or annotation, other than a step."),
        Shown("idle before launches in", longest=44),
    ]
    line: Annotated[str, Doc("The innermost function of the program."), LINE]
    count: Annotated[Count, Shown("gaps")]
    idle_ns: Nanoseconds
    ranks: Count


class WaitRow(Row, frozen=True):
    """Calls in which the host waits for the device, by where they were made."""

    call: Annotated[str, Shown("host waits in", longest=44)]
    operator: Annotated[str, Shown(longest=44)]
    line: Annotated[str, LINE]
    count: Count
    host_ns: Annotated[Nanoseconds, Doc("In these calls."), Shown("waited")]
    idle_ns: Annotated[Nanoseconds, Doc("Idle time that began during them."), Shown("then idle")]
    ranks: Count


class PathStep(Row, frozen=True):
    """The critical path in one step: from its begin on the first rank to that of the next one."""

    step: Annotated[Identifier | None, Doc("Null: not all ranks recorded the same steps.")]
    start_ns: UnixNanoseconds
    length_ns: Nanoseconds
    by_kind: Mapping[str, Nanoseconds] = {}
    by_rank: Mapping[str, Nanoseconds] = {}


class PathPart(Row, frozen=True):
    """All parts of the critical path of one kind and name."""

    kind: str
    name: Annotated[
        str,
        Doc("The kernel or operator; of delays, what was delayed."),
        Shown(longest=60, text=kernel_in_words),
    ]
    total_ns: Annotated[Nanoseconds, Shown("time")]
    count: Count


class PathRow(Row, frozen=True):
    """The critical path on one rank, in one module, or of one kind."""

    by: str
    name: str
    total_ns: Nanoseconds
    share: Annotated[Share, Doc("Of the length of the path.")]


class CriticalPath(Row, frozen=True):
    """The chain of causes that ended last, across ranks. Each division adds up to the length."""

    length_ns: Annotated[Nanoseconds, Doc("From the begin of the first step to the end of the last.")]
    by_kind: Mapping[str, Nanoseconds]
    by_rank: Mapping[str, Nanoseconds]
    by_module: Annotated[
        Mapping[str, Nanoseconds],
        Doc("By module, else by annotation of the program; empty name: outside of all."),
    ]
    steps: Sequence[PathStep]
    longest: Annotated[Sequence[PathPart], Doc("The parts that take most time.")]
    uncertainty_ns: Annotated[
        Nanoseconds | None, Doc("Possible error of clocks where it changes ranks; null if unbounded.")
    ]
    contradicted: Annotated[
        Count, Doc("Parts of collectives that ended before another rank came, by the clocks.")
    ]

    def divided(self) -> list[PathRow]:
        """The rows of each division, the longest first."""
        divisions = {"kind": self.by_kind, "rank": self.by_rank, "module": self.by_module}
        return [
            PathRow(by, name, total, total / (self.length_ns or 1))
            for by, parts in divisions.items()
            for name, total in sorted(parts.items(), key=lambda part: -part[1])
        ]


class WhatIf(Row, frozen=True):
    """How long all steps together would take if something were different, by replay."""

    question: str
    answered: Annotated[
        bool,
        Doc("False: the replay of the unchanged job is off by more than 3 %, or times are wrong."),
    ]
    why_not: str
    steps: Count
    recorded_ns: Annotated[Nanoseconds, Shown("recorded")]
    replayed_ns: Annotated[Nanoseconds, Doc("The replay of the unchanged job.")]
    error: Annotated[
        Share, Doc("Of that replay, as a part of the recorded time."), Shown("error of the replay")
    ]
    expected_ns: Annotated[SignedNanoseconds | None, Doc("Null: no answer.")]
    saving_ns: SignedNanoseconds | None
    share: Annotated[Share | None, Doc("The saving as a part of the recorded time."), Shown("saved")]
    changed: Annotated[Count, Doc("Number of pieces of threads and streams with another duration.")]
    notes: Annotated[Sequence[str], Shown(hidden=True)]


class StepTime(Row, frozen=True):
    """Durations of steps: of each step that of its slowest rank."""

    count: Count
    mean: Nanoseconds = 0
    p50: Nanoseconds = 0
    p90: Nanoseconds = 0
    low: Nanoseconds = 0
    high: Nanoseconds = 0


OWN = "summary."
"""How the reasons of findings begin that are about the summary itself; all others are of the inputs."""


class Summary(Result, frozen=True):
    """Result of `tracelink summary --json`."""

    verdict: Annotated[Sequence[str], Doc("What holds the job back, in up to three sentences.")]
    ranks: Sequence[RankSummary]
    step_time: StepTime
    kernels: Annotated[Sequence[KernelRow], Doc("The longest first, as all tables.")]
    operators: Sequence[OperatorRow]
    modules: Sequence[ModuleRow]
    lines: Sequence[LineRow]
    gaps: Sequence[GapRow]
    waits: Sequence[WaitRow]
    shapes: Annotated[Sequence[ShapeRow], Doc("Empty unless they were requested.")]
    collectives: Annotated[Sequence[CollectiveRow], Doc("Those that ranks spent most time in first.")]
    communication: Communication
    critical_path: Annotated[CriticalPath | None, Doc("Null: no rank has a profile, or times are wrong.")]
    what_if: Annotated[Sequence[WhatIf], Doc("Empty without --what-if.")]
    findings: Annotated[
        Sequence[Finding],
        Doc(
            "What must be known to read the numbers (reasons that begin with `summary.`), and what does not fit."
        ),
    ]
    paths: Annotated[Sequence[str], Doc("The inputs as they were named; empty of a graph.")] = ()
    sources: Annotated[Count, Doc("Files that were read.")] = 0
    start_ns: Annotated[UnixNanoseconds | None, Doc("The first event, on the reference clock.")] = None
    clocks: Sequence[Clock] = ()
    metrics: Sequence[Metric] = ()

    drawn_by = "tracelink._time.report"

    def table_rows(self) -> dict[str, tuple[type[Struct], Sequence[Any]]]:
        """Returns the rows of each table by name: of ranks, the job, its communication and its critical path."""
        path = self.critical_path
        return {
            "steps": (Step, [step for rank in self.ranks for step in rank.steps]),
            "breakdown": (
                BreakdownRow,
                [BreakdownRow.of(rank.rank, rank.steps) for rank in self.ranks if rank.steps],
            ),
            "causes": (CauseRow, [row for rank in self.ranks for row in _causes(rank)]),
            "streams": (Stream, [stream for rank in self.ranks for stream in rank.streams]),
            "launches": (Launches, [rank.launches for rank in self.ranks if rank.launches]),
            "memory": (Memory, [memory for rank in self.ranks for memory in rank.memory]),
            "memory_over_time": (MemorySample, [row for rank in self.ranks for row in _samples(rank)]),
            **rows_of(self),
            **rows_of(self.communication),
            "critical_path": (PathRow, path.divided() if path else ()),
            "path_steps": (PathStep, path.steps if path else ()),
            "path_parts": (PathPart, path.longest if path else ()),
        }


def _causes(rank: RankSummary) -> Iterator[CauseRow]:
    whole = sum(step.duration_ns for step in rank.steps) or 1
    totals: defaultdict[tuple[str, Cause, int | None, str], int] = defaultdict(int)
    for step in rank.steps:
        for field, part in EXPLAINED.items():
            portions: Sequence[Portion] = getattr(step, field)
            for portion in portions:
                totals[part, portion.cause, portion.rank, portion.during] += portion.ns
    for key, total in sorted(totals.items(), key=lambda item: -item[1]):
        yield CauseRow(rank.rank, *key, total, total / whole)


def _samples(rank: RankSummary) -> Iterator[MemorySample]:
    for memory in rank.memory:
        for time, used in memory.over_time:
            yield MemorySample(rank.rank, memory.counter, time, used)
