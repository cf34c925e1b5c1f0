"""One file checked by itself: its bytes and metadata, nodes, dependencies, attributes, and communication."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt
from google.protobuf.message import Message
from msgspec import Struct

from tracelink._io.sources import LARGEST_RANK
from tracelink._io.streams import GZIP_MAGIC, Inflated
from tracelink._model.columns import UNKNOWN, Bools, Int64s, int64s
from tracelink._model.errors import UsageError
from tracelink._model.selection import Numbers
from tracelink.converters.chakra.chakra_pb2 import GlobalMetadata
from tracelink.converters.chakra.decode import (
    BROKEN_OFF,
    EMPTY_MESSAGE,
    NO_METADATA,
    UNREADABLE_METADATA,
    UNREADABLE_NODE,
    Decoded,
    Fault,
    decode,
)
from tracelink.converters.chakra.schema import (
    FIELD_OF_KIND,
    SIMULATED,
    CollectiveType,
    Kind,
    MetadataName,
    Name,
    NodeType,
    Variant,
)
from tracelink.converters.chakra.table import NodeTable, chosen, unsigned
from tracelink.converters.chakra.validation.files import Groups, TraceFile, group_number, groups_of
from tracelink.converters.chakra.validation.replay import RankSteps
from tracelink.converters.chakra.validation.rules import Broken, CheckedFile, Rule
from tracelink.converters.chakra.validation.trace import (
    Breach,
    Collectives,
    Messages,
    Trace,
    collectives_of,
    messages_of,
    steps_of,
)

# The bytes of a file and its first message.

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


def _breaches_of_file(trace: Trace) -> Iterator[tuple[Rule, Sequence[str]]]:
    """Faults of the file as a whole; what a truncation explains is not reported beside it."""
    faults = _faults(trace)
    yield from faults.items()
    if trace.compressed:
        yield Rule.COMPRESSED, ["the file is compressed with gzip"]
    if not INCOMPLETE.isdisjoint(faults):
        return
    nodes, expected = len(trace.nodes), trace.decoded.metadata_value(MetadataName.NODES)
    if isinstance(expected, int) and expected != nodes:
        yield Rule.NODE_COUNT, [f"the metadata count {expected:,} nodes, but the file has {nodes:,}"]
    if expected is None:
        yield Rule.NO_NODE_COUNT, ["the metadata do not count the nodes"]
    if not trace.decoded.metadata.version:
        yield Rule.NO_VERSION, ["the metadata have no version"]
    owners = trace.dependencies.owner[trace.dependencies.usable]
    if np.bincount(owners, minlength=nodes).all():
        yield Rule.NO_ROOT, ["every node depends on another one" if nodes else "the file has no nodes"]


def _faults(trace: Trace) -> dict[Rule, list[str]]:
    """Every fault found while reading, by rule; only `not_chakra` for a file of another format."""
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


# Nodes by themselves: which ones break a rule, and how the sentence that starts with such a node goes on.

SPLITS = 4
"""The number of splits of a collective in ASTRA-sim's own system files (`preferred-dataset-splits`)."""

_USABLE_TYPES = tuple(kind for kind in NodeType if kind not in (NodeType.INVALID, NodeType.METADATA))
_WORDS_OF_TYPE = {NodeType.INVALID: "has no type", NodeType.METADATA: "is a metadata node"}
_PEERS = {NodeType.COMM_SEND: Name.COMM_TARGET, NodeType.COMM_RECV: Name.COMM_SOURCE}
_OWN_ENDS = {NodeType.COMM_SEND: Name.COMM_SOURCE, NodeType.COMM_RECV: Name.COMM_TARGET}
_REQUIRED = {
    NodeType.COMM_COLL: (Name.COMM_TYPE, Name.COMM_SIZE),
    NodeType.COMM_SEND: (Name.COMM_SIZE, Name.COMM_TARGET, Name.COMM_TAG),
    NodeType.COMM_RECV: (Name.COMM_SIZE, Name.COMM_TAG, Name.COMM_SOURCE),
    NodeType.MEM_LOAD: (Name.TENSOR_SIZE,),
    NodeType.MEM_STORE: (Name.TENSOR_SIZE,),
}


