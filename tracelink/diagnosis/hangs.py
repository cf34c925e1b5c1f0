"""Never joined, lagging, deadlock, timed out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tracelink.diagnosis.clocks import Elapsed
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.model import Kind, Link, Problem
from tracelink.diagnosis.participation import Parts
from tracelink.diagnosis.programs import Habits, Siblings
from tracelink.diagnosis.waits import (
    Cause,
    Order,
    Wait,
    causes_of,
    never_answered,
    on_devices,
    without_repetition,
)
from tracelink.model.columns import UNKNOWN, Int64s
from tracelink.model.operations import POINT_TO_POINT, operation_of
from tracelink.text import (
    collective_in_words,
    count_of_ranks,
    duration,
    group_in_words,
    lowered,
    operation_in_words,
    ranks_in_words,
)

# Who is to blame for a ring of waits in which messages are: who leaves its habits, or is in most of the conflicts.


RECENT = 32
"""So many messages before those in a ring may be the first that went wrong."""


def culprits_of_ring(journal: Journal, ring: Sequence[Wait]) -> tuple[tuple[int, ...], bool]:
    """Those to blame, and whether nothing tells which of them is."""
    everybody = {rank for wait in ring for rank in wait.rows}
    unusual = _unusual(journal, ring)
    if unusual and unusual < everybody:
        return tuple(sorted(unusual)), False
    conflicts = _conflicts(ring)
    count = Counter(rank for conflict in conflicts for rank in conflict)
    most = [rank for rank, times in count.items() if times == max(count.values())]
    return tuple(sorted(most or everybody)), len(most) != 1


def _unusual(journal: Journal, ring: Sequence[Wait]) -> set[int]:
    """Ranks that wait in messages in which their siblings, or they themselves before, did something else."""
    habits, siblings = Habits(journal), Siblings(journal)
    return {
        rank
        for wait in ring
        if wait.message
        for rank in wait.rows
        if _is_unusual(habits, siblings, siblings.call(wait.group, rank, wait.sequence), wait.group, rank)
    }


def _is_unusual(habits: Habits, siblings: Siblings, call: Int64s, group: int, rank: int) -> bool:
    """Whether this, or one of the messages just before it, is not what siblings have under the same number."""
    number = int(siblings.journal.records.sequence[call[0]])
    compared = False
    for one in range(number, max(number - RECENT, 0), -1):
        due, own = siblings.due(group, rank, one), siblings.codes(siblings.call(group, rank, one))
        if due and own:
            compared = True
            if due != own:
                return True
    return not compared and habits.deviates(int(call[0]))


def _conflicts(ring: Sequence[Wait]) -> set[frozenset[int]]:
    """Pairs of ranks of which each waits for the other, one of them at least in a message."""
    return {
        frozenset((rank, awaited))
        for wait in ring
        if wait.message
        for rank in wait.rows
        for awaited in wait.awaited
        if any(awaited in other.rows and rank in other.awaited for other in ring)
    }


# Rings of waits to problems: who waits for whom, and who left the order that all others keep.


MOST_LINKS = 6
"""Of a ring, that its message tells; the rest is in `cycle`."""


def deadlock(elapsed: Elapsed, order: Order, cause: Cause) -> Problem:
    """The ring; its culprits are those who began with what comes later for most, else the fewest."""
    journal = elapsed.journal
    deviating = _deviating(order, cause.waits)
    culprits, tie = (deviating, False) if deviating else _without_order(journal, cause.waits)
    first = _first(cause.waits, culprits, messages=not deviating)
    group = journal.groups[first.group]
    return Problem(
        Kind.DEADLOCK,
        group.name,
        group.description,
        first.sequence,
        first.operation,
        culprits,
        tuple(rank for rank in cause.waiting if tie or rank not in culprits),
        f"Deadlock: {_told(journal, cause.waits)}.",
        tie=tie,
        waited_ns=elapsed.longest(first.rows),
        cycle=tuple(_link(journal, wait, cause.waits) for wait in cause.waits),
        rows={rank: row for wait in cause.waits for rank, row in _shown_deadlock(wait, culprits)},
    )


def _first(ring: Sequence[Wait], culprits: Sequence[int], *, messages: bool) -> Wait:
    """What others wait for the culprits in; the first message in which these are, where messages tell of them."""
    own = [
        (min(wait.rows.values()), number)
        for number, wait in enumerate(ring)
        if wait.message and set(wait.rows) & set(culprits)
    ]
    if own and messages:
        return ring[min(own)[1]]
    return next((wait for wait in ring if set(wait.awaited) & set(culprits)), ring[0])


def _deviating(order: Order, ring: Sequence[Wait]) -> tuple[int, ...]:
    """Who is in one of the ring although another, in which it is awaited, comes first for most."""
    found: set[int] = set()
    for wait in ring:
        for other in ring:
            awaited = set(other.awaited) & set(wait.rows)
            if other is wait or not awaited or wait.message or other.message:
                continue
            other_first, wait_first = order.first_for(other, wait)
            if len(other_first) > len(wait_first):
                found |= awaited
    return tuple(sorted(found)) if found < _all(ring) else ()


def _without_order(journal: Journal, ring: Sequence[Wait]) -> tuple[tuple[int, ...], bool]:
    """The culprits where no order of collectives tells, and whether nothing tells which of them is."""
    if any(wait.message for wait in ring):
        return culprits_of_ring(journal, ring)
    return _fewest(ring)


def _fewest(ring: Sequence[Wait]) -> tuple[tuple[int, ...], bool]:
    """Those who are in what the fewest are in, and whether that is several things."""
    fewest = min(len(wait.rows) for wait in ring)
    odd = [wait for wait in ring if len(wait.rows) == fewest]
    return tuple(sorted(_all(odd))), len(odd) > 1


def _all(waits: Sequence[Wait]) -> set[int]:
    return {rank for wait in waits for rank in wait.rows}


def _shown_deadlock(wait: Wait, culprits: Sequence[int]) -> list[tuple[int, int]]:
    """The entries of culprits in it, else that of one who is."""
    own = [(rank, row) for rank, row in wait.rows.items() if rank in culprits]
    return own or list(wait.rows.items())[:1]


def _told(journal: Journal, ring: Sequence[Wait]) -> str:
    left_out = len(ring) - MOST_LINKS
    shown = ring[:MOST_LINKS] if left_out > 1 else ring
    told = "; ".join(_link_in_words(journal, wait, ring) for wait in shown)
    return f"{told}; and {left_out:,} more waits" if left_out > 1 else told


def _link_in_words(journal: Journal, wait: Wait, ring: Sequence[Wait]) -> str:
    group = journal.groups[wait.group]
    return (
        f"{lowered(ranks_in_words(wait.ranks))} in {operation_in_words(wait.operation)} #{wait.sequence} of "
        f"{group_in_words(group.name, group.description)} "
        f"wait{'s' if len(wait.rows) == 1 else ''} for {lowered(ranks_in_words(_awaited(wait, ring)))}"
    )


def _awaited(wait: Wait, ring: Sequence[Wait]) -> tuple[int, ...]:
    """For whom in the ring it waits."""
    inside = _all([other for other in ring if other is not wait])
    return tuple(rank for rank in wait.awaited if rank in inside)


def _link(journal: Journal, wait: Wait, ring: Sequence[Wait]) -> Link:
    return Link(
        journal.groups[wait.group].name, wait.sequence, wait.operation, wait.ranks, _awaited(wait, ring)
    )


# Whether what all ranks joined and nobody finished is stuck, or only under way.


LONG_NS = 10_000_000_000
LONG_FOR_A_FIRST_NS = 20_000_000_000
"""Where nothing tells how long a group's collectives take: the first one also sets up connections."""
TIMES_LONGER = 20
"""Than any that the group has finished."""


