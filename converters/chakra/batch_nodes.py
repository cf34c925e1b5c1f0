"""The nodes of a batch of messages, as columns: the usual ones together, the others by protobuf, each by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracelink.converters.chakra.batch_attributes import Part, Spans, usual_attributes
from tracelink.converters.chakra.judged import JudgedAttributes, JudgedNodes
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
)
from tracelink.converters.chakra.table import Links, signed
from tracelink.events import Bools, Int64s
from tracelink.fields import DELIMITED, VARINT, Read, split
from tracelink.octets import Octets

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
