"""What `diagnose --json` and `diagnose --entries --json` print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from tracelink.cli.documents.results import (
    Count,
    Finding,
    Nanoseconds,
    Positive,
    RankNumber,
    Ranks,
    Text,
    findings_of,
)
from tracelink.cli.documents.witnesses import Frame, Witnesses, frames_of, witnesses_document
from tracelink.diagnosis import model
from tracelink.diagnosis.model import Category, Kind, Role, Stage, Verdict
from tracelink.model import records

Result = TypeVar("Result", bound=Struct)

Sizes = Sequence[Sequence[int]]
Missing = Annotated[Ranks, Meta(description="Ranks that process groups name and that have no dump.")]
Unreadable = Annotated[
    Ranks,
    Meta(
        description="Ranks whose dumps cannot be read, or not to the end; findings give the reason. "
        "What precedes the damage is used."
    ),
]
Created = Annotated[
    Nanoseconds | None, Meta(description="When it was requested, in ns since 1970 on the rank's own clock.")
]
Retired = Annotated[
    bool | None, Meta(description="True if it has left the list of work: finished, failed or timed out.")
]
SequenceNumber = Annotated[
    Count | None,
    Meta(description="Its number within the group; messages and collectives are numbered separately."),
]
StackDescription = "The Python stack, innermost first, without frames of torch"


# diagnose


class Link(Struct, frozen=True, forbid_unknown_fields=True):
    """One link of a deadlock: ranks in a collective wait for ranks in the next one."""

    group: str
    sequence: Count
    operation: str
    ranks: Annotated[Ranks, Meta(description="Ranks that wait in it.")]
    waits_for: Annotated[
        Ranks,
        Meta(description="Ranks that have not joined, because they are in another collective of the cycle."),
    ]


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of the flight recorder."""

    group: str
    description: str
    sequence: SequenceNumber
    operation: Annotated[str, Meta(description="As recorded: `nccl:all_reduce`, `nccl:send 1->2`.")]
    input_sizes: Annotated[Sizes, Meta(description="One list for each tensor.")]
    output_sizes: Annotated[Sizes, Meta(description="One list for each tensor.")]
    input_types: Sequence[str]
    output_types: Sequence[str]
    state: Annotated[
        str,
        Meta(
            description="`scheduled`, `started` or `completed`; empty if not recorded. On gloo always `scheduled`."
        ),
    ]
    retired: Retired
    created_ns: Created
    timeout_ms: Count | None
    frames: Annotated[
        Sequence[Frame], Meta(description=f"{StackDescription}; empty if no stacks were recorded.")
    ]


class Evidence(Struct, frozen=True, forbid_unknown_fields=True):
    """The last entries of one rank."""

    rank: RankNumber
    role: Role
    entries: Annotated[Sequence[Entry], Meta(min_length=1, description="As recorded, the newest last.")]


class Work(Struct, frozen=True, forbid_unknown_fields=True):
    """What carries out a call: a kernel, or work of a thread of a CPU backend."""

    name: str
    where: Annotated[str, Meta(description="The stream, or the thread.")]
    start_ns: int
    duration_ns: Nanoseconds | None


class Call(Struct, frozen=True, forbid_unknown_fields=True):
    """A call as profiles show it."""

    operation: str
    group: Annotated[str, Meta(description="Empty if no source names it.")]
    sequence: Count | None
    before: Annotated[
        Count | None,
        Meta(description="Number of calls of its group before the one in question; null if not known."),
    ]
    operator: Annotated[str, Meta(description="Such as `c10d::allreduce_`.")]
    thread: str
    start_ns: int | None
    duration_ns: Nanoseconds | None
    around: Annotated[
        Sequence[str],
        Meta(description="Operators, modules and annotations in which it was called, outermost first."),
    ]
    frames: Annotated[
        Sequence[Frame],
        Meta(
            description=f"{StackDescription}; lines are those where functions start. "
            "Empty if the profile was taken without stacks."
        ),
    ]
    node: Annotated[Count | None, Meta(description="Number of its node in the execution trace.")]
    work: Annotated[
        Work | None, Meta(description="The kernel, or what a thread of a CPU backend does for it.")
    ]
    launched: Annotated[
        bool | None, Meta(description="True if it launched anything on a device; null if not known.")
    ]


