"""Calls that all ranks joined and that do not end, devices that do not start them, late ranks, and calls in flight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import replace

from tracelink._hang.facts.deviations import Deviation, Deviations
from tracelink._hang.facts.journal import Journal
from tracelink._hang.facts.messages import Messages
from tracelink._hang.facts.model import Category, Kind, Role
from tracelink._hang.facts.stalls import Cause, Clues, Elapsed, Stalls, causes_of, is_cycle, merge_causes
from tracelink._hang.facts.waits import Wait, WaitOrder, add_device_waits
from tracelink._hang.verdicts.absence import FewJoined, LateArrival, NeverJoined
from tracelink._hang.verdicts.base import UNDECIDED, Verdict
from tracelink._hang.verdicts.deadlocks import deadlock_of
from tracelink._hang.verdicts.mismatches import OtherProgram, deviation_verdict
from tracelink._model.columns import MILLISECOND, NO_TIME, Bools
from tracelink._model.operations import POINT_TO_POINT, operation_of
from tracelink._model.text import (
    collective_in_words,
    count_of_ranks,
    duration,
    lowered,
    ranks_cell,
    ranks_in_words,
)


class TimedOut(Verdict, frozen=True, kw_only=True):
    """All ranks joined a call, and no rank finished it."""

    kind: Kind = Kind.TIMED_OUT
    started: bool = False
    """True if the devices of all ranks have started it: the network or a device does not finish it."""
    gave_up: tuple[int, ...] = ()
    of_message: bool = False

    usual = Category.DEVICE_OR_NETWORK
    counts_waiting = False

    def claim(self) -> str:
        """`All ranks joined all_reduce #5 of group 0 and did not finish it for at least 10 min`."""
        joined = "Both ranks called" if self.of_message else "All ranks joined"
        started = ", all devices have started it," if self.started else ""
        ranks = f"rank {self.gave_up[0]}" if len(self.gave_up) == 1 else f"{len(self.gave_up)} ranks"
        given_up = f"; {ranks} gave it up" if self.gave_up else ""
        return f"{joined} {self.call}{started} and did not finish it{self.at_least}{given_up}"

    def next_step(self) -> str:
        """Logs of the network and the devices."""
        entry = self.shown(Role.WAITING) or self.shown(Role.CULPRIT)
        limit = entry.timeout_ms if entry else None
        slow = (
            f", or the work took longer than its timeout of {duration(limit * MILLISECOND)}" if limit else ""
        )
        return (
            "No rank was missing: look for errors of the network and the devices in the logs of these ranks "
            f"(NCCL_DEBUG=INFO, Xid in dmesg){slow}."
        )


class NotStarted(Verdict, frozen=True, kw_only=True):
    """Ranks joined a call, and their devices have not started it."""

    kind: Kind = Kind.FAILED

    usual = Category.DEVICE_OR_NETWORK
    foldable = True

    def claim(self) -> str:
        """`Rank 3 joined all_reduce #5 of group 0, but its device has not started it`."""
        devices = "their devices have" if len(self.culprits) > 1 else "its device has"
        return f"{self.ranks} joined {self.call}, but {devices} not started it"

    def next_step(self) -> str:
        """What the device is doing."""
        return (
            f"Check what the device of {self.example} is running, and its errors (nvidia-smi, Xid in dmesg); then look "
            "for the first error in the log: later ones are mostly consequences."
        )


class InFlight(Verdict, frozen=True, kw_only=True):
    """Ranks are in calls, and the dumps do not show whether the job hangs."""

    kind: Kind = Kind.IN_FLIGHT
    inside: tuple[int, ...] = ()
    """The ranks in the call in question."""
    awaited: tuple[int, ...] = ()
    """Those that they wait for; empty if all ranks have joined."""
    in_cycle: bool = False
    """True if these wait for the former, directly or not."""
    complete: bool = True
    """True if all ranks have joined, if none is awaited; else the search for causes has overlooked one."""
    started: bool = False
    """True if the devices of all ranks have started it."""
    of_message: bool = False
    least_size: int = 0
    """How many members the group has at least, if some of them are unknown."""

    usual = Category.IN_FLIGHT
    certain = True
    not_reached = True

    def claim(self) -> str:
        """`Rank 7 is behind: ranks 0-6 wait for it in all_reduce #5 of group 0 for at least 4.0 s`."""
        more = self.count - self.groups
        others = f"; {more:,} more call{'s are' if more > 1 else ' is'} in flight" if more else ""
        return f"{self._awaited() if self.awaited else self._joined()}{self.at_least}{others}"

    def _awaited(self) -> str:
        are, them = ("is", "it") if len(self.culprits) == 1 else ("are", "them")
        wait = f"{lowered(ranks_in_words(self.inside))} {'waits' if len(self.inside) == 1 else 'wait'}"
        awaited = lowered(ranks_in_words(self.awaited))
        if self.in_cycle:
            return f"{self.ranks} wait for each other: {wait} for {awaited} in {self.call}"
        if self.awaited == self.culprits:
            return f"{self.ranks} {are} behind: {wait} for {them} in {self.call}"
        all_waiting = count_of_ranks(self.waiting, "wait")
        return f"{self.ranks} {are} behind, and {all_waiting}: {wait} for {awaited} in {self.call}"

    def _joined(self) -> str:
        ranks = ranks_in_words(self.inside)
        if not self.complete:
            return f"{ranks} joined {self.call} and did not finish it"
        if self.least_size and not self.of_message:
            joined = f"{ranks}, of at least {self.least_size} ranks (the others are unknown), joined"
        elif self.of_message:
            joined = "Both ranks called" if len(self.inside) > 1 else f"{ranks} called"
        else:
            joined = f"All ranks ({ranks_cell(self.inside)}) joined"
        started = ", all devices have started it," if self.started else ""
        return f"{joined} {self.call}{started} and no rank has finished it"

    def sentence(self) -> str:
        """Who is behind, else what is in flight; the job may run."""
        is_known = self.culprits and not self.in_cycle
        return f"{'' if is_known else 'Running or hung? '}{self.claim()}. {UNDECIDED}"

    def next_step(self) -> str:
        """A second look."""
        if self.open_question:
            first = f"{self.open_question}."
        elif self.culprits:
            several, own, other = len(self.culprits) > 1, self.own_line, self.other_line
            whose = f"the last call of rank {self.culprits[0]}" if several else "its last call"
            line = f": {whose} was at {own}" if own else ""
            line += f", the others wait at {other}" if own and other not in ("", own) else ""
            hosts = "their hosts" if several else "its host"
            first = f"Look first at {lowered(self.ranks)} (py-spy dump --pid PID on {hosts}){line}."
        else:
            first = (
                "If it hangs, look for errors of the network and the devices (NCCL_DEBUG=INFO, Xid in dmesg)."
            )
        return (
            f"{first} To see whether the job hangs, take dumps again after some seconds and compare: "
            "tracelink diagnose NEW --before OLD. If you know that it hangs, add --hung."
        )


VerdictT = TypeVar("VerdictT", bound=Verdict)
MOST_ENDING = 3
"""Notes on calls that only some ranks have finished."""
FAR_BEHIND = 2
"""By so many collectives that others have completed; a rank that is one behind may just be leaving it."""


# Causes to problems.


def hangs_of(
    messages: Messages,
    waits: Sequence[Wait],
    mismatches: list[Verdict],
    clues: Clues,
    deviations: Deviations,
) -> tuple[list[Verdict], list[str]]:
    """A problem for each cause of waiting that is not a mismatch, and notes.

    Ranks that wait because of a mismatch are added to it in `mismatches`. If nothing decides whether the job hangs,
    what is in flight is one problem.
    """
    journal = messages.journal
    order = WaitOrder(journal, messages.parts.parts)
    stalls = Stalls(journal, messages.elapsed, messages.times, clues)
    ending = [wait for wait in waits if stalls.is_ending(wait)]
    waits = [wait for wait in waits if not stalls.is_ending(wait)]
    certain = add_device_waits(journal, waits, stalls.is_stuck)
    deviating = _deviating(journal, deviations, waits, mismatches)
    causes = _unexplained(journal, merge_causes(causes_of(certain), order), mismatches)
    known = any(cause.culprits for cause in causes)
    behind_devices = [] if known else _behind_devices(stalls, order, waits)
    decided = _decided(stalls, causes, behind_devices, mismatches)
    notes = [_ending(journal, wait) for wait in ending[:MOST_ENDING]]
    if decided is None:
        return ([_in_flight(stalls, behind_devices or causes, ending)] if causes else []), notes
    problems = _problems(stalls, messages, order, decided, mismatches, deviating)
    if problems or any(mismatch.waiting for mismatch in mismatches):
        return _proven(problems, [*problems, *mismatches])
    return problems, notes


def _decided(
    stalls: Stalls, causes: Sequence[Cause], behind_devices: Sequence[Cause], mismatches: Sequence[Verdict]
) -> Sequence[Cause] | None:
    """The causes of a hang; None if it is unknown whether the job hangs."""
    if any(mismatch.waiting for mismatch in mismatches) or any(map(stalls.is_decided, causes)):
        return causes
    cycles = [cause for cause in behind_devices if stalls.is_deadlock(cause)]
    return cycles if cycles and not mismatches else None


def _behind_devices(stalls: Stalls, order: WaitOrder, waits: Sequence[Wait]) -> list[Cause]:
    """Causes with culprits, or cycles, if devices that have not started a call count as waited for."""
    possible = add_device_waits(stalls.journal, waits, lambda _: True)
    causes = merge_causes(causes_of(possible), order)
    return [cause for cause in causes if cause.culprits or stalls.is_deadlock(cause)]


def _proven(problems: Sequence[Verdict], known: Sequence[Verdict]) -> tuple[list[Verdict], list[str]]:
    """If a dump proves one cause, a rank without a dump may just wait for it: that is a note."""
    unproven = [problem for problem in problems if not problem.proven]
    if not unproven or not any(problem.proven for problem in known):
        return list(problems), []
    ranks = sorted({rank for problem in unproven for rank in problem.culprits})
    several = len(ranks) > 1
    note = (
        f"Other ranks also wait for {lowered(ranks_in_words(ranks))}, whose {'dumps do' if several else 'dump does'} "
        f"not show why. {'They' if several else 'It'} may wait because of the problem above."
    )
    return [problem for problem in problems if problem.proven], [note]


def _unexplained(journal: Journal, causes: Sequence[Cause], mismatches: list[Verdict]) -> list[Cause]:
    """The causes that no mismatch explains; ranks that wait because of a mismatch are added to it."""
    unexplained = []
    for cause in causes:
        explained = _explained_by(journal, cause, mismatches)
        if explained is None:
            unexplained.append(cause)
            continue
        mismatch = mismatches[explained]
        waiting = tuple(sorted({*mismatch.waiting, *cause.waiting} - set(mismatch.culprits)))
        mismatches[explained] = replace(mismatch, waiting=waiting)
    return unexplained


def _problems(
    stalls: Stalls,
    messages: Messages,
    order: WaitOrder,
    causes: Sequence[Cause],
    mismatches: list[Verdict],
    deviating: Sequence[Deviation],
) -> list[Verdict]:
    elapsed, stuck = stalls.elapsed, []
    problems, causes = _deviations_behind(elapsed, causes, deviating, mismatches)
    for cause in causes:
        if len(cause.waits) > 1:
            problems.append(deadlock_of(messages, order, cause, deviating))
        elif cause.culprits and cause.waits[0].queued:
            problems.append(_of_cause(NotStarted, elapsed, cause))
        elif cause.culprits:
            problems.append(_absence(elapsed, cause))
        elif not stalls.is_stuck(cause.waits[0]):
            continue
        elif cause.waits[0].ending:  # others have finished it: not the network
            problems.append(_of_cause(NotStarted, elapsed, cause, sorted(cause.waits[0].rows)))
        else:
            stuck.append(cause)
    if stuck and not problems and not _in_dispute(stalls.journal, stuck[0].waits[0], mismatches):
        problems.append(_timed_out(stalls, stuck))
    return problems


def _timed_out(stalls: Stalls, stuck: Sequence[Cause]) -> TimedOut:
    """The first of the stuck calls, in all similar groups: later ones are queued behind it."""
    alike = _alike(stalls.journal, stuck, stuck[0])
    waits = [cause.waits[0] for cause in alike]
    return _of_cause(
        TimedOut,
        stalls.elapsed,
        stuck[0],
        (),
        waiting={rank for cause in alike for rank in cause.waiting},
        groups=len(alike),
        count=len(stuck),
        gave_up=tuple(sorted(rank for wait in waits if wait.dropped for rank in wait.ranks)),
        started=all(_all_started(stalls.journal, wait) for wait in waits),
        of_message=waits[0].message,
    )


def _deviating(
    journal: Journal, deviations: Deviations, waits: Sequence[Wait], mismatches: list[Verdict]
) -> list[Deviation]:
    """Ranks that skipped calls or made extra ones; mismatched messages are a consequence of that."""
    if not waits:
        return []
    rows = {group.name: number for number, group in enumerate(journal.groups)}
    of_messages = [each for each in mismatches if operation_of(each.operation) in POINT_TO_POINT]
    disputed = {(rank, rows[each.group]) for each in of_messages for rank in each.rows if each.group in rows}
    found = deviations.behind(add_device_waits(journal, waits, lambda _: True), disputed)
    certain = {deviation.rank: deviation for deviation in found if deviation.is_certain}
    for mismatch in of_messages:
        own = [certain[rank] for rank in mismatch.rows if rank in certain]
        if own and mismatch in mismatches and mismatch.rows[own[0].rank] >= own[0].row:
            number = mismatches.index(mismatch)
            mismatches[number] = deviation_verdict(journal, own[:1], mismatch.waiting, rows=mismatch.rows)
    return found


def _deviations_behind(
    elapsed: Elapsed, causes: Sequence[Cause], deviating: Sequence[Deviation], mismatches: list[Verdict]
) -> tuple[list[Verdict], list[Cause]]:
    """A problem for each certain deviation because of which ranks wait, and the other causes."""
    behind: dict[tuple[int, int, int], list[tuple[Deviation, Cause]]] = {}
    rest = []
    for cause in causes:
        involved = {*cause.culprits, *(rank for wait in cause.waits for rank in wait.rows)}
        own = [each for each in deviating if each.is_certain and each.rank in involved]
        for each in own:
            behind.setdefault((each.usual, each.skipped, each.extra), []).append((each, cause))
        if not own:
            rest.append(cause)
    return [_deviation(elapsed, found, mismatches) for found in behind.values()], rest


def _deviation(
    elapsed: Elapsed, found: Sequence[tuple[Deviation, Cause]], mismatches: list[Verdict]
) -> Verdict:
    """One problem; skipped messages of the same ranks are part of it."""
    by_rank = {deviation.rank: deviation for deviation, _ in found}
    waiting = {rank for _, cause in found for rank in cause.waiting}
    for mismatch in list(mismatches):
        of_program = mismatch.kind is Kind.SKIPPED or isinstance(mismatch, OtherProgram)
        if of_program and set(mismatch.culprits) <= by_rank.keys():
            mismatches.remove(mismatch)
            waiting.update(mismatch.waiting)
    longest = max(elapsed.longest(cause.waits[0].rows) or 0 for _, cause in found)
    return deviation_verdict(elapsed.journal, list(by_rank.values()), waiting, waited_ns=longest or None)


def _explained_by(journal: Journal, cause: Cause, mismatches: Sequence[Verdict]) -> int | None:
    """Index of a mismatch in the same call, earlier in the group by the same rank, or for which its culprits wait."""
    for index, mismatch in enumerate(mismatches):
        if cause.culprits and set(cause.culprits) <= set(mismatch.waiting):
            return index
        of_messages = operation_of(mismatch.operation) in POINT_TO_POINT
        for wait in cause.waits:
            if of_messages and any(mismatch.rows.get(rank) == row for rank, row in wait.rows.items()):
                return index
            group = journal.groups[wait.group]
            same_group = (group.name, group.description) == (mismatch.group, mismatch.description)
            if of_messages or wait.message or not same_group or mismatch.sequence is None:
                continue
            culprits = set(mismatch.culprits)
            by_the_same = culprits & set(cause.culprits) or set(wait.rows) <= culprits
            if isinstance(mismatch, OtherProgram) and not wait.absent:
                by_the_same = culprits & set(wait.rows)
            if mismatch.sequence == wait.sequence or (mismatch.sequence < wait.sequence and by_the_same):
                return index
    return None


def _in_dispute(journal: Journal, wait: Wait, mismatches: Sequence[Verdict]) -> bool:
    """True if ranks wait because of a mismatch, or a mismatch is in the same group."""
    name = journal.groups[wait.group].name
    return any(mismatch.waiting or mismatch.group == name for mismatch in mismatches)


def _absence(elapsed: Elapsed, cause: Cause) -> Verdict:
    (wait,), journal = cause.waits, elapsed.journal
    lagging = wait.ahead > 1 and bool(wait.absent) and not wait.late
    if _joined_by_a_minority(wait, cause, lagging=lagging):
        return _few_joined(elapsed, cause)
    return _of_cause(
        NeverJoined,
        elapsed,
        cause,
        kind=Kind.LAGGING if lagging else Kind.NEVER_JOINED,
        seen=bool(wait.absent),
        message_of=wait.ranks[0] if wait.message else None,
        ahead=wait.ahead if lagging else 0,
        late=_late_arrival(journal, wait) if wait.late else None,
        lost_by=wait.ranks if wait.lost else (),
        proven=wait.proves,
    )


def _of_cause(
    family: type[VerdictT],
    elapsed: Elapsed,
    cause: Cause,
    culprits: Sequence[int] | None = None,
    **facts: Any,
) -> VerdictT:
    """A verdict on the first wait of a cause."""
    wait = cause.waits[0]
    culprits = cause.culprits if culprits is None else culprits
    common = {
        "culprits": culprits,
        "waiting": cause.waiting,
        "waited_ns": elapsed.longest(wait.rows),
        "rows": _shown_rows(elapsed.journal, wait, culprits),
    }
    group = elapsed.journal.groups[wait.group]
    return family.of_call(group, wait.sequence, wait.operation, **{**common, **facts})


def _joined_by_a_minority(wait: Wait, cause: Cause, *, lagging: bool) -> bool:
    """True if few ranks wait for many, and nothing shows that these still have to make the call."""
    joined_late_or_after = wait.late or wait.message or lagging
    return not joined_late_or_after and 2 * len(wait.rows) < len(cause.culprits) == len(wait.absent)


def _few_joined(elapsed: Elapsed, cause: Cause) -> FewJoined:
    """Either the ranks that joined made a call too many, or the others stopped before it: no majority decides."""
    joined = tuple(sorted(cause.waits[0].rows))
    return _of_cause(
        FewJoined,
        elapsed,
        cause,
        sorted({*joined, *cause.culprits}),
        waiting=set(cause.waiting).difference(joined),
        joined=joined,
        rows=_shown_rows(elapsed.journal, cause.waits[0], cause.culprits[:1]),
    )


def _late_arrival(journal: Journal, wait: Wait) -> LateArrival:
    records, row = journal.records, next(iter(wait.rows.values()))
    joined = _joined(journal, wait) & np.isin(journal.rank, wait.absent)
    arrived = int(records.created[joined].min())
    return LateArrival(arrived - wait.created, int(records.timeout_ms[row]) * MILLISECOND, wait.ranks)


def _joined(journal: Journal, wait: Wait) -> Bools:
    """The entries of a collective."""
    records = journal.records
    of_group: Bools = (records.group == wait.group) & ~records.point_to_point
    return of_group & (records.sequence == wait.sequence)


def _in_flight(stalls: Stalls, causes: Sequence[Cause], ending: Sequence[Wait]) -> InFlight:
    """All ranks that are behind, and the call in which most ranks wait for others, else the first that all joined."""
    cause = max(
        causes, key=lambda cause: (len(cause.waiting) if cause.culprits else 0, -cause.waits[0].created)
    )
    wait, journal = cause.waits[0], stalls.journal
    group = journal.groups[wait.group]
    in_cycle = is_cycle(cause)
    certain, missing = _behind(causes, ending), () if wait.absent else _without_dumps(journal, causes)
    behind = tuple(sorted({*certain, *missing})) if wait.absent or missing else cause.culprits
    if in_cycle and not behind:
        behind = tuple(sorted({rank for each in cause.waits for rank in each.rows}))
    waiting = {rank for each in causes for rank in each.waiting}.difference(behind)
    alike = [cause] if behind or wait.message else _alike(journal, causes, cause)
    return _of_cause(
        InFlight,
        stalls.elapsed,
        cause,
        behind,
        waiting=waiting if behind else {rank for each in alike for rank in each.waiting},
        groups=len(alike),
        inside=tuple(sorted({rank for each in alike for rank in each.waits[0].ranks})),
        awaited=wait.awaited if in_cycle else cause.culprits,
        in_cycle=in_cycle,
        least_size=group.size if group.size > len(group.ranks) else 0,
        started=_all_started(journal, wait),
        of_message=wait.message,
        proven=wait.proves,
        count=len(causes),
    )


def _alike(journal: Journal, causes: Sequence[Cause], cause: Cause) -> list[Cause]:
    """The causes in the same call of similar groups, this one first: what all of them share is one problem."""

    def call(each: Cause) -> tuple[object, ...]:
        wait = each.waits[0]
        group = journal.groups[wait.group]
        return wait.sequence, wait.operation, group.description or group.name, wait.message, each.culprits

    return [cause, *(each for each in causes if each is not cause and call(each) == call(cause))]


def _behind(causes: Sequence[Cause], ending: Sequence[Wait]) -> tuple[int, ...]:
    """The ranks that have certainly not joined calls of others, and those that have not completed what others have."""
    late = [wait for wait in ending if wait.ahead >= FAR_BEHIND]
    absent = [cause for cause in causes if cause.waits[0].absent]
    return tuple(
        sorted({*(rank for wait in late for rank in wait.rows), *(r for c in absent for r in c.culprits)})
    )


def _all_started(journal: Journal, wait: Wait) -> bool:
    """True if the devices of all ranks are known to run it."""
    return bool((journal.records.started[list(wait.rows.values())] != NO_TIME).all())


def _without_dumps(journal: Journal, causes: Sequence[Cause]) -> tuple[int, ...]:
    """All ranks without a dump for which others wait, if they wait for no other rank that may not have joined."""
    unknown = [set(cause.culprits) for cause in causes if not cause.waits[0].absent]
    return tuple(
        sorted({rank for ranks in unknown if not ranks & journal.recordings.keys() for rank in ranks})
    )


def _ending(journal: Journal, wait: Wait) -> str:
    what = collective_in_words(wait.operation, wait.sequence, journal.groups[wait.group])
    ranks = ranks_in_words(wait.ranks)
    dumps = "its dump was" if len(wait.rows) == 1 else "their dumps were"
    return f"{ranks} had not yet finished {what}, which other ranks have, when {dumps} written."


def _shown_rows(journal: Journal, wait: Wait, culprits: Sequence[int]) -> dict[int, int]:
    """The last entry of each culprit, or the call that it joined late, and the entry of one waiting rank.

    Of a dump of active calls it is the first entry: what was called later is queued behind it.
    """
    rows = {} if wait.lost else dict([next(iter(wait.rows.items()))])
    if wait.late:
        joined = _joined(journal, wait) & np.isin(journal.rank, culprits)
        return rows | {int(journal.rank[row]): row for row in np.flatnonzero(joined).tolist()}
    for rank in culprits:
        if recording := journal.recordings.get(rank):
            own = journal.entries_of(rank)
            if own.stop > own.start:
                rows[rank] = own.start if recording.only_active else own.stop - 1
    return rows
