"""Problems whose sentence is a text already, as verdicts."""

from __future__ import annotations

from collections.abc import Mapping

from tracelink.diagnosis.model import Kind, Problem
from tracelink.diagnosis.verdicts.absence import NeverJoined, NoDump
from tracelink.diagnosis.verdicts.base import Verdict
from tracelink.diagnosis.verdicts.deadlocks import Deadlock
from tracelink.diagnosis.verdicts.hangs import InFlight, NotStarted, TimedOut
from tracelink.diagnosis.verdicts.mismatches import OtherOperation, OtherPeer, OtherTensor, Skipped

CLASS_OF: Mapping[Kind, type[Verdict]] = {
    Kind.NEVER_JOINED: NeverJoined,
    Kind.LAGGING: NeverJoined,
    Kind.SKIPPED: Skipped,
    Kind.OPERATION_MISMATCH: OtherOperation,
    Kind.DTYPE_MISMATCH: OtherTensor,
    Kind.SIZE_MISMATCH: OtherTensor,
    Kind.PEER_MISMATCH: OtherPeer,
    Kind.DEADLOCK: Deadlock,
    Kind.TIMED_OUT: TimedOut,
    Kind.FAILED: NotStarted,
    Kind.ABSENT: NoDump,
    Kind.IN_FLIGHT: InFlight,
}


def stated(problem: Problem) -> Verdict:
    """The problem as a verdict."""
    if isinstance(problem, Verdict):
        return problem
    known = {name: getattr(problem, name) for name in Problem.__struct_fields__}
    return CLASS_OF[problem.kind](**known, text=problem.message)