class Running(Struct, frozen=True, forbid_unknown_fields=True):
    """Something that ran for most of a stretch of time."""

    name: str
    duration_ns: Annotated[Nanoseconds, Meta(description="How much of the stretch it took.")]


class Stretch(Struct, frozen=True, forbid_unknown_fields=True):
    """What a thread or a stream did for most of a stretch of time."""

    where: str
    start_ns: int
    duration_ns: Nanoseconds
    running: Annotated[Sequence[Running], Meta(min_length=1, description="Outermost first.")]


class Sighting(Struct, frozen=True, forbid_unknown_fields=True):
    """What the profiles of a rank show of a call that the problem is about, and of what it did after that.

    Times are in ns since 1970 on the rank's own clock.
    """

    rank: RankNumber
    role: Role
    sources: Annotated[
        Sequence[str], Meta(min_length=1, description="Paths of the profiles and execution traces.")
    ]
    start_ns: Annotated[
        int | None, Meta(description="When the profile starts; null if there is only an execution trace.")
    ]
    end_ns: Annotated[int | None, Meta(description="When it ends.")]
    call: Annotated[
        Call | None,
        Meta(
            description="The last call of a culprit, or the call in which another rank waits; if the profile does not "
            "show it, an earlier call like it; null if there is none."
        ),
    ]
    later: Annotated[
        Call | None, Meta(description="What a culprit called next; its dump does not contain that call.")
    ]
    stretches: Annotated[
        Sequence[Stretch],
        Meta(
            description="What a culprit did after its last call, until the next or until the profile ends, by thread."
        ),
    ]
    note: Annotated[str, Meta(description="Why the call itself is not shown; else empty.")]


class Compiling(Struct, frozen=True, forbid_unknown_fields=True):
    """What torch.compile compiled in the process of a culprit while other ranks waited for it, by its compile log."""

    rank: RankNumber
    id: Annotated[str, Meta(description="The compile id, such as `3/2`; empty outside of a compilation.")]
    function: Annotated[str, Meta(description="The name of the function; empty if unknown.")]
    phases: Annotated[
        Sequence[str], Meta(min_length=1, description="Phases of the compiler, outermost first.")
    ]
    since_ns: Annotated[int, Meta(description="In ns since 1970 on the rank's own clock.")]
    duration_ns: Annotated[
        Nanoseconds,
        Meta(description="Until its end, else until the latest time in the log and in all dumps."),
    ]
    open: Annotated[bool, Meta(description="True if the log ends within it.")]
    cold: Annotated[
        bool | None,
        Meta(
            description="True if the function was compiled for the first time, false if again (warm); null if unknown."
        ),
    ]
    sources: Annotated[Sequence[str], Meta(min_length=1, description="Paths of the compile logs.")]
    guard: Annotated[
        str,
        Meta(
            description="Why it was compiled again: the guard that failed; empty if the log does not state it."
        ),
    ]
    guard_frame: Annotated[
        Frame | None, Meta(description="The line of the program that needs this guard; null if unknown.")
    ]


class Stack(Struct, frozen=True, forbid_unknown_fields=True):
    """The stack of a culprit's main thread, from a file of py-spy dump or faulthandler."""

    rank: RankNumber
    program: Literal["py-spy", "faulthandler"]
    thread: Annotated[str, Meta(description="As the file names it.")]
    frames: Annotated[
        Sequence[Frame], Meta(min_length=1, description="Innermost first, with those of torch.")
    ]
    in_compiler: Annotated[bool, Meta(description="True if it is in torch's compiler.")]
    source: Annotated[str, Meta(description="Path of the file.")]