def is_stuck(elapsed: Elapsed, wait: Wait) -> bool:
    """Whether it was given up, or lasts longer than its timeout or than anything like it."""
    if wait.dropped:
        return True
    since = elapsed.since(wait.rows)
    if not since:
        return False
    timeouts = elapsed.journal.records.timeout_ms
    if any(0 <= timeouts[wait.rows[rank]] * 1_000_000 <= time for rank, time in since.items()):
        return True
    usual = int(elapsed.usual[wait.group])
    if usual == UNKNOWN:
        return min(since.values()) >= LONG_FOR_A_FIRST_NS
    return min(since.values()) >= max(LONG_NS, TIMES_LONGER * usual)


# Causes to problems: who never joined, who lags, who waits for whom in a ring, and what nobody finished.


def hangs_of(
    journal: Journal, parts: Parts, waits: Sequence[Wait], mismatches: list[Problem]
) -> tuple[list[Problem], list[str]]:
    """A problem for each cause of waiting that is no mismatch, and what is worth a note.

    Those who wait because of a mismatch are added to it.
    """
    order, elapsed = Order(journal, parts), Elapsed(journal)
    certain = on_devices(journal, waits, lambda wait: is_stuck(elapsed, wait))
    problems, notes = _problems(elapsed, order, without_repetition(causes_of(certain), order), mismatches)
    if not problems and not mismatches:
        possible = on_devices(journal, waits, lambda wait: not wait.message or is_stuck(elapsed, wait))
        rings = [cause for cause in causes_of(possible) if len(cause.waits) > 1]
        problems = [deadlock(elapsed, order, cause) for cause in rings]
    if problems or any(one.waiting for one in mismatches):
        return _proven(problems, [*problems, *mismatches])
    return problems, notes


