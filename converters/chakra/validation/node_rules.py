"""Rules of one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from google.protobuf.message import Message

from tracelink.converters.chakra.schema import Kind, Name, NodeType, Said
from tracelink.converters.chakra.table import unsigned
from tracelink.converters.chakra.validation.rules import Rule
from tracelink.converters.chakra.validation.trace import FILE, Breach, Trace
from tracelink.model.columns import Bools, Int64s

# What the bytes of a file and its first message must be.


RULE_OF_FAULT = {
    "no_metadata": Rule.NO_METADATA,
    "unreadable_metadata": Rule.NO_METADATA,
    "broken_off": Rule.BROKEN_MESSAGE,
    "empty_message": Rule.EMPTY_MESSAGE,
    "unreadable_node": Rule.UNREADABLE_NODE,
}

CONTINUED = 0x80
"""A byte of a length that is not its last."""
FIRST_TAGS = (0x0A, 0x12, 0x08)
"""A first message begins with its version or an attribute, or with the id of a node."""
SHOWN = 24

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
"""After these nobody knows what else the rank does."""


def bytes_of_file(trace: Trace) -> Iterator[Breach]:
    """Every fault that reading met, by rule; of a file that is something else only that."""
    for rule, texts in _faults(trace).items():
        yield Breach(rule, np.full(len(texts), FILE[0]), texts.__getitem__)


def compressed(trace: Trace) -> Breach | None:
    """M17: the file is as it is read."""
    return _of_file(Rule.COMPRESSED, "the file is compressed with gzip") if trace.compressed else None


def node_count(trace: Trace) -> Breach | None:
    """The nodes are as many as the file says, where it does."""
    said = trace.decoded.said(Said.NODES)
    if not isinstance(said, int) or said == len(trace.nodes) or _known_incomplete(trace):
        return None
    return _of_file(
        Rule.NODE_COUNT, f"the file says that it has {said:,} nodes, and has {len(trace.nodes):,}"
    )


def no_root(trace: Trace) -> Breach | None:
    """M1: a node depends on nothing."""
    if _known_incomplete(trace):
        return None
    if not len(trace.nodes):
        return _of_file(Rule.NO_ROOT, "the file has no node")
    stated = trace.dependencies
    depends = np.bincount(stated.owner[stated.usable], minlength=len(trace.nodes))
    return None if (depends == 0).any() else _of_file(Rule.NO_ROOT, "every node depends on another")


def no_node_count(trace: Trace) -> Breach | None:
    """A cut between nodes can be found out."""
    if trace.decoded.said(Said.NODES) is not None or _known_incomplete(trace):
        return None
    return _of_file(Rule.NO_NODE_COUNT, "the file does not say how many nodes it has")


def no_version(trace: Trace) -> Breach | None:
    """S4: the version is stated."""
    if trace.decoded.metadata.version or _known_incomplete(trace):
        return None
    return _of_file(Rule.NO_VERSION, "the metadata have no version")


def _faults(trace: Trace) -> dict[Rule, list[str]]:
    if _not_chakra(trace):
        begins = f"the file is no Chakra trace: it begins with {trace.head[:SHOWN]!r}, and has no node"
        return {Rule.NOT_CHAKRA: [begins]}
    texts: dict[Rule, list[str]] = {}
    for fault in trace.decoded.faults:
        texts.setdefault(RULE_OF_FAULT[fault.reason], []).append(fault.message)
    if Rule.NO_METADATA not in texts and _holds_something_else(trace.decoded.metadata):
        text = "the first message has fields that metadata do not have: it is a node, or of another format"
        texts[Rule.NO_METADATA] = [text]
    return texts


def _known_incomplete(trace: Trace) -> bool:
    return not INCOMPLETE.isdisjoint(_faults(trace))


def _not_chakra(trace: Trace) -> bool:
    """Whether there is no node, and the beginning is none of a Chakra trace."""
    if len(trace.nodes) or not trace.decoded.faults or trace.head.startswith(b"\0"):
        return False
    if any(fault.reason == "unreadable_metadata" for fault in trace.decoded.faults):
        return True
    length = next((place for place, byte in enumerate(trace.head) if byte < CONTINUED), len(trace.head))
    first = trace.head[length + 1 : length + 2]
    return bool(first) and first[0] not in FIRST_TAGS


def _holds_something_else(message: Message) -> bool:
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()  # type: ignore[no-untyped-call,unused-ignore]
    return known.ByteSize() != message.ByteSize()


def _of_file(rule: Rule, message: str) -> Breach:
    return Breach(rule, FILE, lambda _: message)


# What each node must be by itself.


USABLE_TYPES = (
    NodeType.MEM_LOAD,
    NodeType.MEM_STORE,
    NodeType.COMP,
    NodeType.COMM_SEND,
    NodeType.COMM_RECV,
    NodeType.COMM_COLL,
)


def duplicate_id(trace: Trace) -> Breach:
    """M4: no two nodes have one id."""
    _, first = np.unique(trace.nodes.id, return_index=True)
    again = np.ones(len(trace.nodes), bool)
    again[first] = False
    return trace.breach(Rule.DUPLICATE_ID, np.flatnonzero(again), lambda _: "has the id of an earlier node")


def no_name(trace: Trace) -> Breach:
    """M3: every node has a name."""
    empty = _names(trace, lambda text: not text.strip())
    return trace.breach(Rule.NO_NAME, empty, lambda _: "has no name")


def comma_in_name(trace: Trace) -> Breach:
    """S3: no name has a comma."""
    return trace.breach(Rule.COMMA_IN_NAME, _names(trace, lambda text: "," in text), lambda _: "has a comma")


def node_type(trace: Trace) -> Breach:
    """M8: every node is something that a simulator runs."""
    types = trace.nodes.type

    def says(row: int) -> str:
        if types[row] == NodeType.INVALID:
            return "has no type"
        return "is a metadata node" if types[row] == NodeType.METADATA else f"is of type {types[row]}"

    return trace.breach(Rule.NODE_TYPE, np.flatnonzero(~trace.nodes.of_type(*USABLE_TYPES)), says)


def absurd_time(trace: Trace) -> Breach:
    """Times fit 63 bits, and so does the end."""
    start, duration = trace.nodes.start, trace.nodes.duration
    end = start.view(np.uint64) + duration.view(np.uint64)
    wrong = (start < 0) | (duration < 0) | (end.view(np.int64) < 0)

    def says(row: int) -> str:
        begins, lasts = unsigned(start[row]), unsigned(duration[row])
        return f"begins at {begins:,} µs and lasts {lasts:,} µs, which is beyond 2^63"

    return trace.breach(Rule.ABSURD_TIME, np.flatnonzero(wrong), says)


def no_duration(trace: Trace) -> Breach:
    """S1: what computes takes time."""
    idle = trace.nodes.of_type(NodeType.COMP) & (trace.nodes.duration == 0)
    return trace.breach(Rule.NO_DURATION, np.flatnonzero(idle), lambda _: "lasts 0 µs")


def no_host_mark(trace: Trace) -> Breach:
    """S2: every node says whether it is one of the host."""
    return trace.breach(
        Rule.NO_HOST_MARK, np.flatnonzero(~trace.on_host.present), lambda _: "does not say is_cpu_op"
    )


def host_nodes(trace: Trace) -> Breach:
    """S5: there are only device and communication nodes."""
    on_host = (trace.on_host.values != 0) & ~trace.communicates
    return trace.breach(Rule.HOST_NODES, np.flatnonzero(on_host), lambda _: "is an operator of the host")


def _names(trace: Trace, chosen: Callable[[str], bool]) -> Int64s:
    codes = np.array([chosen(text) for text in trace.nodes.strings], bool)
    return np.flatnonzero(codes[trace.nodes.name]) if len(codes) else np.empty(0, np.int64)


# What dependencies must be: each on a node that there is, once, in no circle, and forward in time.


SHOWN_DEPENDENCY_RULES = 4
SORTS = ("data_deps", "ctrl_deps")


def missing_dependency(trace: Trace) -> Breach:
    """M5: every id is that of a node."""
    wrong = np.flatnonzero(trace.dependencies.place < 0)
    return _breach(trace, Rule.MISSING_DEPENDENCY, wrong, "and there is no such node")


def self_dependency(trace: Trace) -> Breach:
    """M6: no node depends on itself."""
    stated = trace.dependencies
    wrong = (stated.id == trace.nodes.id[stated.owner]) if len(stated.id) else np.empty(0, bool)
    return _breach(trace, Rule.SELF_DEPENDENCY, _once(trace, wrong), "which is itself")


def duplicate_dependency(trace: Trace) -> Breach:
    """M7: no id stands twice in data_deps, nor in ctrl_deps."""
    stated = trace.dependencies
    order = np.lexsort((stated.id, stated.control, stated.owner))
    again = _alike(stated.owner[order], stated.control[order], stated.id[order])
    return _breach(trace, Rule.DUPLICATE_DEPENDENCY, np.sort(order[again]), "more than once")


def cycle(trace: Trace) -> Breach:
    """M6: data_deps and ctrl_deps together run in no circle."""
    cycles = trace.issued.cycles
    rows = np.array([circle[0] for circle in cycles], np.int64)

    def says(place: int) -> str:
        circle = cycles[place]
        names = [trace.called(row) for row in circle[:SHOWN_DEPENDENCY_RULES]]
        rest = (
            [f"{len(circle) - SHOWN_DEPENDENCY_RULES:,} more"] if len(circle) > SHOWN_DEPENDENCY_RULES else []
        )
        path = ", which depends on ".join([*names, *rest, f"node {trace.id(circle[0])} again"])
        return f"{path}: with all that waits for circles, {trace.issued.stuck:,} nodes never begin"

    return Breach(Rule.CYCLE, rows, says)


def backward_time(trace: Trace) -> Breach:
    """A node does not start before what it depends on does, where both say when."""
    stated, start = trace.dependencies, trace.nodes.start
    usable = np.flatnonzero(stated.usable)
    before, after = start[stated.place[usable]], start[stated.owner[usable]]
    wrong = usable[(after > 0) & (before > after)]

    def says(place: int) -> str:
        one = int(wrong[place])
        owner, other = int(stated.owner[one]), int(stated.place[one])
        return (
            f"{trace.called(owner)} starts at {start[owner]:,} µs and depends on {trace.called(other)},"
            f" which starts {start[other] - start[owner]:,} µs later"
        )

    return Breach(Rule.BACKWARD_TIME, stated.owner[wrong], says)


def _breach(trace: Trace, rule: Rule, wrong: Int64s, why: str) -> Breach:
    stated = trace.dependencies

    def says(place: int) -> str:
        one = int(wrong[place])
        sort = SORTS[int(stated.control[one])]
        return f"{trace.called(int(stated.owner[one]))} has {unsigned(stated.id[one])} in {sort}, {why}"

    return Breach(rule, stated.owner[wrong], says)


def _alike(*columns: Int64s | Bools) -> Bools:
    """Which rows of sorted columns are like the one before."""
    alike = np.ones(max(len(columns[0]) - 1, 0), bool)
    for column in columns:
        alike &= column[1:] == column[:-1]
    result: Bools = np.append(False, alike)[: len(columns[0])]
    return result


def _once(trace: Trace, wrong: Bools) -> Int64s:
    """The first of these of each node."""
    chosen = np.flatnonzero(wrong)
    _, first = np.unique(trace.dependencies.owner[chosen], return_index=True)
    return chosen[np.sort(first)]


# What attributes must be: of the kinds that both generations of feeders take, and there once.


FEEDER_KINDS = {
    "comm_type": Kind.INT64,
    "comm_size": Kind.INT64,
    "num_ops": Kind.INT64,
    "comm_src": Kind.INT32,
    "comm_dst": Kind.INT32,
    "comm_tag": Kind.INT32,
    "comm_priority": Kind.INT32,
    "tensor_size": Kind.UINT64,
    "is_cpu_op": Kind.BOOL,
    "pg_name": Kind.STRING,
    "rf_id": Kind.INT64,
    "fw_parent": Kind.INT64,
    "seq_id": Kind.INT64,
    "scope": Kind.INT64,
    "tid": Kind.INT64,
    "fw_tid": Kind.INT64,
    "stream": Kind.INT64,
    "op_schema": Kind.STRING,
}
"""The older feeder reads exactly these."""


def attribute_kind(trace: Trace) -> Iterator[Breach]:
    """Section 12: a feeder finds the value where it looks for it."""
    for name, kind in FEEDER_KINDS.items():
        yield from _of_other_kind(trace, Rule.ATTRIBUTE_KIND, name, kind)


def involved_dimensions(trace: Trace) -> Iterator[Breach]:
    """M16: involved_dim is a list of truth values."""
    yield from _of_other_kind(trace, Rule.INVOLVED_DIMENSIONS, Name.INVOLVED, Kind.BOOL_LIST)


def attribute_twice(trace: Trace) -> Iterator[Breach]:
    """A node has an attribute once."""
    for name, attribute in trace.nodes.attributes.items():
        rows = attribute.rows[1:][attribute.rows[1:] == attribute.rows[:-1]]
        if len(rows):
            yield trace.breach(Rule.ATTRIBUTE_TWICE, rows, _always(f"has {name} more than once"))


def incomplete_memory(trace: Trace) -> Breach:
    """M14: loads and stores say how much."""
    moves = trace.nodes.of_type(NodeType.MEM_LOAD, NodeType.MEM_STORE)
    wrong = moves & ~trace.number(Name.TENSOR_SIZE).present
    return trace.breach(Rule.INCOMPLETE_MEMORY, np.flatnonzero(wrong), lambda _: "has no tensor_size")


def roofline(trace: Trace) -> Breach:
    """M15: a device node that says how many operations it has says of how many bytes, and neither is 0."""
    operations, size = trace.number(Name.OPERATIONS), trace.number(Name.TENSOR_SIZE)
    told = operations.present & trace.nodes.of_type(NodeType.COMP) & (trace.on_host.values == 0)
    usable = _above_0(operations.known, operations.values) & _above_0(size.known, size.values)
    kinds_wrong = (operations.present & ~operations.known) | (size.present & ~size.known)
    wrong = np.flatnonzero(told & ~usable & ~kinds_wrong)

    def says(row: int) -> str:
        stated = size.values[row] if size.present[row] else "no"
        return f"has {operations.values[row]:,} num_ops and {stated} tensor_size"

    return trace.breach(Rule.ROOFLINE, wrong, says)


def tensor_lists(trace: Trace) -> Iterator[Breach]:
    """M15: inputs and outputs, as attributes, are pairs of texts."""
    for name in ("inputs", "outputs"):
        attribute = trace.nodes.attribute(name)
        good = [
            kind == Kind.STRING_LIST and len(value) % 2 == 0
            for kind, value in zip(attribute.kinds.tolist(), attribute.values, strict=True)
        ]
        rows = attribute.rows[~np.array(good, bool)]
        yield trace.breach(Rule.TENSOR_LISTS, rows, _always(f"has {name} that are no pairs of texts"))


def _of_other_kind(trace: Trace, rule: Rule, name: str, kind: Kind) -> Iterator[Breach]:
    attribute = trace.nodes.attribute(name)
    wrong = np.flatnonzero(attribute.kinds != kind)
    if not len(wrong):
        return
    kinds: Int64s = attribute.kinds[wrong].astype(np.int64)
    rows = attribute.rows[wrong]

    def says(place: int) -> str:
        return f"{trace.called(int(rows[place]))} has {name} as {_called(int(kinds[place]))}, not {_called(kind)}"

    yield Breach(rule, rows, says)


def _above_0(known: Bools, values: Int64s) -> Bools:
    above: Bools = known & (values.view(np.uint64) > 0)
    return above


def _called(kind: int) -> str:
    """The name of a kind's field."""
    if not kind:
        return "nothing"
    name = Kind(kind).name.lower()
    return name if name.endswith("_list") else f"{name}_val"


def _always(text: str) -> Callable[[int], str]:
    """What is said of whichever node."""
    return lambda _: text
