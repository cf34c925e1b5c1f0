"""The events of a rank that belong to communication, and the calls that operators and kernels imply.

`call_events` finds operators, nodes, annotations, kernels and records; `issued_calls` and `unissued_calls` group
them into draft calls, before anything is known of what each call did.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tracelink._link.nesting import nest, sort_outer_first
from tracelink._model.columns import (
    NO_TIME,
    UNKNOWN,
    Bools,
    Int32s,
    Int64s,
    StringTable,
    Table,
    Times,
    for_each_text,
    lookup,
    own_ancestors,
    scatter,
    values_at,
)
from tracelink._model.events import GPU_WORK, Edges, EventKind, Key, Relation
from tracelink._model.operations import (
    COLLECTIVE_ANNOTATION,
    COLLECTIVE_KERNEL,
    COLLECTIVE_OPERATOR,
    RECORD_OPERATOR,
    Operation,
    operation_of,
)
from tracelink._model.trace import RankTrace
from tracelink.plugins import reader_spec

OF_CPU = re.compile(r"^(gloo|mpi|ucc)\b")
"""Backends with an annotation around the work itself; in others it is around the launch of the work."""
FUNCTIONAL = re.compile(r"^_?c10d_functional")
"""Operators that call an operator of a backend if they run at all."""
NO_CALLS = frozenset({Operation.WAIT.value, "init", "broadcastUniqueNCCLID", "allgatherUniqueNCCLIDs"})
"""Operations of communication operators that move no data."""
KNOWN_OPERATIONS = frozenset(operation.value for operation in Operation)


class Vocabulary(Struct, frozen=True):
    """The meaning of names in a trace; each name is parsed once, however many events have it."""

    strings: StringTable

    def matches(self, pattern: re.Pattern[str], codes: Int32s) -> Bools:
        """True for codes whose name matches."""
        names = self.strings.texts()
        return for_each_text(names, codes, lambda text: pattern.search(text) is not None, np.bool_, False)

    def operations(self, codes: Int32s) -> Int32s:
        """The code of the operation that each name means."""
        names = self.strings.texts()
        return for_each_text(names, codes, lambda text: self.strings[operation_of(text)], np.int32, UNKNOWN)

    def are_known(self, operations: Int32s) -> Bools:
        """True for operations that are members of `Operation`."""
        names = self.strings.texts()
        return for_each_text(names, operations, KNOWN_OPERATIONS.__contains__, np.bool_, False)

    def moves_no_data(self, codes: Int32s) -> Bools:
        """True for names of operations that move no data."""
        names = self.strings.texts()
        return for_each_text(names, codes, lambda text: operation_of(text) in NO_CALLS, np.bool_, False)


def declared_operations(trace: RankTrace, vocabulary: Vocabulary, rows: Int64s) -> Int32s:
    """The operation as each event states it; UNKNOWN if it states none, as `record_param_comms` of old profiles."""
    table = trace.communications
    declared: Int32s = values_at(table.operation, lookup(table.row, rows))
    return np.where(declared == vocabulary.strings.find(RECORD_OPERATOR), np.int32(UNKNOWN), declared)


def as_gloo_records(vocabulary: Vocabulary, operation: Int32s, elements: Int64s) -> tuple[Int32s, Int64s]:
    """Operation and size as gloo annotates and records them: reduce_scatter is all_reduce, a barrier has no tensor."""
    requested, done = (
        vocabulary.strings[name.value] for name in (Operation.REDUCE_SCATTER, Operation.ALL_REDUCE)
    )
    barrier = operation == vocabulary.strings.find(Operation.BARRIER.value)
    return np.where(operation == requested, np.int32(done), operation), np.where(barrier, UNKNOWN, elements)


class Operators(Struct, frozen=True):
    """Communication operators by thread and start; an operator comes before those that it encloses."""

    rows: Int64s
    track: Int64s
    start: Int64s
    end: Int64s
    parent: Int64s
    """Position of the innermost one around it, or UNKNOWN."""
    innermost: Bools

    def issuing(self, track: Int64s, time: Int64s) -> Int64s:
        """The position of the innermost operator that is responsible for each track and time, or UNKNOWN.

        Between two operators inside a third it is the earlier one, which deferred its work.
        """
        if not len(self.rows):
            return np.full(len(track), UNKNOWN, np.int64)
        latest = self._latest(track, time)
        around = latest.copy()
        over = (around != UNKNOWN) & (self.end[around] < time)
        while over.any():
            around[over] = self.parent[around[over]]
            over = (around != UNKNOWN) & (self.end[around] < time)
        inner = np.flatnonzero(self.innermost)
        before = values_at(inner, np.searchsorted(inner, latest, side="right") - 1)
        after = values_at(inner, np.searchsorted(inner, around))
        return np.where(around == UNKNOWN, UNKNOWN, np.where(before >= around, before, after))

    def issuing_starts(self, trace: RankTrace, rows: Int64s) -> Int64s:
        """`issuing` for the starts of events; UNKNOWN for an unknown row."""
        position = np.full(len(rows), UNKNOWN, np.int64)
        present = np.flatnonzero(rows != UNKNOWN)
        events = trace.events
        track, start = events.track[rows[present]].astype(np.int64), events.start[rows[present]]
        position[present] = self.issuing(track, start)
        return position

    def _latest(self, track: Int64s, time: Int64s) -> Int64s:
        """The position of the last operator that started on each track before each time, or UNKNOWN."""
        found = np.full(len(track), UNKNOWN, np.int64)
        for thread in np.unique(self.track):
            on_thread = np.flatnonzero(track == thread)
            first, last = np.searchsorted(self.track, [thread, thread + 1])
            position = first + np.searchsorted(self.start[first:last], time[on_thread], side="right") - 1
            found[on_thread] = np.where(position < first, UNKNOWN, position)
        return found


def _operators_of(trace: RankTrace, vocabulary: Vocabulary, rows: Int64s) -> Operators:
    """The given operators, and how they enclose each other."""
    events = trace.events
    track, start, end = events.track[rows].astype(np.int64), events.start[rows], events.end[rows]
    recorded = vocabulary.strings.find(RECORD_OPERATOR)
    order = sort_outer_first(track, start, end, (events.name[rows] == recorded).astype(np.int64))
    rows, track, start, end = rows[order], track[order], start[order], end[order]
    parent = nest(track, start, end).parent
    return Operators(rows, track, start, end, parent, _innermost(parent))


class Nodes(Struct, frozen=True):
    """The execution-trace nodes of communication operators."""

    rows: Int64s
    event: Int64s
    """The profiled event that each node describes, or UNKNOWN."""
    parent: Int64s
    """The index of the node around each, or UNKNOWN."""
    innermost: Bools

    def of(self, events: Int64s) -> Int64s:
        """The node of each event, or UNKNOWN."""
        linked = self.event != UNKNOWN
        return values_at(self.rows[linked], lookup(self.event[linked], events))

    @property
    def unprofiled(self) -> Int64s:
        """Indexes of innermost nodes that are not in a profile, nor any node around them."""
        index = np.flatnonzero(self.innermost)
        unprofiled = np.append(self.event == UNKNOWN, True)
        alone, above = unprofiled[index], self.parent[index]
        while (above != UNKNOWN).any():
            alone &= unprofiled[above]
            above = np.where(above == UNKNOWN, UNKNOWN, self.parent[above])
        found: Int64s = index[alone]
        return found


def _nodes_of(trace: RankTrace, vocabulary: Vocabulary, rows: Int64s, same: Edges) -> Nodes:
    """The given nodes, and how they enclose each other.

    Recorded parents can be wrong if work runs on other threads. Only a parent with the same operation, or around
    `record_param_comms`, is used.
    """
    event = values_at(same.target, lookup(same.source, rows))
    identity, above = trace.key(Key.NODE_ID), trace.key(Key.NODE_PARENT)
    own = values_at(identity.values, lookup(identity.rows, rows))
    caller = values_at(above.values, lookup(above.rows, rows))
    parent = np.where(caller == UNKNOWN, UNKNOWN, lookup(own, caller))
    name = trace.events.name[rows]
    operation = vocabulary.operations(name)
    same_operation = (name == vocabulary.strings.find(RECORD_OPERATOR)) | (operation == operation[parent])
    parent[~same_operation] = UNKNOWN
    parent[own_ancestors(parent)] = UNKNOWN  # several nodes may have the id of a parent
    return Nodes(rows, event, parent, _innermost(parent))


def _innermost(parent: Int64s) -> Bools:
    innermost = np.ones(len(parent), np.bool_)
    innermost[parent[parent != UNKNOWN]] = False
    return innermost


def chains(indexes: Int64s, parent: Int64s) -> list[Int64s]:
    """The given indexes, then the ones around each of them that enclose no other, level by level."""
    levels, index = [indexes], indexes
    inside = np.zeros(len(parent) + 1, np.int64)
    while (index != UNKNOWN).any():
        index = np.where(index == UNKNOWN, UNKNOWN, values_at(parent, index))
        inside += np.bincount(np.where(index == UNKNOWN, len(parent), index), minlength=len(inside))
        levels.append(index)
    single = inside == 1
    return [levels[0], *(np.where(single[level], level, UNKNOWN) for level in levels[1:-1])]


def _named(trace: RankTrace, vocabulary: Vocabulary, pattern: re.Pattern[str], kind: EventKind) -> Int64s:
    """Events of a kind with a matching name."""
    rows = np.flatnonzero(trace.events.kind == kind)
    if not len(rows):
        return rows
    return rows[vocabulary.matches(pattern, trace.events.name[rows])]


# Draft calls: which events belong together.


class Draft(Table, frozen=True):
    """One row for each call: the rows of its events, or UNKNOWN."""

    record: Int64s
    operator: Int64s
    issuer: Int64s
    """Index of the operator among the innermost ones."""
    node: Int64s
    annotation: Int64s
    library: Int64s
    """The first call of a communication library that the operator or the annotation made."""
    kernel: Int64s
    kernels_end: Times
    """The end of the last kernel, or NO_TIME."""

    @classmethod
    def concatenate(cls, parts: Sequence[Draft]) -> Draft:
        """All calls of all parts, in order."""
        parts = [part for part in parts if len(part)] or parts[:1]
        if len(parts) == 1:
            return parts[0]
        return cls(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__struct_fields__)
        )


def _first_of_each(owner: Int64s, count: int, rows: Int64s) -> Int64s:
    """For each of `count` owners the first of its rows, or UNKNOWN; `owner` is UNKNOWN for rows without one."""
    first = scatter(count + 1, owner[::-1], rows[::-1])
    return first[:-1]


def _latest_of_each(owner: Int64s, count: int, times: Int64s) -> Int64s:
    """For each of `count` owners the latest of its times, or NO_TIME."""
    latest = np.full(count + 1, NO_TIME, np.int64)
    np.maximum.at(latest, owner, times)
    return latest[:-1]


# The events that calls consist of, and which of them an operator issued.


class LibraryCalls(Struct, frozen=True):
    """Calls of NCCL itself that a profiler recorded, by thread and start, each with the unit that launches its work."""

    rows: Int64s
    unit: Int64s
    """Calls of one group are of one unit."""
    track: Int64s
    """The thread of each unit."""
    begin: Int64s
    end: Int64s
    """The begin of each unit, and the latest time at which its work was launched."""

    @classmethod
    def empty(cls) -> LibraryCalls:
        """No calls."""
        return cls(*(np.empty(0, np.int64) for _ in cls.__struct_fields__))

    def unit_at(self, track: Int64s, time: Int64s) -> Int64s:
        """The unit that runs on each thread at each time, or UNKNOWN."""
        found = np.full(len(track), UNKNOWN, np.int64)
        for thread in np.unique(self.track).tolist():
            here = np.flatnonzero(track == thread)
            first, last = np.searchsorted(self.track, [thread, thread + 1])
            unit = first + np.searchsorted(self.begin[first:last], time[here], side="right") - 1
            inside = unit >= first
            inside[inside] = time[here][inside] <= self.end[unit[inside]]
            found[here] = np.where(inside, unit, UNKNOWN)
        return found


class CallEvents(Struct, frozen=True):
    """The communication events of a rank, one column for each kind; kernels in order of start."""

    operators: Operators
    nodes: Nodes
    annotations: Int64s
    kernels: Int64s
    launches: Int64s
    """The runtime call that launched each kernel, or UNKNOWN."""
    records: Int64s
    recorded: Int64s
    """The operator that made each record, or UNKNOWN."""
    annotated: Int64s
    """Index among innermost operators of the one that issued each annotation, or UNKNOWN."""
    launched: Int64s
    """Index among innermost operators of the one that launched each kernel, or UNKNOWN."""
    library: LibraryCalls
    called: Int64s
    """Index among innermost operators of the one that made each library call, or UNKNOWN."""
    waits: int
    """The number of operators that only wait."""


def call_events(trace: RankTrace, vocabulary: Vocabulary, edges: Edges) -> CallEvents:
    """Finds the communication events, and the operator that issued each."""
    kind = trace.events.kind
    node_rows = _named(trace, vocabulary, COLLECTIVE_OPERATOR, EventKind.NODE)
    rows = _named(trace, vocabulary, COLLECTIVE_OPERATOR, EventKind.OPERATOR)
    same, launches = edges.where(Relation.SAME), edges.where(Relation.LAUNCHES)
    of_node = kind[same.source] == EventKind.NODE
    same_node = values_at(same.source[of_node], lookup(same.target[of_node], rows))
    waits = _waits(trace, vocabulary, rows, same_node)
    operators = _operators_of(trace, vocabulary, rows[~waits])
    index = np.append(np.cumsum(operators.innermost) - 1, UNKNOWN)
    annotations = _named(trace, vocabulary, COLLECTIVE_ANNOTATION, EventKind.ANNOTATION)
    kernels = _kernels(trace, vocabulary)
    launching = values_at(launches.source, lookup(launches.target, kernels))
    records = np.flatnonzero(kind == EventKind.RECORD)
    library = LibraryCalls.empty()
    if any(reader_spec(source.format).repeats_profiles for source in trace.sources):
        from tracelink._link.library_calls import library_calls  # only Nsight Systems records them

        library = library_calls(trace)
    made = (kind[same.source] == EventKind.RECORD) & (kind[same.target] == EventKind.OPERATOR)
    return CallEvents(
        operators,
        _nodes_of(trace, vocabulary, node_rows[~_waits(trace, vocabulary, node_rows, node_rows)], same),
        annotations,
        kernels,
        launching,
        records,
        values_at(same.target[made], lookup(same.source[made], records)),
        index[operators.issuing_starts(trace, annotations)],
        index[operators.issuing_starts(trace, launching)],
        library,
        index[operators.issuing_starts(trace, library.rows)],
        int(np.count_nonzero(waits)),
    )


def _waits(trace: RankTrace, vocabulary: Vocabulary, rows: Int64s, nodes: Int64s) -> Bools:
    """True if an operator moves no data, by its node if it has one, else by itself."""
    declared = declared_operations(trace, vocabulary, nodes)
    declared = np.where(declared == UNKNOWN, declared_operations(trace, vocabulary, rows), declared)
    return vocabulary.moves_no_data(np.where(declared == UNKNOWN, trace.events.name[rows], declared))


def _kernels(trace: RankTrace, vocabulary: Vocabulary) -> Int64s:
    """Device work of communication: kernels with such a name, and work with a statement of its own."""
    events = trace.events
    kernels = _named(trace, vocabulary, COLLECTIVE_KERNEL, EventKind.KERNEL)
    attributes = trace.communications.row
    rows = (
        np.union1d(kernels, attributes[np.isin(events.kind[attributes], GPU_WORK)])
        if len(attributes)
        else kernels
    )
    return rows[np.argsort(events.start[rows], kind="stable")]


def issued_calls(trace: RankTrace, vocabulary: Vocabulary, parts: CallEvents) -> Draft:
    """A call for each innermost operator, or several if it made several records or messages; with all its events."""
    operators = parts.operators
    rows = operators.rows[operators.innermost]
    index, owner = _owners(trace, parts.kernels, parts.launched, len(rows))
    draft = Draft.of(
        len(index),
        operator=rows[index],
        issuer=index,
        node=parts.nodes.of(rows)[index],
        annotation=_first_of_each(parts.annotated, len(rows), parts.annotations)[index],
        library=_first_of_each(parts.called, len(rows), parts.library.rows)[index],
        kernel=_first_of_each(owner, len(index), parts.kernels),
        kernels_end=_latest_of_each(owner, len(index), trace.events.end[parts.kernels]),
    )
    made = _made_by(operators, parts.recorded)
    recorded = np.flatnonzero(made != UNKNOWN)
    draft = draft.take(np.concatenate([made[recorded], np.setdiff1d(np.arange(len(index)), made)]))
    draft.record[: len(recorded)] = parts.records[recorded]
    return draft.take(~_moves_nothing(trace, vocabulary, operators, draft))


def _owners(trace: RankTrace, kernels: Int64s, launched: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """The operator of each call, and the call of each kernel, or UNKNOWN.

    There is one call for each of `count` operators, and one more for each further message that an operator
    launched, if the device work itself states its peer.
    """
    table = trace.communications
    declared = lookup(table.row, kernels)
    names_other = (table.source != UNKNOWN) | (table.target != UNKNOWN)
    message = values_at(table.point_to_point & names_other, declared, False) & (launched != UNKNOWN)
    messages = np.flatnonzero(message)
    first = np.unique(launched[messages], return_index=True)[1]
    further = np.delete(messages, first)
    owner = launched.copy()
    owner[further] = count + np.arange(len(further))
    return np.concatenate([np.arange(count), launched[further]]), owner


def _made_by(operators: Operators, recorded: Int64s) -> Int64s:
    """Index of the innermost operator that made each record, or UNKNOWN."""
    order = np.argsort(operators.rows)
    position = values_at(order, lookup(operators.rows[order], recorded))
    inner = np.flatnonzero(operators.innermost)
    return np.where(position == UNKNOWN, UNKNOWN, np.searchsorted(inner, position))


def _moves_nothing(trace: RankTrace, vocabulary: Vocabulary, operators: Operators, draft: Draft) -> Bools:
    """True if an operator without any effect is probably no communication.

    `record_param_comms` alone, without attributes in old profiles, only waits; a functional operator that calls no
    operator of a backend was traced by a compiler and did not run.
    """
    name = trace.events.name[draft.operator]
    position = np.flatnonzero(operators.innermost)[draft.issuer]
    undeclared = operators.parent[position] == UNKNOWN
    for rows in (draft.operator, draft.node):
        undeclared &= declared_operations(trace, vocabulary, rows) == UNKNOWN
    unknown = undeclared & (name == vocabulary.strings.find(RECORD_OPERATOR))
    effect = (draft.record != UNKNOWN) | (draft.kernel != UNKNOWN) | (draft.annotation != UNKNOWN)
    moves_nothing: Bools = ~effect & (unknown | vocabulary.matches(FUNCTIONAL, name))
    return moves_nothing


def unissued_calls(trace: RankTrace, vocabulary: Vocabulary, parts: CallEvents) -> Draft:
    """Calls of annotations of device backends, kernels and nodes that no profiled operator issued."""
    events = trace.events
    unissued = parts.annotations[(parts.annotated == UNKNOWN)]
    unissued = unissued[~vocabulary.matches(OF_CPU, events.name[unissued])]
    issuers = _operators_of(trace, vocabulary, unissued)
    kernels = np.flatnonzero(parts.launched == UNKNOWN)
    launched = issuers.issuing_starts(trace, parts.launches[kernels])
    index, owner = _owners(trace, parts.kernels[kernels], launched, len(unissued))
    kernels_end = events.end[parts.kernels[kernels]]
    uncalled = np.flatnonzero(parts.called == UNKNOWN)
    called = issuers.issuing_starts(trace, parts.library.rows[uncalled])
    unlaunched = launched == UNKNOWN
    library = Draft.of(0)
    if len(parts.library.rows):
        library, unlaunched[unlaunched] = _library_calls(
            trace, parts, uncalled[called == UNKNOWN], kernels[unlaunched]
        )
    nodes = parts.nodes.rows[parts.nodes.unprofiled]
    nodes = nodes[~vocabulary.matches(FUNCTIONAL, events.name[nodes])]
    return Draft.concatenate(
        [
            Draft.of(
                len(index),
                annotation=issuers.rows[index],
                library=_first_of_each(called, len(unissued), parts.library.rows[uncalled])[index],
                kernel=_first_of_each(owner, len(index), parts.kernels[kernels]),
                kernels_end=_latest_of_each(owner, len(index), kernels_end),
            ),
            Draft.of(
                int(np.count_nonzero(unlaunched)),
                kernel=parts.kernels[kernels[unlaunched]],
                kernels_end=kernels_end[unlaunched],
            ),
            library,
            Draft.of(len(nodes), node=nodes),
        ]
    )


def _library_calls(
    trace: RankTrace, parts: CallEvents, chosen: Int64s, kernels: Int64s
) -> tuple[Draft, Bools]:
    """The chosen library calls, with the kernels that they launched, and which of `kernels` none of them launched."""
    from tracelink._link.library_calls import launched_work

    work = launched_work(trace, parts.library, parts.kernels[kernels], parts.launches[kernels])
    rows = parts.library.rows[chosen]
    draft = Draft.of(
        len(rows),
        annotation=rows,
        library=rows,
        kernel=work.kernel[chosen],
        kernels_end=work.kernels_end[chosen],
    )
    return draft, work.other
