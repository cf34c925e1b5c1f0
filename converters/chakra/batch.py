"""A batch of messages to node columns: common messages vectorised together, unusual ones by protobuf, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._io.framing import DELIMITED, VARINT, key, varint
from tracelink._io.protobuf import WORD, Octets, Read, Words, leading, read_fields, split
from tracelink._model.columns import UNKNOWN, Bools, Int64s, Table
from tracelink.converters.chakra import schema
from tracelink.converters.chakra.chakra_pb2 import AttributeProto, Node
from tracelink.converters.chakra.table import Links, chosen, signed

NUMBERS, ID_LISTS, TENSORS = (
    (schema.ID, schema.TYPE, schema.START, schema.DURATION),
    (schema.CONTROL, schema.DATA),
    (schema.INPUTS, schema.OUTPUTS),
)
"""Fields of a node by their wire form: integers, packed ids, and submessages."""

_NODE_WIRES = np.full(schema.ATTRIBUTE + 1, VARINT)
_NODE_WIRES[[schema.NAME, *ID_LISTS, *TENSORS, schema.ATTRIBUTE]] = DELIMITED
_LARGEST_TENSOR_FIELD = max(schema.VALUES, schema.SHAPES, schema.TYPES)
_LARGEST_TYPE = 255
_INT32_END = 1 << 31


class IdLists(Struct, frozen=True):
    """Ids, and the row of the node that lists each."""

    owner: Int64s
    ids: Int64s

    def replaced(self, kept: Bools, rows: Int64s, links: Links) -> IdLists:
        """The ids of `kept` rows, with those of `rows` taken from `links`."""
        chosen = kept[self.owner]
        owner = np.concatenate([self.owner[chosen], rows[links.owners]])
        order = np.argsort(owner, kind="stable")
        return IdLists(owner[order], np.concatenate([self.ids[chosen], links.ids])[order])


class Nodes(Struct, frozen=True):
    """One row for each message."""

    good: Bools
    """Messages that are valid nodes."""
    numbers: dict[int, Int64s]
    """By field number."""
    names: list[bytes]
    lists: dict[int, IdLists]
    parts: list[Part]


def nodes_of(data: bytes, begins: Sequence[int], ends: Sequence[int]) -> Nodes:
    """The nodes in `data`: message `i` is `data[begins[i]:ends[i]]`."""
    batch = _Batch(data, begins, ends)
    numbers, names = batch.numbers(), batch.names()
    lists = {number: batch.ids(number) for number in ID_LISTS}
    batch.check_tensors()
    parts = batch.attributes()
    nodes = Nodes(np.ones(len(names), bool), numbers, names, lists, parts)
    return _completed(nodes, batch.parsed(), ~batch.unusual) if batch.unusual.any() else nodes


class _Batch:
    """The fields of a batch of messages, and the messages that protobuf must parse."""

    def __init__(self, data: bytes, begins: Sequence[int], ends: Sequence[int]) -> None:
        self.data, self.begins, self.ends = data, begins, ends
        self.octets = Octets(data)
        first, last = np.array(begins, np.int64), np.array(ends, np.int64)
        self.fields = split(self.octets, first, last)
        self.unusual = self.fields.odd | (first == last)
        read = self.fields.read
        expected = _NODE_WIRES[np.minimum(read.number, schema.ATTRIBUTE)]
        wrong = (read.number <= schema.ATTRIBUTE) & (read.wire != expected)
        self.unusual[self.fields.owner[wrong]] = True

    def numbers(self) -> dict[int, Int64s]:
        """The integer fields; of a duplicate field the last one counts."""
        columns = {}
        for number in NUMBERS:
            owner, read = self.fields.of(number)
            columns[number] = np.zeros(len(self.begins), np.int64)
            columns[number][owner] = read.value
        types = columns[schema.TYPE]
        self.unusual |= (types < 0) | (types >= _INT32_END)
        np.clip(types, 0, _LARGEST_TYPE, out=types)
        return columns

    def names(self) -> list[bytes]:
        """The bytes of each name."""
        owner, read = self.fields.of(schema.NAME)
        self.unusual |= np.bincount(owner, minlength=len(self.unusual)) > 1
        names = [b""] * len(self.begins)
        for row, name in zip(owner.tolist(), self._bytes(read), strict=True):
            names[row] = name
        if invalid := {name for name in set(names) if not _is_utf8(name)}:
            self.unusual |= np.array([name in invalid for name in names], bool)
        return names

    def ids(self, number: int) -> IdLists:
        """The ids in a packed field."""
        owner, read = self.fields.of(number)
        length = read.end - read.begin
        filled = length > 0
        first = np.cumsum(length) - length
        inner = np.repeat(read.begin - first, length) + np.arange(int(length.sum()))
        owners = np.repeat(owner, length)
        starts = np.append(True, self.octets.at(inner) < 0x80)[:-1]
        starts[first[filled]] = True
        ids, width = self.octets.varints(inner[starts])
        self.unusual[owners[starts][width == 0]] = True
        self.unusual[owner[filled][self.octets.at(read.end[filled] - 1) >= 0x80]] = True
        return IdLists(owners[starts], ids)

    def check_tensors(self) -> None:
        """Inputs and outputs are not kept, but must be valid."""
        for number in TENSORS:
            owner, read = self.fields.of(number)
            inside = split(self.octets, read.begin, read.end)
            self.unusual[owner[inside.odd]] = True
            values = inside.read
            known = values.number <= _LARGEST_TENSOR_FIELD
            self.unusual[owner[inside.owner[known & (values.wire != DELIMITED)]]] = True
            not_ascii = np.flatnonzero(known & ~self.octets.ascii(values.begin, values.end))
            strings = self._bytes(values.where(not_ascii))
            valid = np.fromiter(map(_is_utf8, strings), bool, len(not_ascii))
            self.unusual[owner[inside.owner[not_ascii[~valid]]]] = True

    def _bytes(self, read: Read) -> Iterator[bytes]:
        """The values of fields."""
        return map(self.data.__getitem__, map(slice, read.begin.tolist(), read.end.tolist()))

    def attributes(self) -> list[Part]:
        """The attributes of the nodes that protobuf need not parse."""
        owner, read = self.fields.of(schema.ATTRIBUTE)
        spans = _Spans(owner, read.begin, read.end)
        if self.unusual.any():
            spans = spans.take(~self.unusual[owner])
        parts, left = _common_attributes(self.octets, spans)
        others, data = _ParsedAttributes(), self.data
        for row, begin, end in spans.take(left).rows():
            if not others.parse(row, begin, data[begin:end]):
                self.unusual[row] = True
        return [*parts, *others.parts()]

    def parsed(self) -> _ParsedNodes:
        """The unusual messages, parsed by protobuf."""
        parsed = _ParsedNodes()
        for row in np.flatnonzero(self.unusual).tolist():
            begin = self.begins[row]
            parsed.parse(row, begin, self.data[begin : self.ends[row]])
        return parsed


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _completed(nodes: Nodes, parsed: _ParsedNodes, common: Bools) -> Nodes:
    """The nodes with the unusual messages replaced by what protobuf parsed."""
    rows, messages = np.array(parsed.rows, np.int64), parsed.messages
    nodes.good[parsed.failed] = False
    nodes.numbers[schema.ID][rows] = signed([node.id for node in messages])
    nodes.numbers[schema.TYPE][rows] = [min(max(node.type, 0), _LARGEST_TYPE) for node in messages]
    nodes.numbers[schema.START][rows] = signed([node.start_time_micros for node in messages])
    nodes.numbers[schema.DURATION][rows] = signed([node.duration_micros for node in messages])
    for row, node in zip(parsed.rows, messages, strict=True):
        nodes.names[row] = node.name.encode()
    listed = {
        schema.CONTROL: [node.ctrl_deps for node in messages],
        schema.DATA: [node.data_deps for node in messages],
    }
    lists = {
        number: nodes.lists[number].replaced(common, rows, Links.of(ids)) for number, ids in listed.items()
    }
    parts = [part.where(common[part.row]) for part in nodes.parts]
    return replace(nodes, lists=lists, parts=[*parts, *parsed.attributes.parts()])


# Attributes: common ones as columns by name and kind, unusual ones by protobuf.

_LONGEST_NAME = 2 * WORD
"""Names of up to so many bytes are identified by their first and last words."""
_SAMPLE, _MOST_NAMES, _ROUNDS = 1024, 128, 8
"""Attributes sampled for names in each round, names found in it at most, and rounds; protobuf parses the rest."""
HASH_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
"""Odd factors that hash three words to one."""

_INT64 = np.iinfo(np.int64)
_RANGES = {
    schema.Kind.INT32: (-(1 << 31), (1 << 31) - 1),
    schema.Kind.UINT32: (0, (1 << 32) - 1),
    schema.Kind.BOOL: (_INT64.min, _INT64.max),
    schema.Kind.INT64: (_INT64.min, _INT64.max),
    schema.Kind.UINT64: (_INT64.min, _INT64.max),
}
"""The kinds that are one varint, and the range of their values as signed numbers."""
_DTYPES: Mapping[schema.Kind, npt.DTypeLike] = {schema.Kind.BOOL: np.bool_, schema.Kind.UINT64: np.uint64}
_KINDS = 1 << 11
"""The field numbers that fit in a tag of two bytes."""
_VALUE_WIRES = np.full(_KINDS, UNKNOWN)
_VALUE_WIRES[[*_RANGES, schema.Kind.STRING]] = [*[VARINT] * len(_RANGES), DELIMITED]
_LEAST, _MOST = np.ones(_KINDS, np.int64), np.zeros(_KINDS, np.int64)
for _kind, (_least, _most) in _RANGES.items():
    _LEAST[_kind], _MOST[_kind] = _least, _most


class _Spans(Table, frozen=True):
    """The bytes of attributes, and the row of the node of each."""

    row: Int64s
    begin: Int64s
    end: Int64s

    def rows(self) -> Iterator[tuple[int, int, int]]:
        return zip(self.row.tolist(), self.begin.tolist(), self.end.tolist(), strict=True)


class Part(Struct, frozen=True):
    """Attributes of one name and one kind."""

    name: str
    kind: schema.Kind
    row: Int64s
    offset: Int64s
    """By which attributes keep the order of the file."""
    values: Sequence[Any] | npt.NDArray[Any]

    def where(self, kept: Bools) -> Part:
        """The kept rows."""
        if kept.all():
            return self
        values = chosen(self.values, np.flatnonzero(kept))
        return Part(self.name, self.kind, self.row[kept], self.offset[kept], values)


class _Strings(dict[bytes, str | None]):
    """Decoded strings by their bytes, so that equal ones are one object; None for invalid UTF-8."""

    def __missing__(self, key: bytes) -> str | None:
        try:
            text = key.decode()
        except UnicodeDecodeError:
            text = None
        self[key] = text
        return text


def _common_attributes(octets: Octets, spans: _Spans) -> tuple[list[Part], Bools]:
    """A part for each name and kind, and the attributes that are left over."""
    parts, left = list[Part](), np.ones(len(spans.row), bool)
    name, value, common = _names_and_values(octets, spans)
    strings = _Strings()
    for group in _groups_by_name(octets, name, value.number, np.flatnonzero(common)):
        lead = group[0]
        if (text := strings[octets.data[name.begin[lead] : name.end[lead]]]) is None:
            continue
        kind = schema.Kind(int(value.number[lead]))
        values: Sequence[Any] | npt.NDArray[Any]
        if kind is schema.Kind.STRING:
            group, values = _string_values(octets.data, value, group, strings)
        else:
            values = value.value[group].astype(_DTYPES.get(kind, np.int64))
        parts.append(Part(text, kind, spans.row[group], spans.begin[group], values))
        left[group] = False
    return parts, left


def _names_and_values(octets: Octets, spans: _Spans) -> tuple[Read, Read, Bools]:
    """Names and values, and the attributes that are a short name and then an integer or string."""
    name = read_fields(octets, spans.begin)
    length = name.end - name.begin
    common = name.usual & (name.number == schema.ATTRIBUTE_NAME) & (name.wire == DELIMITED)
    common &= (length > 0) & (length <= _LONGEST_NAME) & (name.end < spans.end)
    value = read_fields(octets, np.where(common, name.end, spans.begin))
    kind = np.minimum(value.number, _KINDS - 1)
    common &= value.usual & (value.end == spans.end) & (value.wire == _VALUE_WIRES[kind])
    common &= (value.wire == DELIMITED) | ((value.value >= _LEAST[kind]) & (value.value <= _MOST[kind]))
    return name, value, common


def _groups_by_name(octets: Octets, name: Read, kind: Int64s, rows: Int64s) -> Iterator[Int64s]:
    """Rows grouped by name and kind."""
    begin, end = name.begin[rows], name.end[rows]
    length = end - begin
    words = (
        octets.words(begin) & leading(length),
        np.where(length > WORD, octets.words(np.maximum(end - WORD, 0)), np.uint64(0)),
        (length * _KINDS + kind[rows]).view(np.uint64),
    )
    hashes = words[0] * HASH_FACTORS[0] + words[1] * HASH_FACTORS[1] + words[2] * HASH_FACTORS[2]
    for group in _groups_of_equal(hashes):
        exact = np.logical_and.reduce([word[group] == word[group[0]] for word in words])
        yield rows[group if exact.all() else group[exact]]


def _groups_of_equal(numbers: Words) -> Iterator[Int64s]:
    """The indices of each number that is not rare."""
    left = np.arange(len(numbers))
    for _ in range(_ROUNDS):
        if not len(left):
            return
        found = np.unique(numbers[left[:_SAMPLE]])[:_MOST_NAMES]
        codes = np.minimum(np.searchsorted(found, numbers[left]), len(found) - 1)
        codes = np.where(found[codes] == numbers[left], codes, _MOST_NAMES).astype(np.uint8)
        ordered = left[np.argsort(codes, kind="stable")]
        *groups, left = np.split(
            ordered, np.cumsum(np.bincount(codes, minlength=_MOST_NAMES + 1))[: len(found)]
        )
        yield from groups


def _string_values(
    data: bytes, value: Read, group: Int64s, strings: _Strings
) -> tuple[Int64s, list[str | None]]:
    """The rows with valid strings, and these strings."""
    bounds = map(slice, value.begin[group].tolist(), value.end[group].tolist())
    values = list(map(strings.__getitem__, map(data.__getitem__, bounds)))
    if None not in strings.values():
        return group, values
    valid = np.array([string is not None for string in values], bool)
    return group[valid], [string for string in values if string is not None]


# Messages parsed by protobuf: newer fields, rare kinds, and damaged messages.

_ATTRIBUTE_KEY = key(schema.ATTRIBUTE, DELIMITED)
_NamedValue = tuple[str, schema.Kind, Any]


class _ParsedAttributes(Struct):
    """Attributes by name and kind."""

    _columns: dict[tuple[str, schema.Kind], tuple[list[int], list[int], list[Any]]] = field(
        default_factory=dict
    )
    _known: dict[bytes, _NamedValue | None] = field(default_factory=dict)

    def parse(self, row: int, offset: int, body: bytes) -> bool:
        """Adds an attribute of a node; False if it is invalid."""
        if body not in self._known:
            node = _parsed_node(_ATTRIBUTE_KEY + varint(len(body)) + body)
            self._known[body] = _named_value(node.attr[0]) if node else None
        if not (attribute := self._known[body]):
            return False
        self._add(row, offset, attribute)
        return True

    def add(self, row: int, offset: int, attribute: AttributeProto) -> None:
        """Adds a parsed attribute of a node."""
        self._add(row, offset, _named_value(attribute))

    def parts(self) -> list[Part]:
        """The attributes as columns."""
        return [
            Part(name, kind, np.array(rows, np.int64), np.array(offsets, np.int64), values)
            for (name, kind), (rows, offsets, values) in self._columns.items()
        ]

    def _add(self, row: int, offset: int, attribute: _NamedValue) -> None:
        name, kind, value = attribute
        rows, offsets, values = self._columns.setdefault((name, kind), ([], [], []))
        rows.append(row)
        offsets.append(offset)
        values.append(value)


class _ParsedNodes(Struct):
    """Nodes and the rows of their messages."""

    rows: list[int] = field(default_factory=list)
    messages: list[Node] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    attributes: _ParsedAttributes = field(default_factory=_ParsedAttributes)

    def parse(self, row: int, offset: int, body: bytes) -> None:
        """Adds the message at `offset`."""
        if not (node := _parsed_node(body)) or not body:
            self.failed.append(row)
            return
        self.rows.append(row)
        self.messages.append(node)
        for number, attribute in enumerate(node.attr):
            self.attributes.add(row, offset + number, attribute)


def _parsed_node(body: bytes) -> Node | None:
    try:
        return Node.FromString(body)
    except DecodeError:
        return None


def _named_value(attribute: AttributeProto) -> _NamedValue:
    return attribute.name, *schema.kind_and_value(attribute)
