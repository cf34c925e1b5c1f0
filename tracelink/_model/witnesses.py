"""What other files than dumps and profiles show of a job that hangs: logs, NCCL's monitor, stacks, compile logs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Struct, field

from tracelink._model.fields import (
    Count,
    Doc,
    FrozenRanks,
    Nanoseconds,
    RankNumber,
    Row,
    Shown,
    Unit,
    UnixNanoseconds,
)
from tracelink._model.findings import Finding
from tracelink._model.records import Frame, Frames
from tracelink._model.trace import SourceInfo

Program = Literal["py-spy", "faulthandler"]
Sources = Annotated[tuple[str, ...], Doc("Paths of files.")]
MOST_REPORTS = 2000
"""Watchdog lines in a result."""

# Logs: lines of watchdogs, and of backends that gave up.


class Sign(StrEnum):
    """What a line says."""

    TIMED_OUT = "timed_out"
    """The watchdog of a rank gave up a collective."""
    STATUS = "status"
    """The last collectives of a rank in a group, by sequence number."""
    HEARTBEAT = "heartbeat"
    """The watchdog of a rank is stuck itself."""
    GAVE_UP = "gave_up"
    """A gloo operation of a rank exceeded its timeout."""
    LOST = "lost"
    """A rank lost the connection to another one, which ended or gave up."""
    BARRIER = "barrier"
    """Rank 0 of a group names those that did not pass a monitored barrier."""
    PASSED = "passed"
    """A rank passed a monitored barrier that others did not."""


class Report(Row, frozen=True):
    """One line of a log. What it does not say is None or empty."""

    sign: Annotated[
        Sign,
        Doc(
            "`timed_out`: NCCL's watchdog gave up a collective. `status`: the last enqueued and completed "
            "collectives of a group. `heartbeat`: the watchdog is stuck itself. `gave_up`, `lost`: a gloo operation "
            "exceeded its timeout, a connection was lost. `barrier`: which members of a group did not pass a monitored "
            "barrier. `passed`: that this one did."
        ),
        Shown("line"),
    ]
    rank: Annotated[RankNumber | None, Doc("In the job; null if neither the line nor the file shows it.")] = (
        None
    )
    label: Annotated[
        int | None,
        Doc(
            "The number that a launcher puts in front of the line: the task of Slurm, or the local rank of "
            "torchelastic."
        ),
        Shown(hidden=True),
    ] = None
    at_ns: Annotated[
        int | None, Doc("Since the start of the year, by the clock of the host."), Shown(hidden=True)
    ] = None
    group: Annotated[
        str, Doc("A name that is the same on all ranks; empty if the line does not name it.")
    ] = ""
    description: str = ""
    member: Annotated[Count | None, Doc("The rank within the group.")] = None
    sequence: Annotated[Count | None, Unit.NAME, Shown("#")] = None
    operation: str = ""
    elements_in: Annotated[Count | None, Shown("elements")] = None
    elements_out: Count | None = None
    timeout_ms: Annotated[Count | None, Shown("timeout (ms)")] = None
    ran_ms: Annotated[Count | None, Shown("ran (ms)")] = None
    enqueued: Annotated[int | None, Doc("-1 if nothing was enqueued.")] = None
    completed: int | None = None
    members: Annotated[tuple[Count, ...], Doc("Ranks within the group that did not pass a barrier.")] = ()


class RankReport(Report, frozen=True):
    """One line of a log, of a known rank if possible, and the file that contains it."""

    source: Annotated[str, Shown(drop=1)] = ""


class WatchdogLog(Struct, frozen=True):
    """The lines of a log that say something of a hang, in its order."""

    source: SourceInfo
    reports: Sequence[Report]
    findings: Sequence[Finding] = ()


# NCCL's own monitor (RAS).


class MemberStatus(Row, frozen=True):
    """A rank of a communicator."""

    rank: Annotated[int, Doc("Within the communicator; -1 if it is not known.", ge=-1)]
    host: str
    pid: int | None
    counts: Annotated[Mapping[str, Count], Doc("How many of each operation it launched; empty if unknown.")]
    state: Annotated[
        str,
        Doc(
            "`running`, `initializing`, `finalizing`, `aborted`, `error`, `missing`, `unresponsive` or `dead`."
        ),
    ] = "running"


class Launched(Row, frozen=True):
    """How many ranks launched up to how many of an operation."""

    operation: str
    ranks: Count
    count: Count


class CommunicatorStatus(Row, frozen=True):
    """A communicator of NCCL at the time of a query."""

    name: Annotated[str, Doc("Its hash.")]
    size: Count | None
    members: Annotated[
        Sequence[MemberStatus], Doc("Of text only those that it lists: ranks that differ from the others.")
    ]
    launched: Annotated[Sequence[Launched], Doc("Of text only, which does not list all ranks.")] = ()


class MonitorAnswer(Row, frozen=True):
    """One answer of NCCL's monitor (RAS)."""

    source: Annotated[str, Doc("Path of the file.")]
    version: Annotated[str, Doc("Of NCCL; empty if unknown.")]
    time: Annotated[str, Doc("As written, in the time zone of the host; empty in text.")]
    communicators: Sequence[CommunicatorStatus]
    dead: Annotated[
        Sequence[MemberStatus],
        Doc("Processes that the monitor considers dead, whatever their communicators."),
    ] = ()
    findings: Sequence[Finding] = ()


