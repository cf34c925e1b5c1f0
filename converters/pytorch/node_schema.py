"""Field names and types of execution-trace nodes: the only place for these names."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

NODES = "nodes"
SCHEMA, PID, TIME, START, FINISH = "schema", "pid", "time", "start_ts", "finish_ts"
HEADER = (SCHEMA, PID, TIME, START, FINISH)

FLAT_VERSION = "1.0.1"
VERSIONS = frozenset(
    {
        FLAT_VERSION,
        "1.0.2",
        "1.0.2-chakra.0.0.4",
        "1.0.3",
        "1.0.3-chakra.0.0.4",
        "1.0.4-chakra.0.0.4",
        "1.1.0",
        "1.1.0-chakra.0.0.4",
        "1.1.1",
        "1.1.1-chakra.0.0.4",
        "1.1.1-chakra.1.0.0",
    }
)


PROCESS_ROOTS = ("[pytorch|profiler|execution_trace|process]", "[pytorch|profiler|execution_graph|process]")
THREAD_ROOTS = ("[pytorch|profiler|execution_trace|thread]", "[pytorch|profiler|execution_graph|thread]")
PROCESS_GROUPS = "## process_group:init ##"

RECORD_FUNCTION, SEQUENCE, SCOPE = "rf_id", "seq_id", "scope"
THREAD, FORWARD_THREAD = "tid", "fw_tid"
COLUMNS = {RECORD_FUNCTION: 0, SEQUENCE: -1, SCOPE: 0, THREAD: 0, FORWARD_THREAD: 0}
"""Attributes that become link keys, and their values if a node has none."""

DEBUG, MISSING_COMMUNICATION = "debug", "missing comms info"
MISSING_COMMUNICATION_MARK = re.compile(MISSING_COMMUNICATION.encode())

COLLECTIVE, NUMBER_TYPE = "collective_name", "dtype"
ELEMENTS_IN, ELEMENTS_OUT = "in_msg_nelems", "out_msg_nelems"
GROUP_NAME, GROUP_SIZE = "pg_name", "pg_size"
"""Attributes of a record since 1.1.0."""

FUNCTIONAL = re.compile(r"_?c10d_functional(_autograd)?::")
"""Operators with the name of the group as their last input."""

TENSOR_TYPE = re.compile(r"Tensor\(([^()]*)\)")

INPUTS_KEY, OUTPUTS_MARK = b'"inputs"', re.compile(rb'"outputs"\s*+:')
STORAGE = re.compile(rb'\[\s*+\d++\s*+,\s*+(\d{1,18}+)\s*+,\s*+\d++\s*+,\s*+\d++\s*+,\s*+\d++\s*+,\s*+"')
"""A tensor's storage: the second of its id, storage, offset, number of elements, bytes of each, and device.

Storages are counted from 1: a longer number, such as -1 as an unsigned one, is no storage.
"""
NO_STORAGE = 0
OPERATOR_SCHEMA = re.compile(
    rb'"op_schema"\s*+(?:,\s*+"type"\s*+:\s*+"string"\s*+,\s*+"value"\s*+)?:\s*+"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
)
"""As an attribute, or next to the name as in 1.0.1."""
WRITTEN, RESULTS = b"!", b") -> "
"""In a schema: the mark of an argument that is written (`Tensor(a!) self`), and what precedes the results."""


class Attribute(msgspec.Struct, gc=False):
    """One attribute of a node."""

    name: str = ""
    value: Any = None


class RecordFunction(msgspec.Struct, gc=False):
    """The id that the profile has too."""

    name: Literal["rf_id"]
    value: int


class Sequence(msgspec.Struct, gc=False):
    """Autograd's sequence number."""

    name: Literal["seq_id"]
    value: int


class Scope(msgspec.Struct, gc=False):
    """The kind of record function."""

    name: Literal["scope"]
    value: int


class Thread(msgspec.Struct, gc=False):
    """The logical thread."""

    name: Literal["tid"]
    value: int


class ForwardThread(msgspec.Struct, gc=False):
    """The logical thread of the forward pass, on backward nodes."""

    name: Literal["fw_tid"]
    value: int


class Passed(msgspec.Struct, gc=False):
    """An attribute without a column."""


class PositionalAttributes(msgspec.Struct, gc=False, array_like=True):
    """The first attributes in the order of all torch versions so far; the decoder skips the others."""

    rf_id: RecordFunction
    fw_parent: Passed
    seq_id: Sequence
    scope: Scope
    tid: Thread
    fw_tid: ForwardThread


class PositionalNode(msgspec.Struct, gc=False):
    """A node in the usual layout since 1.0.2, without its inputs and outputs."""

    id: int
    attrs: PositionalAttributes
    name: str = ""
    ctrl_deps: int = 0
    parent: int = 0


class Node(msgspec.Struct, gc=False):
    """A node since 1.0.2 with attributes in any order."""

    id: int
    name: str = ""
    ctrl_deps: int = 0
    parent: int = 0
    attrs: list[Attribute] = []


class FlatNode(msgspec.Struct, gc=False):
    """A node of 1.0.1, or a later one without attributes."""

    id: int
    name: str = ""
    ctrl_deps: int = 0
    parent: int = 0
    rf_id: int = 0
    seq_id: int = -1
    scope: int = 0
    tid: int = 0
    fw_tid: int = 0


class InputsText(msgspec.Struct, gc=False):
    """A node decoded only for its inputs, as raw JSON: an object, in 1.0.1 a list."""

    inputs: msgspec.Raw = msgspec.Raw(b"")


class ValuesText(msgspec.Struct, gc=False):
    """Inputs since 1.0.2, each value as raw JSON."""

    values: list[msgspec.Raw] = []


NOTHING_LISTED = msgspec.Raw(b"[]")


class Tensors(msgspec.Struct, frozen=True):
    """The inputs or the outputs of a node since 1.0.2, as raw JSON."""

    values: msgspec.Raw = NOTHING_LISTED
    shapes: msgspec.Raw = NOTHING_LISTED
    types: msgspec.Raw = NOTHING_LISTED


class TensorsText(msgspec.Struct):
    """A node decoded for its inputs and outputs."""

    inputs: Tensors = Tensors()
    outputs: Tensors = Tensors()


class FlatTensorsText(msgspec.Struct):
    """Inputs and outputs in the layout of 1.0.1."""

    inputs: msgspec.Raw = NOTHING_LISTED
    input_shapes: msgspec.Raw = NOTHING_LISTED
    input_types: msgspec.Raw = NOTHING_LISTED
    outputs: msgspec.Raw = NOTHING_LISTED
    output_shapes: msgspec.Raw = NOTHING_LISTED
    output_types: msgspec.Raw = NOTHING_LISTED


class Group(msgspec.Struct):
    """One process group in the input of `process_group:init`."""

    pg_name: Any = ""
    pg_desc: Any = ""
    backend_config: Any = ""
    backend_id: Any = ""
    """The name of the group in records of communication of 1.0.2."""
    ranks: Any = ()
    group_size: Any = 0