class Problem(Struct, frozen=True, forbid_unknown_fields=True, rename={"category": "class"}):
    """One cause; consequences of a problem are not reported separately."""

    kind: Annotated[
        Kind,
        Meta(
            description="`in_flight`: ranks are in calls, and the dumps do not show whether the job hangs or runs. "
            "`absent`: a member of a group left no dump, and no rank is known to wait for it. "
            "`not_recorded`: the job is known to hang, and all recorded calls are finished."
        ),
    ]
    category: Annotated[
        Category,
        Meta(
            description="What went wrong. `code_path`: a rank took another way through the program. `not_reached`: it "
            "is stuck or slow on its host. `busy_compiling`: it is in torch.compile there. "
            "`process_gone`: it left no dump. `wrong_arguments`. `device_or_network`: "
            "all ranks got to the call. `in_flight`: the job may run. `unknown`: the files do not show it."
        ),
    ]
    group: Annotated[str, Meta(description="Name of the process group, as recorded in the dumps.")]
    description: Annotated[
        str, Meta(description="Description of the group, such as `default_pg` or `tp`; empty if it has none.")
    ]
    sequence: Annotated[
        Count | None,
        Meta(
            description="Number of the first collective, or message, that shows it; null if it has no number."
        ),
    ]
    operation: Annotated[str, Meta(description="What most ranks do there, as recorded.")]
    culprits: Annotated[Ranks, Meta(description="In ascending order; empty if the files do not show it.")]
    waiting: Annotated[Ranks, Meta(description="Ranks that wait because of it, directly or not.")]
    message: Annotated[Text, Meta(description="The problem in one sentence.")]
    advice: Annotated[str, Meta(description="What to look at next.")]
    tie: Annotated[
        bool,
        Meta(description="True if the culprits differ from each other and nothing shows which one is wrong."),
    ]
    proven: Annotated[
        bool,
        Meta(description="True if culprits are known from their own dumps, not only from dumps of others."),
    ]
    count: Annotated[Positive, Meta(description="How many collectives show it.")]
    waited_ns: Annotated[
        Nanoseconds | None, Meta(description="How long ranks have waited at least; null if not known.")
    ]
    cycle: Annotated[
        Sequence[Link],
        Meta(description="Of a deadlock the cycle, each link waiting for the next; else empty."),
    ]
    evidence: Annotated[
        Sequence[Evidence],
        Meta(
            description="Of the first problems: the last entries of at most three culprits, and those of one other "
            "rank to compare with."
        ),
    ]
    sightings: Annotated[
        Sequence[Sighting],
        Meta(
            description="Of the first problems, if there are profiles or execution traces: what these show of the same "
            "ranks, the culprits first."
        ),
    ]
    compiling: Annotated[
        Sequence[Compiling],
        Meta(description="If there are compile logs: what culprits compiled while other ranks waited."),
    ]
    stacks: Annotated[
        Sequence[Stack], Meta(description="If there are files with stacks: those of the culprits.")
    ]


class Standing(Struct, frozen=True, forbid_unknown_fields=True):
    """What ranks were last doing in one group."""

    group: str
    description: str
    sequence: Annotated[
        Count | None, Meta(description="Of the last collective there; null if there is none.")
    ]
    operation: str
    stage: Annotated[
        Stage,
        Meta(
            description="`finished`: and did not join the next one. `unknown`: the dump is missing, truncated, or no "
            "longer contains it."
        ),
    ]
    ranks: Annotated[Ranks, Meta(description="The ranks in this state.")]


class Lateness(Struct, frozen=True, forbid_unknown_fields=True):
    """How late one rank entered collectives."""

    rank: RankNumber
    collectives: Annotated[Count, Meta(description="Number of collectives that it entered last.")]
    of: Annotated[Count, Meta(description="Number of collectives whose times are known.")]
    worst_ns: Nanoseconds
    total_ns: Annotated[Nanoseconds, Meta(description="How long all other ranks have waited for it.")]
    group: str
    sequence: Annotated[Count, Meta(description="Where it was latest.")]


