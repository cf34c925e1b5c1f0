"""Calls that all ranks joined and that do not end, devices that do not start them, late ranks, and calls in flight."""

from __future__ import annotations

from tracelink._hang.model import Category, Kind, Role
from tracelink._hang.verdicts.base import UNDECIDED, Verdict
from tracelink._model.columns import MILLISECOND
from tracelink._model.text import count_of_ranks, duration, lowered, ranks_cell, ranks_in_words


class TimedOut(Verdict, frozen=True, kw_only=True):
    """All ranks joined a call, and no rank finished it."""

    kind: Kind = Kind.TIMED_OUT
    started: bool = False
    """Whether the devices of all ranks have started it: the network or a device does not finish it."""
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


class Straggling(Verdict, frozen=True, kw_only=True):
    """A rank is late again and again."""

    kind: Kind = Kind.STRAGGLER
    of: int = 0
    """At how many collectives it arrived; `count` is how often others waited long for it."""
    share: float = 0.0
    """Share of the time for which they waited."""
    usual_ns: int = 0
    """The median of the long waits; `waited_ns` is the longest."""

    usual = Category.NOT_REACHED

    def sentence(self) -> str:
        """How often it was late, and what that costs."""
        others = "the others" if len(self.waiting) > 1 else lowered(ranks_in_words(self.waiting))
        return (
            f"{self.ranks} arrived late at {self.count} of {self.of} collectives: {others} spent "
            f"{round(100 * self.share)} % of the time waiting for it, typically {duration(self.usual_ns)}."
        )

    def next_step(self) -> str:
        """Profiles."""
        return (
            f"Profile {self.example}: look for data loading, checkpoints, garbage collection, or a slow host or GPU; "
            "tracelink collectives shows from profiles where the time goes."
        )


class InFlight(Verdict, frozen=True, kw_only=True):
    """Ranks are in calls, and the dumps do not show whether the job hangs."""

    kind: Kind = Kind.IN_FLIGHT
    inside: tuple[int, ...] = ()
    """The ranks in the call in question."""
    awaited: tuple[int, ...] = ()
    """Those that they wait for; empty if all ranks have joined."""
    in_cycle: bool = False
    """Whether these wait for the former, directly or not."""
    complete: bool = True
    """Whether all ranks have joined, if none is awaited; else the search for causes has overlooked one."""
    started: bool = False
    """Whether the devices of all ranks have started it."""
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
        if self.whereabouts:
            first = f"Find out why {self.whereabouts}."
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
