"""The result of reading compile logs: a table for each question."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated

from tracelink._model.fields import (
    Count,
    Doc,
    Identifier,
    Nanoseconds,
    Positive,
    RankNumber,
    Ranks,
    Row,
    Shown,
    Text,
    Unit,
    UnixNanoseconds,
)
from tracelink._model.findings import Finding
from tracelink._model.records import Frame
from tracelink._model.results import Result
from tracelink._model.trace import Source


class Status(StrEnum):
    """How a compilation ended."""

    OK = "ok"
    EMPTY = "empty"
    """It has no operation: nothing was compiled."""
    BREAK = "break"
    """It began again because of a graph break."""
    ERROR = "error"
    OPEN = "open"
    """The log ends before it does."""
    UNKNOWN = "unknown"
    """The log has no record of its end, and goes on."""


Id = Annotated[str, Doc("frame/compile, as torch prints it in brackets; empty if unknown."), Shown("id")]
RunNumber = Annotated[Positive, Doc("Of the runs in the folder, from 1."), Unit.NAME]
File = Annotated[str, Shown(longest=48)]
Line = Annotated[int | None, Unit.NAME]
Ids = Annotated[Sequence[Id], Shown("ids", longest=40)]
Operations = Annotated[Sequence[str], Doc("In order."), Shown(longest=100)]
Reason = Annotated[str, Shown(longest=100)]
Function = Annotated[str, Shown(longest=60)]


class OfFunction(Row, frozen=True):
    """What happened to a function, why, and where it is or where that happened."""

    rank: RankNumber
    id: Id
    function: Function = ""
    reason: Annotated[Reason, Doc("The guard that failed, the error, or the reason of a graph break.")] = ""
    file: Annotated[File, Shown(drop=1)] = ""
    line: Annotated[Line, Shown(drop=2)] = None


class Compiled(OfFunction, frozen=True, kw_only=True):
    """One compilation of a function, or of its backward graph."""

    status: Status
    start_ns: Annotated[UnixNanoseconds | None, Shown(drop=3)] = None
    duration_ns: Annotated[Nanoseconds | None, Shown("time")] = None
    runtime_ns: Annotated[
        Nanoseconds | None,
        Doc("How long the compiled code ran, in the profiles of its process among the inputs."),
    ] = None
    recompile_of: Annotated[
        str, Doc("The compilation whose guard failed; empty if there is none."), Shown(drop=4)
    ] = ""
    backward: bool = False
    operations: Count | None = None
    guards: Count | None = None
    restarts: Count = 0
    called_at: Annotated[str, Doc("The line that called the function: `train.py:58`.")] = ""
    stages: Annotated[Mapping[str, Nanoseconds], Doc("Nanoseconds of each stage.")] = {}
    runs: Annotated[Count | None, Doc("How often the compiled code ran, in the same profiles.")] = None
    guard_at: Annotated[
        str, Doc("The file and line that the failed guard is about; empty if it is not recorded.")
    ] = ""


class GraphBreak(OfFunction, frozen=True):
    """Where the compiler gave up a graph."""

    count: Positive = 1
    cost_ns: Annotated[
        Nanoseconds,
        Doc("Compile time of the attempts that ended there, and of the function that goes on after it."),
    ] = 0


class Failure(OfFunction, frozen=True, kw_only=True):
    """A compilation that failed."""

    type: Text


class OpenPhase(Row, frozen=True):
    """Work that had begun and not ended when the log ends."""

    rank: RankNumber
    name: Annotated[str, Shown("phase")]
    id: Id
    since_ns: Annotated[UnixNanoseconds, Shown(drop=1)]
    for_ns: Annotated[Nanoseconds, Doc("Until the last record of the log.")]
    function: Function = ""


class Divergence(Row, frozen=True):
    """Where ranks compiled different things: the first record that differs."""

    outliers: Annotated[Ranks, Shown("ranks that differ")]
    what: Annotated[
        Text,
        Doc("compile, collectives, recompilations, graphs, generated code, tensors or execution order."),
        Shown("in what"),
    ]
    id: Annotated[Id, Shown("first at")]
    found: Annotated[str, Doc("What the outliers have there."), Shown("found there", longest=160)]
    expected: Annotated[
        str, Doc("What the other ranks have there."), Shown("on the other ranks", longest=160)
    ]
    tie: Annotated[bool, Doc("Whether no majority shows which ranks are right."), Shown(hidden=True)] = False
    run: Annotated[RunNumber, Shown(hidden=True)] = 1


class CacheUse(Row, frozen=True):
    """How a cache answered for one graph."""

    rank: RankNumber
    id: Id
    cache: Text
    state: Annotated[Text, Shown("answer")]
    key: str


class PartialHit(Row, frozen=True):
    """A graph that a cache had on some ranks only: those waited for the others, which compiled it."""

    id: Id
    function: Function
    cache: Annotated[Text, Shown("hit on some ranks only")]
    hit: Annotated[Ranks, Doc("Ranks on which all answers were hits."), Shown("hit on ranks")]
    missed: Annotated[Ranks, Doc("The other ranks that asked."), Shown("not on ranks")]
    run: Annotated[RunNumber, Shown(hidden=True)] = 1


class OfGraph(Row, frozen=True):
    """What a rank has of one graph of a compilation."""

    rank: RankNumber
    id: Id
    graph: Annotated[
        Positive,
        Unit.NAME,
        Doc("Of the graphs of a compilation, from 1; the second is often the backward one."),
    ]


class Schedule(OfGraph, frozen=True):
    """The collectives of one graph, in the order in which inductor will call them."""

    operations: Operations
    runs: Annotated[
        Count | None,
        Doc("How often exactly these ran; null without a profile of the process."),
        Shown("runs on each rank"),
    ] = None


class Unscheduled(Row, frozen=True):
    """Runs of compiled code that called other collectives than its schedules."""

    rank: RankNumber
    id: Id
    backward: bool
    operations: Annotated[Operations, Doc("What they called instead."), Shown("called", longest=100)]
    runs: Positive
    function: Annotated[Function, Shown("ran other collectives than scheduled", longest=60)] = ""


class Estimate(OfGraph, frozen=True):
    """What inductor thinks that one run of a graph takes."""

    operations: Annotated[Count, Shown(drop=2)]
    collectives: Annotated[Count, Shown(drop=3)]
    time_ns: Nanoseconds
    collective_ns: Annotated[
        Nanoseconds, Doc("The part of it that is communication."), Shown("communication", drop=4)
    ]


class Execution(Row, frozen=True):
    """Which graphs ran, in order."""

    rank: RankNumber
    ids: Ids


class Delay(Row, frozen=True):
    """A collective whose last rank came late because it compiled."""

    group: Annotated[str, Shown(longest=40)]
    sequence: Identifier | None
    operation: Annotated[str, Shown("waited for a compilation")]
    rank: Annotated[RankNumber, Doc("The rank that compiled, and came last."), Shown("late rank")]
    ids: Annotated[Ids, Doc("What it compiled meanwhile.")]
    function: Annotated[Function, Shown("compiled", longest=60)]
    start_ns: Annotated[UnixNanoseconds, Doc("When the first rank entered, in ns since 1970.")]
    delay_ns: Annotated[
        Nanoseconds,
        Doc("How long of the time until the last rank entered that rank compiled."),
        Shown("waited"),
    ]
    waiting: Annotated[Ranks, Doc("Ranks that waited meanwhile."), Shown("ranks that waited", drop=1)]


class Export(Row, frozen=True):
    """What draft export met in the program."""

    rank: Annotated[RankNumber, Shown(drop=1)]
    what: Annotated[Text, Shown("draft export")]
    about: Annotated[
        str, Doc("The expression and its value with the example, or the operator."), Shown(longest=60)
    ]
    reason: Reason
    file: File
    line: Line
    count: Annotated[Positive, Shown("times")] = 1


class RunOfJob(Row, frozen=True):
    """One start of the job; a folder can have the logs of several."""

    number: RunNumber
    ranks: Ranks
    start_ns: UnixNanoseconds | None
    logs: Positive


class FunctionTime(Row, frozen=True):
    """A function in both runs, by its name and the place of its definition."""

    function: Annotated[Function, Doc("Empty for a difference between ranks.")]
    file: Annotated[File, Doc("The file's name, without its folder; in the run after, if it is there.")]
    line: Line
    before: Annotated[Count, Doc("How often, on the rank with most.")]
    after: Count
    before_ns: Annotated[
        Nanoseconds, Doc("Its cost, on the rank where it cost most."), Shown("time before", drop=1)
    ] = 0
    after_ns: Annotated[Nanoseconds, Shown("time after", drop=3)] = 0
    is_worse: Annotated[
        bool, Doc("Whether it takes more than 1 s and 20 % longer, or happens more often.")
    ] = False


class Change(FunctionTime, frozen=True):
    """Something that happens in one run, and not or less often in the other one."""

    reason: Annotated[Reason, Shown("because", longest=100)] = ""


class CompileDiff(Row, frozen=True):
    """What changed from one run to another; tables have only what differs, except that of functions."""

    is_worse: Annotated[
        bool, Doc("Whether something is new or more frequent, or a function compiles slower.")
    ]
    before_ns: Annotated[Nanoseconds, Doc("Time of all compilations, on the rank where it took longest.")]
    after_ns: Nanoseconds
    recompiles: Sequence[Change]
    graph_breaks: Sequence[Change]
    failures: Sequence[Change]
    open: Sequence[Change]
    divergences: Sequence[Change]
    functions: Annotated[Sequence[FunctionTime], Doc("The largest difference first.")]

    @property
    def changes(self) -> list[tuple[str, Change]]:
        """All changes except those of times, each with what changed."""
        tables = {
            "failure": self.failures,
            "open work": self.open,
            "difference between ranks": self.divergences,
            "graph break": self.graph_breaks,
            "recompilation": self.recompiles,
        }
        return [(what, one) for what, rows in tables.items() for one in rows]


TORCH = re.compile(r"/torch/(?:_\w+|nn|utils|multiprocessing|distributed|autograd|fx)/")
"""Files of torch itself."""
ADDRESS = re.compile(r"\b(?:0x[0-9a-fA-F]+|\d{7,})\b")


class CompileReport(Result, frozen=True):
    """What torch.compile compiled, why, at what cost, and what failed."""

    ranks: Sequence[RankNumber]
    compiles: Annotated[Sequence[Compiled], Doc("In the order of time, rank by rank.")]
    graph_breaks: Sequence[GraphBreak]
    failures: Sequence[Failure]
    open: Annotated[Sequence[OpenPhase], Doc("The longest first.")]
    divergences: Sequence[Divergence]
    caches: Sequence[CacheUse]
    partial_hits: Annotated[
        Sequence[PartialHit], Doc("Caches that hit on some ranks only; this is no divergence.")
    ]
    artifacts: Annotated[Mapping[str, Positive], Doc("Number of artifacts of each name.")]
    kinds: Annotated[Mapping[str, Positive], Doc("Number of records of each kind.")]
    runs: Annotated[Sequence[RunOfJob], Doc("In the order of time.")]
    schedules: Sequence[Schedule]
    unscheduled: Sequence[Unscheduled]
    estimates: Sequence[Estimate]
    executions: Sequence[Execution]
    delays: Annotated[
        Sequence[Delay], Doc("The longest first; empty without profiles or dumps of the ranks.")
    ]
    exports: Annotated[Sequence[Export], Doc("What draft export met.")]
    sources: Annotated[Sequence[Source], Doc("The logs.")]
    findings: Sequence[Finding]

    drawn_by = "tracelink._compile.report"

    @property
    def is_clean(self) -> bool:
        """True if nothing failed, differs between ranks, or is open."""
        return not (self.failures or self.open or self.divergences)


def caller_in_words(stack: Sequence[Frame], function: str) -> str:
    """The line that called a function: `train.py:58 (train_step)`; frames of torch are left out."""
    own = stack[-1:] if stack and stack[-1].name == function else ()
    callers = stack[: len(stack) - len(own)]
    frame = next((frame for frame in reversed(callers) if not TORCH.search(frame.filename)), None)
    return f"{frame.filename.rsplit('/', 1)[-1]}:{frame.line} ({frame.name})" if frame else ""


def lasting(reason: str) -> str:
    """A reason without numbers that differ in each process, such as ids of objects."""
    return ADDRESS.sub("...", reason)
