"""`tracelink._io.protobuf`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink._io.framing import DELIMITED, FIXED32, FIXED64, VARINT, delimited, key, varint
from tracelink._io.protobuf import FEW, MANY, Fields, Octets, split, split_all

NUMBERS = st.sampled_from([1, 4, 15, 16, 47, 1999, 2048, (1 << 29) - 1])
VALUES = st.one_of(
    st.tuples(st.just(VARINT), st.integers(0, (1 << 64) - 1) | st.integers(0, 300)),
    st.tuples(st.just(DELIMITED), st.binary(max_size=200)),
    st.tuples(st.just(FIXED64), st.binary(min_size=8, max_size=8)),
    st.tuples(st.just(FIXED32), st.binary(min_size=4, max_size=4)),
)
MESSAGES = st.lists(st.lists(st.tuples(NUMBERS, VALUES), max_size=5), max_size=2 * FEW)
Field = tuple[int, tuple[int, int | bytes]]


def encoded(message: list[Field]) -> bytes:
    return b"".join(
        key(number, wire) + (varint(value) if isinstance(value, int) else value)
        if wire != DELIMITED
        else delimited(number, bytes(value))  # type: ignore[arg-type]
        for number, (wire, value) in message
    )


def fields_of(*messages: bytes) -> tuple[Octets, Fields]:
    ends = np.cumsum([0, *map(len, messages)])
    octets = Octets(b"".join(messages))
    return octets, split_all(octets, ends[:-1], ends[1:])


def told(octets: Octets, fields: Fields, row: int) -> list[Field]:
    read = fields.read.where(np.flatnonzero(fields.owner == row))
    read = read.where(np.argsort(read.begin))
    found: list[Field] = []
    for number, wire, begin, end, value in zip(*(column.tolist() for column in read[:5]), strict=True):
        said = value & (1 << 64) - 1 if wire == VARINT else octets.data[begin:end]
        found.append((number, (wire, said)))
    return found


@given(MESSAGES)
def test_every_field(messages: list[list[Field]]) -> None:
    octets, fields = fields_of(*map(encoded, messages))
    assert [told(octets, fields, row) for row in range(len(messages))] == messages
    assert not fields.odd.any()


@pytest.mark.parametrize("count", [1, 2 * FEW])
def test_more_fields_than_most_messages_have(count: int) -> None:
    message: list[Field] = [(1, (VARINT, number)) for number in range(2 * MANY)]
    octets, fields = fields_of(*[encoded(message)] * count)
    assert all(told(octets, fields, row) == message for row in range(count))


@pytest.mark.parametrize("count", [1, 2 * FEW])
@pytest.mark.parametrize(
    "damage",
    [
        b"\x80",
        b"\x08",
        b"\x0a\x05abc",
        b"\x0b",
        b"\x00\x01",
        b"\x09\x01",
        b"\x0a" + b"\xff" * 9 + b"\x01",
        b"\xff" * 12,
    ],
)
def test_of_a_damaged_message_what_stands_before_the_damage(damage: bytes, count: int) -> None:
    whole: list[Field] = [(1, (VARINT, 5)), (2, (DELIMITED, b"x"))]
    octets, fields = fields_of(*[encoded(whole) + damage, encoded(whole)] * count)
    assert all(told(octets, fields, row) == whole for row in range(2 * count))
    assert fields.odd.tolist() == [True, False] * count


@given(st.lists(st.binary(max_size=30), max_size=2 * FEW))
def test_whatever_bytes_there_are(messages: list[bytes]) -> None:
    """No field lies outside of its message."""
    _, fields = fields_of(*messages)
    ends = np.cumsum([0, *map(len, messages)])
    assert (fields.read.begin >= ends[fields.owner]).all()
    assert (fields.read.end <= ends[fields.owner + 1]).all()


@pytest.mark.parametrize("number", [1, 15, 16, 2047, 2048, 3000, (1 << 18) - 1, 1 << 18])
@pytest.mark.parametrize("value", [0, 127, 128, (1 << 35) - 1, 1 << 35, (1 << 64) - 1])
def test_fields_with_tags_of_up_to_three_bytes_are_read_in_columns(number: int, value: int) -> None:
    message = key(number, VARINT) + varint(value) + delimited(number, b"x" * 200)
    data = message * 20
    begins = np.arange(20) * len(message)
    fields = split(Octets(data), begins, begins + len(message))
    assert fields.odd.all() == (number >= 1 << 18)
    if not fields.odd.any():
        assert fields.read.number.tolist() == [number] * 40
        assert fields.read.value[:20].view(np.uint64).tolist() == [value] * 20
