"""The result of reading compile logs: a table for each question."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from tracelink.model.errors import UsageError, choices
from tracelink.model.findings import Finding
from tracelink.model.records import Frame
from tracelink.model.text import counted
from tracelink.model.trace import SourceInfo

if TYPE_CHECKING:
    import pandas


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


class Compiled(Struct, frozen=True):
    """One compilation of a function, or of its backward graph."""

    rank: int
    id: str
    """`frame/compile`: the function, and how often it was compiled before."""
    function: str
    status: Status
    start_ns: int | None
    duration_ns: int | None
    runtime_ns: int | None
    """How long the compiled code ran, in profiles of its process; None without them, and of what failed."""
    recompile_of: str
    """The id of the compilation whose guard failed; empty if there is none."""
    reason: str
    """The guard that failed."""
    backward: bool = False
    file: str = ""
    line: int | None = None
    operations: int | None = None
    guards: int | None = None
    restarts: int = 0
    called_at: str = ""
    """`train.py:58`: the line that called the function."""
    stages: Mapping[str, int] = field(default_factory=dict)
    """Nanoseconds of each stage."""
    runs: int | None = None
    """How often the compiled code ran, in the same profiles."""
    guard_at: str = ""
    """`train.py:16`: the line of the program that the failed guard is about, where torch records it."""


class GraphBreak(Struct, frozen=True):
    """Where the compiler gave up a graph."""

    rank: int
    id: str
    reason: str
    file: str
    line: int | None
    count: int = 1
    cost_ns: int = 0
    """Compile time: of attempts that ended there, and of the function that goes on after it."""


class Failure(Struct, frozen=True):
    """A compilation that failed."""

    rank: int
    id: str
    function: str
    type: str
    reason: str
    file: str = ""
    line: int | None = None


class OpenPhase(Struct, frozen=True):
    """Work that had begun and not ended when the log ends."""

    rank: int
    name: str
    id: str
    since_ns: int
    for_ns: int
    """Until the last record of the log."""
    function: str = ""


class Divergence(Struct, frozen=True):
    """Where ranks compiled different things: at the first record that differs."""

    outliers: tuple[int, ...]
    what: str
    """`compile`, `collectives`, `recompilations`, `graphs`, `generated code`, `tensors`, `execution order`."""
    id: str
    found: str
    """What the outliers have there."""
    expected: str
    """What the other ranks have there."""
    tie: bool = False
    """Whether no majority shows which ranks are right."""
    run: int = 1
    """Of the runs in the folder, the one whose ranks differ."""


class CacheUse(Struct, frozen=True):
    """How a cache answered for one graph."""

    rank: int
    id: str
    cache: str
    state: str
    key: str


class PartialHit(Struct, frozen=True):
    """A graph that a cache had on some ranks only: those waited for the others, which compiled it."""

    id: str
    function: str
    cache: str
    hit: tuple[int, ...]
    """Ranks on which all answers were hits."""
    missed: tuple[int, ...]
    """The other ranks that asked."""
    run: int = 1


class Schedule(Struct, frozen=True):
    """The collectives of one graph, in the order in which inductor will call them."""

    rank: int
    id: str
    graph: int
    """From 1: the graphs of a compilation, of which the second is often the backward one."""
    operations: tuple[str, ...]
    runs: int | None = None
    """How often exactly these ran; None without a profile of the process."""


class Unscheduled(Struct, frozen=True):
    """Runs of compiled code that called other collectives than its schedules."""

    rank: int
    id: str
    backward: bool
    operations: tuple[str, ...]
    """What they called instead."""
    runs: int


class Estimate(Struct, frozen=True):
    """What inductor thinks that one run of a graph takes."""

    rank: int
    id: str
    graph: int
    """From 1, as in schedules."""
    operations: int
    collectives: int
    time_ns: int
    collective_ns: int
    """The part of it that is communication."""


class Execution(Struct, frozen=True):
    """Which graphs ran, in order."""

    rank: int
    ids: tuple[str, ...]


class Delay(Struct, frozen=True):
    """A collective whose last rank came late because it compiled."""

    group: str
    sequence: int | None
    operation: str
    rank: int
    """The rank that compiled, and came last."""
    ids: tuple[str, ...]
    """What it compiled meanwhile."""
    function: str
    start_ns: int
    """When the first rank entered."""
    delay_ns: int
    """How long of the time until the last rank entered that rank compiled."""
    waiting: tuple[int, ...]
    """Ranks that waited meanwhile."""


class Export(Struct, frozen=True):
    """What draft export met in the program."""

    rank: int
    what: str
    about: str
    """The expression and the value that it has with the example, or the operator."""
    reason: str
    file: str
    line: int | None
    count: int = 1


class RunOfJob(Struct, frozen=True):
    """One start of the job; a folder can have the logs of several."""

    number: int
    ranks: tuple[int, ...]
    start_ns: int | None
    logs: int


TORCH = re.compile(r"/torch/(?:_\w+|nn|utils|multiprocessing|distributed|autograd|fx)/")
"""Files of torch itself."""
ADDRESS = re.compile(r"\b(?:0x[0-9a-fA-F]+|\d{7,})\b")


class CompileReport(Struct, frozen=True):
    """All tables."""

    ranks: Sequence[int]
    compiles: Sequence[Compiled]
    """In the order of time, rank by rank."""
    graph_breaks: Sequence[GraphBreak]
    failures: Sequence[Failure]
    open: Sequence[OpenPhase]
    """The longest first."""
    divergences: Sequence[Divergence]
    caches: Sequence[CacheUse]
    partial_hits: Sequence[PartialHit]
    """Caches that hit on some ranks only; this is no divergence."""
    artifacts: Mapping[str, int]
    """How many artifacts there are of each name."""
    kinds: Mapping[str, int]
    """How many records there are of each kind."""
    sources: Sequence[SourceInfo]
    findings: Sequence[Finding]
    runs: Sequence[RunOfJob] = ()
    """In the order of time."""
    schedules: Sequence[Schedule] = ()
    unscheduled: Sequence[Unscheduled] = ()
    estimates: Sequence[Estimate] = ()
    executions: Sequence[Execution] = ()
    delays: Sequence[Delay] = ()
    """The longest first; empty without profiles or dumps of the ranks."""
    exports: Sequence[Export] = ()
    """Of draft export."""

    def __repr__(self) -> str:
        from tracelink.model import results

        tables = ", ".join(f"{name} {len(getattr(self, name)):,}" for name in TABLES if name != "findings")
        parts = {"tables": tables, "findings": results.problems(self.findings)}
        return results.as_text(f"CompileReport: {counted(len(self.ranks), 'rank')}", parts)

    @property
    def is_clean(self) -> bool:
        """Whether nothing failed, differs between ranks, or is open."""
        return not (self.failures or self.open or self.divergences)

    def to_pandas(self, table: str) -> pandas.DataFrame:
        """One table as a pandas frame.

        Args:
            table: "compiles", "graph_breaks", "failures", "open", "divergences", "caches",
                "partial_hits", "runs", "schedules", "unscheduled", "estimates", "executions", "delays", "exports" or
                "findings".

        Raises:
            UsageError: There is no such table; or pandas is not installed: install the extra `pandas`.
        """
        from tracelink.model.columns import frame
        from tracelink.model.tables import columns_of

        if table not in TABLES:
            raise UsageError(f"there is no table {table!r}", advice=choices(table, TABLES))
        rows: Sequence[Any] = getattr(self, table)
        kind = ROWS[table]
        return frame(columns_of(kind, rows))


ROWS: Mapping[str, type] = {
    "compiles": Compiled,
    "graph_breaks": GraphBreak,
    "failures": Failure,
    "open": OpenPhase,
    "divergences": Divergence,
    "caches": CacheUse,
    "partial_hits": PartialHit,
    "runs": RunOfJob,
    "schedules": Schedule,
    "unscheduled": Unscheduled,
    "estimates": Estimate,
    "executions": Execution,
    "delays": Delay,
    "exports": Export,
    "findings": Finding,
}
TABLES = tuple(ROWS)


def caller_in_words(stack: Sequence[Frame], function: str) -> str:
    """The line that called a function: `train.py:58 (train_step)`; frames of torch are left out."""
    own = stack[-1:] if stack and stack[-1].name == function else ()
    callers = stack[: len(stack) - len(own)]
    frame = next((frame for frame in reversed(callers) if not TORCH.search(frame.filename)), None)
    return f"{frame.filename.rsplit('/', 1)[-1]}:{frame.line} ({frame.name})" if frame else ""


def lasting(reason: str) -> str:
    """A reason without numbers that differ in each process, such as ids of objects."""
    return ADDRESS.sub("...", reason)
