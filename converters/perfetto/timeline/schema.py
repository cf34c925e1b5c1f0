"""Names that both formats write: categories, flows, arguments, prefixes."""

from __future__ import annotations

import re

import numpy as np

from tracelink.model.columns import Bools, Int64s
from tracelink.model.events import EventKind, Relation
from tracelink.model.graph import EventGraph

CATEGORIES = {
    EventKind.OPERATOR: "cpu_op",
    EventKind.ANNOTATION: "user_annotation",
    EventKind.PYTHON: "python_function",
    EventKind.RUNTIME: "cuda_runtime",
    EventKind.KERNEL: "kernel",
    EventKind.MEMCPY: "gpu_memcpy",
    EventKind.MEMSET: "gpu_memset",
    EventKind.GPU_ANNOTATION: "gpu_user_annotation",
    EventKind.SYNCHRONIZATION: "cuda_sync",
    EventKind.OVERHEAD: "overhead",
    EventKind.SPAN: "Trace",
    EventKind.INSTANT: "instant",
    EventKind.MEMORY: "cpu_instant_event",
    EventKind.NODE: "node",
    EventKind.RECORD: "record",
    EventKind.OTHER: "other",
}
"""Kineto's own categories where it has one: other tools go by them."""


DRIVER_CATEGORY = "cuda_driver"


DRIVER_CALL = re.compile("cu[A-Z]")
"""How the names of the driver's calls begin, unlike those of the runtime."""


DRIVER = 32
"""Added to the kind where the event is a call of the driver and not of the runtime."""


FLOW_NAMES = {
    Relation.LAUNCHES: "ac2g",
    Relation.BACKWARD_OF: "fwdbwd",
    Relation.SAME: "same",
    Relation.DEPENDS_ON: "depends",
    Relation.WAITS_FOR: "waits",
}
"""Category and name of the arrows; the first two are Kineto's."""


TIE_NAMES = {Relation.WAITS_FOR: "waits", Relation.DEPENDS_ON: "message"}
"""Category and name of the arrows between ranks."""


TIE_MARKS = {Relation.WAITS_FOR: ("waited", "for rank"), Relation.DEPENDS_ON: ("received", "from rank")}
"""Name of the instant at which such an arrow ends, and its argument: the rank that it comes from."""


EFFECT_FIRST = (Relation.BACKWARD_OF, Relation.DEPENDS_ON, Relation.WAITS_FOR)
"""Relations whose source is the effect: their arrows run from target to source."""


MAX_DEPTH = 500
"""Deeper slices are dropped (the limit is 512 since v57)."""


COLLECTIVE_CATEGORY = "collective"
"""Category of the slices on tracks of groups."""


ARRIVAL_CATEGORY = "arrival"
"""Category of the instants on tracks of groups: who entered last."""


HUNG_PREFIX = "HUNG "
"""How the names of slices begin that hang."""


HUNG_SUFFIX = " · HUNG"
"""How the names of tracks end on which everything hangs."""


LINK, COLLECTIVE, RECORDER, ORIGINAL = "link", "collective", "recorder", "original"
"""The arguments that all others stand in: what links say, of collectives, what a recorder said, any other source.

In JSON those of `original` stand by themselves, where other tools look for them.
"""


GROUP_ARGUMENT = "group"
"""Argument of a rank's event: the group and number of the collective that it is a part of."""


WAIT_ARGUMENT = "wait_us"
"""Argument of the same event: from its own entering to that of the last."""


AWAITED_ARGUMENT = "waits_for_rank"
"""Argument of the same event where it waits: who entered last."""


LAST_ARGUMENT = "last"
"""Argument of the same event: whether its rank entered last."""


NODE_ARGUMENT = "execution trace node"
"""Argument of a timed event: the id of the execution-trace node that is the same."""


DURATION_ARGUMENT = "duration known"
"""Argument of an event whose end was not recorded."""


def driver_calls(graph: EventGraph) -> Bools:
    """For each name, whether it is one of the driver's."""
    return np.array([bool(DRIVER_CALL.match(text)) for text in graph.strings], np.bool_)


def categories_of(graph: EventGraph, driver: Bools, rows: Int64s) -> Int64s:
    """A code for the category of each row; `driver` is what `driver_calls` says."""
    kind = graph.events.kind[rows]
    codes: Int64s = kind + (driver[graph.events.name[rows]] & (kind == EventKind.RUNTIME)) * np.int64(DRIVER)
    return codes


def category(code: int) -> str:
    """The text of a code."""
    return DRIVER_CATEGORY if code & DRIVER else CATEGORIES[EventKind(code)]
