"""`tracelink.converters.chakra.schema`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from tracelink import schemas
from tracelink.converters.chakra import chakra_pb2
from tracelink.converters.chakra.schema import CollectiveType, Kind, NodeType

PROTO = "chakra.proto"
GENERATOR = "libprotoc 3.21.12"
"""What generated the module that is in the repository."""

FIELDS = {
    "GlobalMetadata": {"version": 1, "attr": 2},
    "Node": {
        "id": 1,
        "name": 2,
        "type": 3,
        "ctrl_deps": 4,
        "data_deps": 5,
        "start_time_micros": 6,
        "duration_micros": 7,
        "inputs": 8,
        "outputs": 9,
        "attr": 10,
    },
    "IOInfo": {"values": 1, "shapes": 2, "types": 3},
}
SCALARS = [
    "double",
    "float",
    "int32",
    "int64",
    "uint32",
    "uint64",
    "sint32",
    "sint64",
    "fixed32",
    "fixed64",
    "sfixed32",
    "sfixed64",
    "bool",
    "string",
    "bytes",
]
"""In the order of their fields: of each kind first one value, then a list."""


@pytest.fixture(scope="module")
def protoc() -> str:
    found = shutil.which("protoc")
    if not found:
        pytest.skip("protoc is not installed")
    return found


def compiled(protoc: str, *options: str) -> None:
    folder = Path(str(schemas.__file__)).parent
    subprocess.run([protoc, "-I", str(folder), *options, PROTO], check=True, timeout=60)


def test_fields_have_the_numbers_of_the_format() -> None:
    messages = chakra_pb2.DESCRIPTOR.message_types_by_name
    assert {name: _numbers(messages[name].fields) for name in FIELDS} == FIELDS
    values = {f"{kind}_val": 3 + 2 * place for place, kind in enumerate(SCALARS)}
    lists = {f"{kind}_list": 4 + 2 * place for place, kind in enumerate(SCALARS)}
    attribute = messages["AttributeProto"]
    assert _numbers(attribute.fields) == {"name": 1, "doc_string": 2} | values | lists
    assert _numbers(attribute.oneofs_by_name["value"].fields) == values | lists


def test_the_words_of_the_code_are_those_of_the_messages() -> None:
    enums = chakra_pb2.DESCRIPTOR.enum_types_by_name
    assert {f"{one.name}_NODE": int(one) for one in NodeType} == dict(chakra_pb2.NodeType.items())
    assert {one.name: int(one) for one in CollectiveType} == _numbers(enums["CollectiveCommType"].values)
    fields = chakra_pb2.DESCRIPTOR.message_types_by_name["AttributeProto"].oneofs_by_name["value"].fields
    assert {field.number for field in fields} == {int(kind) for kind in Kind} - {Kind.NONE}


def test_the_module_is_that_of_the_proto(protoc: str, tmp_path: Path) -> None:
    compiled(protoc, f"--descriptor_set_out={tmp_path / 'set'}")
    (made,) = FileDescriptorSet.FromString((tmp_path / "set").read_bytes()).file
    ours = FileDescriptorProto.FromString(chakra_pb2.DESCRIPTOR.serialized_pb)
    for descriptor in (made, ours):
        for message in descriptor.message_type:
            for field in message.field:
                field.ClearField("json_name")
    assert made == ours


def test_the_same_generator_writes_the_same_module(protoc: str, tmp_path: Path) -> None:
    version = subprocess.run(
        [protoc, "--version"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    if version.strip() != GENERATOR:
        pytest.skip(f"protoc is {version.strip()}, and the module is of {GENERATOR}")
    compiled(protoc, f"--python_out={tmp_path}", f"--pyi_out={tmp_path}")
    folder = Path(str(chakra_pb2.__file__)).parent
    for name in ("chakra_pb2.py", "chakra_pb2.pyi"):
        assert (tmp_path / name).read_text() == (folder / name).read_text()


def _numbers(entries: object) -> dict[str, int]:
    return {entry.name: entry.number for entry in entries}  # type: ignore[attr-defined]