class _NodeRule(Struct, frozen=True):
    """Nodes that break a rule, as a mask or as rows, and the words that follow such a node."""

    rule: Rule
    broken: Callable[[Trace], Bools | Int64s]
    words: str | Callable[[Trace, int], str]

    def breach(self, trace: Trace) -> Breach:
        """The rows, with a message for each of them."""
        found, words = self.broken(trace), self.words
        rows = np.flatnonzero(found) if found.dtype == np.bool_ else np.asarray(found, np.int64)
        return trace.breach(
            self.rule, rows, words if isinstance(words, str) else lambda at: words(trace, int(rows[at]))
        )


def _duplicates(trace: Trace) -> Bools:
    _, first = np.unique(trace.nodes.id, return_index=True)
    duplicate = np.ones(len(trace.nodes), bool)
    duplicate[first] = False
    return duplicate


def _named(trace: Trace, matches: Callable[[str], bool]) -> Bools:
    found: Bools = np.array([*map(matches, trace.nodes.strings), False], bool)[trace.nodes.name]
    return found


def _is_absurd(trace: Trace) -> Bools:
    """Start, duration or end do not fit in 63 bits."""
    start, duration = trace.nodes.start, trace.nodes.duration
    end = start.view(np.uint64) + duration.view(np.uint64)
    return (start < 0) | (duration < 0) | (end.view(np.int64) < 0)


def _times(trace: Trace, row: int) -> str:
    start, duration = unsigned(trace.nodes.start[row]), unsigned(trace.nodes.duration[row])
    return f"starts at {start:,} µs and lasts {duration:,} µs, which is beyond 2^63"


def _lack(trace: Trace, *types: NodeType) -> Bools:
    """Nodes of these types without an attribute that they need."""
    return np.logical_or.reduce(
        [
            trace.nodes.of_type(kind) & ~trace.number(name).present
            for kind in types
            for name in _REQUIRED[kind]
        ]
    )


def _lacking(trace: Trace, row: int) -> str:
    names = _REQUIRED[NodeType(int(trace.nodes.type[row]))]
    return f"has no {' and no '.join(name for name in names if not trace.number(name).present[row])}"


def _starved(trace: Trace) -> Bools:
    """Device nodes with num_ops whose num_ops or tensor_size is 0 or missing; a wrong kind is another rule."""
    operations, size = trace.number(Name.OPERATIONS), trace.number(Name.TENSOR_SIZE)
    counted = operations.known & trace.nodes.of_type(NodeType.COMP) & (trace.on_host.values == 0)
    starved: Bools = counted & (size.known | ~size.present) & ((operations.values == 0) | (size.values == 0))
    return starved


def _roofline(trace: Trace, row: int) -> str:
    size = trace.number(Name.TENSOR_SIZE)
    tensor_size = f"tensor_size {size.values[row]}" if size.present[row] else "no tensor_size"
    return f"has num_ops {trace.value(Name.OPERATIONS, row):,} and {tensor_size}"


def _collectives(trace: Trace, *, known: bool) -> Bools:
    """Collectives whose type is a number of this format, or is none."""
    kind = trace.number(Name.COMM_TYPE)
    valid = (kind.values >= 0) & (kind.values < len(CollectiveType))
    found: Bools = trace.collectives & kind.known & (valid == known)
    return found


def _unlisted(trace: Trace, *, numbered: bool) -> Int64s:
    """Collectives whose group is not listed and has a number, or none."""
    rows = np.flatnonzero(trace.collectives & (trace.group == UNKNOWN)).tolist()
    names = [(row, _group(trace, row)) for row in rows]
    return int64s(
        [row for row, name in names if name is not None and (group_number(name) != UNKNOWN) == numbered]
    )


def _group(trace: Trace, row: int) -> str | None:
    """The group that a node names; None if the value is not a string."""
    attribute = trace.nodes.attribute(Name.GROUP)
    value = attribute.values[int(np.searchsorted(attribute.rows, row, "right")) - 1]
    return value if isinstance(value, str) else None


