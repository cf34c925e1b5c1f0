"""Ranks that others wait for: they never joined a call, lag behind, joined too late, or left no dump."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct

from tracelink._hang.facts.journal import Journal, mark_synchronizing
from tracelink._hang.facts.model import Category, Kind
from tracelink._hang.facts.participation import (
    NEVER,
    Knowledge,
    Outcome,
    Parts,
    Positions,
    find_outcomes,
    lowest,
)
from tracelink._hang.facts.stalls import NO_CLUES, Clues
from tracelink._hang.facts.waits import Wait
from tracelink._hang.verdicts.base import UNDECIDED, WHERE_DUMPS_ARE, Verdict, called_at, facts_of_all
from tracelink._hang.verdicts.unrecorded import NothingRecorded
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int64s, int64s
from tracelink._model.operations import Operation, operation_of
from tracelink._model.text import collective_in_words, count_of_ranks, duration, lowered, ranks_in_words


class LateArrival(Struct, frozen=True):
    """Ranks joined a call after others had given it up."""

    late_ns: int
    timeout_ns: int
    gave_up: tuple[int, ...]

    def in_words(self) -> str:
        """`17.0 s late; 7 ranks gave it up after a timeout of 14.0 s`."""
        ranks = f"rank {self.gave_up[0]}" if len(self.gave_up) == 1 else f"{len(self.gave_up)} ranks"
        return f"{duration(self.late_ns)} late; {ranks} gave it up after a timeout of {duration(self.timeout_ns)}"


class NeverJoined(Verdict, frozen=True, kw_only=True):
    """Ranks did not join a call in which others wait for them."""

    kind: Kind = Kind.NEVER_JOINED
    seen: bool = True
    """True if dumps show that the culprits have not joined; else they may have."""
    message_of: int | None = None
    """Of a message the rank that waits in it."""
    ahead: int = 0
    """By how many collectives the others are ahead, if they have queued several."""
    late: LateArrival | None = None
    lost_by: tuple[int, ...] = ()
    """Waiting ranks whose ring buffers have lost the call."""

    usual = Category.NOT_REACHED
    foldable = True
    not_reached = True

    def claim(self) -> str:
        """`Rank 3 never joined all_reduce #5 of group 0 (default_pg)`."""
        return f"{self._absence()}{self._lost()}"

    def _absence(self) -> str:
        if self.late:
            return f"{self.ranks} joined {self.call} {self.late.in_words()}"
        if not self.seen and len(self.culprits) == 1:
            return f"{self.ranks} (whose dump does not show it) is the only rank missing in {self.call}"
        if not self.seen:
            return f"At least one of {lowered(self.ranks)} (whose dumps do not show it) is missing in {self.call}"
        missed = "joined"
        if self.message_of is not None:
            sends = operation_of(self.operation) == Operation.SEND
            missed = (
                f"received what rank {self.message_of} sends in"
                if sends
                else f"sent what rank {self.message_of} waits for in"
            )
        ahead = f", and the others are {self.ahead} collectives ahead" if self.ahead else ""
        return f"{self.ranks} never {missed} {self.call}{ahead}"

    def _lost(self) -> str:
        """How a wait is known whose entries are lost."""
        if not self.lost_by:
            return ""
        have = "buffers of {} have" if len(self.lost_by) > 1 else "buffer of {} has"
        return (
            f" (the ring {have.format(lowered(ranks_in_words(self.lost_by)))} lost it, pg_status counts it)"
        )

    def waits(self) -> str:
        """Ranks that gave the call up do not wait any more."""
        return "" if self.late else super().waits()

    def next_step(self) -> str:
        """Where to look for the culprit: on its host, unless its dump or its program shows more."""
        if self.undumped or self.damaged:
            return step_for_dumps(self)
        if self.late:
            return self._step_if_late()
        own, other = self.own_line, self.other_line
        way = f" The others wait at {other}." if other else ""
        if self.open_question:
            return f"{self.open_question}, and does not go on.{way}"
        if own and other:
            way = (
                f" Its last call was at {own}, the others wait at {other}: between these lines look for a branch, a "
                "loop or an exception that only it takes."
            )
        if own and own == other:
            way = f" It did not return to {own}, where the others wait."
        return (
            f"Check what {self.example} is doing now: run py-spy dump --pid PID on its host, and read the end of its "
            f"log.{way}"
        )

    def _step_if_late(self) -> str:
        """Its host was late, and is no longer stuck."""
        before = [
            entry
            for evidence in self.evidence[:1]
            for entry in evidence.entries
            if (entry.group, entry.sequence) != (self.group, self.sequence)
        ]
        previous = called_at(before[-1]) if before else ""
        at = f" at {self.own_line}" if self.own_line else ""
        since = f" between {previous} and this call{at}" if previous else f" before this call{at}"
        return (
            f"Find out in the log of {self.example} what it did{since}: usual causes are start-up, loading of data, a "
            "checkpoint or compilation. If it happens again, run py-spy dump --pid PID on its host while the others "
            "wait. If it has to take that long, use a longer timeout."
        )


class FewJoined(Verdict, frozen=True, kw_only=True):
    """Few ranks wait in a call for many: either they made a call too many, or the others stopped before it."""

    kind: Kind = Kind.NEVER_JOINED
    tie: bool = True
    joined: tuple[int, ...]

    not_reached = True
    counts_waiting = False

    def claim(self) -> str:
        """`Rank 0 is alone in all_gather #37 of group 0 for at least 10 min: ...`."""
        few = ranks_in_words(self.joined)
        many = lowered(ranks_in_words([rank for rank in self.culprits if rank not in self.joined]))
        alone, made = ("is alone", "has") if len(self.joined) == 1 else ("are alone", "have")
        return (
            f"{few} {alone} in {self.call}{self.at_least}: either {lowered(few)} {made} made a call too many, or "
            f"{many} stopped before it"
        )

    def next_step(self) -> str:
        """The line of the call, and how to find out where the others are."""
        if self.undumped or self.damaged:
            return step_for_dumps(self)
        last = {evidence.rank: evidence.entries[-1] for evidence in self.evidence}
        line = next((called_at(entry) for rank, entry in last.items() if rank in self.joined), "")
        other = next((f"rank {rank}" for rank in last if rank not in self.joined), "one of the others")
        return (
            f"Look for a condition that lets only some ranks make the call{f' at {line}' if line else ''}. If all "
            f"ranks have to make it, check what {other} is doing now: run py-spy dump --pid PID on its host."
        )


class NoDump(Verdict, frozen=True, kw_only=True):
    """Ranks without a complete dump: others wait for them, or used groups with them."""

    kind: Kind = Kind.ABSENT
    proven: bool = False
    host: str = ""
    """Where the ranks without any dump ran."""
    each: bool = True
    """True if ranks wait for each of them, and not only for some."""
    joined: str = ""
    """The last call of others that all of them certainly joined."""
    finished: bool = True
    """True if the others have finished it; else they went on after it."""
    ending: tuple[int, ...] = ()
    """Ranks that end in the call, and may have finished it."""
    others: tuple[int, ...] = ()
    """Further ranks without a complete dump."""

    not_reached = True

    def claim(self) -> str:
        """`Ranks 24-31 (host b) left no dump`."""
        without = self.undumped or tuple(rank for rank in self.culprits if rank not in self.damaged)
        host = f" (host {self.host})" if self.host else ""
        parts = [f"{ranks_in_words(without)}{host} left no dump"] if without else []
        parts += [f"{ranks_in_words(self.damaged)} left a damaged dump"] if self.damaged else []
        return " and ".join([*parts[:1], *map(lowered, parts[1:])])

    def waits(self) -> str:
        """`, and 7 ranks wait for at least one of them for at least 4.0 s: first in all_reduce #5 of group 0`."""
        if not self.waiting:
            return ""
        awaited = self._them if self.each else "at least one of them"
        since = f" ({self.at_least.removeprefix(' for ')})" if self.at_least else ""
        return f", and {count_of_ranks(self.waiting, 'wait')} for {awaited}{since}: first in {self.call}"

    def sentence(self) -> str:
        """The missing dumps, who waits for them, and what is known of these ranks."""
        more = []
        if self.ending:
            ends = "ends" if len(self.ending) == 1 else "end"
            more.append(
                f"{ranks_in_words(self.ending)} {ends} in {self.call}; the dumps do not show whether it finished or "
                "failed."
            )
        if self.joined:
            others = "which others finished" if self.finished else "after which others went on"
            who = "It" if len(self.culprits) == 1 else "All of them"
            more.append(f"{who} had joined {self.joined}, {others}.")
        if not self.waiting and not self.ending:
            more.append(f"No rank is known to wait for {self._them}.")
        if self.others:
            left = "left no complete dump, too; no rank is known to wait for"
            more.append(f"{ranks_in_words(self.others)} {left} {'it' if len(self.others) == 1 else 'them'}.")
        if self.kind is Kind.IN_FLIGHT:
            more.append(UNDECIDED)
        return " ".join([f"{self.claim()}{self.waits()}.", *more])

    @property
    def _them(self) -> str:
        return "it" if len(self.culprits) == 1 else "them"

    def next_step(self) -> str:
        """Where the processes may have ended."""
        return step_for_dumps(self)

    def found_category(self) -> Category:
        """A process that left no dump may have ended; a damaged dump alone shows nothing."""
        known = {Kind.ABSENT: Category.PROCESS_GONE, Kind.IN_FLIGHT: Category.IN_FLIGHT}
        return super().found_category() if self.is_busy else known.get(self.kind) or super().found_category()


def step_for_dumps(verdict: Verdict) -> str:
    """What to do about missing dumps: a process may be gone, its dump damaged, or a copy incomplete."""
    ranks = verdict.undumped or verdict.damaged or verdict.culprits
    several = len(ranks) > 1
    subject, their = lowered(ranks_in_words(ranks)), "their" if several else "its"
    look = (
        f"an exception, an out-of-memory kill (dmesg), SIGKILL or an exit of {subject}, in {their} log"
        f"{'s' if several else ''} and in that of the scheduler"
    )
    if ranks == verdict.damaged:
        files, they = ("dumps", "they are") if several else ("dump", "it is")
        return (
            f"Copy the {files} of {subject} again. If {they} damaged on the host as well, {their} "
            f"process{'es' if several else ''} may have ended while writing: look for {look}."
        )
    alive = "processes are" if several else "process is"
    add = f"If {their} {alive} alive, add {their} dump{'s' if several else ''}."
    wait = f" The others wait at {verdict.other_line}." if verdict.waiting and verdict.other_line else ""
    return f"Look first for {look}.{wait} {add} {WHERE_DUMPS_ARE}"


class Absence(Struct, frozen=True, dict=True):
    """What is known of the ranks without a complete dump."""

    journal: Journal
    parts: Parts
    positions: Positions
    waits: Sequence[Wait]
    unreadable: Mapping[int, str]
    clues: Clues = NO_CLUES

    def is_incomplete(self, rank: int) -> bool:
        """True if there is no dump of a rank that can be read to its end."""
        recording = self.journal.recordings.get(rank)
        return recording is None or recording.broken_off

    @cached_property
    def certain_waits(self) -> frozenset[int]:
        """Ranks that certainly wait, or gave up: some backends do not record whether a call failed or finished."""
        outcome = find_outcomes(self.journal)
        return frozenset(
            rank
            for wait in self.waits
            for rank, row in wait.rows.items()
            if wait.absent or outcome[row] < Outcome.RETIRED or self.clues.has_failed(rank, wait.sequence)
        )

    @cached_property
    def passed(self) -> dict[int, tuple[int, int]]:
        """For each group an entry of the last collective that all members joined, and the time of the last arrival.

        Others have finished it; where that is not recorded, they went on after all known ranks had arrived.
        """
        parts, records = self.parts, self.journal.records
        if not len(parts):
            return {}
        synchronizing = mark_synchronizing(self.journal)[records.request[parts.row]]
        arrived = _by_collective(np.maximum, parts, parts.created, NO_TIME)
        left = _by_collective(np.minimum, parts, self._next_times(), NEVER)
        finished = _by_collective(np.maximum, parts, (parts.outcome == Outcome.FINISHED).astype(np.int64), 0)
        went_on = (left != NEVER) & (left >= arrived) & (arrived != NO_TIME)
        joined = (finished == 1) | went_on
        certain = np.flatnonzero(synchronizing & joined[parts.collective] & ~self._unfinished(parts))
        groups, from_the_end = np.unique(parts.group[certain][::-1], return_index=True)
        last = certain[::-1][from_the_end]
        found = zip(parts.last[last].tolist(), arrived[parts.collective[last]].tolist(), strict=True)
        return dict(zip(groups.tolist(), found, strict=True))

    def _next_times(self) -> Int64s:
        """When the rank of each part made its next call, or NEVER."""
        following = np.minimum(self.parts.last + 1, len(self.journal) - 1)
        same_rank = (following > self.parts.last) & (self.journal.rank[following] == self.parts.rank)
        times: Int64s = np.where(same_rank, self.journal.records.created[following], NEVER)
        return times

    def _unfinished(self, parts: Parts) -> Bools:
        """Parts from the first collective of their group on in which ranks wait."""
        waits = [wait for wait in self.waits if not wait.message]
        groups, sequences = ([getattr(wait, name) for wait in waits] for name in ("group", "sequence"))
        first = lowest(int64s(groups), int64s(sequences), len(self.journal.groups))
        unfinished: Bools = parts.sequence >= first[parts.group]
        return unfinished


def _by_collective(reduce: np.ufunc, parts: Parts, values: Int64s, start: int) -> Int64s:
    """A value for each collective from those of its parts."""
    reduced = np.full(int(parts.collective[-1]) + 1, start, np.int64)
    reduce.at(reduced, parts.collective, values)
    return reduced


# Ranks that others wait for.


def merge_absent_culprits(absence: Absence, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts, where those of ranks without a complete dump are one: a host that is gone is one cause."""
    concerned = [
        verdict
        for verdict in verdicts
        if verdict.kind in (Kind.NEVER_JOINED, Kind.IN_FLIGHT)
        and verdict.culprits
        and not verdict.proven
        and all(map(absence.is_incomplete, verdict.culprits))
    ]
    others = [verdict for verdict in verdicts if verdict not in concerned]
    return [*others, _of_absent_ranks(absence, concerned)] if concerned else others


