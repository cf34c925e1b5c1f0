"""`tracelink.converters.chakra.json_form`."""

from __future__ import annotations

import base64
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

import tracelink._api.functions as api
from builders.chakra_files import METADATA, NODES, as_source, file, metadata, node
from tracelink._io.framing import framed
from tracelink._io.targets import StreamTarget
from tracelink._run.processes import Processes
from tracelink.converters.chakra.chakra_pb2 import AttributeProto, GlobalMetadata, Node
from tracelink.converters.chakra.decode import frames
from tracelink.converters.chakra.json_form import JsonAsNodes, NodesAsJson
from tracelink.plugins import Conversion, Output


def converted(conversion: Conversion, data: bytes, name: str) -> tuple[bytes, Output]:
    stream = io.BytesIO()
    (output,) = conversion.convert(as_source(data, name), StreamTarget(stream), Processes())
    return stream.getvalue(), output


def to_json(data: bytes) -> tuple[bytes, Output]:
    return converted(NodesAsJson(), data, "job.0.et")


def back(text: bytes) -> tuple[bytes, Output]:
    return converted(JsonAsNodes(), text, "job.0.json")


def document(data: bytes) -> Any:
    return json.loads(to_json(data)[0])


def told(output: Output) -> list[tuple[str, int]]:
    return [(finding.reason, finding.count) for finding in output.findings]


def test_metadata_and_every_node_with_the_names_of_the_proto() -> None:
    gemm = node(
        7,
        "gemm",
        ctrl_deps=[1],
        data_deps=[2, 3],
        start_time_micros=5,
        duration_micros=6,
        inputs={"values": "[1]", "shapes": "[[]]", "types": "['Int']"},
        is_cpu_op=("bool_val", False),
        comm_size=("int64_val", 2**62),
        dims=("bool_list", [True, False]),
    )
    assert document(file(metadata(rank=("uint64_val", 3)), gemm)) == {
        "metadata": {"version": "1.0.0", "attr": [{"name": "rank", "uint64_val": 3}]},
        "nodes": [
            {
                "id": 7,
                "name": "gemm",
                "type": "COMP_NODE",
                "ctrl_deps": [1],
                "data_deps": [2, 3],
                "start_time_micros": 5,
                "duration_micros": 6,
                "inputs": {"values": "[1]", "shapes": "[[]]", "types": "['Int']"},
                "attr": [
                    {"name": "is_cpu_op", "bool_val": False},
                    {"name": "comm_size", "int64_val": 2**62},
                    {"name": "dims", "bool_list": {"values": [True, False]}},
                ],
            }
        ],
    }


def test_a_node_stands_on_a_line_of_its_own() -> None:
    text, output = to_json(file(metadata(), node(1), node(2)))
    first, *nodes, last = text.decode().splitlines()
    assert (first, last) == ('{"metadata":{"version":"1.0.0"},"nodes":[', "]}")
    assert [json.loads(line.removesuffix(","))["id"] for line in nodes] == [1, 2]
    assert (output.format, output.events, output.findings) == ("chakra-nodes", 2, ())


@given(METADATA, st.lists(NODES, max_size=5))
def test_there_and_back_are_the_same_bytes(said: GlobalMetadata, nodes: list[Node]) -> None:
    data = b"".join(map(framed, (one.SerializeToString(deterministic=True) for one in (said, *nodes))))
    text, _ = to_json(data)
    again, output = back(text)
    assert again == data
    assert output.findings == ()
    assert len(json.loads(text)["nodes"]) == len(nodes) == output.events


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=4))
def test_bytes_that_are_no_messages_come_back_too(garbage: list[bytes]) -> None:
    data = b"".join(map(framed, garbage))
    assert back(to_json(data)[0])[0] == data