def _proven(problems: Sequence[Problem], all_of_them: Sequence[Problem]) -> tuple[list[Problem], list[str]]:
    """Beside a cause that its own dump shows, a rank without a dump may be one of those who wait: that is a note."""
    doubtful = [one for one in problems if not one.proven]
    if not doubtful or not any(one.proven for one in all_of_them):
        return list(problems), []
    ranks = sorted({rank for one in doubtful for rank in one.culprits})
    note = (
        f"Others wait for {lowered(ranks_in_words(ranks))} too, whose dumps do not tell: "
        f"{'it' if len(ranks) == 1 else 'they'} may well wait because of what is said above."
    )
    return [one for one in problems if one.proven], [note]


def _problems(
    elapsed: Elapsed, order: Order, causes: Sequence[Cause], mismatches: list[Problem]
) -> tuple[list[Problem], list[str]]:
    journal, problems, joined = elapsed.journal, [], []
    for cause in causes:
        explained = _explained_by(journal, cause, mismatches)
        if explained is not None:
            one = mismatches[explained]
            waiting = tuple(sorted({*one.waiting, *cause.waiting} - set(one.culprits)))
            mismatches[explained] = replace(one, waiting=waiting)
        elif len(cause.waits) > 1:
            problems.append(deadlock(elapsed, order, cause))
        elif cause.culprits and cause.waits[0].queued:
            problems.append(_not_started(elapsed, cause))
        elif cause.culprits:
            problems.append(_absence(elapsed, cause))
        else:
            joined.append(cause)
    stuck = [cause for cause in joined if is_stuck(elapsed, cause.waits[0])]
    notes = [_in_flight(journal, cause.waits[0]) for cause in joined if cause not in stuck]
    if stuck and not problems and not _in_dispute(journal, stuck[0].waits[0], mismatches):
        problems.append(_given_up(elapsed, stuck[0], len(stuck)))
    return problems, notes


def _in_dispute(journal: Journal, wait: Wait, mismatches: Sequence[Problem]) -> bool:
    """Whether ranks wait in a mismatch, or do not agree in the same group."""
    return any(one.waiting or one.group == journal.groups[wait.group].name for one in mismatches)


def _explained_by(journal: Journal, cause: Cause, mismatches: Sequence[Problem]) -> int | None:
    """The mismatch in the same message, in one of the same collectives, or earlier in the group by the same rank."""
    for number, one in enumerate(mismatches):
        of_messages = operation_of(one.operation) in POINT_TO_POINT
        for wait in cause.waits:
            if of_messages and any(one.rows.get(rank) == row for rank, row in wait.rows.items()):
                return number
            same_group = journal.groups[wait.group].name == one.group
            if of_messages or wait.message or not same_group or one.sequence is None:
                continue
            by_the_same = set(one.culprits) & set(cause.culprits) or set(wait.rows) <= set(one.culprits)
            if one.sequence == wait.sequence or (one.sequence < wait.sequence and by_the_same):
                return number
    return None


