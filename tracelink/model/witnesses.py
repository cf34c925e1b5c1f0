"""What logs and monitors say of a job that hangs: reports of watchdogs, and what NCCL counts of its communicators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from tracelink.model.findings import Finding
from tracelink.model.trace import SourceInfo

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


class Report(Struct, frozen=True):
    """One line of a log. What it does not say is None or empty."""

    sign: Sign
    rank: int | None = None
    """In the job, as the line says."""
    label: int | None = None
    """The number that a launcher puts in front of the line: the task of Slurm, or the local rank of torchelastic."""
    at_ns: int | None = None
    """Since the start of the year, by the clock of the host."""
    group: str = ""
    """A name that is the same on all ranks."""
    description: str = ""
    member: int | None = None
    """The rank within the group."""
    sequence: int | None = None
    operation: str = ""
    elements_in: int | None = None
    elements_out: int | None = None
    timeout_ms: int | None = None
    ran_ms: int | None = None
    enqueued: int | None = None
    completed: int | None = None
    members: tuple[int, ...] = ()
    """Ranks within the group that did not pass a barrier."""


class WatchdogLog(Struct, frozen=True):
    """The lines of a log that say something of a hang, in its order."""

    source: SourceInfo
    reports: Sequence[Report]
    findings: Sequence[Finding] = ()


# NCCL's own monitor (RAS).


class MemberStatus(Struct, frozen=True):
    """A rank of a communicator."""

    rank: int
    """Within the communicator."""
    host: str
    pid: int | None
    counts: Mapping[str, int]
    """Number of collectives that it launched, by operation; empty if unknown."""
    state: str = "running"
    """`running`, `initializing`, `finalizing`, `aborted`, `error`, `missing`, `unresponsive` or `dead`."""


class CommunicatorStatus(Struct, frozen=True):
    """A communicator of NCCL at the time of a query."""

    name: str
    """Its hash."""
    size: int | None
    members: Sequence[MemberStatus]
    """All of them in JSON; in text only those that differ from the others."""
    others: Mapping[str, Sequence[tuple[int, int]]]
    """By operation, how many ranks launched up to how many: only in text, which does not list all ranks."""


class CommunicatorReport(Struct, frozen=True):
    """One answer of NCCL's monitor."""

    source: SourceInfo
    time: str
    """As written: in the time zone of the host; empty in text."""
    communicators: Sequence[CommunicatorStatus]
    dead: Sequence[MemberStatus] = ()
    """Processes that the monitor considers dead, whatever their communicators; `rank` is -1."""
    findings: Sequence[Finding] = ()
