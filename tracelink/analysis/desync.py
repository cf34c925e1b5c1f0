"""Causes to problems: who never joined, who lags, who waits for whom in a ring, and what nobody finished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracelink.analysis.causes import Cause, causes_of, without_repetition
from tracelink.analysis.deadlock import deadlock
from tracelink.analysis.devices import on_devices
from tracelink.analysis.elapsed import Elapsed
from tracelink.analysis.message_words import never_answered
from tracelink.analysis.order import Order
from tracelink.analysis.parts import Parts
from tracelink.analysis.stuck import is_stuck
from tracelink.analysis.waits import Wait
from tracelink.analysis.wording import (
    collective_in_words,
    count_of_ranks,
    duration,
    lowered,
    ranks_in_words,
)
from tracelink.diagnosis import Kind, Problem
from tracelink.journal import Journal
from tracelink.operations import POINT_TO_POINT, operation_of


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
