"""A recording as an execution trace, schema 1.1.1-chakra.0.0.4."""

from __future__ import annotations

from dataclasses import replace

from builders.execution_trace import Described, Node, groups_node, process_root, thread_root, trace
from generators.job import BACKWARD_THREAD, DEVICE_COUNT, MAIN_THREAD, Job
from generators.kineto import process_number
from generators.machine import thread_node
from generators.recording import Input, Operation, Recording, Tensor

GROUPS_NODE = 2
GROUPS_RECORD_FUNCTION = 1
"""Before the first of an operator; no profile has it."""

BOOT_MS = 1_295_743
COMMUNICATION = {
    "Collective name": "collective_name",
    "dtype": "dtype",
    "In msg nelems": "in_msg_nelems",
    "Out msg nelems": "out_msg_nelems",
    "In split size": "in_split_size",
    "Out split size": "out_split_size",
    "Global rank start": "global_rank_start",
    "Global rank stride": "global_rank_stride",
    "Process Group Name": "pg_name",
    "Process Group Description": "pg_desc",
    "Group size": "pg_size",
}
"""Fields of a communication: how a profile calls them, and how a node does."""

OF_THE_GROUP = ("Global rank start", "Global rank stride", "Process Group Name", "Process Group Description")


def execution_trace(job: Job, recording: Recording) -> bytes:
    """The whole file. Nodes stand in the order in which they ended, the process last."""
    device = f"cuda:{job.place(recording.rank) % DEVICE_COUNT}"
    begin, end = recording.window
    return trace(
        _groups_node(job, recording.rank),
        *(_operation_node(operation, device) for operation in recording.operations),
        *(thread_root(thread_node(thread), thread) for thread in (MAIN_THREAD, BACKWARD_THREAD)),
        process_root(),
        pid=process_number(job, recording.rank),
        start_ts=BOOT_MS,
        finish_ts=BOOT_MS + (end - begin) // 1_000_000,
    )


def _groups_node(job: Job, rank: int) -> Node:
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
    node = groups_node(GROUPS_NODE, *groups, parent=thread_node(MAIN_THREAD))
    return replace(node, handle=GROUPS_RECORD_FUNCTION, thread=MAIN_THREAD)


def _operation_node(operation: Operation, device: str) -> Node:
    fields = operation.communication
    # A wait names no group.
    unknown = OF_THE_GROUP if fields.get("Collective name") == "wait" else ()
    said = {name: fields[key] for key, name in COMMUNICATION.items() if key in fields and key not in unknown}
    return Node(
        operation.node,
        operation.name,
        operation.parent_node,
        operation.record_function,
        operation.sequence,
        operation.scope,
        operation.thread,
        operation.forward_thread,
        [_described(value, device) for value in operation.inputs],
        [_described(value, device) for value in operation.outputs],
        said,
    )


def _described(value: Input, device: str) -> Described:
    """A tensor as its six numbers; of a list its parts; anything else as it is."""
    if isinstance(value, Tensor):
        numbers = [value.number, value.storage, 0, value.elements, 4, device]
        return numbers, list(value.shape), "Tensor(float)", value.strides
    if isinstance(value, list):
        parts = [_described(part, device) for part in value]
        values, shapes, types, strides = ([part[place] for part in parts] for place in range(4))
        return values, shapes, f"GenericList[{','.join(types)}]", strides
    kinds: dict[type, str] = {bool: "Bool", int: "Int", float: "Double", str: "String"}
    return value, [], kinds[type(value)], []