class Checked(Struct, frozen=True, forbid_unknown_fields=True):
    """What the diagnosis is based on."""

    ranks: Count
    entries: Count
    groups: Count
    collectives: Count
    messages: Count


class RanksOfDumps(Struct, frozen=True, forbid_unknown_fields=True):
    """Which ranks there are dumps of."""

    present: Annotated[Ranks, Meta(description="Ranks whose dumps were read to the end.")]
    missing: Missing
    unreadable: Unreadable


class Movement(Struct, frozen=True, forbid_unknown_fields=True):
    """What ranks did since earlier dumps of the job (`--before`, or a folder with dumps of several moments)."""

    moved: Annotated[Ranks, Meta(description="Ranks with new entries, or entries in a new state.")]
    unmoved: Annotated[Ranks, Meta(description="Ranks that recorded nothing.")]
    unknown: Annotated[Ranks, Meta(description="Ranks without an earlier dump to compare with.")]
    before_ns: Annotated[
        Nanoseconds | None,
        Meta(description="The latest time in the earlier dumps: they were written then or later."),
    ]


class Diagnose(Struct, frozen=True, forbid_unknown_fields=True):
    """Result of `tracelink diagnose --json`."""

    verdict: Annotated[
        Verdict,
        Meta(
            description="`ok` if and only if there are no problems; `in_flight` if all problems are of this kind."
        ),
    ]
    problems: Annotated[
        Sequence[Problem],
        Meta(description="The worst cause first. Consequences of a problem are not reported separately."),
    ]
    more_problems: Annotated[Count, Meta(description="How many problems --limit left out.")]
    ranks: RanksOfDumps
    checked: Checked
    standings: Annotated[
        Sequence[Standing], Meta(description="What each rank was last doing in each group, of all groups.")
    ]
    lateness: Annotated[
        Sequence[Lateness], Meta(description="Ranks that entered collectives late, the latest first.")
    ]
    movement: Annotated[Movement | None, Meta(description="null without earlier dumps of the same job.")]
    notes: Annotated[Sequence[str], Meta(description="What is worth knowing but no problem.")]
    witnesses: Annotated[
        Witnesses | None,
        Meta(description="What logs, stacks and NCCL's monitor show; null if there are no such files."),
    ]
    findings: Sequence[Finding]


# Filling the document of `diagnose`


def diagnosis_document(diagnosis: model.Diagnosis, limit: int | None = None) -> Diagnose:
    """The result of `diagnose`, with at most `limit` problems; 0 and None are no limit."""
    shown = diagnosis.problems[: limit or None]
    return Diagnose(
        verdict=diagnosis.verdict,
        problems=[_problem(problem) for problem in shown],
        more_problems=len(diagnosis.problems) - len(shown),
        ranks=RanksOfDumps(diagnosis.present, diagnosis.missing, list(diagnosis.unreadable)),
        checked=_filled(Checked, diagnosis.checked),
        standings=[_filled(Standing, standing) for standing in diagnosis.standings],
        lateness=[_filled(Lateness, lateness) for lateness in diagnosis.lateness],
        movement=_filled(Movement, diagnosis.movement) if diagnosis.movement else None,
        notes=diagnosis.notes,
        witnesses=witnesses_document(diagnosis.witnesses) if diagnosis.witnesses else None,
        findings=findings_of(diagnosis.findings),
    )


def _problem(problem: model.Problem) -> Problem:
    return _filled(
        Problem,
        problem,
        cycle=[_filled(Link, link) for link in problem.cycle],
        evidence=[
            _filled(Evidence, evidence, entries=[_entry(entry) for entry in evidence.entries])
            for evidence in problem.evidence
        ],
        sightings=[_sighting(sighting) for sighting in problem.sightings],
        compiling=[
            _filled(
                Compiling,
                compiling,
                guard_frame=frames_of([compiling.guard_frame])[0] if compiling.guard_frame else None,
            )
            for compiling in problem.compiling
        ],
        stacks=[_filled(Stack, stack, frames=frames_of(stack.frames)) for stack in problem.stacks],
    )


