"""Messages behind their lengths, and numbers of nodes as columns."""

from __future__ import annotations

import io
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink.converters.chakra.decode import MOST, Frame, FramingError, framed, frames
from tracelink.converters.chakra.schema import Kind
from tracelink.converters.chakra.table import Attribute
from tracelink.io.protobuf import varint


@given(st.lists(st.binary(max_size=300)))
def test_messages_come_back_with_their_places(bodies: list[bytes]) -> None:
    data = b"".join(map(framed, bodies))
    found = list(frames(io.BytesIO(data)))
    assert [frame.body for frame in found] == bodies
    ends = np.cumsum([0, *(len(framed(body)) for body in bodies)]).tolist()
    assert [frame.offset for frame in found] == ends[:-1]


@given(st.lists(st.binary(max_size=30), min_size=1), st.data())
def test_a_cut_is_where_the_last_message_begins(bodies: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(map(framed, bodies))
    end = data.draw(st.integers(0, len(whole) - 1))
    found: list[Frame] = []
    begins = np.cumsum([0, *(len(framed(body)) for body in bodies)]).tolist()
    if end in begins:
        found += frames(io.BytesIO(whole[:end]))
        assert sum(len(framed(frame.body)) for frame in found) == end
        return
    with pytest.raises(FramingError) as caught:
        found.extend(frames(io.BytesIO(whole[:end])))
    assert caught.value.offset == max(begin for begin in begins if begin < end)


@pytest.mark.parametrize(
    "length", [b"\x80" * 5 + b"\x01", varint(MOST + 1)], ids=["too many bytes", "too long"]
)
def test_lengths_that_are_none(length: bytes) -> None:
    with pytest.raises(FramingError):
        list(frames(io.BytesIO(length + bytes(20))))


def test_a_length_alone_takes_no_memory() -> None:
    tracemalloc.start()
    with pytest.raises(FramingError):
        list(frames(io.BytesIO(varint(MOST) + b"short")))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


VALUES: list[tuple[Kind, Any, int]] = [
    (Kind.INT64, -3, -3),
    (Kind.UINT64, 2**64 - 1, -1),
    (Kind.BOOL, True, 1),
    (Kind.SINT32, 7, 7),
    (Kind.DOUBLE, 2.0, -9),
    (Kind.STRING, "5", -9),
    (Kind.INT64_LIST, [5], -9),
    (Kind.NONE, None, -9),
]


@given(st.lists(st.sampled_from(VALUES), max_size=6))
def test_whole_numbers_of_every_kind(given: list[tuple[Kind, Any, int]]) -> None:
    rows = np.arange(len(given))
    kinds = np.array([kind for kind, _, _ in given], np.uint8)
    column = Attribute(rows, [value for _, value, _ in given], kinds).whole_numbers(len(given) + 1, -9)
    assert column.tolist() == [*(number for _, _, number in given), -9]
