"""The attributes of many nodes, sorted by name: the usual ones as columns, the others by protobuf, each by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelink.converters.chakra.schema import Kind
from tracelink.converters.chakra.table import chosen
from tracelink.events import Bools, Int64s
from tracelink.fields import DELIMITED, VARINT, Read, read_fields
from tracelink.octets import WORD, Octets, Words, leading

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
WIRES = np.full(KINDS, -1)
WIRES[[*RANGES, Kind.STRING]] = [*[VARINT] * len(RANGES), DELIMITED]
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
    usual &= value.usual & (value.end == spans.end) & (value.wire == WIRES[kind])
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
