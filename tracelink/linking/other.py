"""*depends on*: arrows of other sorts that a producer drew between its own events."""

from __future__ import annotations

from tracelink.events import Edges, Key, Relation
from tracelink.linking.joins import NONE, lookup, scoped_pair
from tracelink.linking.report import LinkReport, Links
from tracelink.trace import RankTrace


def link_drawn(trace: RankTrace) -> Links:
    """The event at an arrow's end depends on the event at its beginning."""
    starts, ends = trace.key(Key.FLOW_OUT), trace.key(Key.FLOW_IN)
    identity, wanted = scoped_pair(trace, starts, ends)
    found = lookup(identity, wanted)
    linked = found != NONE
    edges = Edges.of(Relation.DEPENDS_ON, ends.rows[linked], starts.rows[found[linked]])
    missing = len(ends) - len(edges)
    reasons = {"its arrow has no beginning": missing} if missing else {}
    return Links(edges, LinkReport("depends_on.drawn", len(edges), len(ends), reasons))
