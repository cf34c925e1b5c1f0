"""`tracelink.converters.chakra.decode`."""

from __future__ import annotations

import io
import math
import struct
import tracemalloc
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from builders.chakra_files import NODES, SCALARS, TEXTS, UINT64, host, metadata
from tracelink._io.framing import LONGEST_MESSAGE, FramingError, framed, varint
from tracelink._io.protobuf import FEW, MANY
from tracelink.converters.chakra.batch import HASH_FACTORS
from tracelink.converters.chakra.chakra_pb2 import AttributeProto, Node
from tracelink.converters.chakra.decode import Decoded, Frame, decode, frames
from tracelink.converters.chakra.schema import Kind, kind_and_value
from tracelink.converters.chakra.table import Attribute, unsigned

# Many messages at once are what protobuf makes of each by itself, whatever is in them.


TOGETHER = FEW + 4
"""Copies of what is looked at, so that it is not left to protobuf for being few."""

Said = tuple[str, Kind, Any]


def decoded(bodies: Iterable[bytes]) -> Decoded:
    return decode(io.BytesIO(b"".join(map(framed, [metadata().SerializeToString(), *bodies]))))


def by_protobuf(bodies: Sequence[bytes]) -> tuple[list[Any], list[str]]:
    """Every node that protobuf takes, and what is wrong with the other messages."""
    nodes, faults = [], []
    for body in bodies:
        try:
            node = Node.FromString(body)
        except DecodeError:
            faults.append("unreadable_node")
            continue
        if not body:
            faults.append("empty_message")
            continue
        said = [(one.name, *kind_and_value(one)) for one in node.attr]
        nodes.append(told(node, said))
    return nodes, faults


def told(node: Node, said: Sequence[Said]) -> Any:
    numbers = node.id, min(max(node.type, 0), 255), node.start_time_micros, node.duration_micros
    return node.name, numbers, list(node.data_deps), list(node.ctrl_deps), by_name(said)


def by_name(said: Iterable[Said]) -> dict[str, list[tuple[Kind, str]]]:
    """Attributes in the order of each name, values so that NaN is like itself and True is not 1."""
    found: dict[str, list[tuple[Kind, str]]] = {}
    for name, kind, value in said:
        found.setdefault(name, []).append((kind, repr(value)))
    return found


def by_columns(result: Decoded) -> list[Any]:
    nodes = result.nodes
    said: list[list[Said]] = [[] for _ in range(len(nodes))]
    for name, attribute in nodes.attributes.items():
        places = attribute.rows.argsort(kind="stable")
        assert places.tolist() == list(range(len(attribute)))
        for kind, (row, value) in zip(attribute.kinds.tolist(), attribute.items(places), strict=True):
            said[row].append((name, Kind(kind), value))
    return [
        (
            nodes.text(row),
            (
                unsigned(nodes.id[row]),
                int(nodes.type[row]),
                unsigned(nodes.start[row]),
                unsigned(nodes.duration[row]),
            ),
            nodes.data[row],
            nodes.control[row],
            by_name(said[row]),
        )
        for row in range(len(nodes))
    ]


def check(bodies: Sequence[bytes]) -> None:
    """What comes out is what protobuf says, in the order of the file, at its place."""
    result = decoded(bodies)
    nodes, faults = by_protobuf(bodies)
    assert by_columns(result) == nodes
    assert [fault.reason for fault in result.faults] == faults
    places, at = dict[int, bytes](), len(framed(metadata().SerializeToString()))
    for body in bodies:
        places[at] = body
        at += len(framed(body))
    assert sorted([*result.offsets, *(fault.offset for fault in result.faults)]) == list(places)
    assert [Node.FromString(places[offset]).name for offset in result.offsets] == [one[0] for one in nodes]


