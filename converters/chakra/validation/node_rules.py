"""Rules of one file: its bytes and metadata, its nodes, their dependencies, and their attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from google.protobuf.message import Message

from tracelink._model.columns import Bools, Int64s
from tracelink.converters.chakra.decode import (
    BROKEN_OFF,
    EMPTY_MESSAGE,
    NO_METADATA,
    UNREADABLE_METADATA,
    UNREADABLE_NODE,
)
from tracelink.converters.chakra.schema import FEEDER_KINDS, FIELD_OF_KIND, Kind, MetadataName, Name, NodeType
from tracelink.converters.chakra.table import chosen, unsigned
from tracelink.converters.chakra.validation.rules import Rule
from tracelink.converters.chakra.validation.trace import WHOLE_FILE, Breach, Trace

INCOMPLETE = frozenset(
    {
        Rule.UNREADABLE,
        Rule.NOT_CHAKRA,
        Rule.NO_METADATA,
        Rule.BROKEN_MESSAGE,
        Rule.UNREADABLE_NODE,
        Rule.NODE_COUNT,
    }
)
"""After these, other nodes of the rank may be missing."""

_RULE_OF_FAULT = {
    NO_METADATA: Rule.NO_METADATA,
    UNREADABLE_METADATA: Rule.NO_METADATA,
    BROKEN_OFF: Rule.BROKEN_MESSAGE,
    EMPTY_MESSAGE: Rule.EMPTY_MESSAGE,
    UNREADABLE_NODE: Rule.UNREADABLE_NODE,
}
_CONTINUED = 0x80
"""The bit of a varint byte that is not its last."""
_FIRST_TAGS = (0x0A, 0x12, 0x08)
"""The first message starts with a version or an attribute, or with the id of a node."""
_SHOWN_BYTES = 24
_USABLE_TYPES = (
    NodeType.MEM_LOAD,
    NodeType.MEM_STORE,
    NodeType.COMP,
    NodeType.COMM_SEND,
    NodeType.COMM_RECV,
    NodeType.COMM_COLL,
)
_SHOWN_NODES = 4
_DEPENDENCY_FIELDS = ("data_deps", "ctrl_deps")

# The bytes of a file and its first message.


def bytes_of_file(trace: Trace) -> Iterator[Breach]:
    """Every fault found while reading, by rule; only `not_chakra` for a file of another format."""
    for rule, texts in _faults(trace).items():
        yield Breach(rule, np.full(len(texts), WHOLE_FILE[0]), texts.__getitem__)


def compressed(trace: Trace) -> Breach | None:
    """M17: the file is not compressed."""
    return _of_file(Rule.COMPRESSED, "the file is compressed with gzip") if trace.compressed else None


def node_count(trace: Trace) -> Breach | None:
    """The number of nodes is the one in the metadata, if present."""
    expected = trace.decoded.metadata_value(MetadataName.NODES)
    if not isinstance(expected, int) or expected == len(trace.nodes) or _known_incomplete(trace):
        return None
    return _of_file(
        Rule.NODE_COUNT, f"the metadata count {expected:,} nodes, but the file has {len(trace.nodes):,}"
    )


def no_root(trace: Trace) -> Breach | None:
    """M1: at least one node has no dependency."""
    if _known_incomplete(trace):
        return None
    if not len(trace.nodes):
        return _of_file(Rule.NO_ROOT, "the file has no nodes")
    dependencies = trace.dependencies
    counts = np.bincount(dependencies.owner[dependencies.usable], minlength=len(trace.nodes))
    return None if (counts == 0).any() else _of_file(Rule.NO_ROOT, "every node depends on another one")


def no_node_count(trace: Trace) -> Breach | None:
    """The metadata count the nodes, which shows a truncation between two of them."""
    if trace.decoded.metadata_value(MetadataName.NODES) is not None or _known_incomplete(trace):
        return None
    return _of_file(Rule.NO_NODE_COUNT, "the metadata do not count the nodes")


def no_version(trace: Trace) -> Breach | None:
    """S4: the metadata have a version."""
    if trace.decoded.metadata.version or _known_incomplete(trace):
        return None
    return _of_file(Rule.NO_VERSION, "the metadata have no version")


def _faults(trace: Trace) -> dict[Rule, list[str]]:
    if _not_chakra(trace):
        text = f"not a Chakra trace: the file starts with {trace.head[:_SHOWN_BYTES]!r} and has no nodes"
        return {Rule.NOT_CHAKRA: [text]}
    texts: dict[Rule, list[str]] = {}
    for fault in trace.decoded.faults:
        texts.setdefault(_RULE_OF_FAULT[fault.reason], []).append(fault.message)
    if Rule.NO_METADATA not in texts and _has_unknown_fields(trace.decoded.metadata):
        text = "the first message has fields that metadata do not have: it is a node, or of another format"
        texts[Rule.NO_METADATA] = [text]
    return texts


def _known_incomplete(trace: Trace) -> bool:
    return not INCOMPLETE.isdisjoint(_faults(trace))


def _not_chakra(trace: Trace) -> bool:
    """True if there are no nodes and the file does not start like a Chakra trace."""
    if len(trace.nodes) or not trace.decoded.faults or trace.head.startswith(b"\0"):
        return False
    if any(fault.reason == UNREADABLE_METADATA for fault in trace.decoded.faults):
        return True
    length = next((at for at, byte in enumerate(trace.head) if byte < _CONTINUED), len(trace.head))
    first = trace.head[length + 1 : length + 2]
    return bool(first) and first[0] not in _FIRST_TAGS


def _has_unknown_fields(message: Message) -> bool:
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()  # type: ignore[no-untyped-call,unused-ignore]
    return known.ByteSize() != message.ByteSize()


def _of_file(rule: Rule, message: str) -> Breach:
    return Breach(rule, WHOLE_FILE, lambda _: message)


# Each node by itself.


def duplicate_id(trace: Trace) -> Breach:
    """M4: no two nodes have the same id."""
    _, first = np.unique(trace.nodes.id, return_index=True)
    duplicate = np.ones(len(trace.nodes), bool)
    duplicate[first] = False
    return trace.breach(
        Rule.DUPLICATE_ID, np.flatnonzero(duplicate), lambda _: "has the id of an earlier node"
    )


def no_name(trace: Trace) -> Breach:
    """M3: every node has a name."""
    unnamed = _rows_by_name(trace, lambda name: not name.strip())
    return trace.breach(Rule.NO_NAME, unnamed, lambda _: "has no name")


def comma_in_name(trace: Trace) -> Breach:
    """S3: no name has a comma."""
    rows = _rows_by_name(trace, lambda name: "," in name)
    return trace.breach(Rule.COMMA_IN_NAME, rows, lambda _: "has a comma in its name")


def node_type(trace: Trace) -> Breach:
    """M8: every node has a type that a simulator runs."""
    types = trace.nodes.type

    def predicate(row: int) -> str:
        if types[row] == NodeType.INVALID:
            return "has no type"
        return "is a metadata node" if types[row] == NodeType.METADATA else f"has type {types[row]}"

    return trace.breach(Rule.NODE_TYPE, np.flatnonzero(~trace.nodes.of_type(*_USABLE_TYPES)), predicate)


def absurd_time(trace: Trace) -> Breach:
    """Start, duration and end fit in 63 bits."""
    start, duration = trace.nodes.start, trace.nodes.duration
    end = start.view(np.uint64) + duration.view(np.uint64)
    wrong = (start < 0) | (duration < 0) | (end.view(np.int64) < 0)

    def predicate(row: int) -> str:
        micros, length = unsigned(start[row]), unsigned(duration[row])
        return f"starts at {micros:,} µs and lasts {length:,} µs, which is beyond 2^63"

    return trace.breach(Rule.ABSURD_TIME, np.flatnonzero(wrong), predicate)


def no_duration(trace: Trace) -> Breach:
    """S1: every compute node has a duration."""
    idle = trace.nodes.of_type(NodeType.COMP) & (trace.nodes.duration == 0)
    return trace.breach(Rule.NO_DURATION, np.flatnonzero(idle), lambda _: "lasts 0 µs")


def no_host_mark(trace: Trace) -> Breach:
    """S2: every node has is_cpu_op."""
    return trace.breach(
        Rule.NO_HOST_MARK, np.flatnonzero(~trace.on_host.present), lambda _: "has no is_cpu_op"
    )


def host_nodes(trace: Trace) -> Breach:
    """S5: there are only device and communication nodes."""
    on_host = (trace.on_host.values != 0) & ~trace.communicates
    return trace.breach(Rule.HOST_NODES, np.flatnonzero(on_host), lambda _: "is a host operator")


def _rows_by_name(trace: Trace, matches: Callable[[str], bool]) -> Int64s:
    codes = np.array([matches(name) for name in trace.nodes.strings], bool)
    return np.flatnonzero(codes[trace.nodes.name]) if len(codes) else np.empty(0, np.int64)


# Dependencies: on existing nodes, without duplicates and cycles, and forward in time.


def missing_dependency(trace: Trace) -> Breach:
    """M5: every dependency is on a node in the file."""
    wrong = np.flatnonzero(trace.dependencies.target < 0)
    return _dependency_breach(trace, Rule.MISSING_DEPENDENCY, wrong, "but the file has no such node")


def self_dependency(trace: Trace) -> Breach:
    """M6: no node depends on itself."""
    dependencies = trace.dependencies
    ids = dependencies.id
    wrong = (ids == trace.nodes.id[dependencies.owner]) if len(ids) else np.empty(0, bool)
    return _dependency_breach(
        trace, Rule.SELF_DEPENDENCY, _first_of_each_node(trace, wrong), "which is its own id"
    )


def duplicate_dependency(trace: Trace) -> Breach:
    """M7: no id is duplicate in data_deps, nor in ctrl_deps."""
    listed = trace.dependencies
    order = np.lexsort((listed.id, listed.control, listed.owner))
    duplicate = _equal_to_previous(listed.owner[order], listed.control[order], listed.id[order])
    return _dependency_breach(trace, Rule.DUPLICATE_DEPENDENCY, np.sort(order[duplicate]), "more than once")


def cycle(trace: Trace) -> Breach:
    """M6: data_deps and ctrl_deps together have no cycle."""
    cycles, stuck = trace.issue_order.cycles, trace.issue_order.stuck
    rows = np.array([rows[0] for rows in cycles], np.int64)

    def message(at: int) -> str:
        rows = cycles[at]
        names = [trace.label(row) for row in rows[:_SHOWN_NODES]]
        more = [f"{len(rows) - _SHOWN_NODES:,} more"] if len(rows) > _SHOWN_NODES else []
        path = ", which depends on ".join([*names, *more, f"node {trace.id(rows[0])} again"])
        return f"{path}: {stuck:,} nodes in cycles or behind them never start"

    return Breach(Rule.CYCLE, rows, message)


def backward_time(trace: Trace) -> Breach:
    """A node does not start before a node that it depends on, if both have a start."""
    listed, start = trace.dependencies, trace.nodes.start
    usable = np.flatnonzero(listed.usable)
    before, after = start[listed.target[usable]], start[listed.owner[usable]]
    wrong = usable[(after > 0) & (before > after)]

    def message(at: int) -> str:
        row = int(wrong[at])
        owner, target = int(listed.owner[row]), int(listed.target[row])
        return (
            f"{trace.label(owner)} starts at {start[owner]:,} µs and depends on {trace.label(target)},"
            f" which starts {start[target] - start[owner]:,} µs later"
        )

    return Breach(Rule.BACKWARD_TIME, listed.owner[wrong], message)


def _dependency_breach(trace: Trace, rule: Rule, wrong: Int64s, why: str) -> Breach:
    listed = trace.dependencies

    def message(at: int) -> str:
        row = int(wrong[at])
        field = _DEPENDENCY_FIELDS[int(listed.control[row])]
        return f"{trace.label(int(listed.owner[row]))} lists {unsigned(listed.id[row])} in {field}, {why}"

    return Breach(rule, listed.owner[wrong], message)


def _equal_to_previous(*columns: Int64s | Bools) -> Bools:
    """Rows of sorted columns that equal the row before."""
    equal = np.ones(max(len(columns[0]) - 1, 0), bool)
    for column in columns:
        equal &= column[1:] == column[:-1]
    result: Bools = np.append(False, equal)[: len(columns[0])]
    return result


def _first_of_each_node(trace: Trace, wrong: Bools) -> Int64s:
    chosen = np.flatnonzero(wrong)
    _, first = np.unique(trace.dependencies.owner[chosen], return_index=True)
    return chosen[np.sort(first)]


# Attributes: without duplicates, and of the kinds that both generations of feeders read.


def attribute_kind(trace: Trace) -> Iterator[Breach]:
    """M10, M16: a value is in the field from which feeders read it."""
    for name, kind in FEEDER_KINDS.items():
        yield from _wrong_kind(trace, Rule.ATTRIBUTE_KIND, name, kind)


def involved_dimensions(trace: Trace) -> Iterator[Breach]:
    """M16: involved_dim is a list of booleans."""
    yield from _wrong_kind(trace, Rule.INVOLVED_DIMENSIONS, Name.INVOLVED, Kind.BOOL_LIST)


def attribute_twice(trace: Trace) -> Iterator[Breach]:
    """No attribute of a node is duplicate."""
    for name, attribute in trace.nodes.attributes.items():
        rows = attribute.rows[1:][attribute.rows[1:] == attribute.rows[:-1]]
        if len(rows):
            yield trace.breach(Rule.ATTRIBUTE_TWICE, rows, _always(f"has {name} more than once"))


def incomplete_memory(trace: Trace) -> Breach:
    """M14: loads and stores have a size."""
    moves = trace.nodes.of_type(NodeType.MEM_LOAD, NodeType.MEM_STORE)
    wrong = moves & ~trace.number(Name.TENSOR_SIZE).present
    return trace.breach(Rule.INCOMPLETE_MEMORY, np.flatnonzero(wrong), lambda _: "has no tensor_size")


def roofline(trace: Trace) -> Breach:
    """M15: a device node with num_ops has a tensor_size too, and neither is 0."""
    operations, size = trace.number(Name.OPERATIONS), trace.number(Name.TENSOR_SIZE)
    counted = operations.present & trace.nodes.of_type(NodeType.COMP) & (trace.on_host.values == 0)
    usable = _above_0(operations.known, operations.values) & _above_0(size.known, size.values)
    kinds_wrong = (operations.present & ~operations.known) | (size.present & ~size.known)
    wrong = np.flatnonzero(counted & ~usable & ~kinds_wrong)

    def predicate(row: int) -> str:
        tensor_size = f"tensor_size {size.values[row]}" if size.present[row] else "no tensor_size"
        return f"has num_ops {operations.values[row]:,} and {tensor_size}"

    return trace.breach(Rule.ROOFLINE, wrong, predicate)


def tensor_lists(trace: Trace) -> Iterator[Breach]:
    """M15: inputs and outputs, as attributes, are pairs of strings."""
    for name in (Name.READ_TENSORS, Name.WRITTEN_TENSORS):
        attribute = trace.nodes.attribute(name)
        good = attribute.kinds == Kind.STRING_LIST
        listed = np.flatnonzero(good)
        good[listed] = np.array(list(map(len, chosen(attribute.values, listed))), np.int64) % 2 == 0
        rows = attribute.rows[~good]
        yield trace.breach(Rule.TENSOR_LISTS, rows, _always(f"has {name} that are not pairs of strings"))


def _wrong_kind(trace: Trace, rule: Rule, name: str, kind: Kind) -> Iterator[Breach]:
    attribute = trace.nodes.attribute(name)
    wrong = np.flatnonzero(attribute.kinds != kind)
    if not len(wrong):
        return
    kinds: Int64s = attribute.kinds[wrong].astype(np.int64)
    rows = attribute.rows[wrong]

    def message(at: int) -> str:
        return f"{trace.label(int(rows[at]))} has {name} as {_field(int(kinds[at]))}, not {_field(kind)}"

    yield Breach(rule, rows, message)


def _above_0(known: Bools, values: Int64s) -> Bools:
    above: Bools = known & (values.view(np.uint64) > 0)
    return above


def _field(kind: int) -> str:
    return FIELD_OF_KIND[Kind(kind)] if kind else "an empty value"


def _always(text: str) -> Callable[[int], str]:
    return lambda _: text
