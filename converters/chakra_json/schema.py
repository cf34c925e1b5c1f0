"""Field names, kernels' names."""

from __future__ import annotations

import re

import msgspec

from tracelink.model.events import EventKind

# What a Chakra host and device trace says: the only place where its field names stand.


SCHEMA, PID, TIME, START, FINISH, NODES = "schema", "pid", "time", "start_ts", "finish_ts", "nodes"

ID, NAME, PARENT = "id", "name", "ctrl_deps"
INPUTS, OUTPUTS, ATTRIBUTES = "inputs", "outputs", "attrs"
INCLUSIVE, EXCLUSIVE, STARTED = "inclusive_dur", "exclusive_dur", "ts"
OTHER_THREAD, SYNCHRONISED = "inter_thread_dep", "sync_dep"
CATEGORY, PHASE, STREAM, GROUP = "cat", "ph", "stream", "pg_name"

LINKED = frozenset({INCLUSIVE, EXCLUSIVE, STARTED, OTHER_THREAD, SYNCHRONISED})
"""What a linker adds to a node that the execution trace has."""

COMPLETE = "X"
CATEGORIES = {
    EventKind.KERNEL: "kernel",
    EventKind.MEMCPY: "gpu_memcpy",
    EventKind.MEMSET: "gpu_memset",
}
"""The category is the only mark by which readers know a node on a GPU."""
READ_CATEGORIES = {name: kind for kind, name in CATEGORIES.items()}

USER_SCOPE = 7
"""The scope of what the program names itself; a profile calls it an annotation."""

NOT_GIVEN = (b"", b"null")
"""The text of a time that a node does not have."""

ACCEPTED = {
    (1, 0, 2): "1.0.2-chakra.0.0.4",
    (1, 0, 3): "1.0.3-chakra.0.0.4",
    (1, 1, 0): "1.1.0-chakra.0.0.4",
    (1, 1, 1): "1.1.1-chakra.0.0.4",
}
"""The versions that `chakra_converter` has a parser for, oldest first."""

VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")

PROCESS_ROOT = "[pytorch|profiler|execution_trace|process]"
THREAD_ROOTS = ("[pytorch|profiler|execution_trace|thread]", "[pytorch|profiler|execution_graph|thread]")

BASE_TIME = "baseTimeNanoseconds"
"""What a profile's own times count from, where its header says so."""

RECORDED_GROUP = re.compile(rb'\{"name":"pg_name","type":"string","value":("(?:[^"\\]|\\.)*")\}')
"""The attribute by which a recorded communication names its group."""

PROFILED_GROUP = re.compile(rb'"Process Group Name"\s*:\s*("(?:[^"\\]|\\.)+")')
"""The argument by which a profiled kernel names its group."""

COMMUNICATION = "record_param_comms"
BACKEND_CALL = "nccl:"
"""How the call of the communication library is named, which stands inside the record of its parameters."""

COLLECTIVE_KERNEL = re.compile(r"nccl|rccl", re.IGNORECASE)

REQUIRED_ATTRIBUTES: dict[str, tuple[str, int | str]] = {
    "rf_id": ("uint64", 0),
    "fw_parent": ("uint64", 0),
    "seq_id": ("int64", -1),
    "scope": ("uint64", 0),
    "tid": ("uint64", 0),
    "fw_tid": ("uint64", 0),
    "op_schema": ("string", ""),
}
"""Without one of these `chakra_converter` fails: type, and value where the node does not say."""

FLAT_PARENT = "parent"
FLAT_VALUES = {
    INPUTS: ("inputs", "input_shapes", "input_types"),
    OUTPUTS: ("outputs", "output_shapes", "output_types"),
}
"""Where the flat layout of 1.0.1 keeps what are values, shapes and types since."""


class Values(msgspec.Struct):
    """The inputs or outputs of a node since 1.0.2."""

    values: msgspec.Raw = msgspec.Raw(b"[]")
    shapes: msgspec.Raw = msgspec.Raw(b"[]")
    types: msgspec.Raw = msgspec.Raw(b"[]")


class Attribute(msgspec.Struct):
    """One attribute of a node since 1.0.2."""

    name: str
    type: str
    value: msgspec.Raw


def accepted_version(text: str) -> str:
    """The newest accepted version that is not newer than `text`; the oldest for what is older than all."""
    match = VERSION.match(text)
    if not match:
        return list(ACCEPTED.values())[-1]
    wanted = tuple(map(int, match.groups()))
    oldest, *_ = ACCEPTED.values()
    return next(
        (ACCEPTED[version] for version in sorted(ACCEPTED, reverse=True) if version <= wanted), oldest
    )


# Names of communication kernels, from which `chakra_converter` tells the operation.


RENAMED = ("ncclKernel_SendRecv", "ncclDevKernel_SendRecv")
"""What NCCL called this kernel up to 2.17, and since; `chakra_converter` ends with an error at the old name."""

COMMUNICATION_NAMES = re.compile(r"nccl(Dev)?Kernel")
OPERATION = re.compile(r"allreduce|alltoall|allgather|reducescatter|broadcast")


def current_name(name: str) -> str:
    """The name that newer NCCL gives the kernel."""
    return name.replace(*RENAMED)


def is_refused(name: str) -> bool:
    """Whether `chakra_converter` ends with an error at this kernel, such as one of `reduce` or RCCL's `Generic`."""
    plain = name.replace("_", "").replace("-", "").lower()
    return bool(COMMUNICATION_NAMES.search(name)) and not OPERATION.search(plain) and RENAMED[1] not in name
