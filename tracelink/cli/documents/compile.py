"""What `compile --json` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar

from msgspec import Meta, Struct

from tracelink.cli.documents.results import (
    Count,
    Finding,
    Nanoseconds,
    Positive,
    RankNumber,
    Text,
    findings_of,
)
from tracelink.compiling import diff as compiling_diff
from tracelink.compiling import model
from tracelink.compiling.diff import CompileDiff
from tracelink.compiling.model import CompileReport, Status

Time = Annotated[int | None, Meta(description="In ns since 1970.")]
CompileId = Annotated[
    str, Meta(description="frame/compile, as torch prints it in brackets; empty if unknown.")
]

RunNumber = Annotated[Positive, Meta(description="Of the runs in the folder, from 1.")]
GraphNumber = Annotated[Positive, Meta(description="Of the graphs of a compilation, from 1.")]


class Compiled(Struct, frozen=True):
    """One compilation of a function, or of its backward graph."""

    rank: RankNumber
    id: CompileId
    function: str
    status: Status
    start_ns: Time
    duration_ns: Nanoseconds | None
    runtime_ns: Annotated[
        Nanoseconds | None,
        Meta(description="How long the compiled code ran, in the profiles of its process among the inputs."),
    ]
    recompile_of: Annotated[
        str, Meta(description="The compilation whose guard failed; empty if there is none.")
    ]
    reason: Annotated[str, Meta(description="The guard that failed.")]
    backward: bool
    file: str
    line: int | None
    operations: Count | None
    guards: Count | None
    restarts: Count
    called_at: str
    stages: Annotated[Mapping[str, Nanoseconds], Meta(description="Nanoseconds of each stage.")]
    runs: Annotated[Count | None, Meta(description="How often the compiled code ran, in the same profiles.")]
    guard_at: Annotated[
        str,
        Meta(description="The file and line that the failed guard is about; empty if it is not recorded."),
    ]


class GraphBreak(Struct, frozen=True):
    """Where the compiler gave up a graph."""

    rank: RankNumber
    id: CompileId
    reason: str
    file: str
    line: int | None
    count: Positive
    cost_ns: Annotated[
        Nanoseconds,
        Meta(
            description="Compile time of the attempts that ended there, and of the function that goes on after it."
        ),
    ]


class Failure(Struct, frozen=True):
    """A compilation that failed."""

    rank: RankNumber
    id: CompileId
    function: str
    type: Text
    reason: str
    file: str
    line: int | None


class Open(Struct, frozen=True):
    """Work that had begun and not ended when the log ends."""

    rank: RankNumber
    name: str
    id: CompileId
    since_ns: int
    for_ns: Annotated[Nanoseconds, Meta(description="Until the last record of the log.")]
    function: str


class Divergence(Struct, frozen=True):
    """Where ranks compiled different things: the first record that differs."""

    outliers: Sequence[RankNumber]
    what: Text
    id: CompileId
    found: Annotated[str, Meta(description="What the outliers have there.")]
    expected: Annotated[str, Meta(description="What the other ranks have there.")]
    tie: Annotated[bool, Meta(description="Whether no majority shows which ranks are right.")]
    run: RunNumber


class CacheUse(Struct, frozen=True):
    """How a cache answered for one graph."""

    rank: RankNumber
    id: CompileId
    cache: Text
    state: Text
    key: str


class PartialHit(Struct, frozen=True):
    """A graph that a cache had on some ranks only; this is no divergence."""

    id: CompileId
    function: str
    cache: Text
    hit: Annotated[Sequence[RankNumber], Meta(description="Ranks on which all answers were hits.")]
    missed: Annotated[Sequence[RankNumber], Meta(description="The other ranks that asked.")]
    run: RunNumber


class RunOfJob(Struct, frozen=True):
    """One start of the job; a folder can have the logs of several."""

    number: RunNumber
    ranks: Sequence[RankNumber]
    start_ns: Time
    logs: Positive


class Schedule(Struct, frozen=True):
    """The collectives of one graph, in the order in which inductor will call them."""

    rank: RankNumber
    id: CompileId
    graph: GraphNumber
    operations: Sequence[str]
    runs: Annotated[
        Count | None, Meta(description="How often exactly these ran; null without a profile of the process.")
    ]


class Unscheduled(Struct, frozen=True):
    """Runs of compiled code that called other collectives than its schedules."""

    rank: RankNumber
    id: CompileId
    backward: bool
    operations: Annotated[Sequence[str], Meta(description="What they called instead.")]
    runs: Positive


class Estimate(Struct, frozen=True):
    """What inductor thinks that one run of a graph takes."""

    rank: RankNumber
    id: CompileId
    graph: GraphNumber
    operations: Count
    collectives: Count
    time_ns: Nanoseconds
    collective_ns: Annotated[Nanoseconds, Meta(description="The part of it that is communication.")]


class Execution(Struct, frozen=True):
    """Which graphs ran, in order."""

    rank: RankNumber
    ids: Sequence[CompileId]


class Delay(Struct, frozen=True):
    """A collective whose last rank came late because it compiled."""

    group: str
    sequence: int | None
    operation: str
    rank: Annotated[RankNumber, Meta(description="The rank that compiled, and came last.")]
    ids: Annotated[Sequence[CompileId], Meta(description="What it compiled meanwhile.")]
    function: str
    start_ns: Annotated[int, Meta(description="When the first rank entered, in ns since 1970.")]
    delay_ns: Annotated[
        Nanoseconds, Meta(description="How long of the time until the last rank entered that rank compiled.")
    ]
    waiting: Annotated[Sequence[RankNumber], Meta(description="Ranks that waited meanwhile.")]


class Export(Struct, frozen=True):
    """What draft export met in the program."""

    rank: RankNumber
    what: Text
    about: Annotated[str, Meta(description="The expression and its value with the example, or the operator.")]
    reason: str
    file: str
    line: int | None
    count: Positive


class Change(Struct, frozen=True):
    """Something that happens in one run, and not or less often in the other one."""

    function: str
    file: Annotated[str, Meta(description="The file's name, without its folder.")]
    line: int | None
    reason: str
    before: Annotated[Count, Meta(description="How often, on the rank where it happens most.")]
    after: Count
    before_ns: Annotated[Nanoseconds, Meta(description="Its cost, on the rank where it cost most.")]
    after_ns: Nanoseconds
    is_worse: Annotated[bool, Meta(description="Whether it is new, or happens more often.")]


class FunctionTime(Struct, frozen=True):
    """A function in both runs, by its name and the place of its definition."""

    function: str
    file: Annotated[str, Meta(description="The file's name, without its folder.")]
    line: int | None
    before: Annotated[Count, Meta(description="Compilations on the rank with most.")]
    after: Count
    before_ns: Annotated[Nanoseconds, Meta(description="On the rank where it took longest.")]
    after_ns: Nanoseconds
    is_worse: Annotated[bool, Meta(description="Whether it takes more than 1 s and 20 % longer.")]


class Diff(Struct, frozen=True):
    """What changed from the run in PATHS to that of --diff."""

    is_worse: bool
    before_ns: Annotated[
        Nanoseconds, Meta(description="Time of all compilations, on the rank where it took longest.")
    ]
    after_ns: Nanoseconds
    recompiles: Sequence[Change]
    graph_breaks: Sequence[Change]
    failures: Sequence[Change]
    open: Sequence[Change]
    divergences: Sequence[Change]
    functions: Annotated[Sequence[FunctionTime], Meta(description="The largest difference first.")]


class Compile(Struct, frozen=True):
    """Result of `tracelink compile --json`."""

    ranks: Sequence[RankNumber]
    compiles: Sequence[Compiled]
    graph_breaks: Sequence[GraphBreak]
    failures: Sequence[Failure]
    open: Sequence[Open]
    divergences: Sequence[Divergence]
    caches: Sequence[CacheUse]
    partial_hits: Sequence[PartialHit]
    artifacts: Annotated[Mapping[str, Positive], Meta(description="Number of artifacts of each name.")]
    kinds: Annotated[Mapping[str, Positive], Meta(description="Number of records of each kind.")]
    runs: Sequence[RunOfJob]
    schedules: Sequence[Schedule]
    unscheduled: Sequence[Unscheduled]
    estimates: Sequence[Estimate]
    executions: Sequence[Execution]
    delays: Annotated[
        Sequence[Delay], Meta(description="The longest first; empty without profiles or dumps of the ranks.")
    ]
    exports: Annotated[Sequence[Export], Meta(description="What draft export met.")]
    findings: Sequence[Finding]
    diff: Annotated[
        Diff | None, Meta(description="With --diff only; the other tables are those of the run in PATHS.")
    ] = None


def compile_document(report: CompileReport, diff: CompileDiff | None = None) -> Compile:
    """The report as a document."""
    return Compile(
        report.ranks,
        [_of(Compiled, row) for row in report.compiles],
        [_of(GraphBreak, row) for row in report.graph_breaks],
        [_of(Failure, row) for row in report.failures],
        [_of(Open, row) for row in report.open],
        [_of(Divergence, row) for row in report.divergences],
        [_of(CacheUse, row) for row in report.caches],
        [_of(PartialHit, row) for row in report.partial_hits],
        report.artifacts,
        report.kinds,
        [_of(RunOfJob, row) for row in report.runs],
        [_of(Schedule, row) for row in report.schedules],
        [_of(Unscheduled, row) for row in report.unscheduled],
        [_of(Estimate, row) for row in report.estimates],
        [_of(Execution, row) for row in report.executions],
        [_of(Delay, row) for row in report.delays],
        [_of(Export, row) for row in report.exports],
        findings_of(report.findings),
        _diff(diff) if diff else None,
    )


def _diff(diff: CompileDiff) -> Diff:
    return Diff(
        diff.is_worse,
        diff.before_ns,
        diff.after_ns,
        [_of(Change, row) for row in diff.recompiles],
        [_of(Change, row) for row in diff.graph_breaks],
        [_of(Change, row) for row in diff.failures],
        [_of(Change, row) for row in diff.open],
        [_of(Change, row) for row in diff.divergences],
        [_of(FunctionTime, row) for row in diff.functions],
    )


Document = TypeVar("Document", bound=Struct)
Row = (
    model.Compiled
    | model.GraphBreak
    | model.Failure
    | model.OpenPhase
    | model.Divergence
    | model.CacheUse
    | model.PartialHit
    | model.RunOfJob
    | model.Schedule
    | model.Unscheduled
    | model.Estimate
    | model.Execution
    | model.Delay
    | model.Export
    | compiling_diff.Change
    | compiling_diff.FunctionTime
)


def _of(document: type[Document], row: Row) -> Document:
    """A row of a table; the names of its columns are those of the document."""
    return document(**{name: getattr(row, name) for name in document.__struct_fields__})
