"""A recording as an execution trace, schema 1.1.1-chakra.0.0.4."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from generators.job import BACKWARD_THREAD, DEVICE_COUNT, MAIN_THREAD, Job
from generators.kineto import process_number
from generators.machine import thread_root
from generators.recording import Input, Operation, Recording, Tensor

SCHEMA = "1.1.1-chakra.0.0.4"
PROCESS_NODE, GROUPS_NODE = 1, 2
GROUPS_RECORD_FUNCTION = 1
"""Before the first of an operator; no profile has it."""

ROOT = "[pytorch|profiler|execution_trace|{what}]"
BOOT_MS = 1_295_743

Attribute = tuple[str, str, Any]


def execution_trace(job: Job, recording: Recording) -> dict[str, Any]:
    """The whole file. Nodes stand in the order in which they ended, the process last."""
    device = f"cuda:{job.place(recording.rank) % DEVICE_COUNT}"
    begin, end = recording.window
    roots = [root(thread_root(thread), "thread", thread) for thread in (MAIN_THREAD, BACKWARD_THREAD)]
    nodes = [operation_node(operation, device) for operation in recording.operations]
    return {
        "schema": SCHEMA,
        "pid": process_number(job, recording.rank),
        "time": "2025-03-01 08:06:00",
        "start_ts": BOOT_MS,
        "nodes": [groups_node(job, recording.rank), *nodes, *roots, root(PROCESS_NODE, "process", 0)],
        "finish_ts": BOOT_MS + (end - begin) // 1_000_000,
    }


def root(number: int, what: str, thread: int) -> dict[str, Any]:
    """The node of a thread or of the process; the process hangs under itself."""
    return node(number, ROOT.format(what=what), PROCESS_NODE, (), (), attributes(thread=thread, scope=7))


def groups_node(job: Job, rank: int) -> dict[str, Any]:
    """The node that lists the process groups of the rank."""
    groups = [
        {
            "pg_name": group.name,
            "pg_desc": group.description,
            "backend_config": "cuda:nccl",
            # The default group does not list its members.
            "ranks": list(group.ranks) if group.number else [],
            "group_size": len(group.ranks),
            "group_count": job.group_count,
        }
        for group in job.groups(rank)
    ]
    values = described([json.dumps(groups)], "")
    return node(
        GROUPS_NODE,
        "## process_group:init ##",
        thread_root(MAIN_THREAD),
        values,
        described([], ""),
        attributes(record_function=GROUPS_RECORD_FUNCTION, thread=MAIN_THREAD, scope=7),
    )


def operation_node(operation: Operation, device: str) -> dict[str, Any]:
    """The node of an operator or annotation."""
    described_attributes = attributes(
        record_function=operation.record_function,
        sequence=operation.sequence,
        scope=operation.scope,
        thread=operation.thread,
        forward_thread=operation.forward_thread,
    )
    return node(
        operation.node,
        operation.name,
        operation.parent_node,
        described(operation.inputs, device),
        described(operation.outputs, device),
        [*described_attributes, *communication_attributes(operation)],
    )


def node(
    number: int,
    name: str,
    parent: int,
    inputs: Any,
    outputs: Any,
    node_attributes: Iterable[Attribute],
) -> dict[str, Any]:
    """A node in the layout of the schema."""
    return {
        "id": number,
        "name": name,
        "ctrl_deps": parent,
        "inputs": inputs or described([], ""),
        "outputs": outputs or described([], ""),
        "attrs": [{"name": key, "type": kind, "value": value} for key, kind, value in node_attributes],
    }


def attributes(
    *,
    record_function: int = 0,
    sequence: int = -1,
    scope: int = 0,
    thread: int = 0,
    forward_thread: int = 0,
) -> list[Attribute]:
    """The attributes that every node has."""
    return [
        ("rf_id", "uint64", record_function),
        ("fw_parent", "uint64", 0),
        ("seq_id", "int64", sequence),
        ("scope", "uint64", scope),
        ("tid", "uint64", thread),
        ("fw_tid", "uint64", forward_thread),
        ("op_schema", "string", ""),
        ("kernel_backend", "string", ""),
        ("kernel_file", "string", ""),
    ]


def communication_attributes(operation: Operation) -> list[Attribute]:
    """What a node says of its communication; a wait names no group."""
    fields = operation.communication
    if not fields:
        return []
    written: list[Attribute] = [
        ("collective_name", "string", fields["Collective name"]),
        ("dtype", "string", fields["dtype"]),
        ("in_msg_nelems", "uint64", fields["In msg nelems"]),
        ("out_msg_nelems", "uint64", fields["Out msg nelems"]),
        ("in_split_size", "string", fields["In split size"]),
        ("out_split_size", "string", fields["Out split size"]),
    ]
    if fields["Collective name"] != "wait":
        written += [
            ("global_rank_start", "uint64", fields["Global rank start"]),
            ("global_rank_stride", "uint64", fields["Global rank stride"]),
            ("pg_name", "string", fields["Process Group Name"]),
            ("pg_desc", "string", fields["Process Group Description"]),
        ]
    return [*written, ("pg_size", "uint64", fields["Group size"])]


def described(values: Sequence[Input], device: str) -> dict[str, list[Any]]:
    """Values, shapes, types and strides, side by side."""
    return {
        "values": [value_of(value, device) for value in values],
        "shapes": [each_tensor(value, lambda tensor: list(tensor.shape)) for value in values],
        "types": [type_of(value) for value in values],
        "strides": [each_tensor(value, lambda tensor: tensor.strides) for value in values],
    }


def value_of(value: Any, device: str) -> Any:
    """A tensor as its six numbers; anything else as it is."""
    if isinstance(value, Tensor):
        return [value.number, value.storage, 0, value.elements, 4, device]
    if isinstance(value, list):
        return [value_of(part, device) for part in value]
    return value


def each_tensor(value: Any, what: Any) -> Any:
    """Something of a tensor, or of each tensor of a list; nothing of anything else."""
    if isinstance(value, Tensor):
        return what(value)
    if isinstance(value, list):
        return [each_tensor(part, what) for part in value]
    return []


def type_of(value: Any) -> str:
    """The type of a value, as an execution trace writes it."""
    if isinstance(value, Tensor):
        return "Tensor(float)"
    if isinstance(value, list):
        return f"GenericList[{','.join(type_of(part) for part in value)}]"
    return {bool: "Bool", int: "Int", float: "Double", str: "String"}[type(value)]
