"""`tracelink.converters.chakra.decode`."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tracelink._io.framing import delimited, framed, varint
from tracelink._io.protobuf import varints
from tracelink.converters.chakra import decode as encoding
from tracelink.converters.chakra.chakra_pb2 import AttributeProto, GlobalMetadata, Node, StringList
from tracelink.converters.chakra.decode import (
    attribute,
    decode,
    encoded,
    metadata_message,
    number_attributes,
    number_fields,
    packed_fields,
)
from tracelink.converters.chakra.schema import VERSION, Kind
from tracelink.converters.chakra.table import Attribute, Links, NodeTable, signed

UNSIGNED = st.one_of(
    st.integers(0, 300),
    st.integers(0, 2**64 - 1),
    st.sampled_from([2 ** (7 * n) + d for n in range(1, 10) for d in (-1, 0)]),
)
SIGNED = st.one_of(st.integers(-5, 300), st.integers(-(2**63), 2**63 - 1))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
NUMBER_KINDS = {Kind.INT64: SIGNED, Kind.INT32: st.integers(-(2**31), 2**31 - 1), Kind.BOOL: st.booleans()}
FIELDS = {Kind.INT64: "int64_val", Kind.INT32: "int32_val", Kind.BOOL: "bool_val", Kind.STRING: "string_val"}


@given(st.lists(UNSIGNED, max_size=20))
@example([2**64 - 1, 0, 127, 128])
def test_varints(numbers: list[int]) -> None:
    buffer, bounds = varints(signed(numbers))
    expected = [varint(number) for number in numbers]
    assert buffer == b"".join(expected)
    assert bounds.tolist() == np.cumsum([0, *map(len, expected)]).tolist()


@given(st.lists(UNSIGNED, max_size=20))
def test_a_scalar_field_is_absent_where_it_is_0(numbers: list[int]) -> None:
    fields = number_fields(1, signed(numbers))
    assert list(map(bytes, fields)) == [Node(id=number).SerializeToString() for number in numbers]


@given(st.lists(st.lists(UNSIGNED, max_size=6), max_size=8))
@example([[2**64 - 1] * 30, [], [1] * 130])
def test_a_repeated_field_is_packed_and_absent_where_it_is_empty(lists: list[list[int]]) -> None:
    links = Links.of(lists)
    fields = packed_fields(5, links.bounds, links.ids)
    assert list(map(bytes, fields)) == [Node(data_deps=numbers).SerializeToString() for numbers in lists]


@given(NAMES, st.lists(SIGNED, max_size=12))
@example("long" * 50, [-1, 0, 1])
def test_numbers_as_attributes(name: str, numbers: list[int]) -> None:
    """A zero is written: an attribute says which of its fields it has."""
    fields = number_attributes(name, Kind.INT64, np.array(numbers, np.int64))
    assert list(map(bytes, fields)) == [
        Node(attr=[AttributeProto(name=name, int64_val=number)]).SerializeToString() for number in numbers
    ]


@given(st.data(), NAMES, st.sampled_from([*NUMBER_KINDS, Kind.STRING]))
def test_one_attribute(data: st.DataObject, name: str, kind: Kind) -> None:
    value = data.draw(NUMBER_KINDS.get(kind, TEXTS))
    expected = Node(attr=[AttributeProto(name=name, **{FIELDS[kind]: value})]).SerializeToString()
    assert bytes(attribute(name, kind, value)) == expected


@given(NAMES, st.lists(TEXTS, max_size=3))
def test_an_attribute_with_a_list_of_texts(name: str, texts: list[str]) -> None:
    expected = Node(
        attr=[AttributeProto(name=name, string_list=StringList(values=texts))]
    ).SerializeToString()
    assert bytes(attribute(name, Kind.STRING_LIST, texts)) == expected


@pytest.mark.parametrize("length", [0, 1, 127, 128, (1 << 14) - 1, 1 << 14, 1 << 21])
def test_a_text_of_any_length(length: int) -> None:
    text = "x" * length
    assert delimited(2, text.encode()) == (Node(name=text).SerializeToString() or b"\x12\x00")


@st.composite
def tables(draw: st.DrawFn) -> NodeTable:
    """Nodes with attributes that some have."""
    count = draw(st.integers(0, 9))
    names = draw(st.lists(TEXTS, min_size=1, max_size=3))

    def column(values: Any) -> list[Any]:
        return draw(st.lists(values, min_size=count, max_size=count))

    attributes = {}
    for place, kind in enumerate(draw(st.lists(st.sampled_from([*NUMBER_KINDS, Kind.STRING]), max_size=3))):
        rows = np.flatnonzero(np.array(column(st.booleans()), np.bool_))
        values = [draw(NUMBER_KINDS.get(kind, TEXTS)) for _ in rows]
        if len(rows):
            attributes[f"{place}"] = Attribute.of(kind, rows, values)
    return NodeTable(
        signed(column(UNSIGNED)),
        np.array(column(st.integers(0, len(names) - 1)), np.int32),
        np.array(column(st.integers(0, 7)), np.uint8),
        signed(column(UNSIGNED)),
        signed(column(UNSIGNED)),
        Links.of(column(st.lists(UNSIGNED, max_size=3))),
        Links.of(column(st.lists(UNSIGNED, max_size=3))),
        names,
        attributes,
    )


def message(nodes: NodeTable, row: int, tensors: bytes = b"") -> bytes:
    """What protobuf writes for a node: fields in the order of their numbers, then attributes in that of the table."""
    node = Node(
        id=int(nodes.id[row]) & (2**64 - 1),
        name=nodes.text(row),
        type=int(nodes.type[row]),
        ctrl_deps=nodes.control[row],
        data_deps=nodes.data[row],
        start_time_micros=int(nodes.start[row]) & (2**64 - 1),
        duration_micros=int(nodes.duration[row]) & (2**64 - 1),
    )
    node.MergeFromString(tensors)
    for name, column in nodes.attributes.items():
        for place in np.flatnonzero(column.rows == row).tolist():
            kind = Kind(int(column.kinds[place]))
            node.attr.add(name=name, **{FIELDS[kind]: column.values[place]})
    written: bytes = node.SerializeToString()
    return written


@given(tables())
def test_a_file_is_what_protobuf_writes(nodes: NodeTable) -> None:
    metadata = {"said": (Kind.STRING, "x"), "count": (Kind.UINT64, 2**63)}
    expected = [metadata_message(metadata), *(message(nodes, row) for row in range(len(nodes)))]
    assert b"".join(encoded(metadata, nodes)) == b"".join(map(framed, expected))


@given(tables(), st.integers(1, 3), st.integers(0, 2))
def test_batches_and_shared_encoding_do_not_change_the_bytes(nodes: NodeTable, batch: int, few: int) -> None:
    """Large tables are written in batches; attributes with many values are encoded one by one."""
    whole = b"".join(encoded({}, nodes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "BATCH", batch)
        patch.setattr(encoding, "FEW_VALUES", few)
        assert b"".join(encoded({}, nodes)) == whole


@given(tables())
def test_what_is_written_is_read_again(nodes: NodeTable) -> None:
    decoded = decode(io.BytesIO(b"".join(encoded({}, nodes))))
    found = decoded.nodes
    # A node of which everything is 0 has no bytes: readers take it for none.
    empty = [row for row in range(len(nodes)) if not message(nodes, row)]
    assert len(decoded.faults) == len(empty)
    kept = [row for row in range(len(nodes)) if row not in empty]
    for name in ("id", "type", "start", "duration"):
        assert getattr(found, name).tolist() == getattr(nodes, name)[kept].tolist()
    assert [found.text(place) for place in range(len(found))] == [nodes.text(row) for row in kept]
    assert [found.data[place] for place in range(len(found))] == [nodes.data[row] for row in kept]
    assert [found.control[place] for place in range(len(found))] == [nodes.control[row] for row in kept]
    for name, column in nodes.attributes.items():
        assert list(found.attribute(name).values) == list(column.values)
        assert found.attribute(name).kinds.tolist() == column.kinds.tolist()


def test_inputs_and_outputs_stand_between_the_duration_and_the_attributes() -> None:
    nodes = NodeTable(
        np.array([1]),
        np.array([0], np.int32),
        np.array([4], np.uint8),
        np.array([5]),
        np.array([6]),
        Links.of([[]]),
        Links.of([[]]),
        ["add"],
        {"tid": Attribute.of(Kind.INT64, np.array([0]), np.array([7]))},
    )
    tensors = Node()
    tensors.inputs.values, tensors.inputs.shapes, tensors.outputs.types = "[1]", "[[]]", "['Int']"
    text = tensors.SerializeToString()
    _, body = b"".join(encoded({}, nodes, [text])).split(framed(metadata_message({})), 1)
    assert body == framed(message(nodes, 0, text))


def test_the_metadata_say_the_version() -> None:
    said = GlobalMetadata.FromString(metadata_message({"nodes": (Kind.UINT64, 3)}))
    assert said.version == VERSION
    assert [(one.name, one.uint64_val) for one in said.attr] == [("nodes", 3)]
