"""Execution traces in a few readable lines.

    trace(thread_root(2), node(5, "aten::add", parent=2, handle=7), process_root())

is the text of a file of the newest version; `as_source` makes it an input for a reader.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from builders.inputs import held

as_source = held("et_0.json")
FLAT = "1.0.1"
NEWEST = "1.1.1-chakra.0.0.4"
WITH_STRIDES = (NEWEST, "1.1.1-chakra.1.0.0")
WITH_KERNELS = ("1.1.0-chakra.0.0.4", *WITH_STRIDES)
VERSIONS = (FLAT, *(f"1.0.{minor}-chakra.0.0.4" for minor in (2, 3, 4)), *WITH_KERNELS)
PROCESS, THREAD = "[pytorch|profiler|execution_trace|process]", "[pytorch|profiler|execution_trace|thread]"
PROCESS_GROUPS = "## process_group:init ##"


Described = tuple[Any, ...]
"""Value, shape, type, and strides where they are known."""


@dataclass(frozen=True)
class Node:
    """A node, whatever the layout."""

    id: int
    name: str
    parent: int
    handle: int = 0
    sequence: int = -1
    scope: int = 0
    thread: int = 1
    forward_thread: int = 0
    inputs: Sequence[Described] = ()
    outputs: Sequence[Described] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    """Attributes that only some nodes have."""


def node(number: int, name: str = "aten::add", parent: int = 2, handle: int = 0, **fields: Any) -> Node:
    """An operator under the root of the first thread."""
    return Node(number, name, parent, handle, **fields)


def thread_root(number: int = 2, thread: int = 1) -> Node:
    return Node(number, THREAD, 1, scope=7, thread=thread)


def process_root() -> Node:
    """The root of the process, which is its own parent."""
    return Node(1, PROCESS, 1, scope=7, thread=0)


def groups_node(number: int, *groups: dict[str, Any], parent: int = 2) -> Node:
    return Node(number, PROCESS_GROUPS, parent, scope=7, inputs=[(json.dumps(groups), [], "String")])


def tensor(number: int = 7, elements: int = 32, device: str = "cuda:0") -> Described:
    return [number, number + 1, 0, elements, 4, device], [elements], "Tensor(float)"


def as_json(node: Node, version: str = NEWEST) -> dict[str, Any]:
    return _flat(node) if version == FLAT else _with_attributes(node, version)


def trace(*nodes: Node, version: str = NEWEST, indent: int | None = None, **header: Any) -> bytes:
    told = {"schema": version, "pid": 4200, "time": "2025-03-01 08:06:00", "start_ts": 1_295_743}
    content = told | {"nodes": [as_json(node, version) for node in nodes], "finish_ts": 1_295_799}
    return json.dumps(content | header, indent=indent).encode()


def _flat(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "id": node.id,
        "rf_id": node.handle,
        "parent": node.parent,
        "fw_parent": 0,
        "seq_id": node.sequence,
        "scope": node.scope,
        "tid": node.thread,
        "fw_tid": node.forward_thread,
        "op_schema": "",
        **_described("input", node.inputs),
        **_described("output", node.outputs),
    }


def _described(which: str, values: Sequence[Described]) -> dict[str, Any]:
    names = (f"{which}s", f"{which}_shapes", f"{which}_types")
    return {name: [value[place] for value in values] for place, name in enumerate(names)}


def _with_attributes(node: Node, version: str) -> dict[str, Any]:
    attributes: list[tuple[str, str, Any]] = [
        *(("rf_id", "uint64", node.handle), ("fw_parent", "uint64", 0), ("seq_id", "int64", node.sequence)),
        *(("scope", "uint64", node.scope), ("tid", "uint64", node.thread)),
        *(("fw_tid", "uint64", node.forward_thread), ("op_schema", "string", "")),
    ]
    if version in WITH_KERNELS:
        attributes += [("kernel_backend", "string", ""), ("kernel_file", "string", "")]
    attributes += [
        (name, "string" if isinstance(value, str) else "uint64", value) for name, value in node.extra.items()
    ]
    return {
        "id": node.id,
        "name": node.name,
        "ctrl_deps": node.parent,
        "inputs": _values(node.inputs, version),
        "outputs": _values(node.outputs, version),
        "attrs": [{"name": name, "type": kind, "value": value} for name, kind, value in attributes],
    }


def _values(values: Sequence[Described], version: str) -> dict[str, Any]:
    names = ("values", "shapes", "types")
    columns: dict[str, Any] = {name: [value[place] for value in values] for place, name in enumerate(names)}
    strides = [value[3] if len(value) > 3 else [] for value in values]
    return columns | ({"strides": strides} if version in WITH_STRIDES else {})
