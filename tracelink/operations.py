"""What ranks do together, by one name whatever a source calls it."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache


class Operation(StrEnum):
    """The operations that are known; any other keeps the name that its source gives it."""

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
    """Closes a group of operations that were issued as one."""
    WAIT = "wait"
    """Waits for an operation; none of its own."""


SYNCHRONIZING = frozenset(
    {
        Operation.ALL_REDUCE,
        Operation.ALL_GATHER,
        Operation.REDUCE_SCATTER,
        Operation.ALL_TO_ALL,
        Operation.BARRIER,
    }
)
"""Nobody leaves one of these before the last has entered."""

ROOTED = frozenset({Operation.BROADCAST, Operation.REDUCE, Operation.GATHER, Operation.SCATTER})
"""One rank gives to all others, or gets from them."""

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
    Operation.GATHER: ("gather",),
    Operation.SCATTER: ("scatter",),
    Operation.BARRIER: ("barrier", "monitoredbarrier"),
    Operation.SEND: ("send", "isend"),
    Operation.RECV: ("recv", "irecv", "recvanysource"),
    Operation.COALESCED: ("coalesced",),
    Operation.WAIT: ("wait", "waittensor"),
}
KNOWN = {spelling: operation for operation, spellings in SPELLINGS.items() for spelling in spellings}

COLLECTIVE_OPERATOR = re.compile(r"^(_?c10d(_functional)?(_autograd)?::|record_param_comms$)")
COLLECTIVE_ANNOTATION = re.compile(r"^(ncclx?|rcclx?|xccl|mccl|hccl|gloo|mpi|ucc)\d*(-\w+)?:\w")
"""A backend and its operation; a wrapper of a backend adds to its name (`nccl2`, `nccl-lazy`)."""
COLLECTIVE_KERNEL = re.compile(
    "[nrmhxNRMHX][cC][cC][lL]|[mM][sS][cC][cC][lL]|[oO][nN][eE][cC][cC][lL]"
    "|hcom_|cross_device_reduce|symm_mem"
)
"""Spelt out, for ignoring case is ten times as slow, and names of kernels are many and long."""

DECORATION = re.compile(r"intotensor|coalesced$|outofplace$")
KERNEL = re.compile(r"^nccl(?:Dev|SymDev|SymkDev)?Kernel_([A-Za-z]+)")
PEERS = re.compile(r"\s.*$")
"""`nccl:send 1->2` names the ranks after the operation."""
MESSAGE = re.compile(r"\s(\d{1,6})(->|<-)(\d{1,6})$")


@cache
def operation_of(name: str) -> str:
    """The operation behind a name such as `nccl:_all_gather_base`, `c10d::allreduce_` or `allreduce`."""
    if kernel := KERNEL.match(name):
        name = kernel.group(1)
    plain = PEERS.sub("", name.rsplit(":", 1)[-1]).replace("_", "").lower()
    known = KNOWN.get(plain) or KNOWN.get(DECORATION.sub("", plain))
    return known.value if known else name.rsplit(":", 1)[-1]


@cache
def peers_of(name: str) -> tuple[int, int] | None:
    """The ranks within the group that send and receive, of `nccl:send 1->2` or `nccl:recv 2<-1`."""
    message = MESSAGE.search(name)
    if not message:
        return None
    own, direction, other = message.groups()
    return (int(own), int(other)) if direction == "->" else (int(other), int(own))