# Stacks, compile logs, and what a diagnosis shows of all witnesses.


class Compiling(Row, frozen=True):
    """What torch.compile compiled in the process of a culprit while other ranks waited for it, by its compile log."""

    rank: RankNumber
    id: Annotated[str, Doc("The compile id, such as `3/2`; empty outside of a compilation.")]
    function: Annotated[str, Doc("The name of the function; empty if unknown.")]
    phases: Annotated[tuple[str, ...], Doc("Phases of the compiler, outermost first.", min_length=1)]
    since_ns: Annotated[UnixNanoseconds, Doc("In ns since 1970 on the rank's own clock.")]
    duration_ns: Annotated[
        Nanoseconds, Doc("Until its end, else until the latest time in the log and in all dumps.")
    ]
    open: Annotated[bool, Doc("True if the log ends within it.")]
    cold: Annotated[
        bool | None,
        Doc("True if the function was compiled for the first time, false if again (warm); null if unknown."),
    ]
    sources: Annotated[tuple[str, ...], Doc("Paths of the compile logs.", min_length=1)]
    guard: Annotated[
        str, Doc("Why it was compiled again: the guard that failed; empty if the log does not state it.")
    ] = ""
    guard_frame: Annotated[
        Frame | None, Doc("The line of the program that needs this guard; null if unknown.")
    ] = None


class Stack(Row, frozen=True):
    """The stack of a culprit's main thread, from a file of py-spy dump or faulthandler."""

    rank: RankNumber
    program: Program
    thread: Annotated[str, Doc("As the file names it.")]
    frames: Annotated[Frames, Doc("Innermost first, with those of torch.", min_length=1)]
    in_compiler: Annotated[bool, Doc("True if it is in torch's compiler.")]
    source: Annotated[str, Doc("Path of the file.")]


class FoldedStack(Row, frozen=True):
    """The main threads with one stack."""

    ranks: FrozenRanks
    processes: Annotated[tuple[str, ...], Doc("Those whose rank is not known: `pid 4711`.")]
    program: Program
    frames: Annotated[Frames, Doc("Innermost first, with those of torch.", min_length=1)]
    in_compiler: bool
    sources: Sources


class Conflict(Row, frozen=True):
    """Sources that contradict each other."""

    ranks: FrozenRanks
    message: str
    sources: Sources


class Use(Row, frozen=True):
    """What files of one kind were used for."""

    what: Annotated[str, Shown("files")]
    count: Count
    purpose: Annotated[str, Doc("Empty if they were not used."), Shown("used for")]
    example: Annotated[str, Doc("The path of one of them."), Shown("such as", drop=1)]


class Witnesses(Row, frozen=True):
    """What other files than dumps and profiles show."""

    reports: Annotated[Sequence[RankReport], Doc(f"The first {MOST_REPORTS:,} watchdog lines.")] = ()
    stacks: Annotated[Sequence[FoldedStack], Doc("Equal stacks once, the least common first.")] = ()
    answers: Annotated[Sequence[MonitorAnswer], Doc("What `ncclras` printed.")] = ()
    conflicts: Sequence[Conflict] = ()
    used: Annotated[Sequence[Use], Doc("All files, by what they are.")] = ()


UNKNOWN_FILE = "(unknown)"
RECOMPILE_REASONS = "recompile_reasons"
"""The artifact that states why a function is compiled again, at the start of the compilation."""

_GUARD = re.compile(r"\s*(?:([!\d/_]+): )?([^\n]*)")
_SOURCE_OF_GUARD = re.compile(r"\s+# .*")
_LINE_OF_STACK = re.compile(r'File "([^"\n]+)", line (\d{1,9}), in ([^\n]+)')
_LINE_OF_GUARD = re.compile(r"# (\S+):(\d{1,9}) in (\S+)")


class Phase(Struct, frozen=True):
    """Work of the compiler from begin to end, or an instant."""

    name: str
    start_ns: int
    end_ns: int | None
    """None if the log ends before it."""
    compile_id: str
    """`1/5`; empty outside of a compilation."""
    function: str = ""
    """The function of the compiler that does it."""
    number: int = 0
    """The number of its arguments among those of the log."""
    instant: bool = False
    cache_key: str = ""
    """The key by which a cache has the graph that was compiled."""
    output_code: tuple[str, ...] = ()
    """Paths of the files with generated code."""
    kernel_sources: tuple[str, ...] = ()
    """Generated kernels and the lines of the program that they compute: `cpp_fused_gelu_1: train.py:15 (forward)`."""
    kernel_files: tuple[str, ...] = ()
    """Generated kernels with files of their own: `triton_poi_fused_add_0: cxyz….py`."""


