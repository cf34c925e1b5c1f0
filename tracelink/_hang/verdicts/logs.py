"""Verdicts on lines of NCCL's watchdog and of gloo: which rank is behind in which group, and what they cannot show.

A rank is a culprit only if its own lines say that it is idle before the collective that others gave up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tracelink._hang.facts.model import Category, Kind, Link
from tracelink._hang.facts.watchdog import LogGroup, groups_of, waited_ns
from tracelink._hang.verdicts.base import Verdict
from tracelink._hang.verdicts.deadlocks import Deadlock
from tracelink._model.columns import MILLISECOND
from tracelink._model.operations import Operation, operation_of
from tracelink._model.text import (
    capitalized,
    duration,
    group_in_words,
    lowered,
    operation_in_words,
    rank_list,
    ranks_in_words,
)
from tracelink._model.witnesses import RankReport, Sign

SAME_INPUT = frozenset({Operation.ALL_REDUCE, Operation.ALL_GATHER, Operation.BROADCAST, Operation.REDUCE})
SAME_OUTPUT = frozenset({Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.BROADCAST})
"""Operations whose inputs, or outputs, have the same size on all ranks."""
MESSAGES = frozenset({Operation.SEND, Operation.RECV, Operation.COALESCED})
"""Operations that are counted apart from collectives."""
OF_GLOO = frozenset({Sign.GAVE_UP, Sign.LOST, Sign.BARRIER, Sign.PASSED})
MOST_PARTS = 4
"""Groups, calls and requests that a sentence names."""
TAKE_STACKS = "py-spy dump --pid PID"


def verdicts_of_logs(reports: Sequence[RankReport], ranks: Collection[int]) -> list[Verdict]:
    """The verdicts on all lines; `ranks` have a log."""
    groups = [group for group in groups_of(reports) if group.given_up]
    blocked = {rank: group.name for group in groups for rank in group.given_up}
    circle = _circle(groups, blocked)
    found: list[Verdict] = [_deadlock(circle, blocked)] if circle else []
    found += [_of_group(group, blocked) for group in groups if group not in circle]
    found.sort(key=lambda verdict: (not verdict.culprits, -len(verdict.waiting)))
    named = {rank for group in groups for rank in group.given_up}
    nameless = [one for one in reports if one.sign is Sign.TIMED_OUT and one.rank not in named]
    if nameless:
        found.append(GaveUpSomewhere.of(nameless))
    of_gloo = [one for one in reports if one.sign in OF_GLOO]
    if of_gloo:
        found.append(_of_gloo(of_gloo, ranks))
    return found or ([GaveUpSomewhere.of(reports)] if reports else [])


def notes_on_logs(reports: Sequence[RankReport], ranks: Collection[int]) -> list[str]:
    """What is worth knowing of watchdogs that are stuck themselves, and of logs without lines."""
    if not reports:
        return []
    notes = []
    stuck = sorted({one.rank for one in reports if one.sign is Sign.HEARTBEAT and one.rank is not None})
    if stuck:
        notes.append(
            f"The watchdog of {lowered(ranks_in_words(stuck))} got stuck itself: a call of CUDA or NCCL hangs there, "
            "or another thread holds the GIL in one."
        )
    if silent := sorted(set(ranks) - {one.rank for one in reports}):
        has = "has" if len(silent) == 1 else "have"
        notes.append(
            f"{ranks_in_words(silent)} {has} a log without any watchdog line. That alone proves nothing."
        )
    return notes


def _of_group(group: LogGroup, blocked: Mapping[int, str]) -> Verdict:
    """Ranks gave up a collective: different ones, one that ranks did not enqueue, or for an unknown reason."""
    if mismatch := _mismatch(group):
        return mismatch
    free = [rank for rank in group.behind if blocked.get(rank, group.name) == group.name]
    facts: dict[str, Any] = {"waiting": group.given_up, "waited_ns": waited_ns([*group.given_up.values()])}
    call = (group.group, group.first, group.operation)
    if not free or operation_of(group.operation) in MESSAGES:
        elsewhere = {rank: blocked[rank] for rank in group.behind if rank in blocked}
        later = sorted(set(group.given_up) - set(group.at_first))
        return GaveUp.of_call(
            *call, **facts, proven=False, elsewhere=elsewhere, later=later, silent=group.silent_members
        )
    silent = group.silent_members
    if len(free) + len(silent) >= len(group.given_up):
        return EnqueuedByFew.of_call(*call, **facts, proven=False, tie=True, others=free)
    last = max(group.status[rank].enqueued or -1 for rank in free)
    queued = max(status.enqueued or group.first for status in group.status.values())
    kind = Kind.LAGGING if queued > group.first and last >= 1 else Kind.NEVER_JOINED
    # a rank that is behind may wait for one without a log
    return NotEnqueued.of_call(*call, **facts, culprits=free, kind=kind, last=last, proven=not silent)


def _circle(groups: Sequence[LogGroup], blocked: Mapping[int, str]) -> list[LogGroup]:
    """The groups in each of which ranks wait for ranks that wait in another one of them; the largest first."""
    from networkx import DiGraph, strongly_connected_components

    waits: DiGraph[str] = DiGraph()
    for group in groups:
        if all(rank in blocked for rank in group.behind):
            waits.add_edges_from((group.name, blocked[rank]) for rank in group.behind)
    circles = [names for names in strongly_connected_components(waits) if len(names) > 1]
    inside = [group for group in groups if any(group.name in names for names in circles)]
    return sorted(inside, key=lambda group: (-len(group.given_up), group.description))


def _deadlock(circle: Sequence[LogGroup], blocked: Mapping[int, str]) -> Deadlock:
    ranks = {rank for group in circle for rank in group.given_up}
    links = [
        Link(
            group.name,
            group.first,
            group.operation,
            tuple(sorted(group.given_up)),
            tuple(rank for rank in group.behind if blocked[rank] != group.name),
        )
        for group in circle
    ]
    return Deadlock.of_call(
        circle[0].group,
        circle[0].first,
        circle[0].operation,
        waiting=ranks,
        tie=True,
        cycle=tuple(links),
        descriptions={group.name: group.description for group in circle},
        waited_ns=waited_ns([report for group in circle for report in group.given_up.values()]),
    )


class NotEnqueued(Verdict, frozen=True, kw_only=True):
    """Ranks did not enqueue a collective that others gave up."""

    kind: Kind = Kind.NEVER_JOINED
    last: int
    """The last collective that one of them enqueued; below 1 if there is none."""

    usual = Category.NOT_REACHED
    certain = True
    not_reached = True

    def sentence(self) -> str:
        """Rank 3 did not enqueue a call: its last one is finished."""
        several = len(self.culprits) > 1
        if self.last < 1:
            done = f"{'they' if several else 'it'} enqueued nothing in this group"
        elif several:
            done = f"what they enqueued, up to #{self.last}, is finished"
        else:
            done = f"its last one is #{self.last}, which is finished"
        others = f"{gave_up_in_words(self)} in #{self.sequence}"
        return f"{self.ranks} did not enqueue {self.call}: {done}. {capitalized(others)}."

    def next_step(self) -> str:
        """Its stack, if it is not known."""
        if self.open_question:
            return f"{self.open_question}, and does not go on."
        return (
            f"Take the stack of {self.example}: {TAKE_STACKS}. A collective is counted as enqueued when its call "
            "returns: the rank did not call, is stuck in the call, or waits in another group, of which its log says "
            "nothing. Flight-recorder dumps show its last calls."
        )


class EnqueuedByFew(Verdict, frozen=True, kw_only=True):
    """At least as many ranks are behind as wait: those that wait may have made a call too many."""

    kind: Kind = Kind.NEVER_JOINED
    others: Sequence[int]
    """The ranks that are behind."""

    def sentence(self) -> str:
        """Rank 0 timed out in a call that ranks 1 and 2 did not enqueue."""
        they = "they" if len(self.others) > 1 else "it"
        these = "it is a call" if len(self.waiting) == 1 else "these are calls"
        return (
            f"{capitalized(gave_up_in_words(self))} in {self.call}, which {lowered(ranks_in_words(self.others))} did "
            f"not enqueue: either {they} left it out, or {these} too many."
        )

    def next_step(self) -> str:
        """Stacks of both."""
        return (
            f"Compare the stacks of rank {self.waiting[0]} and rank {self.others[0]} ({TAKE_STACKS}). Flight-recorder "
            "dumps show the last calls of both."
        )


class GaveUp(Verdict, frozen=True, kw_only=True):
    """Ranks gave up a collective, and no line shows why it did not end."""

    kind: Kind = Kind.TIMED_OUT
    elsewhere: Mapping[int, str] = {}
    """Ranks that did not enqueue it, and the groups in which they gave up another one."""
    later: Sequence[int] = ()
    """Ranks that gave up a later one."""
    silent: Sequence[int] = ()
    """Members of the group of which no log has a line."""

    def sentence(self) -> str:
        """7 ranks timed out in a call."""
        further = ["the logs do not show which rank is to blame."]
        if self.elsewhere:
            groups = sorted({group_in_words(name, "") for name in self.elsewhere.values()})[:MOST_PARTS]
            who = ranks_in_words([*self.elsewhere])
            further.append(f"{who} did not enqueue it, and timed out in {', '.join(groups)}.")
        if self.later:
            further.append(f"{ranks_in_words(self.later)} gave up a later one.")
        if self.silent:
            members = f"member{'s' if len(self.silent) > 1 else ''} {rank_list(self.silent)}"
            further.append(f"No log has a line of {members} of this group.")
        start = f"{capitalized(gave_up_in_words(self))} in {self.call}"
        return f"{start}; {' '.join(further)}"

    def next_step(self) -> str:
        """Stacks of all ranks."""
        return (
            f"Take the stacks of all ranks ({TAKE_STACKS}), or flight-recorder dumps. No log shows a rank that is "
            "behind: a rank without lines can be behind, or a device or the network does not finish the collective."
        )


class GaveUpSomewhere(GaveUp, frozen=True, kw_only=True):
    """Ranks gave up collectives of groups that no line names, or only report that others did."""

    calls: Sequence[str] = ()

    @classmethod
    def of(cls, reports: Sequence[RankReport]) -> GaveUpSomewhere:
        """From lines that name a collective without its group, or none."""
        given_up = [one for one in reports if one.sign is Sign.TIMED_OUT]
        names = Counter(
            f"{operation_in_words(one.operation)}{'' if one.sequence is None else f' #{one.sequence}'}"
            for one in given_up
        )
        alone = given_up[0] if len(names) == 1 else None
        return cls.of_call(
            sequence=alone.sequence if alone else None,
            operation=alone.operation if alone else "",
            waiting={one.rank for one in reports if one.rank is not None},
            calls=[f"{call} ({count})" for call, count in names.most_common(MOST_PARTS)],
            proven=False,
            waited_ns=waited_ns(given_up),
        )

    def sentence(self) -> str:
        """8 ranks timed out in calls."""
        who = ranks_in_words(self.waiting) if self.waiting else "Ranks"
        if not self.calls:
            return f"{who} reported a timeout elsewhere, or a stuck watchdog; no log says which collective timed out."
        return (
            f"{who} timed out in collectives of groups that the lines do not name: {', '.join(self.calls)}. "
            "The logs do not show which rank is to blame."
        )


def gave_up_in_words(verdict: Verdict) -> str:
    """`7 ranks timed out after 10 min`."""
    after = f" after {duration(verdict.waited_ns)}" if verdict.waited_ns else ""
    ranks = verdict.waiting
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"
    return f"{who} timed out{after}"


# The same number in the same group is another operation, or of another size, on different ranks.


class OtherInLogs(Verdict, frozen=True, kw_only=True):
    """Ranks gave up different operations, or operations of different sizes, under the same number."""

    requested: Mapping[str, Sequence[int]]
    """By operation or size its ranks, the most common first."""

    foldable = False

    def sentence(self) -> str:
        """What the ranks requested."""
        what = "operations" if self.kind is Kind.OPERATION_MISMATCH else "sizes"
        parts = [f"{ranks_in_words(ranks)}: {text}" for text, ranks in self.requested.items()][:MOST_PARTS]
        group = group_in_words(self.group, self.description)
        return f"Ranks timed out in different {what} as #{self.sequence} of {group}: {'; '.join(parts)}."

    def next_step(self) -> str:
        """Stacks of both kinds."""
        return (
            "A rank took another way through the program, or passed another tensor. Compare the stacks of one rank of "
            "each kind; flight-recorder dumps show the calls before."
        )

    def found_category(self) -> Category:
        """By what differs, if most ranks agree."""
        if not self.proven:
            return Category.UNKNOWN
        other_operation = self.kind is Kind.OPERATION_MISMATCH
        return Category.CODE_PATH if other_operation else Category.WRONG_ARGUMENTS


def _mismatch(group: LogGroup) -> OtherInLogs | None:
    reports = group.at_first
    operations = {rank: operation_of(report.operation) for rank, report in reports.items()}
    if MESSAGES & set(operations.values()):
        return None
    if len(set(operations.values())) > 1:
        return _deviation(group, Kind.OPERATION_MISMATCH, operations)
    for same, column in ((SAME_INPUT, "elements_in"), (SAME_OUTPUT, "elements_out")):
        sizes = {rank: getattr(report, column) for rank, report in reports.items()}
        texts = {rank: f"{size:,} elements" for rank, size in sizes.items() if size is not None}
        if same & set(operations.values()) and len(set(texts.values())) > 1:
            return _deviation(group, Kind.SIZE_MISMATCH, texts)
    return None


def _deviation(group: LogGroup, kind: Kind, requested: Mapping[int, str]) -> OtherInLogs:
    """The ranks that request something else than most are culprits; none without a majority."""
    by_text: dict[str, list[int]] = defaultdict(list)
    for rank, text in sorted(requested.items()):
        by_text[text].append(rank)
    ordered = dict(sorted(by_text.items(), key=lambda item: -len(item[1])))
    most = next(iter(ordered.values()))
    clear = 2 * len(most) > len(requested)
    return OtherInLogs.of_call(
        group.group,
        group.first,
        group.at_first[most[0]].operation,
        culprits=set(requested) - set(most) if clear else (),
        waiting=most if clear else requested,
        kind=kind,
        requested=ordered,
        tie=not clear,
        proven=clear,
        waited_ns=waited_ns([*group.at_first.values()]),
    )


# gloo.


class GlooEnded(Verdict, frozen=True, kw_only=True):
    """Ranks gave up operations of gloo, or lost connections: the lines name neither group nor collective."""

    gave_up: Sequence[int]
    lost: Sequence[int]
    silent: Sequence[int]
    """Ranks with a log without such lines."""

    def sentence(self) -> str:
        """Ranks 0 and 1 gave up a gloo operation."""
        parts = []
        if self.gave_up or self.kind is Kind.TIMED_OUT:
            who = ranks_in_words(self.gave_up) if self.gave_up else "A rank of unknown number"
            parts.append(f"{who} gave up a gloo operation after {duration(self.waited_ns or 0)}")
        if self.lost or not parts:
            who = ranks_in_words(self.lost) if self.lost else "Ranks of unknown number"
            parts.append(f"{lowered(who) if parts else who} lost a connection of gloo")
        silent = f" {ranks_in_words(self.silent)}: no such line." if self.silent else ""
        return f"{'; '.join(parts)}. The logs do not show which rank is to blame.{silent}"

    def next_step(self) -> str:
        """Stacks or dumps, or the rank that ended."""
        ended = (
            "No rank timed out, so a process ended while others were connected to it. Look for a rank that ended "
            "without such a line, in its log and in that of the kernel (out of memory). "
        )
        return (
            f"{'' if self.kind is Kind.TIMED_OUT else ended}Take the stacks of all ranks ({TAKE_STACKS}), or "
            "flight-recorder dumps: torch._C._distributed_c10d._dump_fr_trace(True, True, False). Lines of gloo name "
            "neither group nor collective, and which ranks give up first depends on the algorithm."
        )


class BarrierNotPassed(Verdict, frozen=True, kw_only=True):
    """Rank 0 of a group names the members that did not pass a monitored barrier."""

    kind: Kind = Kind.NEVER_JOINED
    members: Sequence[int]
    """Their numbers within the group."""

    usual = Category.NOT_REACHED
    not_reached = True

    def sentence(self) -> str:
        """Rank 6 did not pass a monitored barrier."""
        of = "" if self.culprits else " (numbers within their group)"
        return (
            f"{ranks_in_words(self.culprits or self.members)}{of} did not pass a monitored barrier within "
            f"{duration(self.waited_ns or 0)}, as rank 0 of the group says."
        )

    def next_step(self) -> str:
        """Its stack, if it is not known."""
        if self.open_question:
            return f"{self.open_question}, and does not go on."
        return f"Take the stack of that rank: {TAKE_STACKS}. Other lines of gloo are consequences."


def _of_gloo(reports: Sequence[RankReport], ranks: Collection[int]) -> Verdict:
    barriers = [one for one in reports if one.sign is Sign.BARRIER]
    if barriers:
        return _barrier(barriers, reports, ranks)
    by_sign: dict[Sign, set[int]] = defaultdict(set)
    for one in reports:
        if one.rank is not None:
            by_sign[one.sign].add(one.rank)
    gave_up, lost = by_sign[Sign.GAVE_UP], by_sign[Sign.LOST] - by_sign[Sign.GAVE_UP]
    timeouts = [one.timeout_ms for one in reports if one.timeout_ms is not None]
    return GlooEnded.of_call(
        waiting=gave_up | lost,
        kind=Kind.TIMED_OUT if timeouts else Kind.FAILED,
        gave_up=sorted(gave_up),
        lost=sorted(lost),
        silent=sorted(set(ranks) - gave_up - lost),
        proven=False,
        waited_ns=max(timeouts, default=0) * MILLISECOND or None,
    )


def _barrier(
    barriers: Sequence[RankReport], reports: Sequence[RankReport], ranks: Collection[int]
) -> BarrierNotPassed:
    members = sorted({member for one in barriers for member in one.members})
    known = {(one.member, one.rank) for one in reports if one.sign is Sign.PASSED and one.rank is not None}
    known |= {(0, one.rank) for one in barriers if one.rank is not None}
    culprits = _ranks_of_members(members, known, ranks)
    return BarrierNotPassed.of_call(
        operation="gloo:monitored_barrier",
        culprits=culprits,
        waiting={rank for _, rank in known if rank is not None} - set(culprits),
        members=members,
        tie=not culprits,
        proven=bool(culprits),
        waited_ns=max(one.timeout_ms or 0 for one in barriers) * MILLISECOND,
    )


def _ranks_of_members(
    members: Sequence[int], known: Collection[tuple[int | None, int | None]], ranks: Collection[int]
) -> Sequence[int]:
    """The ranks in the job of members of a group; empty unless lines show that both numbers are the same.

    Members are sorted by rank: if member 7 is rank 7, so are all before it. The last one may be any later rank.
    """
    if not known or any(member != rank for member, rank in known):
        return ()
    proven = max(rank for _, rank in known if rank is not None)
    last = max(ranks, default=-1)
    return members if all(member < proven or member == last for member in members) else ()