@given(METADATA, st.lists(NODES, max_size=3))
def test_it_is_the_mapping_that_protobuf_defines(said: GlobalMetadata, nodes: list[Node]) -> None:
    made = document(file(said, *nodes))
    for form, message in zip([made["metadata"], *made["nodes"]], [said, *nodes], strict=True):
        form.pop("@wire", None)
        parsed = json_format.ParseDict(form, type(message)())
        assert as_text(parsed) == as_text(message)


def as_text(message: GlobalMetadata | Node) -> str:
    """A message as text: there are many numbers that are none, and one word for them."""
    return str(message)


@given(st.lists(NODES, min_size=1, max_size=3))
def test_what_the_library_itself_writes_is_taken(nodes: list[Node]) -> None:
    forms = [json_format.MessageToDict(one, preserving_proto_field_name=True) for one in nodes]
    text = json.dumps({"metadata": {}, "nodes": forms}).encode()
    again, output = back(text)
    assert output.findings == ()
    assert [as_text(one) for one in decoded(again)] == [as_text(one) for one in nodes]


def decoded(data: bytes) -> list[Node]:
    _, *nodes = frames(io.BytesIO(data))
    return [Node.FromString(frame.body) for frame in nodes]


KEPT: dict[str, dict[str, Any]] = {
    "zero": {"int64_val": 0},
    "false": {"bool_val": False},
    "empty text": {"string_val": ""},
    "empty bytes": {"bytes_val": b""},
    "empty list": {"int32_list": {}},
    "no value": {},
    "beyond 2^53": {"uint64_val": 2**64 - 1},
    "lowest": {"sint64_val": -(2**63)},
    "bytes": {"bytes_val": b"\x00\xff"},
    "not a number": {"double_val": float("nan")},
    "infinity": {"float_val": float("inf")},
    "minus infinity": {"double_list": {"values": [float("-inf"), 1.5]}},
    "minus zero": {"double_val": -0.0},
    "largest float": {"float_val": 3.4028234663852886e38},
}


@pytest.mark.parametrize("value", KEPT.values(), ids=KEPT)
def test_values_that_are_easily_lost(value: dict[str, Any]) -> None:
    one = node(1)
    one.attr.extend([AttributeProto(name="x", **value), AttributeProto(name="x", **value)])
    data = file(metadata(), one)
    text, output = to_json(data)
    assert b"@wire" not in text
    assert output.findings == ()
    assert back(text)[0] == data


def test_fields_of_a_newer_format_are_kept_as_bytes() -> None:
    newer = node(1).SerializeToString() + b"\x9a\x06\x03new"
    data = file(metadata(), newer, node(2))
    text, output = to_json(data)
    assert told(output) == [("kept_as_bytes", 1)]
    first, second = json.loads(text)["nodes"]
    assert (first["id"], base64.b64decode(first["@wire"])) == (1, newer)
    assert "@wire" not in second
    assert back(text)[0] == data


def test_what_was_edited_counts_more_than_bytes_that_were_kept() -> None:
    newer = node(1).SerializeToString() + b"\x9a\x06\x03new"
    text = to_json(file(metadata(), newer))[0].replace(b'"name":"op"', b'"name":"mine"')
    again, output = back(text)
    assert [one.name for one in decoded(again)] == ["mine"]
    assert told(output) == [("not_kept", 1)]


def test_another_order_of_keys_and_other_white_space_say_the_same() -> None:
    data = file(
        metadata(rank=("int64_val", 1)), *(node(number, tid=("int64_val", 3)) for number in range(1, 9))
    )
    text = json.dumps(json.loads(to_json(data)[0]), sort_keys=True, indent=2).encode()
    again, output = back(text)
    assert (again, output.findings) == (data, ())


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_constants_that_only_some_parsers_know(constant: str) -> None:
    one = node(1, x=("double_val", float(constant)))
    text = to_json(file(metadata(), one))[0].replace(f'"{constant}"'.encode(), constant.encode())
    assert as_text(decoded(back(text)[0])[0]) == as_text(one)