def _of_absent_ranks(absence: Absence, verdicts: Sequence[Verdict]) -> NoDump:
    first = verdicts[0]
    culprits = tuple(sorted({rank for verdict in verdicts for rank in verdict.culprits}))
    waiting = _waiting(absence, verdicts, culprits)
    wait = not absence.certain_waits.isdisjoint(waiting)
    return NoDump(
        kind=first.kind if wait else Kind.ABSENT,
        group=first.group,
        description=first.description,
        sequence=first.sequence,
        operation=first.operation,
        culprits=culprits,
        waiting=waiting if wait else (),
        ending=() if wait else waiting,
        each=all(len(verdict.culprits) == 1 for verdict in verdicts),
        **facts_of_all(verdicts, culprits),
        **_known_of(absence, culprits),
    )


def _known_of(absence: Absence, culprits: Sequence[int]) -> dict[str, Any]:
    """The host of these ranks, the last call that all of them joined, and other ranks without a complete dump."""
    journal, positions, last = absence.journal, absence.positions, _last_joined(absence, culprits)
    absent = positions.rank[np.isin(positions.group, _used_groups(absence)) & _is_absent(positions)]
    known = {*journal.recordings, *absence.unreadable}
    facts: dict[str, Any] = {
        "host": host_of(journal, [rank for rank in culprits if rank not in known]),
        "others": tuple(np.setdiff1d(absent, culprits).tolist()),
    }
    if last is not None:
        group = journal.groups[journal.records.group[last]]
        joined = collective_in_words(journal.operation(last), int(journal.records.sequence[last]), group)
        finished = bool(find_outcomes(journal)[last] == Outcome.FINISHED)
        facts |= {"joined": joined, "finished": finished}
    return facts


