"""`tracelink._io.json_array`."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.kineto import cpu_op, trace, write
from tracelink._io import json_array as module
from tracelink._io import salvage
from tracelink._io.json_array import ArrayDocument, ArrayFormat, Part, RereadPayloads, at_several_places
from tracelink._io.sources import Request, Source, discover
from tracelink._model.errors import UnreadableError
from tracelink._model.trace import Payload
from tracelink._run.processes import Processes
from tracelink.converters.kineto.reader import KinetoReader

# One long array in a document, read in pieces: nothing lost between them, damage told at its byte.


TEXTS = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass
class Document:
    """Everything that reading a document gives."""

    items: list[Any] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    header: dict[str, Any] = field(default_factory=dict)
    damage: list[tuple[int, bool]] = field(default_factory=list)
    truncated_at: int | None = None
    reason: str = ""
    counted: int = 0


@pytest.fixture(autouse=True)
def small_pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "long_file" not in request.fixturenames:
        monkeypatch.setattr(module, "PIECE", 256)


def source_of(data: bytes) -> Source:
    return Source("list.json", lambda: io.BytesIO(data), len(data))


def as_bytes(text: memoryview) -> list[bytes]:
    return [bytes(raw) for raw in TEXTS.decode(bytes(text))]


def dumped(values: list[Any]) -> list[bytes]:
    return [json.dumps(value, default=str).encode() for value in values]


FORMAT = ArrayFormat("items", ("id", "name"), as_bytes, dumped)


def read(data: bytes, part: Part | None = None) -> Document:
    counted: list[int] = []
    document = ArrayDocument(source_of(data), FORMAT, part or Part())
    result = Document()
    for offset, piece in document.pieces(counted.append):
        result.items += [json.loads(text) for text in piece]
        result.offsets.append(offset)
    result.header = dict(document.header)
    result.damage = [(damage.position, damage.repaired) for damage in document.damage]
    result.truncated_at, result.reason = document.truncated_at, document.truncated_reason
    result.counted = sum(counted)
    return result


def item(number: int) -> dict[str, Any]:
    return {"id": number, "text": "x" * (number * 37 % 150), "list": [{"name": number}, {"name": "],"}]}


ITEMS = [item(number) for number in range(50)]


def whole(items: Sequence[Any] = ITEMS, indent: int | None = None) -> bytes:
    content = {"version": 1, "items": items, "after": {"done": True}, "list": [{"id": 1}, {"id": 2}]}
    return json.dumps(content, indent=indent).encode()


KEYS = {"version": 1, "after": {"done": True}, "list": [{"id": 1}, {"id": 2}]}


@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_whole_document(indent: int | None, compressed: bool) -> None:
    data = whole(indent=indent)
    result = read(gzip.compress(data) if compressed else data)
    assert len(result.offsets) > 5
    assert result == Document(ITEMS, result.offsets, KEYS, counted=len(data))


@pytest.mark.parametrize("items", [[], [item(3)], [{"id": 1, "text": "x" * 5000}, item(4)]])
def test_few_or_long_elements(items: list[Any]) -> None:
    result = read(whole(items))
    assert (result.items, result.header, result.damage, result.truncated_at) == (items, KEYS, [], None)


def test_the_array_alone() -> None:
    result = read(json.dumps(ITEMS).encode())
    assert (result.items, result.header, result.damage, result.truncated_at) == (ITEMS, {}, [], None)


def test_a_header_that_is_longer_than_a_piece() -> None:
    header = {"devices": [{"name": "x" * 90} for _ in range(40)]}
    result = read(json.dumps({**header, "items": ITEMS}).encode())
    assert (result.items, result.header) == (ITEMS, header)


def test_whole_elements_come_back_byte_for_byte_also_the_last() -> None:
    texts = [b'{"id" :%d,  "float": 1.50}' % number for number in range(40)]
    document = ArrayDocument(source_of(b'{"items": [' + b" , ".join(texts) + b"]}"), FORMAT)
    assert [text for _, piece in document.pieces(lambda _: None) for text in piece] == texts


def test_elements_that_begin_in_unusual_ways() -> None:
    items: list[Any] = [
        {"other": 1},
        *ITEMS[:9],
        None,
        5,
        {"name": 2, "l": [{"name": 1}, {"name": 2}]},
        [],
        *ITEMS[9:],
    ]
    result = read(whole(items))
    assert (result.items, result.damage, result.header) == (items, [], KEYS)


@pytest.mark.parametrize("place", [0, 1, 20, 48, 49])
@pytest.mark.parametrize("after", [b'{"id": 1 2}', b"nonsense}", b'{"id": 1, "t": "\xff'])
def test_damage_costs_one_element_and_is_told_at_its_byte(place: int, after: bytes) -> None:
    texts = [json.dumps(one).encode() for one in ITEMS]
    texts[place] = after if after.endswith(b"}") else after + b'" x}'
    data = b'{"items": [' + b", ".join(texts) + b"]}"
    result = read(data)
    assert result.items == [one for number, one in enumerate(ITEMS) if number != place]
    assert result.damage == [(data.index(texts[place]), False)]
    assert result.truncated_at is None


@given(st.integers(0, 20_000))
@settings(max_examples=150)
def test_a_document_cut_anywhere(cut: int) -> None:
    data = whole()
    cut %= len(data)
    if cut <= data.index(b"["):
        with pytest.raises(UnreadableError):
            read(data[:cut])
        return
    result = read(data[:cut])
    assert result.items == ITEMS[: len(result.items)]
    assert cut - result.counted == 0
    assert (result.truncated_at, result.damage) == (cut, [])
    assert result.reason


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "the file is empty"),
        (b" \n ", "the file is empty"),
        (b'{"version": 1', "cut off before 'items'"),
        (b'{"version": 1}', "it has no 'items'"),
        (b'{"items": {}}', "it has no 'items'"),
        (gzip.compress(b'{"items": [1, 2]}', mtime=0)[:10], "the file is empty (the gzip stream is cut off)"),
    ],
)
def test_a_document_without_the_array_says_what_is_wrong(data: bytes, problem: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        read(data)
    assert (caught.value.problem, caught.value.source) == (problem, "list.json")
    assert caught.value.advice


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_parts_hold_together_what_the_whole_holds(count: int) -> None:
    data = whole()
    document = ArrayDocument(source_of(data), FORMAT)
    found = [document.boundary_near(len(data) * number // count) for number in range(1, count)]
    cuts = sorted({offset for offset in found if offset is not None})
    assert all(data[cut : cut + 6] == b'{"id":' for cut in cuts)
    parts = [Part(start, stop) for start, stop in zip([0, *cuts], [*cuts, None], strict=True)]
    results = [read(data, part) for part in parts]
    assert [one for result in results for one in result.items] == ITEMS
    assert [result.truncated_at for result in results] == [None] * len(parts)
    assert results[-1].header == (KEYS if count == 1 else {key: KEYS[key] for key in ("after", "list")})


def test_a_piece_can_be_read_again_from_where_it_began() -> None:
    data = whole()
    first = read(data)
    for offset in first.offsets[1:]:
        again = read(data, Part(offset))
        assert again.items == ITEMS[len(ITEMS) - len(again.items) :]
        assert again.truncated_at is None


@pytest.mark.parametrize("compressed", [False, True])
def test_a_long_piece_of_small_elements_is_read_in_parts(
    monkeypatch: pytest.MonkeyPatch, compressed: bool
) -> None:
    monkeypatch.setattr(salvage, "MOST", 100)
    items: list[Any] = [{}, None, 1] * 1000 + [{"id": 1}] + [{}] * 1000
    data = whole(items)
    stored = gzip.compress(data) if compressed else data
    result = read(stored)
    assert (result.items, result.damage, result.header) == (items, [], KEYS)
    assert len(result.offsets) > len(items) / 120
    document = ArrayDocument(source_of(stored), FORMAT)
    counts = [len(piece) for _, piece in document.pieces(lambda _: None)]
    payloads = RereadPayloads(source_of(stored), FORMAT, result.offsets, counts)
    wanted = [0, 1500, 2999, 3000, 3001, len(items) - 1]
    found = {
        first + place: json.loads(bytes(text))
        for first, texts in payloads.near(np.array(wanted))
        for place, text in enumerate(texts)
    }
    assert [found[number] for number in wanted] == [items[number] for number in wanted]


def test_payloads_of_a_damaged_compressed_file_are_those_of_the_whole() -> None:
    texts = [json.dumps(one).encode() for one in ITEMS]
    texts[7], texts[20] = b'{"id": 7 "x"}', b'{"id": 20, "t": "\xff"}'
    source = source_of(gzip.compress(b'{"items": [' + b", ".join(texts) + b"]}"))
    pieces = list(ArrayDocument(source, FORMAT).pieces(lambda _: None))
    whole_file = [bytes(text) for _, piece in pieces for text in piece]
    payloads = RereadPayloads(source, FORMAT, [at for at, _ in pieces], [len(piece) for _, piece in pieces])
    for number in range(len(whole_file)):
        near = {
            first + place: bytes(text)
            for first, texts in payloads.near(np.array([number]))
            for place, text in enumerate(texts)
        }
        assert near[number] == whole_file[number]


def test_no_boundary_near_the_end() -> None:
    data = whole()
    assert ArrayDocument(source_of(data), FORMAT).boundary_near(len(data) - 5) is None


def test_an_element_is_as_long_as_memory_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST", 16 << 10)
    items = [item(3), {"id": 1, "text": "x" * 8000}, item(4)]
    assert read(whole(items)).items == items


def test_an_element_without_end_is_not_held_in_memory_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST", 4096)
    with pytest.raises(UnreadableError, match="no end of an element"):
        read(b'{"items": [{"id": "' + b"x" * 100_000)


# A few payloads of a long file: found as in the whole, with little else decoded.


EVENTS = 30_000
FAR_APART = [3, 4, 900, 15_000, EVENTS - 1]


@pytest.fixture(scope="module", params=["long.json", "long.json.gz"])
def long_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RereadPayloads:
    """The payloads of a file of several megabytes."""
    data = trace(*(cpu_op("op", number, External_id=number, note="x" * 150) for number in range(EVENTS)))
    assert len(data) > 4 << 20
    path: Path = tmp_path_factory.mktemp("long") / request.param
    write(path, data)
    (source,) = discover(Request([(str(path), "")])).sources
    (payloads,) = KinetoReader().read(source, Processes()).payloads
    assert isinstance(payloads, RereadPayloads)
    return payloads


@pytest.mark.parametrize("wanted", [[], [0], [EVENTS - 1], FAR_APART, list(range(0, EVENTS, 1000))])
def test_those_that_are_asked_for_are_as_in_the_whole(long_file: RereadPayloads, wanted: list[int]) -> None:
    whole = [bytes(text) for _, texts in long_file.batches() for text in texts]
    near = {
        first + place: bytes(text)
        for first, texts in long_file.near(np.array(wanted, np.int64))
        for place, text in enumerate(texts)
    }
    assert {number: near[number] for number in wanted} == {number: whole[number] for number in wanted}
    assert near.items() <= dict(enumerate(whole)).items()


def test_pieces_between_them_are_not_decoded(long_file: RereadPayloads) -> None:
    decoded: list[int] = []

    def decode(text: memoryview) -> list[Payload]:
        decoded.append(len(text))
        return long_file.format.decode(text)

    watched = replace(long_file, format=replace(long_file.format, decode=decode))
    assert list(watched.near(np.array([10, EVENTS - 10])))
    assert len(decoded) <= 2 < len(long_file.counts)


# Payloads that are read at several places in turn.


@settings(max_examples=25, deadline=None)
@given(ranges=st.lists(st.tuples(st.integers(0, EVENTS), st.integers(0, 9000)), max_size=12))
def test_every_range_is_as_in_the_whole_whatever_was_read_before(
    long_file: RereadPayloads, ranges: list[tuple[int, int]]
) -> None:
    whole = [bytes(text) for _, texts in long_file.batches() for text in texts]
    payloads = at_several_places(long_file)
    for first, count in ranges:
        found = list(payloads.batches(first, first + count))
        assert [start for start, _ in found] == [
            first + sum(len(texts) for _, texts in found[:number]) for number in range(len(found))
        ]
        assert [bytes(text) for _, texts in found for text in texts] == whole[first : first + count]


def test_places_that_are_read_in_turn_are_decoded_once(long_file: RereadPayloads) -> None:
    decoded: list[int] = []

    def decode(text: memoryview) -> list[Payload]:
        decoded.append(len(text))
        return long_file.format.decode(text)

    payloads = at_several_places(replace(long_file, format=replace(long_file.format, decode=decode)))
    half = EVENTS // 2
    for first in range(0, half, 1000):
        assert list(payloads.batches(first, first + 1000))
        assert list(payloads.batches(half + first, half + first + 1000))
    read_again = 2 if long_file.plain else len(long_file.counts) // 2
    assert len(decoded) <= len(long_file.counts) + read_again


def test_child_processes_open_files_of_their_own(long_file: RereadPayloads) -> None:
    payloads = at_several_places(long_file)
    whole = [bytes(text) for _, texts in long_file.batches() for text in texts]
    assert list(payloads.batches(0, 10))

    def digest(part: int) -> bytes:
        low = part * EVENTS // 4
        return b"".join(
            bytes(text) for _, texts in payloads.batches(low, low + EVENTS // 4) for text in texts
        )

    expected = [b"".join(whole[part * EVENTS // 4 : (part + 1) * EVENTS // 4]) for part in range(4)]
    assert Processes(2).map(digest, range(4)) == expected