USUAL = st.builds(
    lambda name, numbers, deps, said: host(
        numbers[0],
        name,
        start_time_micros=numbers[1],
        duration_micros=numbers[2],
        data_deps=deps,
        ctrl_deps=deps[:1],
        **said,
    ).SerializeToString(),
    TEXTS,
    st.tuples(UINT64, UINT64, UINT64),
    st.lists(UINT64 | st.integers(0, 300), max_size=4),
    st.fixed_dictionaries(
        {"rf_id": st.tuples(st.just("int64_val"), SCALARS["int64"])},
        optional={
            "cat": st.tuples(st.just("string_val"), TEXTS | st.just("x" * 200)),
            "comm_tag": st.tuples(st.just("int32_val"), SCALARS["int32"]),
            "tensor_size": st.tuples(st.just("uint64_val"), SCALARS["uint64"]),
            "a_name_that_is_rather_long": st.tuples(st.just("uint32_val"), SCALARS["uint32"]),
        },
    ),
)
"""Nodes as writers write them."""
ARBITRARY = NODES.map(lambda node: node.SerializeToString())


@given(st.lists(USUAL, min_size=TOGETHER, max_size=40))
def test_usual_nodes(bodies: list[bytes]) -> None:
    check(bodies)


@given(st.lists(USUAL | ARBITRARY, max_size=6))
def test_nodes_of_every_kind_among_others(bodies: list[bytes]) -> None:
    check([body for body in bodies for _ in range(TOGETHER)])