def _absence(elapsed: Elapsed, cause: Cause) -> Problem:
    (wait,), journal = cause.waits, elapsed.journal
    group = journal.groups[wait.group]
    since_ns = elapsed.longest(wait.rows)
    lagging = wait.ahead > 1 and bool(wait.absent)
    what = collective_in_words(wait.operation, wait.sequence, group)
    since = f" for at least {duration(since_ns)}" if since_ns else ""
    behind = f", and the others are {wait.ahead} collectives ahead" if lagging else ""
    if wait.absent:
        missed = never_answered(wait, what) if wait.message else f"never joined {what}"
        subject = f"{ranks_in_words(cause.culprits)} {missed}{behind}"
    elif len(cause.culprits) == 1:
        subject = (
            f"{ranks_in_words(cause.culprits)}, of which there is no dump, is the only one missing in {what}"
        )
    else:
        who = lowered(ranks_in_words(cause.culprits))
        subject = f"At least one of {who}, whose dumps do not tell, is missing in {what}"
    return Problem(
        Kind.LAGGING if lagging else Kind.NEVER_JOINED,
        group.name,
        group.description,
        wait.sequence,
        wait.operation,
        cause.culprits,
        cause.waiting,
        f"{subject}; {count_of_ranks(cause.waiting, 'wait')}{since}.",
        proven=bool(wait.absent),
        waited_ns=since_ns,
        rows=_shown(journal, wait, cause.culprits),
    )


def _not_started(elapsed: Elapsed, cause: Cause) -> Problem:
    (wait,), journal = cause.waits, elapsed.journal
    group = journal.groups[wait.group]
    since_ns = elapsed.longest(wait.rows)
    since = f" for at least {duration(since_ns)}" if since_ns else ""
    what = collective_in_words(wait.operation, wait.sequence, group)
    whose = "their devices have" if len(cause.culprits) > 1 else "its device has"
    return Problem(
        Kind.FAILED,
        group.name,
        group.description,
        wait.sequence,
        wait.operation,
        cause.culprits,
        cause.waiting,
        f"{ranks_in_words(cause.culprits)} joined {what}, but {whose} not started it; "
        f"{count_of_ranks(cause.waiting, 'wait')}{since}.",
        waited_ns=since_ns,
        rows=_shown(journal, wait, cause.culprits),
    )


def _shown(journal: Journal, wait: Wait, culprits: Sequence[int]) -> dict[int, int]:
    """The last entry of each culprit, and that of one who waits."""
    rows = dict([next(iter(wait.rows.items()))])
    for rank in culprits:
        if rank in journal.recordings:
            place = journal.ranks.tolist().index(rank)
            if journal.bounds[place + 1] > journal.bounds[place]:
                rows[rank] = int(journal.bounds[place + 1]) - 1
    return rows


def _given_up(elapsed: Elapsed, cause: Cause, count: int) -> Problem:
    """Of what all joined and nobody finishes the first: whoever is stuck in it does not finish what comes after it."""
    (wait,), journal = cause.waits, elapsed.journal
    group = journal.groups[wait.group]
    since_ns = elapsed.longest(wait.rows)
    since = f" for at least {duration(since_ns)}" if since_ns else ""
    gave_up = f", {_gave_up(wait)}" if wait.dropped else ""
    what = collective_in_words(wait.operation, wait.sequence, group)
    return Problem(
        Kind.TIMED_OUT,
        group.name,
        group.description,
        wait.sequence,
        wait.operation,
        (),
        cause.waiting,
        f"All ranks joined {what} and did not finish it{since}{gave_up}.",
        count=count,
        waited_ns=since_ns,
        rows=_shown(journal, wait, ()),
    )


def _gave_up(wait: Wait) -> str:
    return (
        f"rank {wait.ranks[0]} gave it up" if len(wait.ranks) == 1 else f"{len(wait.ranks)} ranks gave it up"
    )


def _in_flight(journal: Journal, wait: Wait) -> str:
    what = collective_in_words(wait.operation, wait.sequence, journal.groups[wait.group])
    return (
        f"All ranks joined {what}; {len(wait.rows)} had not finished it when they were dumped. "
        "If the job hangs, it hangs in there: in the network, or on a device."
    )
