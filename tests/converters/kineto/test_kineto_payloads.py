"""Every event gives its own arguments back, byte for byte, for as long as the file is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders.data import shared
from builders.kineto import cpu_op, metadata, payloads, read, reasons, slice_, trace, with_texts, write
from tracelink.converters.kineto import KinetoReader
from tracelink.engine import Engine
from tracelink.io.sources import Request, discover

LAST = '{"ph": "X", "name": "last", "pid": 1, "tid": 1, "ts": 9, "dur": 1}'
ARGUMENTS = [
    '{"External id": 5, "Input Dims": [[2, 3], []], "Ev Idx": 0}',
    '{"Comms Id":18446744073709551615,  "note" : "a \\"quoted\\" text, }, {"}',
    '{"est. achieved occupancy %": 30.500, "tiny": 1.0e-300, "empty": ""}',
    "{}",
    '{"nested": {"list": [{"ph": 1}, {"name": null}]}, "text": "\\u00e9 é"}',
]


def event(arguments: str) -> str:
    return f'{{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": {arguments}}}'


def test_the_bytes_of_the_file() -> None:
    result = read(with_texts(*map(event, ARGUMENTS), LAST))
    texts = dict(payloads(result))
    assert [texts[number].decode() for number in result.events.payload.tolist()[:-1]] == ARGUMENTS
    assert reasons(result) == {}


def test_an_event_without_arguments_has_an_empty_payload() -> None:
    result = read(trace(cpu_op("one"), cpu_op("two", External_id=3), cpu_op("three")))
    assert list(payloads(result)) == [(0, b""), (1, b'{"External id":3}'), (2, b"")]


def test_events_know_their_payload_among_elements_that_are_no_events() -> None:
    result = read(trace(metadata("process_name", name="python"), cpu_op("op", External_id=7), cpu_op()))
    assert result.events.payload.tolist() == [1, 2]
    assert dict(payloads(result))[1] == b'{"External id":7}'


NUMBERED = [f'{{"External id": {number},   "text": "{"x" * (number % 300)}"}}' for number in range(12_000)]


@pytest.fixture(scope="module")
def long_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = with_texts(*map(event, NUMBERED), LAST)
    assert len(data) > 3 << 20
    return write(tmp_path_factory.mktemp("long") / "long.json", data)


@pytest.mark.parametrize(
    ("first", "last"),
    [(0, None), (0, 1), (5, 5), (4000, 4003), (3999, 11_000), (11_999, None), (50_000, None)],
)
def test_runs_of_a_file_of_many_pieces(long_file: Path, first: int, last: int | None) -> None:
    (source,) = discover(Request([(str(long_file), "")])).sources
    result = KinetoReader().read(source, Engine())
    expected = list(enumerate([*NUMBERED, ""]))[first:last]
    assert [(number, text.decode()) for number, text in payloads(result, first, last)] == expected


def test_a_compressed_file_gives_the_same(tmp_path: Path, long_file: Path) -> None:
    (source,) = discover(Request([(str(write(tmp_path / "a.json.gz", long_file.read_bytes())), "")])).sources
    result = KinetoReader().read(source, Engine())
    assert [text.decode() for _, text in payloads(result, 9000, 9010)] == NUMBERED[9000:9010]


@pytest.mark.parametrize("place", [0, 5, 6000, 11_998, 11_999])
@pytest.mark.parametrize("damage", [b"nonsense!", b'"open text', b"}}}]]]"])
def test_payloads_stay_with_their_events_around_damage(place: int, damage: bytes) -> None:
    texts = [event(arguments).encode() for arguments in NUMBERED]
    texts[place] = texts[place].replace(b', "cat"', damage + b', "cat"')
    result = read(b'{"traceEvents": [' + b", ".join([*texts, LAST.encode()]) + b"]}")
    kept = [number for number in range(len(NUMBERED)) if number != place]
    of_event = dict(payloads(result))
    given = [of_event[number].decode() for number in result.events.payload.tolist()]
    assert [json.loads(text) if text else None for text in given] == [
        *(json.loads(NUMBERED[number]) for number in kept),
        None,
    ]
    assert set(reasons(result)) <= {"damaged", "not_an_event"}
    far = [
        (text, NUMBERED[number])
        for text, number in zip(given, kept, strict=False)
        if abs(number - place) > 8000
    ]
    assert all(text == recorded for text, recorded in far)


def test_arguments_that_only_a_lenient_parser_reads_are_given_as_plain_json() -> None:
    result = read(with_texts(event('{"a": NaN, "b": 1.50, "c": 7, "d": 1E+400, "e": Infinity}'), LAST))
    assert json.loads(dict(payloads(result))[0]) == {"a": None, "b": 1.5, "c": 7, "d": "1E+400", "e": None}


@pytest.mark.parametrize("arguments", ["null", "[]", '"text"', "5"])
def test_arguments_that_are_no_object_harm_nothing(arguments: str) -> None:
    result = read(
        with_texts(event('{"External id": 1}'), event(arguments), event('{"External id": 2}'), LAST)
    )
    texts = [text for _, text in payloads(result)]
    assert [json.loads(text) for text in (texts[0], texts[2])] == [{"External id": 1}, {"External id": 2}]
    assert reasons(result) == {}


def test_real_payloads_are_those_of_the_file() -> None:
    path = shared("kineto/pair_rank0.json.gz")
    (source,) = discover(Request([(str(path), "")])).sources
    result = KinetoReader().read(source, Engine())
    with source.open() as stream:
        elements = json.loads(stream.read_all(1 << 30))["traceEvents"]
    texts = dict(payloads(result))
    assert len(texts) == len(elements)
    assert [json.loads(texts[number] or b"null") for number in range(len(texts))] == [
        element.get("args") for element in elements
    ]


def test_a_slice_in_two_halves_has_the_arguments_of_its_begin() -> None:
    begin = {**slice_("cpu_op", "op", 1, External_id=5), "ph": "B"}
    end = {**slice_("cpu_op", "op", 3, External_id=6), "ph": "E"}
    result = read(trace(cpu_op("before"), begin, end, cpu_op("after", 9)))
    assert [dict(payloads(result))[number] for number in result.events.payload.tolist()] == [
        b"",
        b'{"External id":5}',
        b"",
    ]