def _unlisted_group(trace: Trace, row: int) -> str:
    unlisted = f"{trace.groups.source} does not list" if trace.groups.source else "no file lists"
    return f"is in group {_group(trace, row)}, which {unlisted}"


def _in_foreign_group(trace: Trace) -> Bools:
    foreign = [number for number, ranks in trace.groups.members.items() if trace.rank not in ranks]
    return trace.collectives & np.isin(trace.group, np.array(foreign, np.int64))


def _ends(trace: Trace, names: Mapping[NodeType, Name], *, own: bool) -> Bools:
    """Messages with an end that is the rank of the file, or is another one."""
    ends = {kind: trace.number(name) for kind, name in names.items()}
    found = (
        trace.nodes.of_type(kind) & end.known & ((end.values == trace.rank) == own)
        for kind, end in ends.items()
    )
    return np.logical_or.reduce(list(found))


def _foreign_end(trace: Trace, row: int) -> str:
    name = _OWN_ENDS[NodeType(int(trace.nodes.type[row]))]
    return f"has {name} {trace.value(name, row)} in the file of rank {trace.rank}"


def _too_small_to_gather(trace: Trace) -> Bools:
    size = trace.number(Name.COMM_SIZE)
    gathers = trace.collectives & trace.number(Name.COMM_TYPE).equals(CollectiveType.ALL_GATHER)
    small: Bools = gathers & size.known & (size.values >= 0) & (size.values < SPLITS)
    return small


def _last_message(trace: Trace) -> Int64s:
    """The last node of a rank with host nodes, if it is a message."""
    if not np.any(trace.on_host.values[trace.nodes.of_type(NodeType.COMP)]):
        return np.empty(0, np.int64)
    last = np.ones(len(trace.nodes), bool)
    last[trace.dependencies.target[trace.dependencies.usable]] = False
    rows = np.flatnonzero(last & trace.messages)
    if len(rows) and np.any(last & ~trace.messages):
        ends = trace.earliest_ends[last]
        rows = np.flatnonzero(last)[ends == ends.max()]
        rows = rows[trace.messages[rows]]
    return rows[-1:]


