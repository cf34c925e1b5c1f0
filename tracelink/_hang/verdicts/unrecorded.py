"""Calls without a record: the job hangs, or does not move, and all recorded calls are finished."""

from __future__ import annotations

from tracelink._hang.model import Category, Kind
from tracelink._hang.verdicts.base import Verdict

WHERE_ALL_ARE = (
    "Run py-spy dump --pid PID on each rank, and read the ends of the logs: ranks may be in code without "
    "communication, or in calls that are not recorded."
)


class NotRecorded(Verdict, frozen=True, kw_only=True):
    """The job is known to hang, and all recorded calls are finished."""

    kind: Kind = Kind.NOT_RECORDED
    last_calls: str

    usual = Category.UNKNOWN

    def claim(self) -> str:
        """The last calls."""
        return f"The job hangs after its last recorded calls: {self.last_calls}"

    def next_step(self) -> str:
        """All ranks."""
        return WHERE_ALL_ARE


class NotMoved(NotRecorded, frozen=True, kw_only=True):
    """No rank recorded a call since earlier dumps, and none is in flight."""

    kind: Kind = Kind.IN_FLIGHT

    usual = Category.IN_FLIGHT
    certain = True

    def claim(self) -> str:
        """The last calls, as a question."""
        return (
            "Running or hung? No rank recorded a call since the earlier dumps, and none is in flight. The last calls: "
            f"{self.last_calls}"
        )


class NothingRecorded(NotMoved, frozen=True, kw_only=True):
    """No dump has an entry."""

    last_calls: str = ""

    def claim(self) -> str:
        """No entry, as a question."""
        return "No dump has an entry. The dumps do not show whether the job runs or hangs"

    def next_step(self) -> str:
        """The recorder, and then all ranks."""
        return (
            "Check that the recorder is on (TORCH_FR_BUFFER_SIZE is not 0). If it is, no rank has called a collective: "
            "look at what the processes do (py-spy dump --pid PID)."
        )