class Compilation(Struct, frozen=True):
    """A compilation that came to its end, or that of a backward graph."""

    compile_id: str
    attempt: int
    start_ns: int | None
    duration_ns: int | None
    backward: bool
    function: str = ""
    file: str = ""
    line: int | None = None
    operations: int | None = None
    guards: int | None = None
    fail_type: str = ""
    fail_reason: str = ""
    fail_file: str = ""
    fail_line: int | None = None
    restarts: Sequence[str] = ()
    """Why it began again: graph breaks, mostly."""
    recompile_reason: str = ""
    stages: Mapping[str, int] = field(default_factory=dict)
    """Nanoseconds of each stage: dynamo, aot_autograd, inductor, backward, triton, gc, logging."""
    discarded_ns: int = 0
    """Of attempts before the last one."""


class FailedGuard(Struct, frozen=True):
    """Why a function was compiled again."""

    compile_id: str
    """The compilation whose guard failed; empty if it is not stated."""
    text: str
    """`s.i == 0`, or a sentence such as `tensor 'x' size mismatch at index 0. expected 4, actual 6`."""
    frame: Frame | None
    """The line of the program that needs the guard; None if it is not stated."""


class Artifact(Struct, frozen=True):
    """A record with a payload."""

    name: str
    compile_id: str
    attempt: int
    time_ns: int
    offset: int
    """Of its payload in the uncompressed file; its lines are indented by a tab."""
    bytes: int
    text: str = ""
    """Its payload, if it is small and tables need it; of a cache's answer the key, of estimates their totals, and of an
    order of execution the compile ids."""
    digest: str = ""
    """Of its payload: equal payloads have the same one; empty if it is damaged."""
    content: str = ""
    """Of graphs and generated code a digest without what differs on each rank, such as devices and paths."""


class ExportNote(Struct, frozen=True):
    """What draft export met in the program."""

    what: str
    about: str
    """The expression and the value that it has with the example, or the operator."""
    reason: str
    stack: Sequence[Frame] = ()


class CompileLog(Struct, frozen=True):
    """One log: what a process compiled, and what it was compiling when the log ends."""

    source: SourceInfo
    torch: str
    """The version of torch."""
    phases: Sequence[Phase]
    """Sorted by time."""
    compilations: Sequence[Compilation]
    """In the order of their ends."""
    artifacts: Sequence[Artifact]
    """In the order of the log."""
    called_at: Mapping[str, Sequence[Frame]] = field(default_factory=dict)
    """For each compile id the stack that called the function, outermost first."""
    strings: Mapping[int, str] = field(default_factory=dict)
    """Names of files by their numbers in records; a forked process uses those of its parent."""
    unnamed_files: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """For each compile id whose stack has a file without a name in the log, the numbers of all files of the stack."""
    output_code: Mapping[str, str] = field(default_factory=dict)
    """For each file with generated code its compile id."""
    kinds: Mapping[str, int] = field(default_factory=dict)
    """How many records there are of each kind."""
    last_ns: int | None = None
    """The time of the last record."""
    findings: Sequence[Finding] = ()
    exports: Sequence[ExportNote] = ()
    """In the order of the log."""

    def function_of(self, compile_id: str) -> str:
        """The function that a compilation compiles, also if it has no end; empty if unknown."""
        frame = compile_id.rpartition("/")[0]
        names = (one.function for one in self.compilations if one.compile_id.rpartition("/")[0] == frame)
        stack = self.called_at.get(compile_id)
        return (next(filter(None, names), "") if frame else "") or (stack[-1].name if stack else "")

    def failed_guard(self, compile_id: str) -> FailedGuard | None:
        """Why a function is compiled again; None if the log does not state it."""
        reasons = (
            one.text
            for one in self.artifacts
            if one.name == RECOMPILE_REASONS and one.compile_id == compile_id
        )
        return failed_guard(next(filter(None, reasons), ""))


def failed_guard(reason: str) -> FailedGuard | None:
    """The guard in a reason, which is `1/0: s.i == 0  # if s.i == 1:  # train.py:31 in step` and the stack of the user.

    Of a list of reasons, one for each version of the function, the first is that of the newest version.
    """
    if reason.lstrip().startswith("["):
        try:
            reason = next(filter(None, msgspec.json.decode(reason, type=list[str])), "")
        except msgspec.DecodeError:
            return None
    match = _GUARD.match(reason)
    text = _SOURCE_OF_GUARD.sub("", match[2]).strip() if match else ""
    if not match or not text:
        return None
    lines = _LINE_OF_STACK.findall(reason) or _LINE_OF_GUARD.findall(match[2])
    frame = Frame(lines[-1][2], lines[-1][0], int(lines[-1][1])) if lines else None
    return FailedGuard(match[1] or "", text, frame)