# fmt: off
_NODE_RULES = (
    _NodeRule(Rule.DUPLICATE_ID, _duplicates, "has the id of an earlier node"),
    _NodeRule(Rule.NO_NAME, lambda trace: _named(trace, lambda name: not name.strip()), "has no name"),
    _NodeRule(Rule.COMMA_IN_NAME, lambda trace: _named(trace, lambda name: "," in name), "has a comma in its name"),
    _NodeRule(Rule.NODE_TYPE, lambda trace: ~trace.nodes.of_type(*_USABLE_TYPES),
        lambda trace, row: _WORDS_OF_TYPE.get(trace.nodes.type[row], f"has type {trace.nodes.type[row]}")),
    _NodeRule(Rule.ABSURD_TIME, _is_absurd, _times),
    _NodeRule(Rule.NO_DURATION, lambda trace: trace.nodes.of_type(NodeType.COMP) & (trace.nodes.duration == 0),
        "lasts 0 µs"),
    _NodeRule(Rule.NO_HOST_MARK, lambda trace: ~trace.on_host.present, "has no is_cpu_op"),
    _NodeRule(Rule.HOST_NODES, lambda trace: (trace.on_host.values != 0) & ~trace.communicates, "is a host operator"),
    _NodeRule(Rule.INCOMPLETE_MEMORY, lambda trace: _lack(trace, NodeType.MEM_LOAD, NodeType.MEM_STORE), _lacking),
    _NodeRule(Rule.ROOFLINE, _starved, _roofline),
    _NodeRule(Rule.HOST_COMMUNICATION, lambda trace: trace.communicates & (trace.on_host.values != 0),
        "has is_cpu_op true"),
    _NodeRule(Rule.INCOMPLETE_COLLECTIVE, lambda trace: _lack(trace, NodeType.COMM_COLL), _lacking),
    _NodeRule(Rule.UNKNOWN_COLLECTIVE, lambda trace: _collectives(trace, known=False),
        lambda trace, row: f"has comm_type {trace.value(Name.COMM_TYPE, row)}"),
    _NodeRule(Rule.UNSIMULATED_COLLECTIVE,
        lambda trace: _collectives(trace, known=True) & ~np.isin(trace.number(Name.COMM_TYPE).values, list(SIMULATED)),
        lambda trace, row: f"has comm_type {CollectiveType(trace.value(Name.COMM_TYPE, row)).name}"),
    _NodeRule(Rule.NEGATIVE_SIZE, lambda trace: trace.communicates & (trace.number(Name.COMM_SIZE).values < 0),
        lambda trace, row: f"has comm_size {trace.value(Name.COMM_SIZE, row):,}"),
    _NodeRule(Rule.GROUP_NAME, lambda trace: _unlisted(trace, numbered=False),
        lambda trace, row: f"is in group {_group(trace, row)!r}, which is not a number"),
    _NodeRule(Rule.UNKNOWN_GROUP, lambda trace: _unlisted(trace, numbered=True), _unlisted_group),
    _NodeRule(Rule.FOREIGN_GROUP, _in_foreign_group,
        lambda trace, row: f"is in group {trace.group[row]}, but rank {trace.rank} is not a member"),
    _NodeRule(Rule.INCOMPLETE_MESSAGE, lambda trace: _lack(trace, *_PEERS), _lacking),
    _NodeRule(Rule.FOREIGN_MESSAGE, lambda trace: _ends(trace, _OWN_ENDS, own=False), _foreign_end),
    _NodeRule(Rule.SMALL_GATHER, _too_small_to_gather,
        lambda trace, row: f"is an ALL_GATHER of {trace.value(Name.COMM_SIZE, row)} bytes"),
    _NodeRule(Rule.NO_BYTES, lambda trace: trace.messages & trace.number(Name.COMM_SIZE).equals(0),
        "has comm_size 0"),
    _NodeRule(Rule.NEGATIVE_TAG, lambda trace: trace.messages & (trace.number(Name.COMM_TAG).values < 0),
        lambda trace, row: f"has comm_tag {trace.value(Name.COMM_TAG, row)}"),
    _NodeRule(Rule.OWN_MESSAGE, lambda trace: _ends(trace, _PEERS, own=True),
        lambda trace, _: f"is a message of rank {trace.rank} to itself"),
    _NodeRule(Rule.ENDS_IN_MESSAGE, _last_message, "is a message, and the last node of a rank with host nodes"),
)
# fmt: on


# Dependencies: on existing nodes, without duplicates and cycles, and forward in time.

_SHOWN_NODES = 4
_DEPENDENCY_FIELDS = ("data_deps", "ctrl_deps")


def _breaches_of_dependencies(trace: Trace) -> Iterator[Breach]:
    listed, start = trace.dependencies, trace.nodes.start
    own = np.flatnonzero(listed.id == trace.nodes.id[listed.owner]) if len(listed.id) else listed.owner
    _, first = np.unique(listed.owner[own], return_index=True)
    order = np.lexsort((listed.id, listed.control, listed.owner))
    again = np.append(False, np.ones(max(len(order) - 1, 0), bool))[: len(order)]
    for column in (listed.owner, listed.control, listed.id):
        again[1:] &= column[order][1:] == column[order][:-1]
    for rule, wrong, why in (
        (Rule.MISSING_DEPENDENCY, np.flatnonzero(listed.target < 0), "but the file has no such node"),
        (Rule.SELF_DEPENDENCY, own[np.sort(first)], "which is its own id"),
        (Rule.DUPLICATE_DEPENDENCY, np.sort(order[again]), "more than once"),
    ):
        yield Breach(rule, listed.owner[wrong], partial(_listed, trace, wrong, why))
    yield _cycles(trace)
    usable = np.flatnonzero(listed.usable)
    before, after = start[listed.target[usable]], start[listed.owner[usable]]
    wrong = usable[(after > 0) & (before > after)]
    yield Breach(Rule.BACKWARD_TIME, listed.owner[wrong], partial(_backward, trace, wrong))


def _listed(trace: Trace, wrong: Int64s, why: str, at: int) -> str:
    listed, row = trace.dependencies, int(wrong[at])
    field = _DEPENDENCY_FIELDS[int(listed.control[row])]
    return f"{trace.label(int(listed.owner[row]))} lists {unsigned(listed.id[row])} in {field}, {why}"


