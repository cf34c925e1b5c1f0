"""The names of communication operations and of element types, which sources write in many ways."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache


class Operation(StrEnum):
    """The known operations; any other keeps the name in its source."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    BARRIER = "barrier"
    SEND = "send"
    RECV = "recv"
    COALESCED = "coalesced"
    """Ends a group of operations that were issued together."""
    WAIT = "wait"
    """Waits for an operation; transfers nothing itself."""


SYNCHRONIZING = frozenset(
    {
        Operation.ALL_REDUCE,
        Operation.ALL_GATHER,
        Operation.REDUCE_SCATTER,
        Operation.ALL_TO_ALL,
        Operation.BARRIER,
    }
)
"""No rank leaves one of these before the last rank has entered."""

ROOTED = frozenset({Operation.BROADCAST, Operation.REDUCE, Operation.GATHER, Operation.SCATTER})
"""One rank sends to all others, or receives from them."""

POINT_TO_POINT = frozenset({Operation.SEND, Operation.RECV})

SPELLINGS = {
    Operation.ALL_REDUCE: ("allreduce", "allreducesparse", "sparseallreduce", "allreducebarrier"),
    Operation.ALL_GATHER: ("allgather", "allgatherbase", "allgathersingle", "allgatherinto", "allgatherv"),
    Operation.REDUCE_SCATTER: (
        "reducescatter",
        "reducescatterbase",
        "reducescattersingle",
        "reducescattertensor",
        "reducescatterv",
    ),
    Operation.ALL_TO_ALL: ("alltoall", "alltoallbase", "alltoallsingle", "alltoallv", "alltoallvsingle"),
    Operation.BROADCAST: ("broadcast", "broadcastoop"),
    Operation.REDUCE: ("reduce", "reduceoop"),
    Operation.GATHER: ("gather", "gathersingle"),
    Operation.SCATTER: ("scatter",),
    Operation.BARRIER: ("barrier", "monitoredbarrier"),
    Operation.SEND: ("send", "isend"),
    Operation.RECV: ("recv", "irecv", "recvanysource"),
    Operation.COALESCED: ("coalesced",),
    Operation.WAIT: ("wait", "waittensor"),
}
KNOWN = {spelling: operation for operation, spellings in SPELLINGS.items() for spelling in spellings}

RECORD_OPERATOR = "record_param_comms"
"""The operator that records the parameters of a communication."""
DRIVER_CALL = re.compile("cu[A-Z]")
"""Names of calls of the device driver, unlike those of its runtime."""

COLLECTIVE_OPERATOR = re.compile(r"^(_?c10d(_functional)?(_autograd)?::|record_param_comms$)")
COLLECTIVE_ANNOTATION = re.compile(r"^(ncclx?|rcclx?|xccl|mccl|hccl|gloo|mpi|ucc)\d*(-\w+)?:\w")
"""A backend and its operation; wrappers extend the name of the backend (`nccl2`, `nccl-lazy`)."""
COLLECTIVE_KERNEL = re.compile(
    "[nrmhxNRMHX][cC][cC][lL]|[mM][sS][cC][cC][lL]|[oO][nN][eE][cC][cC][lL]"
    "|hcom_|cross_device_reduce|symm_mem"
)
"""Both cases are listed because re.IGNORECASE is ten times slower, and names of kernels are many and long."""

DECORATION = re.compile(r"intotensor|coalesced$|outofplace$")
KERNEL = re.compile(r"^nccl(?:Dev|SymDev|SymkDev)?Kernel_([A-Za-z]+)")
PEERS = re.compile(r"\s.*$")
"""`nccl:send 1->2` names the ranks after the operation."""
MESSAGE = re.compile(r"\s(\d{1,6})(->|<-)(\d{1,6})$")


@cache
def operation_of(name: str) -> str:
    """The operation of a name such as `nccl:_all_gather_base`, `c10d::allreduce_` or `allreduce`."""
    if kernel := KERNEL.match(name):
        name = kernel.group(1)
    plain = PEERS.sub("", name.rsplit(":", 1)[-1]).replace("_", "").lower()
    known = KNOWN.get(plain) or KNOWN.get(DECORATION.sub("", plain))
    return known.value if known else name.rsplit(":", 1)[-1]


@cache
def peers_of(name: str) -> tuple[int, int] | None:
    """The sending and the receiving rank within the group, in `nccl:send 1->2` or `nccl:recv 2<-1`; or None."""
    message = MESSAGE.search(name)
    if not message:
        return None
    own, direction, other = message.groups()
    return (int(own), int(other)) if direction == "->" else (int(other), int(own))


# Element types, by torch's names


ITEM_BYTES = {
    "Byte": 1,
    "Char": 1,
    "Short": 2,
    "Int": 4,
    "Long": 8,
    "UInt16": 2,
    "UInt32": 4,
    "UInt64": 8,
    "Half": 2,
    "Float": 4,
    "Double": 8,
    "BFloat16": 2,
    "Bool": 1,
    "ComplexHalf": 4,
    "ComplexFloat": 8,
    "ComplexDouble": 16,
    "Float8_e4m3fn": 1,
    "Float8_e4m3fnuz": 1,
    "Float8_e5m2": 1,
    "Float8_e5m2fnuz": 1,
    "Float8_e8m0fnu": 1,
    "Float4_e2m1fn_x2": 1,
    "QInt8": 1,
    "QUInt8": 1,
    "QInt32": 4,
    "QUInt4x2": 1,
    "QUInt2x4": 1,
    "Bits1x8": 1,
    "Bits2x4": 1,
    "Bits4x2": 1,
    "Bits8": 1,
    "Bits16": 2,
}

BY_CPP_NAME = {
    "unsigned char": "Byte",
    "signed char": "Char",
    "char": "Char",
    "short": "Short",
    "short int": "Short",
    "int": "Int",
    "long": "Long",
    "long int": "Long",
    "long long": "Long",
    "unsigned short": "UInt16",
    "short unsigned int": "UInt16",
    "unsigned int": "UInt32",
    "unsigned long": "UInt64",
    "long unsigned int": "UInt64",
    "float": "Float",
    "double": "Double",
    "bool": "Bool",
    "c10::complex<c10::Half>": "ComplexHalf",
    "c10::complex<float>": "ComplexFloat",
    "c10::complex<double>": "ComplexDouble",
}
"""Compilers write integer types in different ways."""

BY_FOLDED_NAME = {name.lower(): name for name in ITEM_BYTES}


def type_named(cpp_name: str) -> str:
    """torch's name of a C++ type: `Float` of `float`, `BFloat16` of `c10::BFloat16`; else the name itself."""
    if known := BY_CPP_NAME.get(cpp_name):
        return known
    return BY_FOLDED_NAME.get(cpp_name.removeprefix("c10::").lower(), cpp_name)


def item_bytes(name: str) -> int | None:
    """Bytes of one element of a type by torch's name; None if the type is unknown."""
    return ITEM_BYTES.get(name)
