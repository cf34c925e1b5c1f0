"""Diagnosis, Problem, Evidence, Standing, Lateness."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tracelink.errors import Finding
from tracelink.model.records import Entry, Frame
from tracelink.model.trace import ProcessGroup


class Kind(StrEnum):
    """What can go wrong."""

    NEVER_JOINED = "never_joined"
    """A rank is in no collective, and others wait for it in one."""
    LAGGING = "lagging"
    """The same, but others are several collectives ahead; or its device does not start what it has queued."""
    SKIPPED = "skipped"
    """A rank left out a collective and does what comes after it."""
    OPERATION_MISMATCH = "operation_mismatch"
    DTYPE_MISMATCH = "dtype_mismatch"
    SIZE_MISMATCH = "size_mismatch"
    PEER_MISMATCH = "peer_mismatch"
    DEADLOCK = "deadlock"
    STRAGGLER = "straggler"
    TIMED_OUT = "timed_out"
    FAILED = "failed"


HANGS = frozenset({Kind.NEVER_JOINED, Kind.LAGGING, Kind.DEADLOCK, Kind.TIMED_OUT, Kind.FAILED})
"""What others wait for; the other kinds can also pass without a hang."""


class Role(StrEnum):
    """Why a rank's entries are shown."""

    CULPRIT = "culprit"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The last entries of a rank up to where the problem shows, the newest last."""

    rank: int
    role: Role
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class WorkSeen:
    """What carries out a call: a kernel, or what a thread of a CPU backend does."""

    name: str
    where: str
    """The stream, or the thread."""
    start_ns: int
    duration_ns: int | None


@dataclass(frozen=True, slots=True)
class CallSeen:
    """A call as profiles show it."""

    operation: str
    group: str
    sequence: int | None
    before: int | None
    """How many calls of its group before the one that the problem is about; 0 for that one, None if not known."""
    operator: str
    thread: str
    start_ns: int | None
    duration_ns: int | None
    around: tuple[str, ...]
    """Operators, modules and annotations that it was called in, outermost first."""
    frames: tuple[Frame, ...]
    """Innermost first; empty where the profile was taken without stacks."""
    node: int | None
    """The number of its node in the execution trace."""
    work: WorkSeen | None
    launched: bool | None
    """Whether anything was launched for it on a device; None where that cannot be told."""


@dataclass(frozen=True, slots=True)
class Running:
    """Something that ran for most of a stretch of time."""

    name: str
    duration_ns: int
    """How much of the stretch."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a thread or a stream did for most of a stretch of time."""

    where: str
    start_ns: int
    duration_ns: int
    running: tuple[Running, ...]
    """Outermost first."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What the profiles of a rank show of the call that a problem is about, and of what it did after that."""

    rank: int
    role: Role
    sources: tuple[str, ...]
    start_ns: int | None
    end_ns: int | None
    """When the profile began and ended, by the rank's clock; None where only its execution trace is there."""
    call: CallSeen | None
    later: CallSeen | None = None
    """What it called next, which its dump does not know."""
    stretches: tuple[Stretch, ...] = ()
    """After its last call, until the next or until the profile ends."""
    note: str = ""
    """What the profile does not show, in words."""


@dataclass(frozen=True, slots=True)
class Link:
    """One link of a deadlock: ranks in a collective wait for others, who are in the next one."""

    group: str
    sequence: int
    operation: str
    ranks: tuple[int, ...]
    waits_for: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One cause; its consequences are no problems of their own."""

    kind: Kind
    group: str
    """Its name, as the dumps have it."""
    description: str
    """Of the group: `default_pg`, `tp`."""
    sequence: int | None
    """The number of the first collective, or message, in which it shows."""
    operation: str
    """What most ranks do there, as recorded."""
    culprits: tuple[int, ...]
    """Ranks of the job, in ascending order; empty where the dumps do not tell."""
    waiting: tuple[int, ...]
    """Ranks that wait because of it, directly or not."""
    message: str
    advice: str = ""
    """What to look at next."""
    tie: bool = False
    """Whether the culprits differ from each other and nothing tells which of them is wrong."""
    proven: bool = True
    """Whether culprits are known by their own dumps, and not only by those of others."""
    count: int = 1
    """How many collectives show it."""
    waited_ns: int | None = None
    """How long those who wait have waited at least."""
    cycle: tuple[Link, ...] = ()
    rows: Mapping[int, int] = field(default_factory=dict)
    """For each rank that shows it best the entry of the journal: the culprits' and that of one who waits."""
    evidence: tuple[Evidence, ...] = ()
    """What these entries say; the culprits first."""
    sightings: tuple[Sighting, ...] = ()
    """What profiles show of the same ranks, where there are any."""

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
    """It took part in none of the group's collectives."""
    WAITING = "waiting"
    """It joined its last collective and has not finished it."""
    FINISHED = "finished"
    """It finished its last collective and did not join the next."""
    UNKNOWN = "unknown"
    """Its dump is absent, or no longer says."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What ranks were last doing in a group: those that stand at the same place."""

    group: str
    description: str
    sequence: int | None
    """Of their last collective there."""
    operation: str
    stage: Stage
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late a rank came to collectives in which all wait for all."""

    rank: int
    collectives: int
    """To which it came last, of those whose times are known."""
    of: int
    """In how many of these it takes part."""
    worst_ns: int
    total_ns: int
    """How long it was the only one missing: from the last but one to it, summed up."""
    group: str
    sequence: int
    """Where it came latest."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What a diagnosis rests on."""

    ranks: int = 0
    entries: int = 0
    groups: int = 0
    collectives: int = 0
    messages: int = 0


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer; the worst problem first."""

    problems: Sequence[Problem]
    standings: Sequence[Standing]
    lateness: Sequence[Lateness]
    present: Sequence[int]
    missing: Sequence[int]
    """Ranks that groups name and that have no dump."""
    unreadable: Mapping[int, str]
    """Why the dump of a rank could not be read, or not to its end."""
    checked: Checked
    notes: Sequence[str] = ()
    """What is worth knowing and no problem."""
    findings: Sequence[Finding] = ()

    @property
    def verdict(self) -> str:
        """`ok` or `problem`."""
        return "problem" if self.problems else "ok"
