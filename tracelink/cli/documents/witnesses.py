"""What `diagnose --json` prints of logs, stacks and NCCL's monitor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from tracelink.cli.documents.results import Count, RankNumber, Ranks
from tracelink.diagnosis.witnesses import model
from tracelink.model import records
from tracelink.model.witnesses import CommunicatorReport, CommunicatorStatus, MemberStatus, Sign

Sources = Annotated[Sequence[str], Meta(description="Paths of files.")]
MOST_REPORTS = 2000
"""Watchdog lines in a document."""
MOST_MEMBERS = 1024
"""Ranks of a communicator in a document."""


class Frame(Struct, frozen=True, forbid_unknown_fields=True):
    """One frame of a Python stack."""

    name: str
    filename: str
    line: Count


def frames_of(frames: Iterable[records.Frame]) -> list[Frame]:
    """Frames, as every document has them."""
    return [Frame(frame.name, frame.filename, frame.line) for frame in frames]


class WatchdogReport(Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a log."""

    sign: Annotated[
        Sign,
        Meta(
            description="`timed_out`: NCCL's watchdog gave up a collective. `status`: the last enqueued and completed "
            "collectives of a group. `heartbeat`: the watchdog is stuck itself. `gave_up`, `lost`: a gloo operation "
            "exceeded its timeout, a connection was lost. `barrier`: which members of a group did not pass a monitored "
            "barrier. `passed`: that this one did."
        ),
    ]
    rank: Annotated[RankNumber | None, Meta(description="null if neither the line nor the file shows it.")]
    group: Annotated[str, Meta(description="Empty if the line does not name it.")]
    description: str
    member: Annotated[Count | None, Meta(description="The rank within the group.")]
    sequence: Count | None
    operation: str
    elements_in: Count | None
    elements_out: Count | None
    timeout_ms: Count | None
    ran_ms: Count | None
    enqueued: Annotated[int | None, Meta(description="-1 if nothing was enqueued.")]
    completed: int | None
    members: Annotated[
        Sequence[Count], Meta(description="Ranks within the group that did not pass a barrier.")
    ]
    source: str


class FoldedStack(Struct, frozen=True, forbid_unknown_fields=True):
    """The main threads with one stack."""

    ranks: Ranks
    processes: Annotated[Sequence[str], Meta(description="Those whose rank is not known: `pid 4711`.")]
    program: Literal["py-spy", "faulthandler"]
    frames: Annotated[
        Sequence[Frame], Meta(min_length=1, description="Innermost first, with those of torch.")
    ]
    in_compiler: bool
    sources: Sources


class Member(Struct, frozen=True, forbid_unknown_fields=True):
    """A rank of a communicator."""

    rank: Annotated[int, Meta(ge=-1, description="Within the communicator; -1 if it is not known.")]
    host: str
    pid: int | None
    state: Annotated[
        str,
        Meta(
            description="`running`, `initializing`, `finalizing`, `aborted`, `error`, `missing`, `unresponsive` or "
            "`dead`."
        ),
    ]
    counts: Annotated[Mapping[str, Count], Meta(description="How many of each operation it launched.")]


class Launched(Struct, frozen=True, forbid_unknown_fields=True):
    """How many ranks launched up to how many of an operation."""

    operation: str
    ranks: Count
    count: Count


class Communicator(Struct, frozen=True, forbid_unknown_fields=True):
    """A communicator of NCCL."""

    name: str
    size: Count | None
    members: Annotated[
        Sequence[Member],
        Meta(description="Of text only those that it lists: ranks that differ from the others."),
    ]
    launched: Annotated[Sequence[Launched], Meta(description="Of text only.")]


class MonitorAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    """One answer of NCCL's monitor (RAS)."""

    source: str
    time: Annotated[str, Meta(description="As written, in the time zone of the host; empty in text.")]
    communicators: Sequence[Communicator]
    dead: Annotated[Sequence[Member], Meta(description="Processes that the monitor considers dead.")]


class Conflict(Struct, frozen=True, forbid_unknown_fields=True):
    """Sources that contradict each other."""

    ranks: Ranks
    message: str
    sources: Sources


class Use(Struct, frozen=True, forbid_unknown_fields=True):
    """What files of one kind were used for."""

    what: str
    count: Count
    purpose: Annotated[str, Meta(description="Empty if they were not used.")]
    example: Annotated[str, Meta(description="The path of one of them.")]


class Witnesses(Struct, frozen=True, forbid_unknown_fields=True):
    """What other files than dumps and profiles show."""

    reports: Annotated[
        Sequence[WatchdogReport], Meta(description=f"The first {MOST_REPORTS:,} watchdog lines.")
    ]
    stacks: Annotated[Sequence[FoldedStack], Meta(description="Equal stacks once, the least common first.")]
    answers: Annotated[Sequence[MonitorAnswer], Meta(description="What `ncclras` printed.")]
    conflicts: Sequence[Conflict]
    used: Annotated[Sequence[Use], Meta(description="All files, by what they are.")]


def witnesses_document(witnesses: model.Witnesses) -> Witnesses:
    """What these files show, as a document."""
    return Witnesses(
        reports=[_report(one) for one in witnesses.reports[:MOST_REPORTS]],
        stacks=[
            FoldedStack(
                one.ranks,
                one.processes,
                "py-spy" if one.program == "py-spy" else "faulthandler",
                frames_of(one.frames),
                one.in_compiler,
                one.sources,
            )
            for one in witnesses.stacks
        ],
        answers=[_answer(one) for one in witnesses.communicators],
        conflicts=[Conflict(one.ranks, one.message, one.sources) for one in witnesses.conflicts],
        used=[Use(one.what, one.count, one.purpose, one.example) for one in witnesses.used],
    )


def _report(one: model.RankReport) -> WatchdogReport:
    line = one.report
    return WatchdogReport(
        sign=line.sign,
        rank=one.rank,
        group=line.group,
        description=line.description,
        member=line.member,
        sequence=line.sequence,
        operation=line.operation,
        elements_in=line.elements_in,
        elements_out=line.elements_out,
        timeout_ms=line.timeout_ms,
        ran_ms=line.ran_ms,
        enqueued=line.enqueued,
        completed=line.completed,
        members=line.members,
        source=one.source,
    )


def _answer(one: CommunicatorReport) -> MonitorAnswer:
    return MonitorAnswer(
        one.source.path,
        one.time,
        [_communicator(communicator) for communicator in one.communicators],
        [_member(member) for member in one.dead],
    )


def _communicator(one: CommunicatorStatus) -> Communicator:
    launched = [
        Launched(operation, ranks, count)
        for operation, counts in one.others.items()
        for ranks, count in counts
    ]
    return Communicator(
        one.name, one.size, [_member(member) for member in one.members[:MOST_MEMBERS]], launched
    )


def _member(one: MemberStatus) -> Member:
    return Member(one.rank, one.host, one.pid, one.state, dict(one.counts))
