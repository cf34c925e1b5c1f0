"""Protobuf's wire format, one message at a time, and messages that follow one another in a file."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink._io.framing import (
    CHUNK,
    DELIMITED,
    FIXED32,
    FIXED64,
    LONGEST_MESSAGE,
    VARINT,
    VARINT_BYTES,
    Field,
    Framing,
    FramingError,
    delimited,
    fields_of,
    framed,
    key,
    length_at,
    varint,
    varint_at,
)

FRAMINGS = [Framing("message"), Framing("packet", b"\n")]
BODIES = st.lists(st.binary(max_size=300) | st.integers(0, 5).map(lambda n: bytes(n << 13)), max_size=8)
UNSIGNED = st.integers(0, 300) | st.integers(0, 2**64 - 1)


@given(st.binary(max_size=3), UNSIGNED, st.binary(max_size=3))
def test_a_number_is_read_where_it_was_written(before: bytes, number: int, after: bytes) -> None:
    data = before + varint(number) + after
    value, end = varint_at(data, len(before), len(data))
    assert (value % 2**64, data[end:]) == (number, after)
    assert -(2**63) <= value < 2**63


@given(UNSIGNED)
def test_a_number_that_does_not_end_in_time_is_invalid(number: int) -> None:
    data = varint(number)
    assert [varint_at(data, 0, end) for end in range(len(data))] == [(0, 0)] * len(data)
    assert varint_at(b"\x80" * VARINT_BYTES + b"\x01", 0) == (0, 0)


def test_fields_of_every_wire_type() -> None:
    data = (
        key(1, VARINT)
        + varint(300)
        + key(2, FIXED64)
        + bytes(8)
        + delimited(3, b"abc")
        + key(4, FIXED32)
        + bytes(4)
    )
    assert list(fields_of(data, 0, len(data))) == [
        Field(1, VARINT, 1, 3, 300),
        Field(2, FIXED64, 4, 12, 0),
        Field(3, DELIMITED, 14, 17, 3),
        Field(4, FIXED32, 18, 22, 0),
    ]


@pytest.mark.parametrize(
    "damaged",
    [
        key(2, VARINT),
        key(2, VARINT) + b"\xff" * 11,
        key(2, FIXED32) + bytes(3),
        delimited(2, b"abc")[:-1],
        key(2, DELIMITED) + varint(2**64 - 1),
        key(0, VARINT) + b"\x01",
        key(2, 3),
        key(1 << 29, VARINT) + b"\x01",
    ],
)
def test_a_damaged_message_ends_with_none(damaged: bytes) -> None:
    data = key(1, VARINT) + b"\x05" + damaged
    assert list(fields_of(data, 0, len(data))) == [Field(1, VARINT, 1, 2, 5), None]


def test_a_length_is_truncated_valid_or_too_long() -> None:
    assert length_at(b"\x80\x80", 0) is None
    assert length_at(varint(LONGEST_MESSAGE), 0) == (LONGEST_MESSAGE, 5)
    found = length_at(b"\x80" * 5 + b"\x01", 0)
    assert found
    assert found[0] > LONGEST_MESSAGE


@pytest.mark.parametrize("framing", FRAMINGS)
@given(bodies=BODIES, offset=st.integers(0, 1000), cut=st.integers(0, 2000), most=st.integers(1, 700))
def test_every_message_is_read_and_a_truncated_one_is_an_error(
    framing: Framing, bodies: list[bytes], offset: int, cut: int, most: int
) -> None:
    bodies = [body for body in bodies if body or not framing.mark]
    parts = [framing.mark + framed(body) for body in bodies]
    whole = b"".join(parts)
    data = whole[: max(len(whole) - cut, 0)]
    stream, found, places = io.BytesIO(data), list[bytes](), list[int]()
    error = None
    try:
        for batch in framing.batches(lambda size: stream.read(min(size, most)), offset):
            found += [batch.data[begin:end] for begin, end in zip(batch.begins, batch.ends, strict=True)]
            places += batch.offsets
    except FramingError as caught:
        error = caught
    starts = [offset + sum(map(len, parts[:number])) for number in range(len(parts) + 1)]
    assert found == bodies[: len(found)]
    assert places == starts[: len(found)]
    if starts[len(found)] == offset + len(data):
        assert error is None
    else:
        assert error
        assert (str(error), error.offset) == (
            f"the file ends within the {framing.noun} at byte {starts[len(found)]:,}",
            starts[len(found)],
        )


@pytest.mark.parametrize("framing", FRAMINGS)
def test_borders_of_batches_depend_on_the_first_offset_only(framing: Framing) -> None:
    data = (framing.mark + framed(bytes(1000))) * (2 * CHUNK // 1000)
    batches = list(framing.batches(io.BytesIO(data).read))
    assert len(batches) > 1
    again = list(framing.batches(io.BytesIO(data[batches[1].offset :]).read, batches[1].offset))
    assert again == batches[1:]


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("length", [b"\x80" * 5 + b"\x01", varint(LONGEST_MESSAGE + 1)])
def test_messages_before_an_invalid_length_are_used(framing: Framing, length: bytes) -> None:
    first = framing.mark + framed(b"first")
    batches = framing.batches(io.BytesIO(first + framing.mark + length + bytes(20)).read)
    assert next(batches).ends == [len(first)]
    with pytest.raises(FramingError) as caught:
        next(batches)
    text = f"the length of the {framing.noun} at byte {len(first)} is invalid: more than 512 MiB"
    assert (str(caught.value), caught.value.offset) == (text, len(first))


def test_a_packet_begins_with_its_mark() -> None:
    with pytest.raises(FramingError, match=r"^there is no packet at byte 0$"):
        list(FRAMINGS[1].batches(io.BytesIO(b"abc").read))


@pytest.mark.parametrize("count", [1, 2, CHUNK // 2, 2 * CHUNK])
def test_empty_messages_with_a_mark_in_a_row_are_one_per_chunk(count: int) -> None:
    framing = FRAMINGS[1]
    empty, message = framing.mark + framed(b""), framing.mark + framed(b"x")
    batches = list(framing.batches(io.BytesIO(message + empty * count + message).read))
    bodies = [
        batch.data[begin:end]
        for batch in batches
        for begin, end in zip(batch.begins, batch.ends, strict=True)
    ]
    assert bodies == [b"x", *[b""] * (len(bodies) - 2), b"x"]
    assert 1 <= len(bodies) - 2 <= len(batches)
    (batch,) = FRAMINGS[0].batches(io.BytesIO(framed(b"") * 5).read)
    assert len(batch.ends) == 5


def test_at_most_so_many_messages_are_split() -> None:
    batch, error = FRAMINGS[0].split(0, framed(b"x") * 5, 3)
    assert (batch.ends, error) == ([2, 4, 6], None)


def test_neither_numpy_nor_protobuf_is_imported() -> None:
    program = (
        "import sys, tracelink._io.framing; print({'numpy', 'google.protobuf', 'msgspec'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
