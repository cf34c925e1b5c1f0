"""Ranks that others wait for: they never joined a call, lag behind, joined too late, or left no dump."""

from __future__ import annotations

from tracelink.diagnosis.model import Category, Kind, Role
from tracelink.diagnosis.verdicts.base import Verdict, called_at
from tracelink.model.operations import POINT_TO_POINT, operation_of


class NeverJoined(Verdict, frozen=True, kw_only=True):
    """Ranks did not join a call in which others wait for them."""

    kind: Kind = Kind.NEVER_JOINED

    usual = Category.NOT_REACHED
    foldable = True
    not_reached = True

    def next_step(self) -> str:
        """Where to look for the culprit: on its host, unless its dump or its program shows more."""
        if self.incomplete:
            return self.step_for_dumps()
        if self.joined_late:
            return self._step_if_late()
        if self.tie:
            return self._step_if_alone()
        return (
            f"Check what {self.example} is doing now: run py-spy dump --pid PID on its host, and read the end of its "
            f"log.{self._way()}"
        )

    def found_category(self) -> Category:
        """Unknown if few ranks joined: they may have made a call too many."""
        return Category.UNKNOWN if self.tie else super().found_category()

    @property
    def joined_late(self) -> bool:
        """Whether the culprit joined after others had given up: its host was late, and is no longer stuck."""
        own = self.shown(Role.CULPRIT)
        if own is None or operation_of(self.operation) in POINT_TO_POINT:
            return False
        same = (own.group, own.sequence) == (self.group, self.sequence)
        return same and own.description in ("", self.description)

    def _step_if_late(self) -> str:
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

    def _step_if_alone(self) -> str:
        """A call that few ranks made: the line of it, and how to find out where the others are."""
        last = {evidence.rank: evidence.entries[-1] for evidence in self.evidence}
        own = [
            rank
            for rank, entry in last.items()
            if (entry.group, entry.sequence) == (self.group, self.sequence)
        ]
        others = [rank for rank in last if rank not in own]
        line = called_at(last[own[0]]) if own else ""
        return (
            f"Look for a condition that lets only some ranks make the call{f' at {line}' if line else ''}. If all "
            f"ranks have to make it, check what {f'rank {others[0]}' if others else 'one of the others'} is doing now: "
            "run py-spy dump --pid PID on its host."
        )

    def _way(self) -> str:
        """From the last line of the culprit to the line of the other ranks."""
        own, other = self.own_line, self.other_line
        if own and own == other:
            return f" It did not return to {own}, where the others wait."
        if own and other:
            return (
                f" Its last call was at {own}, the others wait at {other}: between these lines look for a branch, a "
                "loop or an exception that only it takes."
            )
        return f" The others wait at {other}." if other else ""


class NoDump(Verdict, frozen=True, kw_only=True):
    """Members of a group that others used left no dump, and no rank is known to wait for them."""

    kind: Kind = Kind.ABSENT
    usual = Category.PROCESS_GONE
    certain = True
    not_reached = True

    def claim(self) -> str:
        """Rank 3 left no dump, although others finished a call with it; or it is of no known group."""
        them = "it" if len(self.culprits) == 1 else "them"
        if self.operation:
            return f"{self.ranks} left no dump; other ranks finished {self.call} with {them}"
        return f"{self.ranks} left no dump. The other dumps do not show whether a rank waits for {them}"

    def next_step(self) -> str:
        """Where the process may have ended."""
        return self.step_for_dumps()
