"""The schema of Chakra traces: field numbers, types of nodes and collectives, names and kinds of attributes."""

from __future__ import annotations

import re
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Self

from tracelink._model.events import EventKind
from tracelink._model.operations import Operation

if TYPE_CHECKING:
    from tracelink.converters.chakra.chakra_pb2 import AttributeProto

VERSION = "1.0.0"
"""The version in the metadata."""
FIRST_ID = 1
"""Protobuf does not write a 0, and some readers treat a missing id as an error."""

METADATA_VERSION, METADATA_ATTRIBUTE = 1, 2
"""Field numbers of the metadata, the first message of a file."""
ID, NAME, TYPE, CONTROL, DATA, START, DURATION, INPUTS, OUTPUTS, ATTRIBUTE = range(1, 11)
"""Field numbers of a node."""
VALUES, SHAPES, TYPES = range(1, 4)
"""Field numbers of the inputs and of the outputs of a node."""
ATTRIBUTE_NAME = 1
"""Field number of the name of an attribute; its value is in the field of its kind."""
LIST_VALUES = 1
"""Field number of the values in a list."""

DATA_DEPS, CONTROL_DEPS = "data_deps", "ctrl_deps"
"""Names of the fields DATA and CONTROL."""

SIGNATURE = re.compile(
    rb'"op_schema"\s*,\s*(?:"type"\s*:\s*"string"\s*,\s*"value"|"string_val")\s*:\s*("[^"\\]*")'
)
FORWARD_PARENT = re.compile(
    rb'"fw_parent"\s*,\s*(?:"type"\s*:\s*"uint64"\s*,\s*"value"|"int64_val")\s*:\s*(\d{1,18})\b'
)
"""Attributes in the JSON of execution traces and in the JSON form of Chakra traces."""
ATTRIBUTES_MARKS = (b'"attrs"', b'"attr"')


class NodeType(IntEnum):
    """The type of a node."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


COMMUNICATION = (NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL)


class CollectiveType(IntEnum):
    """The type of a collective."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


TYPE_OF_OPERATION = {
    Operation.ALL_REDUCE: CollectiveType.ALL_REDUCE,
    Operation.REDUCE: CollectiveType.REDUCE,
    Operation.ALL_GATHER: CollectiveType.ALL_GATHER,
    Operation.GATHER: CollectiveType.GATHER,
    Operation.SCATTER: CollectiveType.SCATTER,
    Operation.BROADCAST: CollectiveType.BROADCAST,
    Operation.ALL_TO_ALL: CollectiveType.ALL_TO_ALL,
    Operation.REDUCE_SCATTER: CollectiveType.REDUCE_SCATTER,
    Operation.BARRIER: CollectiveType.BARRIER,
}

SIMULATED = frozenset(
    {
        CollectiveType.ALL_REDUCE,
        CollectiveType.ALL_GATHER,
        CollectiveType.BROADCAST,
        CollectiveType.ALL_TO_ALL,
        CollectiveType.REDUCE_SCATTER,
    }
)
"""Types that ASTRA-sim can run; it fails at others."""


class Variant(StrEnum):
    """The part of a job that is written, and for which consumer."""

    FULL = "full"
    """Operators, device work and communication, with data and control dependencies."""
    ASTRA_SIM = "astra-sim"
    """Device work and communication that ASTRA-sim can run, with data dependencies."""


class Kind(IntEnum):
    """The kind of an attribute's value: the number of the field that holds it."""

    NONE = 0
    DOUBLE = 3
    DOUBLE_LIST = 4
    FLOAT = 5
    FLOAT_LIST = 6
    INT32 = 7
    INT32_LIST = 8
    INT64 = 9
    INT64_LIST = 10
    UINT32 = 11
    UINT32_LIST = 12
    UINT64 = 13
    UINT64_LIST = 14
    SINT32 = 15
    SINT32_LIST = 16
    SINT64 = 17
    SINT64_LIST = 18
    FIXED32 = 19
    FIXED32_LIST = 20
    FIXED64 = 21
    FIXED64_LIST = 22
    SFIXED32 = 23
    SFIXED32_LIST = 24
    SFIXED64 = 25
    SFIXED64_LIST = 26
    BOOL = 27
    BOOL_LIST = 28
    STRING = 29
    STRING_LIST = 30
    BYTES = 31
    BYTES_LIST = 32


INTEGERS = frozenset(
    {
        Kind.INT32,
        Kind.INT64,
        Kind.UINT32,
        Kind.UINT64,
        Kind.SINT32,
        Kind.SINT64,
        Kind.FIXED32,
        Kind.FIXED64,
        Kind.SFIXED32,
        Kind.SFIXED64,
    }
)


