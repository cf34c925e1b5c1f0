"""Names of communication kernels, from which `chakra_converter` tells the operation."""

from __future__ import annotations

import re

RENAMED = ("ncclKernel_SendRecv", "ncclDevKernel_SendRecv")
"""What NCCL called this kernel up to 2.17, and since; `chakra_converter` ends with an error at the old name."""

COMMUNICATION = re.compile(r"nccl(Dev)?Kernel")
OPERATION = re.compile(r"allreduce|alltoall|allgather|reducescatter|broadcast")


def current_name(name: str) -> str:
    """The name that newer NCCL gives the kernel."""
    return name.replace(*RENAMED)


def is_refused(name: str) -> bool:
    """Whether `chakra_converter` ends with an error at this kernel, such as one of `reduce` or RCCL's `Generic`."""
    plain = name.replace("_", "").replace("-", "").lower()
    return bool(COMMUNICATION.search(name)) and not OPERATION.search(plain) and RENAMED[1] not in name