def _entry(entry: records.Entry) -> Entry:
    return _filled(Entry, entry, frames=frames_of(entry.frames))


def _sighting(sighting: model.Sighting) -> Sighting:
    return _filled(
        Sighting,
        sighting,
        call=_call(sighting.call) if sighting.call else None,
        later=_call(sighting.later) if sighting.later else None,
        stretches=[
            _filled(
                Stretch,
                stretch,
                running=[_filled(Running, running) for running in stretch.running],
            )
            for stretch in sighting.stretches
        ],
    )


def _call(call: model.CallSeen) -> Call:
    return _filled(
        Call,
        call,
        frames=frames_of(call.frames),
        work=_filled(Work, call.work) if call.work else None,
    )


def _filled(struct: type[Result], source: object, **values: object) -> Result:
    """The struct with the attributes of `source` that have its names, except for `values`."""
    names = [name for name in struct.__struct_fields__ if name not in values]
    return struct(**{name: getattr(source, name) for name in names}, **values)


# diagnose --entries


class EntryOfRow(Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of the flight recorder, in a row with those that belong to it."""

    row: Annotated[
        Count,
        Meta(
            description="What belongs together has one number: a collective, or a message; groups side by side share "
            "it. In the order of the program."
        ),
    ]
    rank: RankNumber
    group: str | None
    description: str | None
    sequence: SequenceNumber
    operation: Annotated[
        str, Meta(description="As recorded: `nccl:all_reduce`, `nccl:send 1->2`, `nccl:coalesced`.")
    ]
    source: Annotated[RankNumber | None, Meta(description="The rank of the job that sends a message.")]
    target: Annotated[RankNumber | None, Meta(description="The rank of the job that receives it.")]
    input_type: Annotated[str | None, Meta(description="Of the first tensor.")]
    output_type: str | None
    input_sizes: Annotated[
        Sizes | None, Meta(description="One list for each tensor; null if the dump could not be read again.")
    ]
    output_sizes: Annotated[
        Sizes | None, Meta(description="One list for each tensor; null if the dump could not be read again.")
    ]
    state: Annotated[
        Literal["scheduled", "started", "completed"] | None, Meta(description="On gloo always `scheduled`.")
    ]
    retired: Retired
    created_ns: Created
    started_ns: Annotated[Nanoseconds | None, Meta(description="When the watchdog saw it started.")]
    completed_ns: Annotated[Nanoseconds | None, Meta(description="When the watchdog saw it completed.")]
    timeout_ms: Count | None
    frames: Annotated[
        Sequence[Frame] | UnsetType, Meta(description=f"With --stacks: {StackDescription}.")
    ] = UNSET


class Hole(Struct, frozen=True, forbid_unknown_fields=True):
    """A row in which ranks have no entry although they have to take part."""

    row: Count
    missing: Annotated[Ranks, Meta(description="Ranks without an entry.")]
    lost: Annotated[
        Ranks,
        Meta(description="Ranks that may have had one: their buffer wrapped, or their dump is truncated."),
    ]


class RanksOfEntries(Struct, frozen=True, forbid_unknown_fields=True):
    """Which ranks there are entries of."""

    shown: Annotated[Ranks, Meta(description="Ranks whose entries are shown, if they recorded any.")]
    missing: Missing
    unreadable: Unreadable


class Entries(Struct, frozen=True, forbid_unknown_fields=True):
    """Result of `tracelink diagnose --entries --json`."""

    verdict: Verdict
    ranks: RanksOfEntries
    rows: Annotated[Count, Meta(description="Number of rows.")]
    earlier_entries: Annotated[Count, Meta(description="How many entries --limit left out.")]
    entries: Sequence[EntryOfRow]
    holes: Annotated[
        Sequence[Hole], Meta(description="Rows without an entry of every rank that has to take part.")
    ]
    findings: Sequence[Finding]
