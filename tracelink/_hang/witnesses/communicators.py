"""What NCCL's monitor (RAS) says of each communicator: how much its ranks launched, and which process does not answer.

Counts are taken at one moment: a job that runs has different counts, too. Only two answers show that ranks do not move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

from tracelink._model.errors import printable
from tracelink._model.text import counted, ranks_in_words
from tracelink._model.witnesses import CommunicatorStatus, MemberStatus, MonitorAnswer

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
        """Whether no rank launched anything in between."""
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