class Name(StrEnum):
    """Attributes of nodes that tracelink reads or writes, with the kind that both feeders read."""

    _value_: str
    kind: Kind
    has_one_kind: bool
    """True if the older feeder reads only this kind."""

    def __new__(cls, name: str, kind: Kind, has_one_kind: bool = False) -> Self:
        """An attribute whose value is its name."""
        attribute = str.__new__(cls, name)
        attribute._value_ = name
        attribute.kind, attribute.has_one_kind = kind, has_one_kind
        return attribute

    COMM_TYPE = "comm_type", Kind.INT64, True
    COMM_SIZE = "comm_size", Kind.INT64, True
    OPERATIONS = "num_ops", Kind.INT64, True
    COMM_SOURCE = "comm_src", Kind.INT32, True
    COMM_TARGET = "comm_dst", Kind.INT32, True
    COMM_TAG = "comm_tag", Kind.INT32, True
    COMM_PRIORITY = "comm_priority", Kind.INT32, True
    TENSOR_SIZE = "tensor_size", Kind.UINT64, True
    IS_CPU_OP = "is_cpu_op", Kind.BOOL, True
    GROUP = "pg_name", Kind.STRING, True
    RECORD_FUNCTION = "rf_id", Kind.INT64, True
    FORWARD_PARENT = "fw_parent", Kind.INT64, True
    SEQUENCE = "seq_id", Kind.INT64, True
    SCOPE = "scope", Kind.INT64, True
    THREAD = "tid", Kind.INT64, True
    FORWARD_THREAD = "fw_tid", Kind.INT64, True
    STREAM = "stream", Kind.INT64, True
    SIGNATURE = "op_schema", Kind.STRING, True
    INVOLVED = "involved_dim", Kind.BOOL_LIST
    READ_TENSORS = "inputs", Kind.STRING_LIST
    """Tensors for models of local memory, other than the field INPUTS; likewise `outputs`."""
    WRITTEN_TENSORS = "outputs", Kind.STRING_LIST
    CATEGORY = "cat", Kind.STRING
    START = "start_ns", Kind.INT64
    DURATION = "duration_ns", Kind.INT64
    INCLUSIVE = "inclusive_ns", Kind.INT64
    WAITED = "waited_ns", Kind.INT64
    PROCESS = "pid", Kind.STRING
    DEVICE = "device", Kind.INT64
    CORRELATION = "correlation", Kind.INT64
    OPERATION = "collective", Kind.STRING
    COLLECTIVE = "collective_id", Kind.INT64
    COLLECTIVE_SEQUENCE = "collective_seq", Kind.INT64
    BYTES_IN = "bytes_in", Kind.INT64
    BYTES_OUT = "bytes_out", Kind.INT64
    ELEMENT_TYPE = "dtype", Kind.STRING
    ROOT = "root", Kind.INT64
    GROUP_NAME = "group_name", Kind.STRING


class Category(StrEnum):
    """The kind of event that a node was in its source."""

    OPERATOR = "cpu_op"
    ANNOTATION = "user_annotation"
    NODE = "node"
    """An execution-trace node that has no time."""
    RECORD = "record"
    """A flight-recorder entry."""
    KERNEL = "kernel"
    MEMCPY = "gpu_memcpy"
    MEMSET = "gpu_memset"
    IDLE = "idle"
    """A gap between operators of a thread."""


KIND_OF_CATEGORY = {
    Category.OPERATOR: EventKind.OPERATOR,
    Category.ANNOTATION: EventKind.ANNOTATION,
    Category.NODE: EventKind.NODE,
    Category.RECORD: EventKind.RECORD,
    Category.KERNEL: EventKind.KERNEL,
    Category.MEMCPY: EventKind.MEMCPY,
    Category.MEMSET: EventKind.MEMSET,
}


class MetadataName(StrEnum):
    """Attributes of the metadata that tracelink writes."""

    VARIANT = "variant"
    RANK = "rank"
    WORLD_SIZE = "world_size"
    WRITTEN = "ranks"
    """The ranks that have a file, such as `0-7`."""
    HOST = "host"
    GROUPS = "groups"
    """A JSON object: group number to name, description and ranks."""
    DEPENDENCIES = "deps"
    PRODUCER = "producer"
    NODES = "nodes"
    """The number of nodes, which shows a truncation between two of them."""
    PROCESS = "pid"
    """Only read: written by other tools, likewise `schema`."""
    SCHEMA = "schema"


# The value of an attribute in protobuf.


FIELD_OF_KIND = {kind: f"{kind.name.lower()}{'' if kind.name.endswith('_LIST') else '_val'}" for kind in Kind}
KIND_OF_FIELD = {name: kind for kind, name in FIELD_OF_KIND.items()}
LISTS = frozenset(name for name in KIND_OF_FIELD if name.endswith("_list"))


def kind_and_value(attribute: AttributeProto) -> tuple[Kind, Any]:
    """The kind and the value of an attribute; None if it has no value."""
    field_name = attribute.WhichOneof("value")
    if field_name is None:
        return Kind.NONE, None
    value = getattr(attribute, field_name)
    return KIND_OF_FIELD[field_name], list(value.values) if field_name in LISTS else value


def value_of(attribute: AttributeProto) -> Any:
    """The value of an attribute."""
    return kind_and_value(attribute)[1]