def _backward(trace: Trace, wrong: Int64s, at: int) -> str:
    row, start = int(wrong[at]), trace.nodes.start
    owner, target = int(trace.dependencies.owner[row]), int(trace.dependencies.target[row])
    return (
        f"{trace.label(owner)} starts at {start[owner]:,} µs and depends on {trace.label(target)},"
        f" which starts {start[target] - start[owner]:,} µs later"
    )


def _cycles(trace: Trace) -> Breach:
    cycles, stuck = trace.issue_order.cycles, trace.issue_order.stuck

    def message(at: int) -> str:
        rows = cycles[at]
        names = [trace.label(row) for row in rows[:_SHOWN_NODES]]
        more = [f"{len(rows) - _SHOWN_NODES:,} more"] if len(rows) > _SHOWN_NODES else []
        path = ", which depends on ".join([*names, *more, f"node {trace.id(rows[0])} again"])
        return f"{path}: {stuck:,} nodes in cycles or behind them never start"

    return Breach(Rule.CYCLE, int64s([rows[0] for rows in cycles]), message)


# Attributes: without duplicates, and of the kinds that both generations of feeders read.

_RULES_OF_KINDS = (
    *((Rule.ATTRIBUTE_KIND, name) for name in Name if name.has_one_kind),
    (Rule.INVOLVED_DIMENSIONS, Name.INVOLVED),
)


def _breaches_of_attributes(trace: Trace) -> Iterator[Breach]:
    for rule, expected in _RULES_OF_KINDS:
        attribute = trace.nodes.attribute(expected)
        wrong = np.flatnonzero(attribute.kinds != expected.kind)
        yield trace.breach(
            rule, attribute.rows[wrong], partial(_wrong_kind, expected, attribute.kinds[wrong])
        )
    for name, attribute in trace.nodes.attributes.items():
        rows = attribute.rows[1:][attribute.rows[1:] == attribute.rows[:-1]]
        yield trace.breach(Rule.ATTRIBUTE_TWICE, rows, f"has {name} more than once")
    for name in (Name.READ_TENSORS, Name.WRITTEN_TENSORS):
        attribute = trace.nodes.attribute(name)
        good = attribute.kinds == Kind.STRING_LIST
        listed = np.flatnonzero(good)
        good[listed] = np.array(list(map(len, chosen(attribute.values, listed))), np.int64) % 2 == 0
        yield trace.breach(
            Rule.TENSOR_LISTS, attribute.rows[~good], f"has {name} that are not pairs of strings"
        )


def _wrong_kind(name: Name, kinds: npt.NDArray[np.uint8], at: int) -> str:
    found = FIELD_OF_KIND[Kind(kinds[at])] if kinds[at] else "an empty value"
    return f"has {name} as {found}, not {FIELD_OF_KIND[name.kind]}"


# A file checked: every rule that needs no other file, and what comparisons with other ranks need.

_BUFFER = 1 << 20
_HEAD = 64


class Task(Struct, frozen=True):
    """A file to check."""

    file: TraceFile
    default_rank: int
    """Its rank if neither its name nor its metadata contain one."""
    groups: Groups | None
    variant: Variant | None
    """The variant that it is checked as; None for the one that it records."""
    limit: int | None


class Checked(Struct, frozen=True):
    """The rules that a file breaks, and its communication."""

    file: CheckedFile
    groups: Groups
    world_size: int
    """From the metadata; 0 if missing."""
    collectives: Collectives
    messages: Messages
    steps: RankSteps
    """The communication as it is replayed with that of other ranks."""
    broken: Sequence[Broken] = ()
    written: Numbers = Numbers()
    """The ranks that were written, from the metadata; empty if missing."""
    metadata_rank: int | None = None
    name_rank: int | None = None
    """The rank in the name; None if the name is not PREFIX.RANK.et."""
    complete: bool = True
    """True if no part of the file is known to be missing."""
    lenient: bool = False
    """True if what only ASTRA-sim cannot run is a warning."""