def _waiting(absence: Absence, verdicts: Sequence[Verdict], culprits: Sequence[int]) -> tuple[int, ...]:
    """The ranks that wait for the culprits, also behind other work of their devices."""
    awaited = frozenset(culprits)
    direct = {rank for wait in absence.waits if not awaited.isdisjoint(wait.awaited) for rank in wait.rows}
    return tuple(sorted(direct.union(*(verdict.waiting for verdict in verdicts)) - awaited))


def _last_joined(absence: Absence, ranks: Sequence[int]) -> int | None:
    """The entry of another rank in the last collective that all of these ranks certainly joined."""
    positions = absence.positions
    members = np.bincount(positions.group[np.isin(positions.rank, list(ranks))])
    shared = set(np.flatnonzero(members == len(ranks)).tolist()) & set(absence.passed)
    if not shared:
        return None
    return absence.passed[max(shared, key=lambda group: absence.passed[group][1])][0]


def _is_absent(positions: Positions) -> Bools:
    absent: Bools = positions.knowledge == Knowledge.ABSENT
    return absent


# Ranks that no rank waits for, but whose groups others used.


def find_absent_members(absence: Absence, named: Collection[int] = ()) -> list[Verdict]:
    """A verdict if members of groups that others used left no dump that can be read, or no dump has an entry.

    There is none if other verdicts have `named` all of them.
    """
    positions, journal = absence.positions, absence.journal
    used = np.isin(positions.group, _used_groups(absence)) | (len(journal) == 0)
    rows = np.flatnonzero(used & _is_absent(positions))
    if not len(rows):
        return [] if len(journal) else [NothingRecorded.of_call(proven=False)]
    culprits = np.unique(positions.rank[rows]).tolist()
    if set(culprits) <= set(named):
        return []
    row = _last_joined(absence, culprits)
    group = journal.groups[int(positions.group[rows[0]] if row is None else journal.records.group[row])]
    sequence = 0 if row is None else int(journal.records.sequence[row])
    operation = "" if row is None else journal.operation(row)
    shown = {} if row is None else {int(journal.rank[row]): row}
    known = _known_of(absence, culprits)
    return [NoDump.of_call(group, sequence, operation, culprits=culprits, rows=shown, **known)]


def _used_groups(absence: Absence) -> Int64s:
    """Groups in which a rank finished a call, or gave it up; dumps of active calls only count what is finished."""
    journal, positions = absence.journal, absence.positions
    over = (find_outcomes(journal) > Outcome.OPEN) & (journal.records.group != UNKNOWN)
    counted = positions.group[positions.completed > 0]
    return np.union1d(journal.records.group[over], counted).astype(np.int64)


# Hosts.


def host_of(journal: Journal, ranks: Sequence[int]) -> str:
    """The host of ranks without a dump, if the ranks before and after them ran on one host; else empty."""
    if not ranks:
        return ""
    present = journal.ranks
    before, after = present[present < min(ranks)], present[present > max(ranks)]
    between = set(ranks) >= set(range(min(ranks), max(ranks) + 1))
    if not len(before) or not len(after) or not between:
        return ""
    hosts = {journal.recordings[int(rank)].source.host for rank in (before[-1], after[0])}
    return hosts.pop() if len(hosts) == 1 else ""
