"""Calls that all ranks joined and that do not end, devices that do not start them, late ranks, and calls in flight."""

from __future__ import annotations

from tracelink.diagnosis.model import Category, Kind, Role
from tracelink.diagnosis.verdicts.base import Verdict
from tracelink.model.columns import MILLISECOND
from tracelink.model.text import duration, lowered, ranks_in_words

UNDECIDED = "The dumps do not show whether the job still runs."


class TimedOut(Verdict, frozen=True, kw_only=True):
    """All ranks joined a call, and no rank finished it."""

    kind: Kind = Kind.TIMED_OUT

    usual = Category.DEVICE_OR_NETWORK

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

    usual = Category.IN_FLIGHT
    certain = True
    not_reached = True

    def sentence(self) -> str:
        """What is in flight, as a question."""
        return self.with_remarks(f"Running or hung? {self.claim()}. {UNDECIDED}")

    def next_step(self) -> str:
        """A second look."""
        hangs = (
            f"If it hangs, {self.example} is the first to look at"
            if self.culprits
            else "If it hangs, look for errors of the network and the devices (NCCL_DEBUG=INFO, Xid in dmesg)"
        )
        return (
            "Take dumps again after some seconds and compare: tracelink diagnose NEW --before OLD. "
            f"If you know that the job hangs, add --hung. {hangs}."
        )


class NotFinished(InFlight, frozen=True, kw_only=True):
    """Ranks did not finish a call, and no cause was found."""

    def claim(self) -> str:
        """Ranks 1 and 2 joined a call."""
        return f"{ranks_in_words(self.waiting)} joined {self.call} and did not finish it"
