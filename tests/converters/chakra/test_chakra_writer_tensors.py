"""Inputs, outputs and signatures as the execution trace has them, in Python's spelling, which readers evaluate."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.chakra import Job
from builders.chakra_written import only
from builders.execution_trace import FLAT, VERSIONS, Node, as_json, node, process_root, tensor
from tracelink.converters.chakra.chakra_pb2 import Node as Message
from tracelink.converters.chakra.decode import frames
from tracelink.converters.chakra.nodes import fields_of, python_spelling

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


def read(fields: bytes) -> Message:
    return Message.FromString(fields)


def as_text(made: Node, version: str) -> bytes:
    return json.dumps(as_json(made, version)).encode()


@given(st.lists(VALUES, max_size=4), st.booleans())
def test_every_value_is_spelt_as_python_spells_it(value: list[Any], ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert ast.literal_eval(python_spelling(text).decode()) == value


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_a_text_is_spelt_already(text: str) -> None:
    assert python_spelling(json.dumps(text).encode()).decode() == text


@pytest.mark.parametrize("text", [b"[NaN]", b"[Infinity]", b"not json", b"[1,\n2]", b'["\xff"]'])
def test_what_is_no_json_is_text_that_protobuf_takes(text: bytes) -> None:
    fields = fields_of(b'{"inputs":{"values":' + text + b"}}")
    read(fields)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_layout(version: str) -> None:
    made = node(5, "add", inputs=[tensor(7), (True, [], "Bool"), (None, [], "None")], outputs=[tensor(9)])
    found = read(fields_of(as_text(made, version)))
    assert ast.literal_eval(found.inputs.values)[1:] == [True, None]
    assert ast.literal_eval(found.inputs.values)[0] == tensor(7)[0]
    assert ast.literal_eval(found.inputs.shapes) == [[32], [], []]
    assert ast.literal_eval(found.inputs.types) == ["Tensor(float)", "Bool", "None"]
    assert ast.literal_eval(found.outputs.values) == [tensor(9)[0]]


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b'{"inputs":{"values":[1}}', b"\xff\xfe"])
def test_what_is_laid_out_in_another_way_says_nothing(text: bytes) -> None:
    found = read(fields_of(text))
    assert found.inputs.values in ("", "[]")
    assert not found.attr


def test_work_says_the_inputs_of_its_operator(tmp_path: Path) -> None:
    job = Job()
    job.node(process_root())
    add = job.operator("add", 0, 30, node(5, "add", parent=1, inputs=[tensor(7)], outputs=[tensor(9)]))
    job.kernel("gemm", 40, 5, job.runtime("cudaLaunchKernel", 10, caller=add))
    job.operator("alone", 50, 5)
    trace = only(job.build(), tmp_path)
    assert trace.output is not None
    with Path(trace.output.path).open("rb") as stream:
        messages = [Message.FromString(frame.body) for frame in list(frames(stream))[1:]]
    found = {message.name: message for message in messages}
    assert found["add"].inputs.values == found["gemm"].inputs.values != ""
    assert ast.literal_eval(found["add"].outputs.values) == [tensor(9)[0]]
    assert not found["alone"].HasField("inputs")


@pytest.mark.parametrize("version", [version for version in VERSIONS if version != FLAT])
def test_signature_and_forward_parent(version: str, tmp_path: Path) -> None:
    job = Job(version)
    job.node(process_root())
    told = as_json(node(5, "add", parent=1), version)
    said = {attribute["name"]: attribute["value"] for attribute in told["attrs"]}
    job.operator("add", 0, 30, node(5, "add", parent=1))
    trace = only(job.build(), tmp_path)
    assert trace.said("add")["op_schema"] == said["op_schema"]
    assert trace.said("add")["fw_parent"] == said["fw_parent"]
