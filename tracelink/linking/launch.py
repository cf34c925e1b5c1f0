"""*launches*: the call that put work on a device, and the work."""

from __future__ import annotations

import numpy as np

from tracelink.communications import Calls
from tracelink.events import GPU_WORK, Bools, Edges, EventKind, Events, Int64s, Key, KeyColumn, Relation
from tracelink.linking.joins import NONE, lookup, repeated, scoped_pair
from tracelink.linking.report import STATED, LinkReport, Links
from tracelink.trace import RankTrace


def link_launches(trace: RankTrace) -> Links:
    """Runtime call to device work of the same correlation; one call may launch many (a graph).

    Of work whose launch its source states, no correlation is asked.
    """
    stated = trace.edges.where(Relation.LAUNCHES)
    work = trace.events.of_kind(*GPU_WORK)
    work[stated.target] = False
    edges, cause, effect = _by_correlation(trace, work)
    total = int(np.count_nonzero(work))
    correlations = trace.key(Key.CORRELATION)
    without_id = total - int(np.count_nonzero(work[correlations.rows]))
    before = total - without_id - len(edges)
    unlinked = {"no correlation": without_id, "launched outside the recording": before}
    report = LinkReport(
        "launches",
        linked=len(edges) + len(stated),
        candidates=total + len(stated),
        unlinked={reason: count for reason, count in unlinked.items() if count},
        notes=_notes(trace, cause, effect) | ({STATED: len(stated)} if len(stated) else {}),
    )
    return Links(Edges.concatenate([edges, stated]), report)


def link_annotations(trace: RankTrace, calls: Calls) -> Links:
    """An annotation to its shadow on the device, and an operator to the annotation of its work on another thread."""
    events = trace.events
    external = trace.key(Key.EXTERNAL_ID)
    kind = events.kind[external.rows]
    shadows = external.where(kind == EventKind.GPU_ANNOTATION)
    annotations = external.where(kind == EventKind.ANNOTATION)
    identity, wanted = scoped_pair(trace, annotations, shadows)
    found = lookup(identity, wanted)
    linked = found != NONE
    operator, work = _work_elsewhere(events, calls)
    source = np.concatenate([annotations.rows[found[linked]], operator])
    target = np.concatenate([shadows.rows[linked], work])
    edges = Edges.of(Relation.LAUNCHES, source, target)
    total = int(np.count_nonzero(events.of_kind(EventKind.GPU_ANNOTATION))) + len(work)
    missing = total - len(edges)
    reasons = {"its annotation was not recorded": missing} if missing else {}
    return Links(edges, LinkReport("launches.annotation", len(edges), total, reasons))


def _work_elsewhere(events: Events, calls: Calls) -> tuple[Int64s, Int64s]:
    """The operators whose work another thread does, and the annotations of that work."""
    whole = np.flatnonzero((calls.operator != NONE) & (calls.annotation != NONE))
    annotation, first = np.unique(calls.annotation[whole], return_index=True)
    operator = calls.operator[whole[first]]
    elsewhere = events.track[operator] != events.track[annotation]
    return operator[elsewhere], annotation[elsewhere]


def _by_correlation(trace: RankTrace, work: Bools) -> tuple[Edges, KeyColumn, KeyColumn]:
    correlations = trace.key(Key.CORRELATION)
    effects = correlations.where(work[correlations.rows])
    causes = correlations.where(trace.events.kind[correlations.rows] == EventKind.RUNTIME)
    identity, wanted = scoped_pair(trace, causes, effects)
    found = lookup(identity, wanted)
    linked = found != NONE
    edges = Edges.of(Relation.LAUNCHES, causes.rows[found[linked]], effects.rows[linked])
    return edges, causes.where(_marks(len(causes), found[linked])), effects.where(linked)


def _marks(length: int, places: Int64s) -> Bools:
    marks = np.zeros(length, np.bool_)
    marks[places] = True
    return marks


def _notes(trace: RankTrace, causes: KeyColumn, effects: KeyColumn) -> dict[str, int]:
    """How the launches compare with the arrows that the producer drew itself."""
    several = len(effects) - len(causes)
    counts = {
        "launched together with others (graphs)": several if several > 0 else 0,
        "correlations used by two calls": repeated(causes.values) if len(trace.sources) < 2 else 0,
    }
    if len(trace.launch_flows):
        agreed = lookup(causes.values, trace.launch_flows) != NONE
        counts["arrows in the file that agree"] = int(np.count_nonzero(agreed))
        counts["arrows in the file to no device work"] = int(np.count_nonzero(~agreed))
    return {note: count for note, count in counts.items() if count}
