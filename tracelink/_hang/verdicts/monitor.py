"""Verdicts on what NCCL's monitor (RAS) answered, and on stacks alone: neither shows by itself whether a job runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

from tracelink._hang.facts.bundle import Stacks, is_in_call
from tracelink._hang.facts.model import Category, Kind
from tracelink._hang.verdicts.base import Verdict
from tracelink._model.errors import printable
from tracelink._model.text import capitalized, counted, lowered, name_in_words, ranks_in_words
from tracelink._model.trace import ProcessGroup
from tracelink._model.witnesses import CommunicatorStatus, MemberStatus, MonitorAnswer

MOST_PARTS = 4
"""Counts, processes and stacks that a sentence names."""
LARGEST_NUMBER = 1 << 53
"""Larger counts are no exact numbers in JSON."""


class OfMonitor(Verdict, frozen=True, kw_only=True):
    """Base of these verdicts; what does not show whether the job hangs is in flight."""

    kind: Kind = Kind.IN_FLIGHT
    proven: bool = False
    who: str = ""
    """The ranks in question, as far as their numbers are known."""
    size: int | None = None
    """How many ranks the communicator has."""

    def found_category(self) -> Category:
        """By kind: answers prove nothing else."""
        known = {Kind.IN_FLIGHT: Category.IN_FLIGHT, Kind.ABSENT: Category.PROCESS_GONE}
        return known.get(self.kind, Category.UNKNOWN)

    @property
    def communicator(self) -> str:
        """`communicator 0xae94 of 4 ranks`."""
        size = "" if self.size is None else f" of {counted(self.size, 'rank')}"
        return f"communicator {self.group}{size}"

    @property
    def question(self) -> str:
        """What begins a sentence on something that may run."""
        return "Running or hung? " if self.kind is Kind.IN_FLIGHT else ""

    def next_step(self) -> str:
        """A second answer."""
        return (
            "Query twice, a minute apart, and give both files: ncclras -f json > ras_1.json. Counts that stay the same "
            "show that the job hangs; --hung says that it does. Take the stack of a rank that is behind: py-spy dump "
            "--pid PID."
        )


class CountsDiffer(OfMonitor, frozen=True, kw_only=True):
    """Ranks launched fewer of an operation than others."""

    counts: Mapping[int, int]
    """How many ranks launched how many."""

    def sentence(self) -> str:
        """3 ranks launched 21, 1 rank launched 20."""
        counts = sorted(self.counts.items(), reverse=True)[:MOST_PARTS]
        launched = ", ".join(f"{counted(ranks, 'rank')} launched {count:,}" for count, ranks in counts)
        behind = f" Behind: {self.who}." if self.who else ""
        may_run = self.kind is Kind.IN_FLIGHT
        end = "The counts alone do not show whether the job still runs." if may_run else "They do not move."
        operation = self.operation.removeprefix("nccl:")
        return f"{self.question}{operation} in {self.communicator}: {launched}.{behind} {end}"


class Unanswered(OfMonitor, frozen=True, kw_only=True):
    """Processes did not answer the monitor, or gave no data on a communicator."""

    unresponsive: bool

    def sentence(self) -> str:
        """Rank 2 did not answer."""
        what = (
            "did not answer NCCL's monitor: its process is stopped, or its host cannot be reached"
            if self.unresponsive
            else "gave no data on it: it left the communicator, or did not enter it, or its process is stuck"
        )
        return f"{self.who} of {self.communicator} {what}."


class Aborted(OfMonitor, frozen=True, kw_only=True):
    """Ranks reported an error, or aborted."""

    kind: Kind = Kind.FAILED

    def sentence(self) -> str:
        """Rank 2 reported an error."""
        return f"{self.who} reported an error or aborted in {self.communicator}. The monitor does not show the cause."

    def next_step(self) -> str:
        """Their logs."""
        return "The lines with NCCL WARN in the logs of these ranks name the error."


class DeadProcesses(OfMonitor, frozen=True, kw_only=True):
    """Processes that the monitor could not reach for a minute."""

    kind: Kind = Kind.ABSENT
    processes: Sequence[tuple[int | None, str]]
    """With their hosts."""

    def sentence(self) -> str:
        """Rank 2 is dead."""
        verb = "is" if len(self.processes) == 1 else "are"
        where = [f"process {pid} on {printable(host)}" for pid, host in self.processes[:MOST_PARTS]]
        more = ["…"] if len(self.processes) > MOST_PARTS else []
        return f"{self.who} {verb} dead, as NCCL's monitor says ({', '.join([*where, *more])})."

    def next_step(self) -> str:
        """Logs of the process and of the kernel."""
        return "Look at the end of its log and at the log of the kernel (out of memory, a lost device) on its host."


class EqualCounts(OfMonitor, frozen=True, kw_only=True):
    """All ranks launched the same, which is no sign that they finished it."""

    communicators: int

    def sentence(self) -> str:
        """All ranks launched the same number."""
        if not self.communicators:
            return f"{self.question}NCCL's monitor lists no communicator that differs from the others."
        return (
            f"{self.question}In all of {counted(self.communicators, 'communicator')} of NCCL, all ranks launched the "
            "same number of collectives: whether they finished them is not known."
        )


def verdicts_of_monitor(answers: Answers, *, hung: bool) -> list[OfMonitor]:
    """What the newest answer shows; without a sign that ranks do not move, it is in flight."""
    stuck = hung or answers.still
    newest = answers.newest
    found: list[OfMonitor] = []
    if newest.dead:
        processes = {(member.pid, member.host): member for member in newest.dead}
        dead = [*processes.values()]
        ranks, who = answers.ranks_of(dead) or (), answers.in_words(dead)
        found.append(DeadProcesses.of_call(culprits=ranks, who=who, processes=[*processes]))
    for one in newest.communicators:
        found += _of_communicator(answers, one, stuck=stuck)
    if not found:
        kind, count = Kind.TIMED_OUT if stuck else Kind.IN_FLIGHT, len(newest.communicators)
        found.append(EqualCounts.of_call(kind=kind, communicators=count))
    return sorted(found, key=lambda verdict: (verdict.kind is Kind.IN_FLIGHT, not verdict.culprits))


def _of_communicator(answers: Answers, one: CommunicatorStatus, *, stuck: bool) -> list[OfMonitor]:
    group, found = ProcessGroup(printable(one.name)), list[OfMonitor]()
    if silent := [member for member in one.members if member.state in ("unresponsive", "missing")]:
        unresponsive = any(member.state == "unresponsive" for member in silent)
        culprits = (answers.ranks_of(silent) if unresponsive else None) or ()
        kind = Kind.ABSENT if stuck and unresponsive else Kind.IN_FLIGHT
        who = answers.in_words(silent)
        found.append(
            Unanswered.of_call(
                group, culprits=culprits, kind=kind, who=who, unresponsive=unresponsive, size=one.size
            )
        )
    for operation in operations_of(one):
        if len(counts := counts_of(one, operation)) > 1:
            found.append(_counts_differ(answers, one, operation, counts, stuck=stuck))
    if failed := [member for member in one.members if member.state in ("error", "aborted")]:
        ranks, who = answers.ranks_of(failed) or (), answers.in_words(failed)
        found.append(Aborted.of_call(group, waiting=ranks, who=who, size=one.size))
    return found


def _counts_differ(
    answers: Answers, one: CommunicatorStatus, operation: str, counts: Counter[int], *, stuck: bool
) -> CountsDiffer:
    """Ranks behind are culprits only if most are ahead, all answered, and none of them waits elsewhere."""
    front = max(counts)
    ahead = [member for member in one.members if member.counts.get(operation) == front]
    behind = [member for member in one.members if member.counts.get(operation, front) < front]
    free = [member for member in behind if (member.host, member.pid) not in answers.waiting]
    listed = len(behind) == counts.total() - counts[front]
    answered = all(member.state not in UNANSWERED for member in one.members)
    blamed = listed and answered and 2 * len(behind) < counts.total()
    culprits = (answers.ranks_of(free) if blamed else None) or ()
    hangs = Kind.NEVER_JOINED if culprits else Kind.TIMED_OUT
    return CountsDiffer.of_call(
        ProcessGroup(printable(one.name)),
        front if culprits and front <= LARGEST_NUMBER else None,
        f"nccl:{operation}",
        culprits=culprits,
        waiting=answers.ranks_of(ahead) or (),
        kind=hangs if stuck else Kind.IN_FLIGHT,
        who=answers.in_words(behind) if listed and behind else "",
        size=one.size,
        counts=counts,
    )


# Stacks alone.


class StacksAlone(OfMonitor, frozen=True, kw_only=True):
    """Where programs are, if nothing else is known; culprits are few ranks outside of calls that all others are in."""

    places: Sequence[str]
    """Who is where: `rank 1 in wait`."""
    unmoved: Sequence[int]
    """Ranks whose last two stacks are the same."""

    @classmethod
    def of(cls, stacks: Stacks, *, hung: bool) -> StacksAlone:
        """From equal stacks, the least common first."""
        places, inside, outside = [], set[int](), set[int]()
        for stack in stacks.folded:
            who = [lowered(ranks_in_words(stack.ranks))] if stack.ranks else []
            who += map(name_in_words, stack.processes[:MOST_PARTS])
            places.append(f"{', '.join(who)} in {name_in_words(stack.frames[0].name)}")
            (inside if any(map(is_in_call, stack.frames)) else outside).update(stack.ranks)
        culprits = outside if len(outside) < len(inside) else set[int]()
        return cls.of_call(
            culprits=culprits,
            waiting=(inside | outside) - culprits if hung else (),
            kind=Kind.TIMED_OUT if hung else Kind.IN_FLIGHT,
            places=places,
            unmoved=sorted(stacks.unmoved),
        )

    def sentence(self) -> str:
        """Rank 1 is in wait, ranks 0 and 2 in __next__."""
        more = len(self.places) - MOST_PARTS
        further = [f"{counted(more, 'more stack')}"] if more > 0 else []
        listed = capitalized("; ".join([*self.places[:MOST_PARTS], *further]))
        several = len(self.unmoved) > 1
        same = f"{ranks_in_words(self.unmoved)} {'have' if several else 'has'} the same stack in two files. "
        return (
            f"{self.question}{listed}. {same if self.unmoved else ''}Stacks alone show neither whether the job runs, "
            "nor who waits for whom."
        )

    def next_step(self) -> str:
        """Why a rank is not in a call, and dumps, or the stacks again."""
        why = f"{self.open_question}, while the others are in a call. " if self.open_question else ""
        again = ", or the stacks again a minute later: a stack that stays the same is stuck"
        return f"{why}Take flight-recorder dumps{'' if self.unmoved else again}."


_Process = tuple[str, int | None]
UNANSWERED = frozenset({"unresponsive", "missing", "dead"})


class Answers:
    """The newest answer by time, else by name, and what changed since the one before."""

    def __init__(self, answers: Sequence[MonitorAnswer]) -> None:
        ordered = sorted(answers, key=lambda answer: (answer.time, answer.source))
        self.newest = ordered[-1]
        timed = [answer for answer in ordered if answer.time not in ("", self.newest.time)]
        before = timed[-1] if timed and self.newest.time else None
        self.still = before is not None and _counts(before) == _counts(self.newest)
        """True if no rank launched anything in between."""
        self.note = ""
        if before:
            moved = "no rank launched a collective" if self.still else "ranks launched collectives"
            times = f"{printable(before.time)} and {printable(self.newest.time)}"
            self.note = f"NCCL RAS: {moved} between {times}."
        elif len(ordered) > 1:
            self.note = (
                f"NCCL RAS: {counted(len(ordered), 'answer')} were read; {self.newest.source} was used."
            )

    @cached_property
    def places(self) -> Mapping[_Process, int]:
        """The rank in the job of each process: its rank in the communicator of all processes; empty if none has all."""
        sized = [one for one in self.newest.communicators if one.size is not None]
        largest = max(sized, key=lambda one: one.size or 0, default=None)
        if largest is None:
            return {}
        places = {(member.host, member.pid): member.rank for member in largest.members}
        everybody = {(member.host, member.pid) for one in sized for member in one.members}
        complete = len(places) == len(largest.members) == largest.size and everybody <= set(places)
        return places if complete else {}

    def ranks_of(self, members: Sequence[MemberStatus]) -> list[int] | None:
        """Their ranks in the job; None if one of them is unknown."""
        ranks = {self.places.get((member.host, member.pid)) for member in members}
        return None if None in ranks else sorted(rank for rank in ranks if rank is not None)

    def in_words(self, members: Sequence[MemberStatus]) -> str:
        """Their ranks in the job, else those within the communicator, else how many they are."""
        if (ranks := self.ranks_of(members)) is not None:
            return ranks_in_words(ranks)
        if any(member.rank < 0 for member in members):
            return counted(len(members), "process")
        return f"{ranks_in_words(sorted({member.rank for member in members}))} (within the communicator)"

    @cached_property
    def waiting(self) -> set[_Process]:
        """The processes that launched more of an operation than others of their communicator."""
        return {
            (member.host, member.pid)
            for one in self.newest.communicators
            for operation in operations_of(one)
            for count in [counts_of(one, operation)]
            for member in one.members
            if len(count) > 1 and member.counts.get(operation) == max(count)
        }


def _counts(answer: MonitorAnswer) -> dict[tuple[str, int], dict[str, int]]:
    return {
        (one.name, member.rank): dict(member.counts) for one in answer.communicators for member in one.members
    }


def operations_of(one: CommunicatorStatus) -> list[str]:
    """The operations that ranks of a communicator launched."""
    names = dict.fromkeys(name for member in one.members for name in member.counts)
    return list({**names, **dict.fromkeys(part.operation for part in one.launched)})


def counts_of(one: CommunicatorStatus, operation: str) -> Counter[int]:
    """How many ranks launched how many of an operation."""
    stated = {part.count: part.ranks for part in one.launched if part.operation == operation}
    return Counter(
        stated or [member.counts[operation] for member in one.members if operation in member.counts]
    )
