"""The result of a diagnosis: problems with evidence and advice, standings of ranks, and lateness."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from tracelink.diagnosis.dumps.movement import Movement
from tracelink.model.findings import Finding
from tracelink.model.records import Entry, Frame
from tracelink.model.text import counted
from tracelink.model.trace import ProcessGroup

Verdict = Literal["ok", "in_flight", "problem"]
SHOWN = 3
"""Problems in a representation."""


class Kind(StrEnum):
    """Kinds of problems."""

    NEVER_JOINED = "never_joined"
    """A rank did not join a collective in which others wait for it."""
    LAGGING = "lagging"
    """The same, and the others have queued several collectives after it."""
    SKIPPED = "skipped"
    """A rank skipped a collective and continued with the next ones."""
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


if TYPE_CHECKING:
    from tracelink.diagnosis.witnesses.model import Compiling, Stack, Witnesses
"""Problems that ranks wait for; the others can also occur without a hang."""


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


class Evidence(Struct, frozen=True):
    """The last entries of a rank up to the one that shows the problem, the newest last."""

    rank: int
    role: Role
    entries: tuple[Entry, ...]
    compiler: Frame | None = None
    """The innermost frame in torch's compiler, if the newest entry was made while it compiled."""


class WorkSeen(Struct, frozen=True):
    """The work of a call: a kernel, or what a thread of a CPU backend does."""

    name: str
    where: str
    """The stream or the thread."""
    start_ns: int
    duration_ns: int | None


class CallSeen(Struct, frozen=True):
    """A call in a profile."""

    operation: str
    group: str
    sequence: int | None
    before: int | None
    """How many calls of its group before the one of the problem: 0 for that one, None if unknown."""
    operator: str
    thread: str
    start_ns: int | None
    duration_ns: int | None
    around: tuple[str, ...]
    """Operators, modules and annotations around it, outermost first."""
    frames: tuple[Frame, ...]
    """Innermost first; empty if the profile has no stacks."""
    node: int | None
    """The id of its node in the execution trace."""
    work: WorkSeen | None
    launched: bool | None
    """Whether it launched work on a device; None if unknown."""


class Running(Struct, frozen=True):
    """An event that ran for most of a stretch of time."""

    name: str
    duration_ns: int
    """Its part of the stretch."""


class Stretch(Struct, frozen=True):
    """What a thread or a stream did during most of a stretch of time."""

    where: str
    start_ns: int
    duration_ns: int
    running: tuple[Running, ...]
    """Outermost first."""


class Sighting(Struct, frozen=True):
    """What the profiles of a rank show of the call of a problem, and of what the rank did after it."""

    rank: int
    role: Role
    sources: tuple[str, ...]
    start_ns: int | None
    end_ns: int | None
    """When the profile started and ended, by the rank's clock; None if there is only an execution trace."""
    call: CallSeen | None
    later: CallSeen | None = None
    """Its next call, which its dump does not contain."""
    stretches: tuple[Stretch, ...] = ()
    """After its last call, until the next one or the end of the profile."""
    note: str = ""
    """What the profile does not show, for people."""


class Link(Struct, frozen=True):
    """One link of a deadlock: ranks in a collective wait for ranks in the next one."""

    group: str
    sequence: int
    operation: str
    ranks: tuple[int, ...]
    waits_for: tuple[int, ...]