@pytest.mark.parametrize(
    ("element", "finding"),
    [
        ("null", ("not_a_node", 1)),
        ('{"id": "x"}', ("not_a_node", 1)),
        ('{"type": Infinity}', ("not_a_node", 1)),
        ('{"type": "\\ud800"}', ("not_a_node", 1)),
        ('{"id": 1, "flavour": 3}', ("not_kept", 1)),
    ],
)
def test_what_does_not_fit_is_said(element: str, finding: tuple[str, int]) -> None:
    text = (
        b'{"metadata":{"version":"1"},"nodes":[{"id":2,"name":"a","type":"COMP_NODE"},'
        + element.encode()
        + b"]}"
    )
    again, output = back(text)
    assert told(output) == [finding]
    assert decoded(again)[0] == node(2, "a")


def test_keys_beside_metadata_and_nodes_have_no_place() -> None:
    assert told(back(b'{"metadata":{},"nodes":[],"mine":1}')[1]) == [("not_kept", 1)]


def test_a_file_that_is_cut_off_gives_what_is_there() -> None:
    data = file(metadata(), node(1), node(2))
    text, output = to_json(data[:-3])
    assert [one["id"] for one in json.loads(text)["nodes"]] == [1]
    assert [finding.reason for finding in output.findings] == ["truncated"]
    half = to_json(data)[0][:-20]
    again, output = back(half)
    assert decoded(again)[0] == node(1)
    assert "truncated" in [finding.reason for finding in output.findings]


def test_a_damaged_gzip_stream_is_a_cut() -> None:
    packed = gzip.compress(file(metadata(), *(node(number, f"op {number * 7919}") for number in range(999))))
    _, output = to_json(packed[: len(packed) // 2])
    assert 0 < output.events < 999
    assert [finding.reason for finding in output.findings] == ["truncated"]


def test_many_pieces() -> None:
    nodes = [node(number, "x" * 300, before=("string_val", '},{"id":')) for number in range(9000)]
    data = file(metadata(), *nodes)
    text, output = to_json(data)
    assert len(text) > 3 << 20
    assert (len(json.loads(text)["nodes"]), output.events) == (9000, 9000)
    assert back(text)[0] == data


class TestConvert:
    """The command's path: which conversion, and what a graph is still for."""

    @pytest.fixture
    def trace(self, tmp_path: Path) -> Path:
        path = tmp_path / "job.0.et"
        path.write_bytes(file(metadata(), node(1, "gemm", duration_micros=3)))
        return path

    @pytest.mark.parametrize("suffix", ["", ".gz"])
    def test_to_json_and_back(self, trace: Path, tmp_path: Path, suffix: str) -> None:
        there, again = tmp_path / f"job.0.nodes.json{suffix}", tmp_path / f"back.0.et{suffix}"
        assert not api.merge(trace, output=there).ranks
        assert not api.merge(there, output=again).ranks
        stored = again.read_bytes()
        assert (gzip.decompress(stored) if suffix else stored) == trace.read_bytes()

    def test_another_format_is_made_of_the_graph(self, trace: Path, tmp_path: Path) -> None:
        api.merge(trace, output=tmp_path / "job.0.json", to="perfetto-json")
        assert json.loads((tmp_path / "job.0.json").read_bytes())["traceEvents"]

    def test_a_folder_gets_a_file_of_the_same_name(self, trace: Path, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        api.merge(trace, output=tmp_path / "out", to="chakra-nodes")
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["job.0.json"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "attr", "name", "int64_val", "@wire", "type", "values"]), inner
        )
    ),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=4), JSON)
def test_json_of_any_content_is_read(nodes: list[Any], said: Any) -> None:
    text = json.dumps({"metadata": said, "nodes": nodes}).encode()
    again, output = back(text)
    assert output.events + dict(told(output)).get("not_a_node", 0) == len(nodes)
    assert len(list(frames(io.BytesIO(again)))) == output.events + 1
