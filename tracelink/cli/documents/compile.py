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


class GraphBreak(Struct, frozen=True):
    """Where the compiler gave up a graph."""

    rank: RankNumber
    id: CompileId
    reason: str
    file: str
    line: int | None
    count: Positive


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
    | compiling_diff.Change
    | compiling_diff.FunctionTime
)


def _of(document: type[Document], row: Row) -> Document:
    """A row of a table; the names of its columns are those of the document."""
    return document(**{name: getattr(row, name) for name in document.__struct_fields__})
