"""The sorts of communication, as each tool calls them."""

from __future__ import annotations

from dataclasses import dataclass, replace

SEND_RECEIVE_KERNEL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of communication, as each tool calls it."""

    operator: str
    annotation: str
    parameter_name: str
    kernel: str
    from_root: bool = False
    """Whether it ends for a rank as soon as the first of the group has come."""
    sized: bool = True
    """Whether a profile tells how much is sent."""


ALL_REDUCE = Kind(
    "c10d::allreduce_",
    "all_reduce",
    "allreduce",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
)
ALL_GATHER = Kind(
    "c10d::_allgather_base_",
    "_all_gather_base",
    "_allgather_base",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
)
REDUCE_SCATTER = Kind(
    "c10d::_reduce_scatter_base_",
    "_reduce_scatter_base",
    "_reduce_scatter_base",
    "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
)
BROADCAST = Kind(
    "c10d::broadcast_",
    "broadcast",
    "broadcast",
    "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    from_root=True,
)
ALL_TO_ALL = Kind("c10d::alltoall_base_", "all_to_all", "all_to_allv", SEND_RECEIVE_KERNEL)
BARRIER = replace(
    ALL_REDUCE,
    operator="c10d::barrier",
    annotation="all_reduce_barrier",
    parameter_name="barrier",
    sized=False,
)
