"""Recognition of Chakra files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from builders.chakra_files import METADATA, NODES, as_source, file, metadata, node
from builders.data import DATA
from tracelink import plugins, samples, schemas
from tracelink._io.sources import HEAD, Request, discover
from tracelink._join.reading import tasks_of
from tracelink._model.errors import UnreadableError
from tracelink.converters.chakra import is_chakra, is_node_list
from tracelink.converters.chakra.chakra_pb2 import AttributeProto, GlobalMetadata, Node

RECOGNISED = {
    "ours": file(metadata(rank=("int64_val", 0)), node(1)),
    "chakra_converter": file(
        GlobalMetadata(attr=[AttributeProto(name="schema", string_val="1.0.2-chakra.0.0.4")]), node(0, "root")
    ),
    "chakra_generator": file(metadata("1.0.0"), node(0, "COMM_SEND_NODE_0", "COMM_SEND_NODE")),
    "metadata without anything": file(GlobalMetadata(), node(0, "gemm")),
    "metadata without nodes": file(metadata(rank=("int64_val", 0))),
    "ids only later": file(metadata(), *(node(identity, "x") for identity in (2**64 - 1, 3))),
}


@pytest.mark.parametrize("data", RECOGNISED.values(), ids=RECOGNISED)
def test_traces_of_every_writer(data: bytes) -> None:
    assert is_chakra(data)


def test_a_cut_within_the_nodes_leaves_it_recognisable() -> None:
    said, first = file(metadata(rank=("int64_val", 0))), file(node(1))
    whole = said + first + first
    recognised = [is_chakra(whole[:end]) for end in range(len(whole) + 1)]
    assert recognised == [False] * len(said) + [True] * (len(whole) + 1 - len(said))


def test_long_metadata_are_looked_at_whole(tmp_path: Path) -> None:
    data = file(metadata(groups=("string_val", "x" * 2 * HEAD)), node(1))
    (tmp_path / "long").write_bytes(data)
    (task,) = tasks_of(discover(Request([(str(tmp_path), "")])), [])
    assert task.format == "chakra"


NOT_ONE = {
    "nothing": b"",
    "an empty message alone": b"\x00",
    "a version alone": file(metadata("1.0.0")),
    "no metadata": file(node(1), node(2)),
    "metadata twice": file(metadata(), metadata()),
    "a node without a name": file(metadata(), Node(id=1, type=4)),
    "a node without a type": file(metadata(), Node(id=1, name="gemm")),
    "a node of no known type": file(metadata(), Node(id=1, name="gemm", type=9)),
    "a field too many": file(metadata(), node(1).SerializeToString() + b"\x58\x01"),
    "a name that is no text": file(metadata(), b"\x12\x01\xff\x18\x04"),
    "a length of too many bytes": b"\x80\x80\x80\x80\x80\x00" + file(node(1)),
}


@pytest.mark.parametrize("data", NOT_ONE.values(), ids=NOT_ONE)
def test_what_is_none(data: bytes) -> None:
    assert not is_chakra(data)


@given(st.binary(max_size=300))
def test_random_bytes_are_none(data: bytes) -> None:
    assert not is_chakra(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.text(" \t\r\n", max_size=20), JSON)
@example("\n\n", {"a": 1})
def test_json_is_none_whatever_white_space_stands_before_it(space: str, value: object) -> None:
    text = (space + json.dumps(value)).encode()
    assert not is_chakra(text)
    assert not is_node_list(text)


@given(st.text())
def test_text_is_none(text: str) -> None:
    assert not is_chakra(text.encode("utf-8", "replace"))


@given(METADATA, st.lists(NODES, max_size=3))
def test_messages_of_any_content_are_looked_at_without_an_error(
    said: GlobalMetadata, nodes: list[Node]
) -> None:
    assert is_chakra(file(said, *nodes)) in (True, False)


def others() -> list[Path]:
    """Every available file of another format; folders with Chakra traces are left out."""
    folders = [samples.path(name) for name in ("cpu_job", "gpu_pair", "hung_job")]
    folders += [Path(str(schemas.__file__)).parent, DATA]
    files = [path for folder in folders if folder.exists() for path in sorted(folder.rglob("*"))]
    chakra = {DATA / "chakra_rules", DATA / "crashes"}
    return [
        path for path in files if path.is_file() and path.stat().st_size and chakra.isdisjoint(path.parents)
    ]


def test_no_file_of_another_format_is_taken_for_one() -> None:
    taken = []
    for path in others():
        for source in discover(Request([(str(path), "")])).sources:
            try:
                head = source.head()
            except UnreadableError:
                continue
            taken += [
                (source.path, recognises.__name__)
                for recognises in (is_chakra, is_node_list)
                if recognises(head) or recognises(path.read_bytes()[:HEAD])
            ]
    assert taken == []


def test_no_other_reader_takes_the_bytes() -> None:
    data = as_source(RECOGNISED["ours"]).head()
    names = [known.name for known in plugins.recognised(data, "a.et")]
    assert names == ["chakra"]


def test_the_json_form_is_one_of_its_own() -> None:
    text = (
        b'{"metadata":{"version":"1"},"nodes":[\n{"id":1,"name":"a","type":"COMP_NODE","ctrl_deps":[2]}\n]}'
    )
    first = next(plugins.recognised(text, "a.json"))
    assert first.name == "chakra-nodes"


def test_files_of_other_formats_do_not_load_protobuf() -> None:
    code = (
        "import sys, tracelink; from tracelink import samples;"
        "tracelink.inspect(samples.path('gpu_pair') / 'kineto_0.json.gz', jobs=1);"
        "print([name for name in sys.modules if name.startswith('google.protobuf')])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout == "[]\n"
