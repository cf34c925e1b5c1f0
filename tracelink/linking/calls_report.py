"""How the parts of calls were joined."""

from __future__ import annotations

import numpy as np

from tracelink.communications import Calls
from tracelink.events import Int64s
from tracelink.linking.calls_annotation import Pairing
from tracelink.linking.calls_parts import Parts
from tracelink.linking.joins import NONE, lookup
from tracelink.linking.recorder import profiled
from tracelink.linking.report import LinkReport
from tracelink.trace import RankTrace


def reports_of(trace: RankTrace, parts: Parts, calls: Calls, pairing: Pairing) -> list[LinkReport]:
    """One report for each part that a call can have beside its operator."""
    reports = [
        _operators(parts, calls),
        _records(trace, parts, calls),
        _annotations(parts, calls, pairing),
        _kernels(parts, calls),
        _nodes(parts, calls),
    ]
    return [report for report in reports if report.candidates]


def _operators(parts: Parts, calls: Calls) -> LinkReport:
    inner = int(np.count_nonzero(parts.operators.innermost))
    linked = _distinct(calls.operator)
    notes = {
        "operators around others": len(parts.operators.rows) - inner,
        "operators that move no data": parts.waits + inner - linked,
    }
    return LinkReport("communication.operator", linked, linked, notes=_counts(notes))


def _records(trace: RankTrace, parts: Parts, calls: Calls) -> LinkReport:
    """Candidates are the entries from the profiled time, and those that something else tells of."""
    recorded = calls.take(calls.record != NONE)
    joined = np.zeros(len(recorded), np.bool_)
    for column in (recorded.operator, recorded.annotation, recorded.node, recorded.kernel):
        joined |= column != NONE
    alone = recorded.record[~joined]
    missing = int(np.count_nonzero(profiled(trace, trace.events.start[alone])))
    notes = {
        "entries that nothing else tells of": len(alone) - missing,
        "entries that only close a group": len(parts.records) - len(recorded),
    }
    linked = int(np.count_nonzero(joined))
    unlinked = {"nothing else tells of it, though it is from the profiled time": missing}
    return LinkReport(
        "communication.recorder",
        linked,
        linked + missing,
        _counts(unlinked),
        _counts(notes) if linked else {},
    )


def _annotations(parts: Parts, calls: Calls, pairing: Pairing) -> LinkReport:
    total = len(parts.annotations)
    there = calls.annotation != NONE
    alone = int(np.count_nonzero(there & (calls.operator == NONE) & (calls.record == NONE)))
    further = total - _distinct(calls.annotation)
    unlinked = {"no operator of the profile issued it": alone}
    notes = {
        "further annotations of the same operator": further,
        "on other threads, by record-function id": pairing.by_identity,
        "on other threads, by order": pairing.by_order,
    }
    return LinkReport("communication.annotation", total - alone, total, _counts(unlinked), _counts(notes))


def _kernels(parts: Parts, calls: Calls) -> LinkReport:
    lone = (calls.kernel != NONE) & (calls.operator == NONE) & (calls.annotation == NONE)
    place = lookup(parts.kernels, np.unique(calls.kernel[lone]))
    unlaunched = int(np.count_nonzero(parts.launches[place] == NONE))
    unlinked = {
        "launched outside the recording": unlaunched,
        "no operator that communicates launched it": len(place) - unlaunched,
    }
    total = len(parts.kernels)
    return LinkReport("communication.kernel", total - len(place), total, _counts(unlinked))


def _nodes(parts: Parts, calls: Calls) -> LinkReport:
    """Candidates are the operators, where there is an execution trace at all."""
    issued = calls.operator != NONE
    candidates = _distinct(calls.operator) if len(parts.nodes.rows) else 0
    linked = _distinct(calls.operator[issued & (calls.node != NONE)])
    unlinked = {"no node of the execution trace is the same as its operator": candidates - linked}
    alone = _distinct(calls.node[~issued])
    return LinkReport(
        "communication.node",
        linked,
        candidates,
        _counts(unlinked),
        _counts({"nodes that the profile does not have": alone}),
    )


def _distinct(rows: Int64s) -> int:
    return len(np.unique(rows[rows != NONE]))


def _counts(counts: dict[str, int]) -> dict[str, int]:
    return {what: count for what, count in counts.items() if count}
