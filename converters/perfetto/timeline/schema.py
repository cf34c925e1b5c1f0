"""Names that both formats write: categories, flows, arguments, prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from msgspec import Struct

from tracelink._model.columns import Bools, Int64s
from tracelink._model.events import EventKind, InstantScope, Key, Relation
from tracelink._model.graph import EventGraph
from tracelink._model.operations import DRIVER_CALL
from tracelink.converters.pytorch.arguments import CATEGORY_OF_KIND, DRIVER_CATEGORY

CATEGORIES = CATEGORY_OF_KIND | {
    EventKind.INSTANT: "instant",
    EventKind.NODE: "node",
    EventKind.RECORD: "record",
    EventKind.OTHER: "other",
    EventKind.COMPILATION: "compilation",
}
"""Categories of events: those of Kineto, if it has one, because other tools rely on them."""

COLLECTIVE_CATEGORY = "collective"
"""Category of the slices on tracks of groups."""

ARRIVAL_CATEGORY = "arrival"
"""Category of the instants on tracks of groups: which rank arrived last."""

SUMMARY_CATEGORY = "summary"
"""Category of the slices that show at a glance what a rank does."""

PATH_CATEGORY = "critical path"
"""Category of the slices of the critical path."""

FLOW_NAMES = {
    Relation.LAUNCHES: "ac2g",
    Relation.BACKWARD_OF: "fwdbwd",
    Relation.SAME: "same",
    Relation.DEPENDS_ON: "depends",
    Relation.WAITS_FOR: "waits",
    Relation.COMPILES: "compiles",
}
"""Category and name of the flows within a rank; the first two are Kineto's."""

EFFECT_FIRST = (Relation.BACKWARD_OF, Relation.DEPENDS_ON, Relation.WAITS_FOR)
"""Relations from effect to cause: their flows run from target to source."""

CROSS_RANK_FLOW_NAMES = {Relation.WAITS_FOR: "waits", Relation.DEPENDS_ON: "message"}
"""Category and name of the flows between ranks."""

CROSS_RANK_INSTANTS = {
    Relation.WAITS_FOR: ("waited", "for rank"),
    Relation.DEPENDS_ON: ("received", "from rank"),
}
"""Name of the instant at which a flow between ranks ends, and its argument: the rank at which the flow starts."""

SCOPES = {InstantScope.THREAD: "t", InstantScope.PROCESS: "p", InstantScope.ALL: "g"}
"""Scopes of instants in JSON."""

HUNG_PREFIX = "HUNG "
"""Prefix of the names of slices that hang."""

HUNG_SUFFIX = " · HUNG"
"""Suffix of the names of tracks on which everything hangs."""

CAUSE_SUFFIX = HUNG_SUFFIX + " (cause)"
"""The same of tracks of collectives that hang for a reason of their own."""

MAX_DEPTH = 500
"""Deeper slices are moved to another lane: the engine drops those deeper than 512 (since v57)."""

OWN_HEADER = "tracelink"
"""The key of the document under which tracelink describes the ranks."""

VIEW = "view"
"""The key under it of what a viewer shows first; it precedes the ranks, so that it is near the start of the file."""

PRIVATE_HEADER = frozenset({"traceName", "username", "host_name", "INFO", "ERROR", "metadata"})
"""Keys of a source's header that can contain host names and paths."""

REPLACED_HEADER = frozenset({"traceEvents", "baseTimeNanoseconds", "displayTimeUnit"})
"""Keys of a source's header for which the output has values of its own."""

LINK, COLLECTIVE, RECORDER, ORIGINAL = "link", "collective", "recorder", "original"
"""The outer arguments: of links, of collectives, recorded by a flight recorder, recorded by any other source.

In JSON the members of `original` are arguments themselves, where other tools expect them.
"""


class Argument(StrEnum):
    """Arguments that tracelink adds, within an outer one."""

    NODE = "execution trace node"
    """Id of the execution-trace node that is the same as an event."""
    DURATION_KNOWN = "duration known"
    """False if the end of the event was not recorded."""
    SOURCE_LINES = "source lines"
    """The lines of the program that a generated kernel computes."""

    GROUP = "group"
    """Group and number of the collective in which an event takes part."""
    WAIT = "wait_us"
    """Time from the rank's own entry to the last one; of a collective, by rank."""
    AWAITED = "waits_for_rank"
    """The rank that entered last."""
    LAST = "last"
    """True on the rank that entered last."""

    SEQUENCE = "sequence"
    RANKS = "ranks"
    MISSING_RANKS = "missing ranks"
    BYTES = "bytes"
    LAST_RANK = "last rank"
    SKEW = "skew_us"
    DURATION = "duration_us"
    ALGORITHM_BANDWIDTH = "algorithm GB/s"
    BUS_BANDWIDTH = "bus GB/s"
    VERDICT = "verdict"
    RANK = "rank"


class Categories(Struct, frozen=True):
    """The categories of the events of a rank, numbered: those of the source if it has its own, else by kind."""

    names: Sequence[str]
    numbers: Int64s
    """The number of the category of each kind."""
    driver_calls: Bools
    """For each name of an event whether it is a call of the driver."""
    driver: int
    """The number of the category of these calls."""
    rows: Int64s
    """The rows with a category of the source, in order."""
    own: Int64s
    """The numbers of their categories."""

    @classmethod
    def of(cls, graph: EventGraph) -> Categories:
        """The categories of one rank."""
        kinds = np.unique(graph.events.kind).tolist()
        names = [CATEGORIES[EventKind(kind)] for kind in kinds] + [DRIVER_CATEGORY]
        numbers = np.zeros(max(EventKind) + 1, np.int64)
        numbers[kinds] = np.arange(len(kinds))
        driver_calls = np.array([bool(DRIVER_CALL.match(text)) for text in graph.strings], np.bool_)
        column = graph.key(Key.CATEGORY)
        codes, own = np.unique(column.values, return_inverse=True)
        order = np.argsort(column.rows, kind="stable")
        driver, first = len(names) - 1, len(names)
        names += [graph.strings[code] for code in codes.tolist()]
        return cls(names, numbers, driver_calls, driver, column.rows[order], first + own[order])

    def of_rows(self, graph: EventGraph, rows: Int64s) -> Int64s:
        """The number of the category of each of these rows, which are in order."""
        kind = graph.events.kind[rows]
        numbers = self.numbers[kind]
        calls = kind == EventKind.RUNTIME
        calls[calls] = self.driver_calls[graph.events.name[rows[calls]]]
        numbers[calls] = self.driver
        if len(self.rows) and len(rows):
            low, high = np.searchsorted(self.rows, [rows[0], rows[-1] + 1]).tolist()
            index = np.minimum(np.searchsorted(rows, self.rows[low:high]), len(rows) - 1)
            here = rows[index] == self.rows[low:high]
            numbers[index[here]] = self.own[low:high][here]
        return numbers


# Sizes, for the forecast of how much will be written.


Bytes = tuple[int, int]
"""Without arguments, and of the arguments that tracelink adds."""


class TypicalSizes(Struct, frozen=True):
    """Bytes of what is counted, as measured on many jobs."""

    track: Bytes
    """The name of a track."""
    flow: Bytes
    cross_rank_flow: Bytes
    """A flow between ranks."""
    participating: Bytes
    """An event that takes part in a collective: only its arguments."""
    node: Bytes
    """An event that is the same as a node: only its argument."""
    collective: Bytes
    participation: Bytes
    """A rank in the arguments of a collective."""
    arrival: Bytes
    """A last arrival."""
    sample: Bytes
    """A sample of a counter."""
