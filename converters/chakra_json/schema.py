"""The schema of Chakra host and device traces (ET+ JSON), and the kernel names that `chakra_converter` knows."""

from __future__ import annotations

import re

import msgspec

from tracelink._model.events import GPU_WORK
from tracelink.converters.pytorch.arguments import CATEGORY_OF_KIND

ID, NAME, PARENT = "id", "name", "ctrl_deps"
INPUTS, OUTPUTS, ATTRIBUTES = "inputs", "outputs", "attrs"
INCLUSIVE, EXCLUSIVE, STARTED = "inclusive_dur", "exclusive_dur", "ts"
OTHER_THREAD, SYNCHRONISED = "inter_thread_dep", "sync_dep"
CATEGORY, PHASE, STREAM, GROUP = "cat", "ph", "stream", "pg_name"

LINKED = frozenset({INCLUSIVE, EXCLUSIVE, STARTED, OTHER_THREAD, SYNCHRONISED})
"""The keys that a linker adds to a node of the execution trace."""

COMPLETE = "X"
CATEGORIES = {kind: CATEGORY_OF_KIND[kind] for kind in GPU_WORK}
"""Readers recognise device work only by this category."""
READ_CATEGORIES = {name: kind for kind, name in CATEGORIES.items()}

USER_SCOPE = 7
"""The scope of names given by the program; annotations in a profile."""

NOT_GIVEN = (b"", b"null")
"""The JSON of a missing time."""

ACCEPTED = {
    (1, 0, 2): "1.0.2-chakra.0.0.4",
    (1, 0, 3): "1.0.3-chakra.0.0.4",
    (1, 1, 0): "1.1.0-chakra.0.0.4",
    (1, 1, 1): "1.1.1-chakra.0.0.4",
}
"""The versions that `chakra_converter` has a parser for, oldest first."""

VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")

RECORDED_GROUP = re.compile(rb'\{"name":"pg_name","type":"string","value":("(?:[^"\\]|\\.)*")\}')
"""The attribute by which a recorded communication names its group."""

PROFILED_GROUP = re.compile(rb'"Process Group Name"\s*:\s*("(?:[^"\\]|\\.)+")')
"""The argument by which a profiled kernel names its group."""

BACKEND_CALL = "nccl:"
"""The prefix of calls of the communication library, which are inside the record of their parameters."""

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
"""`chakra_converter` fails without one of these: type and default."""

FLAT_PARENT = "parent"
FLAT_VALUES = {
    INPUTS: ("inputs", "input_shapes", "input_types"),
    OUTPUTS: ("outputs", "output_shapes", "output_types"),
}
"""The keys of values, shapes and types in the flat layout of 1.0.1."""


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


# Names of communication kernels, from which `chakra_converter` derives the operation.


RENAMED = ("ncclKernel_SendRecv", "ncclDevKernel_SendRecv")
"""The name of this kernel up to NCCL 2.17, and since; `chakra_converter` fails at the old name."""

COMMUNICATION_NAMES = re.compile(r"nccl(Dev)?Kernel")
OPERATION = re.compile(r"allreduce|alltoall|allgather|reducescatter|broadcast")


def current_name(name: str) -> str:
    """The name of the kernel in newer NCCL."""
    return name.replace(*RENAMED)


def is_refused(name: str) -> bool:
    """True if `chakra_converter` fails at this kernel, such as one of `reduce` or RCCL's `Generic`."""
    plain = name.replace("_", "").replace("-", "").lower()
    return bool(COMMUNICATION_NAMES.search(name)) and not OPERATION.search(plain) and RENAMED[1] not in name
