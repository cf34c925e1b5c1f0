"""Storages that nodes of execution traces read and write."""

from __future__ import annotations

import json
from typing import Any

import pytest

from builders.execution_trace import FLAT, NEWEST, VERSIONS, as_json, node
from tracelink.converters.pytorch.node_communication import StorageReader, written_arguments

ADD = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
ADD_IN_PLACE = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
TO_OUT = "aten::mul.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)"
EACH = "aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1) -> ()"
VIEW = "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)"
NONE = (None, "None")


def tensor(storage: int) -> tuple[Any, str]:
    return [900 + storage, storage, 0, 32, 4, "cuda:0"], "Tensor(float)"


def tensors(*storages: int) -> tuple[Any, str]:
    return [tensor(storage)[0] for storage in storages], "GenericList[Tensor(float)]"


def text_of(
    schema: str,
    inputs: list[tuple[Any, str]],
    outputs: list[tuple[Any, str]],
    version: str = NEWEST,
    *,
    indent: int | None = None,
    reverse: bool = False,
) -> bytes:
    """A node's text; `reverse` writes its keys the other way round."""
    given = [(value, [32], kind) for value, kind in inputs]
    taken = [(value, [32], kind) for value, kind in outputs]
    content = as_json(node(5, "anything", inputs=given, outputs=taken), version)
    if version == FLAT:
        content["op_schema"] = schema
    else:
        (attribute,) = [each for each in content["attrs"] if each["name"] == "op_schema"]
        attribute["value"] = schema
    items = list(content.items())
    return json.dumps(dict(items[::-1] if reverse else items), indent=indent).encode()


def uses(*texts: bytes) -> dict[int, tuple[set[int], set[int]]]:
    """For each node the storages that it reads, and those that it writes."""
    reader = StorageReader()
    for row, text in enumerate(texts):
        reader.add(row, text)
    found = reader.uses()
    result: dict[int, tuple[set[int], set[int]]] = {row: (set(), set()) for row in range(len(texts))}
    for row, storage, writes in zip(
        found.row.tolist(), found.storage.tolist(), found.writes.tolist(), strict=True
    ):
        result[row][writes].add(storage)
    return result


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("indent", [None, 1])
def test_inputs_are_read_and_new_outputs_written(version: str, indent: int | None) -> None:
    text = text_of(ADD, [tensor(4), tensor(6)], [tensor(8)], version, indent=indent)
    assert uses(text) == {0: ({4, 6}, {8})}


@pytest.mark.parametrize("version", [FLAT, NEWEST])
@pytest.mark.parametrize(
    ("schema", "inputs", "outputs", "read", "written"),
    [
        (ADD_IN_PLACE, [tensor(4), tensor(6), (1, "Int")], [tensor(4)], {4, 6}, {4}),
        (TO_OUT, [tensor(4), tensor(6), tensor(8)], [tensor(8)], {4, 6, 8}, {8}),
        (EACH, [tensors(4, 5), tensors(6, 7), (1, "Int")], [], {4, 5, 6, 7}, {4, 5}),
        (VIEW, [tensor(4), ([32], "GenericList[Int]")], [tensor(4)], {4}, set()),
        (VIEW, [tensor(4), ([32], "GenericList[Int]")], [tensor(9)], {4}, {9}),
        (ADD, [tensor(0), NONE], [tensor(8)], set(), {8}),
        ("", [tensors(4, 5)], [tensors(4, 5)], {4, 5}, {4, 5}),
    ],
    ids=["in place", "out", "each of a list", "view", "copy after all", "undefined", "collective"],
)
def test_what_is_written(
    version: str,
    schema: str,
    inputs: list[tuple[Any, str]],
    outputs: list[tuple[Any, str]],
    read: set[int],
    written: set[int],
) -> None:
    assert uses(text_of(schema, inputs, outputs, version)) == {0: (read, written)}


def test_keys_may_stand_in_another_order() -> None:
    text = text_of(ADD, [tensor(4), tensor(6)], [tensor(8)], reverse=True)
    assert uses(text) == {0: ({4, 6}, {8})}


def test_a_number_that_is_too_long_is_no_storage() -> None:
    text = text_of(ADD, [tensor(4), tensor(2**64 - 1)], [tensor(12345)])
    assert uses(text.replace(b"12345,", b"9" * 5000 + b",")) == {0: ({4}, set())}


def test_every_node_keeps_its_own() -> None:
    without = text_of("", [(1, "Int")], [])
    first, second = text_of(ADD, [tensor(4), tensor(6)], [tensor(8)]), text_of(ADD, [tensor(8)], [tensor(9)])
    assert uses(first, without, b"", second) == {
        0: ({4, 6}, {8}),
        1: (set(), set()),
        2: (set(), set()),
        3: ({8}, {9}),
    }


def test_lists_of_numbers_are_no_tensors() -> None:
    numbers = ([1, 2, 3, 4, 5, 6], "GenericList[Int]")
    assert uses(text_of(ADD, [numbers, ('[1, 2, 3, 4, 5, "x"]', "String")], [])) == {0: (set(), set())}


@pytest.mark.parametrize(
    ("schema", "places", "returned"),
    [
        (ADD, (), True),
        (ADD_IN_PLACE, (0,), True),
        (TO_OUT, (2,), True),
        (EACH, (0,), False),
        ("x::f(int[2] a=[0, 0], *, Tensor(b!)? c=None, Tensor(d!) e) -> Tensor(d!)", (1, 2), False),
        ("x::f() -> ()", (), True),
        ("", (), True),
    ],
)
def test_written_arguments(schema: str, places: tuple[int, ...], *, returned: bool) -> None:
    assert written_arguments(schema.encode()) == (places, returned)
