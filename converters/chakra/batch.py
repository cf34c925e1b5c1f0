"""Usual nodes a batch at a time, the others by protobuf."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from tracelink.converters.chakra.chakra_pb2 import AttributeProto, Node
from tracelink.converters.chakra.schema import (
    ATTRIBUTE,
    CONTROL,
    DATA,
    DURATION,
    ID,
    INPUTS,
    NAME,
    OUTPUTS,
    START,
    TYPE,
    Kind,
    kind_and_value,
)
from tracelink.converters.chakra.table import Links, chosen, signed
from tracelink.io.framing import DELIMITED, VARINT, varint
from tracelink.io.protobuf import WORD, Octets, Read, Words, leading, read_fields, split
from tracelink.model.columns import Bools, Int64s

# The attributes of many nodes, sorted by name: the usual ones as columns, the others by protobuf, each by itself.


LONGEST_NAME = 2 * WORD
"""A name of so many bytes is known by its first word and its last."""
SAMPLE, NAMES, ROUNDS = 1024, 128, 8
"""Attributes whose names are looked for at a time, names of them at most, and times; the rest is judged by protobuf."""
MIXED = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
"""Odd factors that make one number of three."""

FULL = np.iinfo(np.int64)
RANGES = {
    Kind.INT32: (-(1 << 31), (1 << 31) - 1),
    Kind.UINT32: (0, (1 << 32) - 1),
    Kind.BOOL: (FULL.min, FULL.max),
    Kind.INT64: (FULL.min, FULL.max),
    Kind.UINT64: (FULL.min, FULL.max),
}
"""The kinds that are one varint, and what can be said of it as of a signed number."""
TYPES: Mapping[Kind, npt.DTypeLike] = {Kind.BOOL: np.bool_, Kind.UINT64: np.uint64}
KINDS = 1 << 11
"""A tag of two bytes says no larger number."""
WIRES_BATCH_ATTRIBUTES = np.full(KINDS, -1)
WIRES_BATCH_ATTRIBUTES[[*RANGES, Kind.STRING]] = [*[VARINT] * len(RANGES), DELIMITED]
LEAST, MOST = np.ones(KINDS, np.int64), np.zeros(KINDS, np.int64)
for _kind, (_least, _most) in RANGES.items():
    LEAST[_kind], MOST[_kind] = _least, _most


@dataclass(frozen=True, slots=True)
class Spans:
    """The attributes of nodes: of which node each is, and where it lies."""

    row: Int64s
    begin: Int64s
    end: Int64s

    def where(self, chosen: Bools) -> Spans:
        """Some of them."""
        return Spans(self.row[chosen], self.begin[chosen], self.end[chosen])

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """One after the other."""
        return zip(self.row.tolist(), self.begin.tolist(), self.end.tolist(), strict=True)


@dataclass(frozen=True, slots=True)
class Part:
    """Attributes of one name and one kind."""

    name: str
    kind: Kind
    row: Int64s
    place: Int64s
    """By which attributes keep their order."""
    values: Sequence[Any] | npt.NDArray[Any]

    def where(self, kept: Bools) -> Part:
        """Some of them."""
        return (
            self
            if kept.all()
            else Part(
                self.name,
                self.kind,
                self.row[kept],
                self.place[kept],
                chosen(self.values, np.flatnonzero(kept)),
            )
        )


class _Texts(dict[bytes, str | None]):
    """Texts by their bytes, so that those that are alike are one; None for what is no text."""

    def __missing__(self, key: bytes) -> str | None:
        try:
            text = key.decode()
        except UnicodeDecodeError:
            text = None
        self[key] = text
        return text


def usual_attributes(octets: Octets, spans: Spans) -> tuple[list[Part], Bools]:
    """A part for each name and kind, and which attributes stand in none of them."""
    parts, left = list[Part](), np.ones(len(spans.row), bool)
    name, value, usual = _named(octets, spans)
    texts = _Texts()
    for group in _alike(octets, name, value.number, np.flatnonzero(usual)):
        lead = group[0]
        if (text := texts[octets.data[name.begin[lead] : name.end[lead]]]) is None:
            continue
        kind = Kind(int(value.number[lead]))
        values: Sequence[Any] | npt.NDArray[Any]
        if kind is Kind.STRING:
            group, values = _texts(octets.data, value, group, texts)
        else:
            values = value.value[group].astype(TYPES.get(kind, np.int64))
        parts.append(Part(text, kind, spans.row[group], spans.begin[group], values))
        left[group] = False
    return parts, left


def _named(octets: Octets, spans: Spans) -> tuple[Read, Read, Bools]:
    """Names and values, and which attributes are a short name and then a number or text that feeders take."""
    name = read_fields(octets, spans.begin)
    length = name.end - name.begin
    usual = name.usual & (name.number == 1) & (name.wire == DELIMITED)
    usual &= (length > 0) & (length <= LONGEST_NAME) & (name.end < spans.end)
    value = read_fields(octets, np.where(usual, name.end, spans.begin))
    kind = value.number
    usual &= value.usual & (value.end == spans.end) & (value.wire == WIRES_BATCH_ATTRIBUTES[kind])
    usual &= (value.wire == DELIMITED) | ((value.value >= LEAST[kind]) & (value.value <= MOST[kind]))
    return name, value, usual


def _alike(octets: Octets, name: Read, kind: Int64s, rows: Int64s) -> Iterator[Int64s]:
    """Groups of one name and one kind."""
    begin, end = name.begin[rows], name.end[rows]
    length = end - begin
    marks = (
        octets.words(begin) & leading(length),
        np.where(length > WORD, octets.words(np.maximum(end - WORD, 0)), np.uint64(0)),
        (length * KINDS + kind[rows]).view(np.uint64),
    )
    mixed = marks[0] * MIXED[0] + marks[1] * MIXED[1] + marks[2] * MIXED[2]
    for group in _equal(mixed):
        exact = np.logical_and.reduce([mark[group] == mark[group[0]] for mark in marks])
        yield rows[group if exact.all() else group[exact]]


def _equal(numbers: Words) -> Iterator[Int64s]:
    """Where each of the numbers is that are not rare."""
    left = np.arange(len(numbers))
    for _ in range(ROUNDS):
        if not len(left):
            return
        found = np.unique(numbers[left[:SAMPLE]])[:NAMES]
        codes = np.minimum(np.searchsorted(found, numbers[left]), len(found) - 1)
        codes = np.where(found[codes] == numbers[left], codes, NAMES).astype(np.uint8)
        ordered = left[np.argsort(codes, kind="stable")]
        *groups, left = np.split(ordered, np.cumsum(np.bincount(codes, minlength=NAMES + 1))[: len(found)])
        yield from groups


def _texts(data: bytes, value: Read, group: Int64s, texts: _Texts) -> tuple[Int64s, list[str | None]]:
    """What is said, of those whose bytes are a text."""
    bounds = map(slice, value.begin[group].tolist(), value.end[group].tolist())
    values = list(map(texts.__getitem__, map(data.__getitem__, bounds)))
    if None not in texts.values():
        return group, values
    sound = np.array([text is not None for text in values], bool)
    return group[sound], [text for text in values if text is not None]


# Nodes and attributes that only protobuf understands: newer fields, rare kinds, and what is damaged.


ATTRIBUTE_TAG = b"\x52"

Said = tuple[str, Kind, Any]


@dataclass(slots=True)
class JudgedAttributes:
    """Attributes by name and kind."""

    _columns: dict[tuple[str, Kind], tuple[list[int], list[int], list[Any]]] = field(default_factory=dict)
    _known: dict[bytes, Said | None] = field(default_factory=dict)

    def read(self, row: int, place: int, body: bytes) -> bool:
        """Keeps an attribute of a node, and says whether it is one."""
        if body not in self._known:
            node = message_of(ATTRIBUTE_TAG + varint(len(body)) + body)
            self._known[body] = _said(node.attr[0]) if node else None
        if not (said := self._known[body]):
            return False
        self._keep(row, place, said)
        return True

    def keep(self, row: int, place: int, attribute: AttributeProto) -> None:
        """Keeps an attribute of a node; `place` is its order among those of the node."""
        self._keep(row, place, _said(attribute))

    def parts(self) -> list[Part]:
        """What was kept."""
        return [
            Part(name, kind, np.array(rows, np.int64), np.array(places, np.int64), values)
            for (name, kind), (rows, places, values) in self._columns.items()
        ]

    def _keep(self, row: int, place: int, said: Said) -> None:
        name, kind, value = said
        column = self._columns.setdefault((name, kind), ([], [], []))
        for values, one in zip(column, (row, place, value), strict=True):
            values.append(one)


@dataclass(slots=True)
class JudgedNodes:
    """Nodes, one row each."""

    rows: list[int] = field(default_factory=list)
    messages: list[Node] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    attributes: JudgedAttributes = field(default_factory=JudgedAttributes)

    def read(self, row: int, place: int, body: bytes) -> None:
        """Reads the message that is row `row`; its attributes are in order behind `place`."""
        if not (node := message_of(body)) or not body:
            self.failed.append(row)
            return
        self.rows.append(row)
        self.messages.append(node)
        for number, attribute in enumerate(node.attr):
            self.attributes.keep(row, place + number, attribute)


def message_of(body: bytes) -> Node | None:
    """The bytes as a node, where they are one."""
    try:
        return Node.FromString(body)
    except DecodeError:
        return None


def _said(attribute: AttributeProto) -> Said:
    return attribute.name, *kind_and_value(attribute)


# The nodes of a batch of messages, as columns: the usual ones together, the others by protobuf, each by itself.


NUMBERS, LISTS, TENSORS = (ID, TYPE, START, DURATION), (CONTROL, DATA), (INPUTS, OUTPUTS)
WIRES = np.full(ATTRIBUTE + 1, VARINT)
WIRES[[NAME, *LISTS, *TENSORS, ATTRIBUTE]] = DELIMITED
TENSOR_FIELDS = 3
LARGEST_TYPE = 255
INT32 = 1 << 31


@dataclass(frozen=True, slots=True)
class Lists:
    """Ids, and the row of the node that states each."""

    owner: Int64s
    ids: Int64s

    def replaced(self, kept: Bools, rows: Int64s, links: Links) -> Lists:
        """With what `links` say of some rows; of the others what `kept` keeps."""
        chosen = kept[self.owner]
        owner = np.concatenate([self.owner[chosen], rows[links.owners]])
        order = np.argsort(owner, kind="stable")
        return Lists(owner[order], np.concatenate([self.ids[chosen], links.ids])[order])


@dataclass(frozen=True, slots=True)
class Nodes:
    """A row for each message, and which of them are nodes."""

    good: Bools
    numbers: dict[int, Int64s]
    """By field."""
    names: list[bytes]
    lists: dict[int, Lists]
    parts: list[Part]


def nodes_of(data: bytes, begins: Sequence[int], ends: Sequence[int]) -> Nodes:
    """The messages that lie at these places."""
    batch = _Batch(data, begins, ends)
    numbers, names = batch.numbers(), batch.names()
    lists = {number: batch.ids(number) for number in LISTS}
    batch.check_tensors()
    parts = batch.attributes()
    nodes = Nodes(np.ones(len(names), bool), numbers, names, lists, parts)
    return _completed(nodes, batch.judged(), ~batch.odd) if batch.odd.any() else nodes


class _Batch:
    """Messages as fields, and which messages are to be judged by protobuf."""

    def __init__(self, data: bytes, begins: Sequence[int], ends: Sequence[int]) -> None:
        self.data, self.begins, self.ends = data, begins, ends
        self.octets = Octets(data)
        first, last = np.array(begins, np.int64), np.array(ends, np.int64)
        self.fields = split(self.octets, first, last)
        self.odd = self.fields.odd | (first == last)
        read = self.fields.read
        other = (read.number <= ATTRIBUTE) & (read.wire != WIRES[np.minimum(read.number, ATTRIBUTE)])
        self.odd[self.fields.owner[other]] = True

    def numbers(self) -> dict[int, Int64s]:
        """The fields that are one number; of one that is there twice the last counts."""
        columns = {}
        for number in NUMBERS:
            owner, read = self.fields.of(number)
            columns[number] = np.zeros(len(self.begins), np.int64)
            columns[number][owner] = read.value
        types = columns[TYPE]
        self.odd |= (types < 0) | (types >= INT32)
        np.clip(types, 0, LARGEST_TYPE, out=types)
        return columns

    def names(self) -> list[bytes]:
        """The bytes of each name."""
        owner, read = self.fields.of(NAME)
        self.odd |= np.bincount(owner, minlength=len(self.odd)) > 1
        names = [b""] * len(self.begins)
        for row, name in zip(owner.tolist(), self._bytes(read), strict=True):
            names[row] = name
        if no_texts := {name for name in set(names) if not _is_text(name)}:
            self.odd |= np.array([name in no_texts for name in names], bool)
        return names

    def ids(self, number: int) -> Lists:
        """The ids of a field of packed numbers."""
        owner, read = self.fields.of(number)
        length = read.end - read.begin
        filled = length > 0
        first = np.cumsum(length) - length
        inner = np.repeat(read.begin - first, length) + np.arange(int(length.sum()))
        of = np.repeat(owner, length)
        begins = np.append(True, self.octets.at(inner) < 0x80)[:-1]
        begins[first[filled]] = True
        ids, width = self.octets.varints(inner[begins])
        self.odd[of[begins][width == 0]] = True
        self.odd[owner[filled][self.octets.at(read.end[filled] - 1) >= 0x80]] = True
        return Lists(of[begins], ids)

    def check_tensors(self) -> None:
        """Inputs and outputs are not kept, but have to be what they say."""
        for number in TENSORS:
            owner, read = self.fields.of(number)
            inside = split(self.octets, read.begin, read.end)
            self.odd[owner[inside.odd]] = True
            told = inside.read
            known = told.number <= TENSOR_FIELDS
            self.odd[owner[inside.owner[known & (told.wire != DELIMITED)]]] = True
            doubtful = np.flatnonzero(known & ~self.octets.ascii(told.begin, told.end))
            texts = self._bytes(inside.read.where(doubtful))
            sound = np.fromiter(map(_is_text, texts), bool, len(doubtful))
            self.odd[owner[inside.owner[doubtful[~sound]]]] = True

    def _bytes(self, read: Read) -> Iterator[bytes]:
        """The values of fields."""
        return map(self.data.__getitem__, map(slice, read.begin.tolist(), read.end.tolist()))

    def attributes(self) -> list[Part]:
        """The attributes of the nodes that are not to be judged by protobuf."""
        owner, read = self.fields.of(ATTRIBUTE)
        spans = Spans(owner, read.begin, read.end)
        if self.odd.any():
            spans = spans.where(~self.odd[owner])
        parts, left = usual_attributes(self.octets, spans)
        others, data = JudgedAttributes(), self.data
        for row, begin, end in spans.where(left).rows():
            if not others.read(row, begin, data[begin:end]):
                self.odd[row] = True
        return [*parts, *others.parts()]

    def judged(self) -> JudgedNodes:
        """The messages that have to be judged by protobuf."""
        judged = JudgedNodes()
        for row in np.flatnonzero(self.odd).tolist():
            begin = self.begins[row]
            judged.read(row, begin, self.data[begin : self.ends[row]])
        return judged


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _completed(nodes: Nodes, judged: JudgedNodes, usual: Bools) -> Nodes:
    """With the messages that protobuf had to judge in place of what was made of them."""
    rows, messages = np.array(judged.rows, np.int64), judged.messages
    nodes.good[judged.failed] = False
    nodes.numbers[ID][rows] = signed([node.id for node in messages])
    nodes.numbers[TYPE][rows] = [min(max(node.type, 0), LARGEST_TYPE) for node in messages]
    nodes.numbers[START][rows] = signed([node.start_time_micros for node in messages])
    nodes.numbers[DURATION][rows] = signed([node.duration_micros for node in messages])
    for row, node in zip(judged.rows, messages, strict=True):
        nodes.names[row] = node.name.encode()
    stated = {CONTROL: [node.ctrl_deps for node in messages], DATA: [node.data_deps for node in messages]}
    lists = {
        number: nodes.lists[number].replaced(usual, rows, Links.of(ids)) for number, ids in stated.items()
    }
    parts = [part.where(usual[part.row]) for part in nodes.parts]
    return replace(nodes, lists=lists, parts=[*parts, *judged.attributes.parts()])
