"""Deadlocks: ranks wait for each other in different calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import field

from tracelink._hang.facts.deviations import Deviation
from tracelink._hang.facts.journal import Journal
from tracelink._hang.facts.messages import Messages
from tracelink._hang.facts.model import Category, Kind, Link
from tracelink._hang.facts.programs import Counterparts, Habits
from tracelink._hang.facts.stalls import Cause
from tracelink._hang.facts.waits import Wait, WaitOrder
from tracelink._hang.verdicts.base import Verdict, called_at
from tracelink._model.operations import POINT_TO_POINT, Operation, operation_of
from tracelink._model.text import (
    capitalized,
    collective_in_words,
    group_in_words,
    lowered,
    ranks_in_words,
)
from tracelink._model.trace import ProcessGroup

MOST_LINKS = 6
"""How many waits of a cycle its message names; all of them are in `cycle`."""


class Deadlock(Verdict, frozen=True, kw_only=True):
    """A cycle of waits."""

    kind: Kind = Kind.DEADLOCK
    descriptions: Mapping[str, str] = field(default_factory=dict)
    """Of the groups of the cycle."""

    gone_on: tuple[int, ...] = ()
    """Ranks that went on without their end of the message in which a culprit waits."""

    usual = Category.CODE_PATH
    counts_waiting = False

    def claim(self) -> str:
        """The waits of the cycle."""
        more = len(self.cycle) - MOST_LINKS
        shown = self.cycle[:MOST_LINKS] if more > 1 else self.cycle
        links = "; ".join(map(self._link_in_words, shown))
        subject = "Deadlock" if self.tie else f"{self.ranks} deadlock{'s' if len(self.culprits) == 1 else ''}"
        return f"{subject}: {links}{f'; and {more:,} more waits' if more > 1 else ''}"

    def _link_in_words(self, link: Link) -> str:
        group = ProcessGroup(link.group, self.descriptions.get(link.group, ""))
        return (
            f"{lowered(ranks_in_words(link.ranks))} in {collective_in_words(link.operation, link.sequence, group)} "
            f"wait{'s' if len(link.ranks) == 1 else ''} for {lowered(ranks_in_words(link.waits_for))}"
        )

    def next_step(self) -> str:
        """The order of calls on all ranks."""
        if self.gone_on:
            return (
                f"{ranks_in_words(self.gone_on)} went on without the other end of {self.call}: look at the peer that "
                f"{self.example} names{f', at {self.own_line}' if self.own_line else ''}."
            )
        if all(operation_of(link.operation) in POINT_TO_POINT for link in self.cycle):
            last = [called_at(evidence.entries[-1]) for evidence in self.evidence]
            lines = " and ".join(dict.fromkeys(filter(None, last)))
            return (
                "Let one side send while the other receives, in the same order, or issue both with batch_isend_irecv"
                f"{f': see {lines}' if lines else ''}."
            )
        groups = list(dict.fromkeys(link.group for link in self.cycle))
        between = f"groups {' and '.join(groups)}" if len(groups) > 1 else "these ranks"
        first_calls = [
            f"rank {evidence.rank} is in {group_in_words(entry.group, self.descriptions.get(entry.group, ''))} first"
            + (f", at {called_at(entry)}" if entry.frames else "")
            for evidence in self.evidence
            for entry in evidence.entries[-1:]
        ]
        shown = f": {'; '.join(first_calls)}" if first_calls else ""
        same_order = f"call all the collectives of {between} in the same order on all ranks{shown}."
        if self.in_other_order or self.tie:
            return capitalized(same_order)
        return (
            f"{capitalized(self.example)} has skipped its part in {self.call}, or would call it later than the others: "
            f"look for the branch that skips it, else {same_order}"
        )


RECENT = 32
"""How many messages before those of a cycle may be the first wrong one."""
MOST_PIPELINES = 64
"""How many groups with messages of a cycle are compared by counts."""


def deadlock_of(
    messages: Messages, order: WaitOrder, cause: Cause, deviations: Sequence[Deviation] = ()
) -> Deadlock:
    """Culprits are the ranks that began with what comes later for most ranks, else the fewest ranks."""
    journal = messages.journal
    deviating = _deviating_ranks(order, cause.waits)
    lacking = () if deviating else _ranks_that_lack(journal, cause.waits, deviations)
    culprits, tie = deviating or lacking, False
    if not culprits:
        culprits, tie = _culprits_without_order(messages, cause.waits)
    cycle = cause.waits if tie else _shortest_cycles(_without_later(cause.waits, culprits), culprits)
    first = _first(cycle, culprits, messages=not deviating and not lacking)
    return Deadlock.of_call(
        journal.groups[first.group],
        first.sequence,
        first.operation,
        culprits=culprits,
        waiting=[rank for rank in cause.waiting if tie or rank not in culprits],
        tie=tie,
        in_other_order=first.queued or (first.message and not lacking),
        waited_ns=messages.elapsed.longest(first.rows),
        gone_on=first.awaited if first.passed and set(first.rows) <= set(culprits) else (),
        cycle=tuple(_link(journal, wait, cycle) for wait in cycle),
        descriptions={
            group.name: group.description for group in (journal.groups[wait.group] for wait in cycle)
        },
        rows={rank: row for wait in cycle for rank, row in _culprit_rows(wait, culprits)},
    )


def _without_later(waits: Sequence[Wait], culprits: Sequence[int]) -> list[Wait]:
    """The waits; of a culprit with a message that nobody will answer only that: it hangs there, whatever is queued."""
    unanswered = {rank for wait in waits if wait.message and wait.passed for rank in wait.rows}
    stuck = unanswered.intersection(culprits)
    return [wait for wait in waits if wait.passed or stuck.isdisjoint(wait.rows)]


def _shortest_cycles(waits: Sequence[Wait], culprits: Sequence[int]) -> list[Wait]:
    """The waits of the shortest cycle through each culprit, first those for culprits; all if there is none."""
    from networkx import DiGraph, has_path, shortest_path

    graph: DiGraph[int] = DiGraph()
    for number, wait in enumerate(
        waits
    ):  # the node of a wait is a negative number, that of a rank is the rank
        graph.add_edges_from((rank, ~number) for rank in wait.rows)
        graph.add_edges_from((~number, rank) for rank in wait.awaited)
    paths = [
        [shortest_path(graph, wait, rank) for wait in graph[rank] if has_path(graph, wait, rank)]
        for rank in culprits
    ]
    kept = {~node for own in paths for node in min(own, key=len, default=()) if node < 0}
    order = sorted(kept, key=lambda number: not set(waits[number].awaited) & set(culprits))
    return [waits[number] for number in order] or list(waits)


def _first(cycle: Sequence[Wait], culprits: Sequence[int], *, messages: bool) -> Wait:
    """The wait for the culprits; their own first message if nobody will answer it, or with `messages`."""
    own = [
        (min(wait.rows.values()), index)
        for index, wait in enumerate(cycle)
        if wait.message and (messages or wait.passed) and set(wait.rows) & set(culprits)
    ]
    if own:
        return cycle[min(own)[1]]
    return next((wait for wait in cycle if set(wait.awaited) & set(culprits)), cycle[0])


def _deviating_ranks(order: WaitOrder, cycle: Sequence[Wait]) -> tuple[int, ...]:
    """Ranks in one collective of the cycle although another one, in which they are awaited, comes first for most."""
    deviating: set[int] = set()
    for wait in cycle:
        for other in cycle:
            awaited = set(other.awaited) & set(wait.rows)
            if other is wait or not awaited or wait.message or other.message:
                continue
            other_first, wait_first = order.first_for(other, wait)
            if len(other_first) > len(wait_first):
                deviating |= awaited
    return tuple(sorted(deviating)) if deviating < _members(cycle) else ()


def _culprits_without_order(messages: Messages, cycle: Sequence[Wait]) -> tuple[tuple[int, ...], bool]:
    """The culprits if the order of collectives does not show them, and whether it is unknown which is wrong."""
    if any(wait.message for wait in cycle):
        return _message_culprits(messages, cycle)
    return _fewest(cycle)


def _fewest(cycle: Sequence[Wait]) -> tuple[tuple[int, ...], bool]:
    """The ranks in the collectives with the fewest ranks, and whether these are several."""
    fewest = min(len(wait.rows) for wait in cycle)
    smallest = [wait for wait in cycle if len(wait.rows) == fewest]
    return tuple(sorted(_members(smallest))), len(smallest) > 1


def _message_culprits(messages: Messages, cycle: Sequence[Wait]) -> tuple[tuple[int, ...], bool]:
    """Culprits of a cycle with messages, and whether it is unknown which of them is wrong."""
    members = _members(cycle)
    unusual = _unusual_ranks(messages.journal, cycle, Habits(messages.journal))
    if unusual and unusual < members:
        return tuple(sorted(unusual)), False
    count = Counter(rank for conflict in _conflicts(cycle) for rank in conflict)
    most = _most(count)
    if len(most) != 1:
        most = _most(messages.unpaired_channels(most or members)) or most
    return tuple(sorted(most or members)), len(most) != 1


def _most(count: Mapping[int, int]) -> list[int]:
    return [rank for rank, number in count.items() if number == max(count.values())]


def _ranks_that_lack(
    journal: Journal, cycle: Sequence[Wait], deviations: Sequence[Deviation]
) -> tuple[int, ...]:
    """Ranks of a cycle that have skipped a call, or make it later than the others."""
    members = _members(cycle)
    if _unusual_ranks(journal, cycle, None):
        return ()
    found = (_short_senders(journal, cycle) or {deviation.rank for deviation in deviations}) & members
    return tuple(sorted(found)) if 2 * len(found) <= len(members) else ()


def _short_senders(journal: Journal, cycle: Sequence[Wait]) -> set[int]:
    """Ranks of pipelines that sent fewer messages than two stages after them expect, although they received enough."""
    groups = list(dict.fromkeys(wait.group for wait in cycle if wait.message))[:MOST_PIPELINES]
    return {rank for group in groups for rank in _short_senders_in(journal, group)}


def _short_senders_in(journal: Journal, group: int) -> list[int]:
    ranks, records, requests = journal.groups[group].ranks, journal.records, journal.requests
    if any(rank not in journal.recordings or journal.recordings[rank].overwritten for rank in ranks):
        return []
    request = records.request[(records.group == group) & records.point_to_point]
    called = Counter(
        (
            operation_of(journal.strings[requests.operation[number]]),
            requests.source[number],
            requests.target[number],
        )
        for number in request.tolist()
    )

    def lacking(source: int, target: int) -> bool:
        return called[Operation.SEND, source, target] < called[Operation.RECV, source, target]

    return [
        ranks[stage]
        for stage in range(len(ranks))
        for step in (1, -1)
        if 0 <= stage + 2 * step < len(ranks)
        and lacking(stage, stage + step)
        and called[Operation.RECV, stage + step, stage + 2 * step]
        >= called[Operation.RECV, stage, stage + step]
        and not lacking(stage - step, stage)
        # what the stage before does not receive may hold it up
        and called[Operation.SEND, stage, stage - step] <= called[Operation.RECV, stage, stage - step]
    ]


def _unusual_ranks(journal: Journal, cycle: Sequence[Wait], habits: Habits | None) -> set[int]:
    """Ranks that wait in a message where their counterparts, or they themselves before, requested something else."""
    counterparts = Counterparts(journal)
    return {
        rank
        for wait in cycle
        if wait.message
        for rank in wait.rows
        if _is_unusual(habits, counterparts, wait, rank)
    }


def _is_unusual(habits: Habits | None, counterparts: Counterparts, wait: Wait, rank: int) -> bool:
    """True if this message, or one just before it, differs from that of the counterparts with the same number."""
    last = int(counterparts.journal.records.sequence[wait.rows[rank]])
    compared = False
    for number in range(last, max(last - RECENT, 0), -1):
        expected = counterparts.expected(wait.group, rank, number)
        own = counterparts.codes(counterparts.message_rows(wait.group, rank, number))
        if expected and own:
            compared = True
            if expected != own:
                return True
    if compared or habits is None:
        return False
    return habits.deviates(int(counterparts.message_rows(wait.group, rank, last)[0]))


def _conflicts(cycle: Sequence[Wait]) -> set[frozenset[int]]:
    """Pairs of ranks of which one has gone on without a message of the other, else that wait for each other."""
    pairs = [
        (wait, rank, awaited)
        for wait in cycle
        if wait.message
        for rank in wait.rows
        for awaited in wait.awaited
    ]
    mutual = (
        (rank, awaited)
        for _, rank, awaited in pairs
        if any(awaited in other.rows and rank in other.awaited for other in cycle)
    )
    passed = {frozenset((rank, awaited)) for wait, rank, awaited in pairs if wait.passed}
    return passed or set(map(frozenset, mutual))


def _members(waits: Sequence[Wait]) -> set[int]:
    return {rank for wait in waits for rank in wait.rows}


def _culprit_rows(wait: Wait, culprits: Sequence[int]) -> list[tuple[int, int]]:
    """The entries of the culprits in a wait, else its first entry."""
    own = [(rank, row) for rank, row in wait.rows.items() if rank in culprits]
    return own or list(wait.rows.items())[:1]


def _link(journal: Journal, wait: Wait, cycle: Sequence[Wait]) -> Link:
    name = journal.groups[wait.group].name
    return Link(name, wait.sequence, wait.operation, wait.ranks, _awaited(wait, cycle))


def _awaited(wait: Wait, cycle: Sequence[Wait]) -> tuple[int, ...]:
    """The ranks of the cycle that it waits for."""
    others = _members([other for other in cycle if other is not wait])
    return tuple(rank for rank in wait.awaited if rank in others)
