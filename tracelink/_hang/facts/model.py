"""The result of a diagnosis: problems with evidence and advice, standings of ranks, and lateness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import field
from msgspec.structs import force_setattr, replace

from tracelink._model.fields import (
    Count,
    Doc,
    FrozenRanks,
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
from tracelink._model.records import STACK, Entry, Frame, Frames
from tracelink._model.results import Result
from tracelink._model.text import LONGEST_GROUP, operation_in_words
from tracelink._model.witnesses import Compiling, Stack, Witnesses

# Two dumps of each rank.


class Movement(Row, frozen=True):
    """What ranks did since earlier dumps of the job (`--before`, or a folder with dumps of several moments)."""

    moved: Annotated[FrozenRanks, Doc("Ranks with new entries, or entries in a new state.")]
    unmoved: Annotated[FrozenRanks, Doc("Ranks that recorded nothing.")]
    unknown: Annotated[FrozenRanks, Doc("Ranks without an earlier dump to compare with.")]
    before_ns: Annotated[
        UnixNanoseconds | None,
        Doc("The latest time in the earlier dumps: they were written then or later."),
    ]


Verdict = Literal["ok", "in_flight", "problem"]


class Kind(StrEnum):
    """Kinds of problems."""

    NEVER_JOINED = "never_joined"
    """A rank did not join a collective in which others wait for it."""
    LAGGING = "lagging"
    """The same, and the others have queued several collectives after it."""
    SKIPPED = "skipped"
    """A rank skipped a collective and continued with the next ones."""
    EXTRA_CALL = "extra_call"
    """A rank made calls that the others did not make."""
    OPERATION_MISMATCH = "operation_mismatch"
    DTYPE_MISMATCH = "dtype_mismatch"
    SIZE_MISMATCH = "size_mismatch"
    PEER_MISMATCH = "peer_mismatch"
    DEADLOCK = "deadlock"
    STRAGGLER = "straggler"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    ABSENT = "absent"
    """A member of a group that others used left no dump, and no rank is known to wait for it."""
    NOT_RECORDED = "not_recorded"
    """The job is known to hang, and all recorded calls are finished."""
    IN_FLIGHT = "in_flight"
    """Ranks are in calls, and the dumps do not show whether the job hangs or runs."""


class Category(StrEnum):
    """What went wrong, in one word: it decides whom to call."""

    CODE_PATH = "code_path"
    """A rank took another way through the program."""
    NOT_REACHED = "not_reached"
    """A rank is stuck, or slow, on its host: it did not get to the call."""
    COMPILING = "busy_compiling"
    """The same, because torch.compile compiles there."""
    PROCESS_GONE = "process_gone"
    """A rank left no dump: its process may have ended."""
    WRONG_ARGUMENTS = "wrong_arguments"
    DEVICE_OR_NETWORK = "device_or_network"
    """All ranks got to the call, and a device or the network does not finish it."""
    IN_FLIGHT = "in_flight"
    """The job may hang, or run."""
    UNKNOWN = "unknown"
    """The dumps do not show it."""


class Role(StrEnum):
    """Why the entries of a rank are shown."""

    CULPRIT = "culprit"
    WAITING = "waiting"


OperationName = Annotated[str, Shown(text=operation_in_words)]
Number = Annotated[Count | None, Unit.NAME, Shown("#")]
"""The sequence number of a collective, or of a message."""


class Evidence(Row, frozen=True):
    """The last entries of a rank up to the one that shows the problem."""

    rank: RankNumber
    role: Role
    entries: Annotated[tuple[Entry, ...], Doc("As recorded, the newest last.", min_length=1)]
    compiler: Annotated[
        Frame | None,
        Doc("The innermost frame in torch's compiler, if the newest entry was made while it compiled."),
    ] = None


class WorkSeen(Row, frozen=True):
    """What carries out a call: a kernel, or work of a thread of a CPU backend."""

    name: str
    where: Annotated[str, Doc("The stream, or the thread.")]
    start_ns: UnixNanoseconds
    duration_ns: Nanoseconds | None


class CallSeen(Row, frozen=True):
    """A call as profiles show it."""

    operation: OperationName
    group: Annotated[str, Doc("Empty if no source names it.")]
    sequence: Number
    before: Annotated[
        Count | None,
        Doc("Number of calls of its group before the one in question: 0 for that one; null if not known."),
    ]
    operator: Annotated[str, Doc("Such as `c10d::allreduce_`.")]
    thread: str
    start_ns: UnixNanoseconds | None
    duration_ns: Nanoseconds | None
    around: Annotated[
        tuple[str, ...],
        Doc("Operators, modules and annotations in which it was called, outermost first."),
    ]
    frames: Annotated[
        Frames,
        Doc(
            f"{STACK}; lines are those where functions start. Empty if the profile was taken without stacks."
        ),
    ]
    node: Annotated[Count | None, Doc("Number of its node in the execution trace.")]
    work: Annotated[WorkSeen | None, Doc("The kernel, or what a thread of a CPU backend does for it.")]
    launched: Annotated[bool | None, Doc("True if it launched anything on a device; null if not known.")]


class Running(Row, frozen=True):
    """Something that ran for most of a stretch of time."""

    name: str
    duration_ns: Annotated[Nanoseconds, Doc("How much of the stretch it took.")]


class Stretch(Row, frozen=True):
    """What a thread or a stream did for most of a stretch of time."""

    where: str
    start_ns: UnixNanoseconds
    duration_ns: Nanoseconds
    running: Annotated[tuple[Running, ...], Doc("Outermost first.", min_length=1)]


class Sighting(Row, frozen=True):
    """What the profiles of a rank show of a call that the problem is about, and of what it did after that.

    Times are in ns since 1970 on the rank's own clock.
    """

    rank: RankNumber
    role: Role
    sources: Annotated[tuple[str, ...], Doc("Paths of the profiles and execution traces.", min_length=1)]
    start_ns: Annotated[
        UnixNanoseconds | None,
        Doc("When the profile starts; null if there is only an execution trace."),
    ]
    end_ns: Annotated[UnixNanoseconds | None, Doc("When it ends.")]
    call: Annotated[
        CallSeen | None,
        Doc(
            "The last call of a culprit, or the call in which another rank waits; if the profile does not "
            "show it, an earlier call like it; null if there is none."
        ),
    ]
    later: Annotated[
        CallSeen | None, Doc("What a culprit called next; its dump does not contain that call.")
    ] = None
    stretches: Annotated[
        tuple[Stretch, ...],
        Doc("What a culprit did after its last call, until the next or until the profile ends, by thread."),
    ] = ()
    note: Annotated[str, Doc("Why the call itself is not shown; else empty.")] = ""


class Link(Row, frozen=True):
    """One link of a deadlock: ranks in a collective wait for ranks in the next one."""

    group: str
    sequence: Annotated[Count, Unit.NAME, Shown("#")]
    operation: Annotated[OperationName, Shown("are in", text=operation_in_words)]
    ranks: Annotated[FrozenRanks, Doc("Ranks that wait in it.")]
    waits_for: Annotated[
        FrozenRanks,
        Doc("Ranks that have not joined, because they are in another collective of the cycle."),
        Shown("wait for ranks"),
    ]


class Problem(Row, frozen=True, rename={"category": "class"}):
    """One cause; consequences of a problem are not reported separately."""

    kind: Annotated[
        Kind,
        Doc(
            "`in_flight`: ranks are in calls, and the dumps do not show whether the job hangs or runs. "
            "`absent`: a member of a group left no dump, and no rank is known to wait for it. "
            "`not_recorded`: the job is known to hang, and all recorded calls are finished."
        ),
    ]
    group: Annotated[str, Doc("Name of the process group, as recorded in the dumps.")]
    description: Annotated[
        str, Doc("Description of the group, such as `default_pg` or `tp`; empty if it has none.")
    ]
    sequence: Annotated[
        Count | None,
        Doc("Number of the first collective, or message, that shows it; null if it has no number."),
    ]
    operation: Annotated[str, Doc("What most ranks do there, as recorded.")]
    culprits: Annotated[FrozenRanks, Doc("In ascending order; empty if the files do not show it.")]
    waiting: Annotated[FrozenRanks, Doc("Ranks that wait because of it, directly or not.")]
    message: Annotated[Text, Doc("The problem in one sentence."), Shown(longest=2000)]
    advice: Annotated[str, Doc("What to look at next."), Shown(hidden=True)] = ""
    tie: Annotated[
        bool, Doc("True if the culprits differ from each other and nothing shows which one is wrong.")
    ] = False
    in_other_order: Annotated[
        bool,
        Doc("True if the culprits of a deadlock are known to make all of its calls, and to skip none."),
    ] = False
    proven: Annotated[
        bool, Doc("True if culprits are known from their own dumps, not only from dumps of others.")
    ] = True
    category: Annotated[
        Category,
        Doc(
            "What went wrong. `code_path`: a rank took another way through the program. `not_reached`: it "
            "is stuck or slow on its host. `busy_compiling`: it is in torch.compile there. "
            "`process_gone`: it left no dump. `wrong_arguments`. `device_or_network`: "
            "all ranks got to the call. `in_flight`: the job may run. `unknown`: the files do not show it."
        ),
        Shown("class"),
    ] = Category.UNKNOWN
    count: Annotated[Positive, Doc("How many collectives show it.")] = 1
    waited_ns: Annotated[
        Nanoseconds | None, Doc("How long ranks have waited at least; null if not known.")
    ] = None
    cycle: Annotated[
        tuple[Link, ...], Doc("Of a deadlock the cycle, each link waiting for the next; else empty.")
    ] = ()
    rows: Annotated[
        Mapping[RankNumber, Count],
        Doc(
            "By rank the entry that shows it best, of each culprit and of one waiting rank: its number in the "
            "database of all entries."
        ),
    ] = field(default_factory=dict)
    evidence: Annotated[
        tuple[Evidence, ...],
        Doc(
            "Of the first problems: the last entries of at most three culprits, and those of one other "
            "rank to compare with."
        ),
    ] = ()
    sightings: Annotated[
        tuple[Sighting, ...],
        Doc(
            "Of the first problems, if there are profiles or execution traces: what these show of the same "
            "ranks, the culprits first."
        ),
    ] = ()
    compiling: Annotated[
        tuple[Compiling, ...],
        Doc("If there are compile logs: what culprits compiled while other ranks waited."),
    ] = ()
    stacks: Annotated[tuple[Stack, ...], Doc("If there are files with stacks: those of the culprits.")] = ()

    @property
    def is_decided(self) -> bool:
        """True if the job is known to hang: it may run with a slow rank, or with a dump that was not collected."""
        running = self.kind in (Kind.IN_FLIGHT, Kind.STRAGGLER)
        return not running and (self.kind is not Kind.ABSENT or self.proven)


class Stage(StrEnum):
    """How far a rank is in a group."""

    NEVER_JOINED = "never_joined"
    """It joined no collective of the group."""
    WAITING = "waiting"
    """It joined its last collective and has not finished it."""
    ENDING = "ending"
    """It joined its last collective and has not finished it; other ranks have, so all have joined."""
    FINISHED = "finished"
    """It finished its last collective and has not joined the next one."""
    UNKNOWN = "unknown"
    """Its dump is missing, or does not show it."""


class Standing(Row, frozen=True):
    """What ranks of a group were last doing there."""

    group: Annotated[str, Shown(longest=LONGEST_GROUP)]
    description: Annotated[str, Shown("", longest=2 * LONGEST_GROUP)]
    sequence: Annotated[Number, Doc("Of the last collective there; null if there is none.")]
    operation: Annotated[OperationName, Shown("last collective", text=operation_in_words)]
    stage: Annotated[
        Stage,
        Doc(
            "`finished`: and did not join the next one. `ending`: others have finished it. `unknown`: the dump is "
            "missing, truncated, or no longer contains it."
        ),
        Shown("state"),
    ]
    ranks: Annotated[FrozenRanks, Doc("The ranks in this state.")]


class Lateness(Row, frozen=True):
    """How late a rank arrived at collectives in which every rank waits for all others."""

    rank: Annotated[RankNumber, Doc("The rank in the job.")]
    collectives: Annotated[Count, Doc("Number of collectives that it entered last."), Shown("last in")]
    of: Annotated[Count, Doc("Number of collectives whose times are known.")]
    worst_ns: Annotated[Nanoseconds, Doc("The longest of these waits."), Shown("longest wait")]
    total_ns: Annotated[Nanoseconds, Doc("How long all other ranks have waited for it."), Shown("total wait")]
    group: str
    sequence: Annotated[Count, Unit.NAME, Doc("Where it was latest."), Shown("#")]


class Checked(Row, frozen=True):
    """What the diagnosis is based on."""

    ranks: Count = 0
    entries: Count = 0
    groups: Count = 0
    collectives: Count = 0
    messages: Count = 0


class RanksOfDumps(Row, frozen=True):
    """Which ranks there are dumps of."""

    present: Annotated[Ranks, Doc("Ranks whose dumps were read to the end.")]
    missing: Annotated[Ranks, Doc("Ranks that process groups name and that have no dump.")]
    unreadable: Annotated[
        Ranks,
        Doc("Ranks whose dumps cannot be read, or not to the end. What precedes the damage is used."),
    ]
    reasons: Annotated[Sequence[str], Doc("Why, of each of `unreadable`.")]

    @classmethod
    def of(
        cls,
        present: Sequence[int] = (),
        missing: Sequence[int] = (),
        unreadable: Mapping[int, str] | None = None,
    ) -> RanksOfDumps:
        """These ranks, and why dumps cannot be read."""
        failed = unreadable or {}
        return cls(present, missing, list(failed), list(failed.values()))


class Diagnosis(Result, frozen=True, forbid_unknown_fields=True):
    """Why a job hangs."""

    verdict: Annotated[
        Verdict,
        Doc("`ok` if and only if there are no problems; `in_flight` if none shows that the job hangs."),
    ] = "ok"
    problems: Annotated[
        Sequence[Problem],
        Doc("The worst cause first. Consequences of a problem are not reported separately."),
    ] = ()
    more_problems: Annotated[Count, Doc("How many problems --limit left out.")] = 0
    ranks: RanksOfDumps = RanksOfDumps.of()
    checked: Checked = Checked()
    standings: Annotated[
        Sequence[Standing], Doc("What each rank was last doing in each group, of all groups.")
    ] = ()
    lateness: Annotated[
        Sequence[Lateness], Doc("Ranks that entered collectives late, the latest first.")
    ] = ()
    movement: Annotated[Movement | None, Doc("null without earlier dumps of the same job.")] = None
    notes: Annotated[Sequence[str], Doc("What is worth knowing but no problem.")] = ()
    blind_spot: Annotated[
        str, Doc("Without problems: where ranks may wait without being seen; it is also a note.")
    ] = ""
    witnesses: Annotated[
        Witnesses | None,
        Doc("What logs, stacks and NCCL's monitor show; null if there are no such files."),
    ] = None
    findings: Sequence[Finding] = ()
    job: Annotated[str, Doc("If the dumps are of several jobs: the folder or the files of this one.")] = ""
    other_jobs: Annotated[
        Sequence[Diagnosis], Doc("If the dumps are of several jobs: the others. This one is the worst.")
    ] = ()

    drawn_by = "tracelink._hang.report"

    def __post_init__(self) -> None:
        decided = any(problem.is_decided for problem in self.problems)
        found: Verdict = "problem" if decided else "in_flight"
        force_setattr(self, "verdict", found if self.problems else "ok")

    @property
    def present(self) -> Sequence[int]:
        """Ranks whose dumps were read to the end."""
        return self.ranks.present

    @property
    def missing(self) -> Sequence[int]:
        """Ranks that groups name and that have no dump."""
        return self.ranks.missing

    @property
    def unreadable(self) -> Mapping[int, str]:
        """Why the dump of a rank could not be read, or is truncated."""
        return dict(zip(self.ranks.unreadable, self.ranks.reasons, strict=True))

    def limited(self, most: int | None) -> Diagnosis:
        """The same with at most so many problems; 0 and None are no limit."""
        rest = len(self.problems) - most if most else 0
        shown = replace(self, other_jobs=[other.limited(most) for other in self.other_jobs])
        return replace(shown, problems=self.problems[:most], more_problems=rest) if rest > 0 else shown