@given(st.lists(USUAL | ARBITRARY, min_size=1, max_size=4), st.data())
def test_damaged_nodes_among_others(bodies: list[bytes], data: st.DataObject) -> None:
    """Bytes that are changed, cut out or put in, in one of many messages or in all that are alike."""
    damaged = bytearray(data.draw(st.sampled_from(bodies)))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(damaged)))
        damaged[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    check([one for one in [*bodies, bytes(damaged)] for _ in range(TOGETHER)])


@given(st.lists(st.binary(max_size=12), max_size=4))
def test_bytes_of_anything(bodies: list[bytes]) -> None:
    check([body for body in bodies for _ in range(TOGETHER)])


def field(number: int, wire: int, body: bytes) -> bytes:
    return varint(number << 3 | wire) + (varint(len(body)) if wire == 2 else b"") + body


def attribute(*fields: bytes) -> bytes:
    return field(10, 2, b"".join(fields))


NAMED = field(1, 2, b"name")
INFINITE = struct.pack("<d", math.inf)

ODD = {
    "unpacked ids": field(5, 0, varint(7)) + field(5, 0, varint(1 << 63)),
    "packed and unpacked ids": field(5, 2, varint(300) + varint(7))
    + field(5, 0, varint(9))
    + field(5, 2, b"\x01"),
    "packed twice": field(4, 2, b"\x01\x02") + field(4, 2, b"") + field(4, 2, varint(1 << 40)),
    "ids that end within one": field(5, 2, b"\x01\x80"),
    "an id of eleven bytes": field(5, 2, b"\x80" * 10 + b"\x01"),
    "an id of ten bytes and too many bits": field(5, 2, b"\xff" * 9 + b"\x7f"),
    "a long form of a small number": field(1, 0, b"\x85\x80\x00"),
    "ten bytes for a small number": field(1, 0, b"\x85" + b"\x80" * 8 + b"\x00"),
    "a number twice": field(1, 0, b"\x05") + field(1, 0, b"\x06"),
    "a name twice": field(2, 2, b"a") + field(2, 2, b"b"),
    "a name twice, first no text": field(2, 2, b"\xff") + field(2, 2, b"b"),
    "a name that is no text": field(2, 2, b"\xc3"),
    "half of a character beyond the first plane": field(2, 2, b"\xed\xa0\x80"),
    "a name of other letters": field(2, 2, "Знак".encode()),
    "a negative type": field(3, 0, varint((1 << 64) - 1)),
    "a type of 32 bits": field(3, 0, varint((1 << 32) + 4)),
    "a type of 64 bits": field(3, 0, varint((1 << 63) + 4)),
    "a large type": field(3, 0, varint(1 << 20)),
    "a field of a newer format": field(99, 2, b"\xff") + field(11, 0, b"\x01") + field(12, 5, bytes(4)),
    "a field of eight bytes": field(13, 1, bytes(8)),
    "a field of eight bytes, cut": field(13, 1, bytes(7)),
    "a field with a large number": field(5000, 2, b"new"),
    "a tag that is longer than it must be": b"\x88\x00\x05",
    "a group": varint(12 << 3 | 3) + varint(12 << 3 | 4),
    "a group that does not end": varint(12 << 3 | 3),
    "the number 0": field(0, 0, b"\x01"),
    "a name that is a number": field(2, 0, b"\x01"),
    "a type that is a text": field(3, 2, b"COMP"),
    "inputs": field(8, 2, field(1, 2, b"[1]") + field(2, 2, b"x" * 300) + field(3, 2, "é".encode())),
    "inputs that are no text": field(8, 2, field(1, 2, b"[1]") + field(2, 2, b"x" * 300 + b"\xff")),
    "inputs of a newer format": field(9, 2, field(4, 2, b"\xff")),
    "inputs of another kind": field(9, 2, field(1, 0, b"\x01")),
    "outputs that go on behind their end": field(9, 2, field(1, 2, b"[1]")[:-1]),
    "an attribute without a value": attribute(NAMED),
    "an attribute without a name": attribute(field(9, 0, b"\x01")),
    "an empty attribute": attribute(),
    "a value before its name": attribute(field(9, 0, b"\x01"), NAMED),
    "two values": attribute(NAMED, field(9, 0, b"\x01"), field(29, 2, b"two")),
    "a description": attribute(NAMED, field(2, 2, b"what it is"), field(9, 0, b"\x01")),
    "a name that is no text, of an attribute": attribute(field(1, 2, b"\xff"), field(9, 0, b"\x01")),
    "a value that is no text": attribute(NAMED, field(29, 2, b"ok\xff")),
    "a value of other letters": attribute(NAMED, field(29, 2, "Знак".encode())),
    "a truth value of 2": attribute(NAMED, field(27, 0, b"\x02")),
    "a number of 32 bits that has more": attribute(NAMED, field(7, 0, varint(1 << 40))),
    "a negative number of 32 bits": attribute(NAMED, field(7, 0, varint((1 << 64) - 5))),
    "a natural number of 32 bits that has more": attribute(NAMED, field(11, 0, varint((1 << 32) + 1))),
    "the largest number": attribute(NAMED, field(13, 0, varint((1 << 64) - 1))),
    "infinity": attribute(NAMED, field(3, 1, INFINITE)),
    "a list of numbers, packed": attribute(NAMED, field(10, 2, field(1, 2, b"\x01\x02"))),
    "a list of numbers, not packed": attribute(
        NAMED, field(10, 2, field(1, 0, b"\x01") + field(1, 0, b"\x02"))
    ),
    "a list that is none": attribute(NAMED, field(10, 2, b"\x07")),
    "a name with a zero behind it": attribute(field(1, 2, b"name\0"), field(9, 0, b"\x01")),
    "the same attribute of two kinds": attribute(NAMED, field(9, 0, b"\x01"))
    + attribute(NAMED, field(27, 0, b"\x01")),
    "the same attribute twice": attribute(NAMED, field(9, 0, b"\x01"))
    + attribute(NAMED, field(9, 0, b"\x02")),
    "names alike at both ends": attribute(field(1, 2, b"collectiv_one_id"), field(9, 0, b"\x01"))
    + attribute(field(1, 2, b"collectiv_two_id"), field(9, 0, b"\x02")),
    "long names alike at both ends": attribute(field(1, 2, b"collectiv___one___id"), field(9, 0, b"\x01"))
    + attribute(field(1, 2, b"collectiv___two___id"), field(9, 0, b"\x02")),
    "many fields": b"".join(attribute(field(1, 2, b"%d" % n), field(9, 0, b"\x01")) for n in range(MANY + 1)),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_what_is_odd_is_what_protobuf_says(odd: bytes) -> None:
    usual = host(3, "usual", data_deps=[1, 2], name=("int64_val", 3)).SerializeToString()
    check([*[usual, odd] * TOGETHER, usual + odd, odd + usual, usual])


def test_names_that_only_look_alike_are_told_apart() -> None:
    """Two names of which the same mark is made."""
    first, second, _ = map(int, HASH_FACTORS)
    left, other, last = (int.from_bytes(text, "little") for text in (b"collecta", b"collectb", b"aaaaaaaa"))
    twin = next(
        pair
        for number in range(1 << 16)
        if (
            pair := (
                last + number,
                (last + number + (left - other) * first * pow(second, -1, 1 << 64)) % (1 << 64),
            )
        )
        and not (pair[0] | pair[1]) & 0x8080808080808080
    )
    names = [
        one.to_bytes(8, "little") + end.to_bytes(8, "little")
        for one, end in zip((left, other), twin, strict=True)
    ]
    check([attribute(field(1, 2, name), field(9, 0, b"\x01")) for name in names for _ in range(TOGETHER)])


def test_an_attribute_that_is_a_number_everywhere_is_a_column() -> None:
    nodes = [host(row, "op", rf_id=("int64_val", row)).SerializeToString() for row in range(TOGETHER)]
    column = decoded(nodes).nodes.attribute("rf_id").values
    assert getattr(column, "dtype", None) == "int64"


@given(st.lists(USUAL, max_size=20), st.integers(1, 60))
@example([b"\x08\x01"] * 300, 7)
def test_it_does_not_matter_how_much_is_read_at_a_time(bodies: list[bytes], chunk: int) -> None:
    whole = decoded(bodies)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tracelink._io.framing.CHUNK", chunk)
        pieces = decoded(bodies)
    assert by_columns(pieces) == by_columns(whole)
    assert (pieces.offsets, pieces.nodes.strings) == (whole.offsets, whole.nodes.strings)
    assert list(pieces.nodes.attributes) == list(whole.nodes.attributes)


def test_memory_is_a_small_part_of_what_the_messages_take() -> None:
    node = host(1, "op", rf_id=("int64_val", 1 << 40), cat=("string_val", "cpu_op"))
    node.inputs.values = "x" * 1000
    stream = io.BytesIO(framed(b"") + framed(node.SerializeToString()) * 40_000)
    size = len(stream.getbuffer())
    tracemalloc.start()
    decode(stream)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < size * 0.6


def test_names_that_are_all_different_take_no_longer_than_protobuf_does() -> None:
    attributes = [AttributeProto(name=f"n{number}", int64_val=1) for number in range(30 * TOGETHER)]
    nodes = [Node(name="op", attr=attributes[at::TOGETHER]).SerializeToString() for at in range(TOGETHER)]
    check(nodes)


# Messages behind their lengths, and numbers of nodes as columns.


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
    "length", [b"\x80" * 5 + b"\x01", varint(LONGEST_MESSAGE + 1)], ids=["too many bytes", "too long"]
)
def test_lengths_that_are_none(length: bytes) -> None:
    with pytest.raises(FramingError):
        list(frames(io.BytesIO(length + bytes(20))))


def test_a_length_alone_takes_no_memory() -> None:
    tracemalloc.start()
    with pytest.raises(FramingError):
        list(frames(io.BytesIO(varint(LONGEST_MESSAGE) + b"short")))
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
    column = Attribute(rows, [value for _, value, _ in given], kinds).integers(len(given) + 1, -9)
    assert column.tolist() == [*(number for _, _, number in given), -9]