def check(task: Task, known: Decoded | None = None) -> Checked:
    """Reads a file and applies every rule that needs no other file; `known` is what it contains, if it was read."""
    try:
        content = _content(task.file, known)
    except OSError as error:
        text = f"{task.file.source.path} cannot be read: {error.strerror or error}"
        return _checked(task, _Content(decode(io.BytesIO())), [(Rule.UNREADABLE, [text])])
    return _checked(task, content)


def check_nodes(
    path: str, rank: int, nodes: NodeTable, groups: Mapping[int, Sequence[int]], world_size: int
) -> Checked:
    """The communication of nodes that are known to break no rule of a single file; `path` is where they are written."""
    listed = Groups(groups)
    trace = Trace(path, rank, listed, Decoded(GlobalMetadata(), nodes, []))
    file = CheckedFile(path, rank, len(nodes), Variant.FULL, 0)
    return Checked(file, listed, world_size, collectives_of(trace), messages_of(trace), steps_of(trace))


class _Content(Struct, frozen=True):
    """A decoded file and its first bytes."""

    decoded: Decoded
    head: bytes = b""
    compressed: bool = False


def _content(file: TraceFile, known: Decoded | None) -> _Content:
    with file.source.opener() as raw:
        head = raw.read(_HEAD)
        raw.seek(0)
        if not head.startswith(GZIP_MAGIC):
            return _Content(known or decode(_buffered(raw)), head)
        inflated = Inflated(raw)
        decoded = decode(_buffered(inflated))
    if inflated.damage and not any(fault.reason == BROKEN_OFF for fault in decoded.faults):
        decoded.faults.append(Fault(BROKEN_OFF, f"the file is damaged: {inflated.damage}", 0))
    return _Content(decoded, head, compressed=True)


def _buffered(stream: object) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, stream), _BUFFER))


def _checked(
    task: Task, content: _Content, failure: Iterable[tuple[Rule, Sequence[str]]] | None = None
) -> Checked:
    decoded, path = content.decoded, task.file.source.path
    metadata_rank = decoded.metadata_integer(MetadataName.RANK, LARGEST_RANK)
    ranks = (task.file.rank, metadata_rank, task.default_rank)
    rank = next(rank for rank in ranks if rank is not None)
    groups = task.groups or _groups_in_metadata(decoded, path)
    lenient = task.variant is Variant.FULL
    trace = Trace(path, rank, groups, decoded, content.head, content.compressed, lenient)
    breaches = [Breach.of_file(rule, texts) for rule, texts in failure or _breaches_of_file(trace)]
    if failure is None:
        breaches += (rule.breach(trace) for rule in _NODE_RULES)
        breaches += [*_breaches_of_dependencies(trace), *_breaches_of_attributes(trace)]
    broken = [trace.violations(breach, task.limit) for breach in breaches if len(breach.rows)]
    return Checked(
        CheckedFile(
            path, rank, len(trace.nodes), task.variant or _variant_of(decoded), task.file.source.bytes
        ),
        groups,
        decoded.metadata_integer(MetadataName.WORLD_SIZE, LARGEST_RANK + 1) or 0,
        collectives_of(trace),
        messages_of(trace),
        steps_of(trace),
        broken,
        _written_ranks(decoded),
        metadata_rank,
        task.file.rank,
        complete=not any(rule.rule in INCOMPLETE for rule in broken),
        lenient=lenient,
    )


def _variant_of(decoded: Decoded) -> Variant:
    name = decoded.metadata_value(MetadataName.VARIANT)
    return Variant(name) if name in list(Variant) else Variant.ASTRA_SIM


def _groups_in_metadata(decoded: Decoded, path: str) -> Groups:
    text = decoded.metadata_value(MetadataName.GROUPS)
    return groups_of(text, path, with_names=True) if isinstance(text, str | bytes) else Groups()


def _written_ranks(decoded: Decoded) -> Numbers:
    text = decoded.metadata_value(MetadataName.WRITTEN)
    try:
        return Numbers.parse(text, MetadataName.WRITTEN) if isinstance(text, str) and text else Numbers()
    except UsageError:
        return Numbers()