class Problem(Struct, frozen=True):
    """One cause; its consequences are not reported separately."""

    kind: Kind
    group: str
    """The name of the group, as in the dumps."""
    description: str
    """The description of the group: `default_pg`, `tp`."""
    sequence: int | None
    """The sequence number of the first collective, or message, that shows it."""
    operation: str
    """The operation of most ranks there, as recorded."""
    culprits: tuple[int, ...]
    """Ranks in the job, in ascending order; empty if unknown."""
    waiting: tuple[int, ...]
    """Ranks that wait because of it, directly or indirectly."""
    message: str
    advice: str = ""
    """What to look at next."""
    tie: bool = False
    """Whether the culprits differ from each other and it is unknown which of them is wrong."""
    in_other_order: bool = False
    """Whether the culprits of a deadlock are known to make all of its calls, and not to have skipped any."""
    proven: bool = True
    """Whether the culprits' own dumps show it, and not only those of other ranks."""
    category: Category = Category.UNKNOWN
    count: int = 1
    """How many collectives show it."""
    waited_ns: int | None = None
    """How long the waiting ranks have waited, at least."""
    cycle: tuple[Link, ...] = ()
    rows: Mapping[int, int] = field(default_factory=dict)
    """The journal entry that shows it best, of each culprit and of one waiting rank."""
    evidence: tuple[Evidence, ...] = ()
    """These entries as recorded; the culprits first."""
    sightings: tuple[Sighting, ...] = ()
    """What profiles show of the same ranks."""
    compiling: tuple[Compiling, ...] = ()
    """What compile logs show of the culprits."""
    stacks: tuple[Stack, ...] = ()
    """What the main threads of culprits were doing, if there are files with their stacks."""

    @classmethod
    def at(
        cls,
        kind: Kind,
        group: ProcessGroup,
        sequence: int,
        operation: str,
        *,
        culprits: Collection[int],
        waiting: Collection[int],
        message: str,
        **details: Any,
    ) -> Problem:
        """A problem in a collective or a message of a group."""
        return cls(
            kind,
            group.name,
            group.description,
            sequence,
            operation,
            tuple(sorted(culprits)),
            tuple(sorted(waiting)),
            message,
            **details,
        )


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


class Standing(Struct, frozen=True):
    """Ranks of a group that are at the same collective."""

    group: str
    description: str
    sequence: int | None
    """The sequence number of their last collective there."""
    operation: str
    stage: Stage
    ranks: tuple[int, ...]


class Lateness(Struct, frozen=True):
    """How late a rank arrived at collectives in which every rank waits for all others."""

    rank: int
    collectives: int
    """At how many it arrived last, of those with known times."""
    of: int
    """In how many it took part."""
    worst_ns: int
    total_ns: int
    """How long it was the only missing rank, in total: from the arrival of the last but one."""
    group: str
    sequence: int
    """The collective at which it arrived latest."""


class Checked(Struct, frozen=True):
    """What a diagnosis is based on."""

    ranks: int = 0
    entries: int = 0
    groups: int = 0
    collectives: int = 0
    messages: int = 0


class Diagnosis(Struct, frozen=True):
    """The result; the worst problem first."""

    problems: Sequence[Problem]
    standings: Sequence[Standing]
    lateness: Sequence[Lateness]
    present: Sequence[int]
    missing: Sequence[int]
    """Ranks that groups name and that have no dump."""
    unreadable: Mapping[int, str]
    """Why the dump of a rank could not be read, or is truncated."""
    checked: Checked
    notes: Sequence[str] = ()
    """Observations that are not problems."""
    findings: Sequence[Finding] = ()
    movement: Movement | None = None
    """What changed since earlier dumps; None without them."""
    blind_spot: str = ""
    """Without problems: where ranks may wait without being seen, as in the notes."""
    witnesses: Witnesses | None = None
    """What logs, stacks and NCCL's monitor show, if there are any."""

    def __repr__(self) -> str:
        from tracelink.model import results

        shown = {f"problem {place}": one.message for place, one in enumerate(self.problems[:SHOWN], 1)}
        more = len(self.problems) - len(shown)
        parts = {**shown, **({"more problems": str(more)} if more > 0 else {})}
        checked = f"{counted(self.checked.ranks, 'rank')}, {counted(self.checked.entries, 'entry')}"
        return results.as_text(
            f"Diagnosis: {self.verdict}",
            {**parts, "checked": checked, "findings": results.problems(self.findings)},
        )

    @property
    def verdict(self) -> Verdict:
        """`ok` if there are no problems, `in_flight` if it is unknown whether the job hangs."""
        if not self.problems:
            return "ok"
        undecided = all(problem.kind is Kind.IN_FLIGHT for problem in self.problems)
        return "in_flight" if undecided else "problem"
