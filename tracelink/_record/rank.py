"""What this process is: rank, world size, host and process groups, from torch or from the environment."""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracelink._io.sources import LARGEST_RANK
from tracelink.converters.capture import schema

RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
WORLD_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
LOCAL_VARIABLES = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
RESTARTS = "TORCHELASTIC_RESTART_COUNT"
OF_TORCH = "torch.distributed"
ASSUMED = "assumed"
MOST_GROUPS = 4096
"""Groups of a rank that are listed."""

RECORDED_VARIABLES = (
    *RANK_VARIABLES,
    *WORLD_VARIABLES,
    *LOCAL_VARIABLES,
    RESTARTS,
    *("GROUP_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"),
    *("SLURM_JOB_ID", "SLURM_NODEID", "SLURM_NNODES"),
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"),
    *("CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS", "PYTORCH_CUDA_ALLOC_CONF", "OMP_NUM_THREADS"),
    *("NCCL_DEBUG", "NCCL_ALGO", "NCCL_PROTO", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_DISABLE"),
    *("NCCL_P2P_DISABLE", "NCCL_NET_GDR_LEVEL", "GLOO_SOCKET_IFNAME", "TORCH_DISTRIBUTED_DEBUG"),
    *("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_TRACE"),
    *("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_NCCL_DESYNC_DEBUG"),
    *("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_ENABLE_TIMING"),
    *("TORCH_COMPILE_DISABLE", "KINETO_USE_DAEMON"),
)
"""Variables of the environment that capture files contain; no other one is recorded."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The place of this process in the job."""

    rank: int
    rank_from: str
    world_size: int
    local_rank: int | None
    host: str
    pid: int


def identity(torch: Any) -> Identity:
    """The identity by torch if a process group exists, else by the launcher; rank 0 of 1 if unknown."""
    distributed = initialized(torch)
    rank, rank_from = _number(RANK_VARIABLES)
    world, _ = _number(WORLD_VARIABLES)
    local, _ = _number(LOCAL_VARIABLES)
    if distributed is not None:
        rank, rank_from, world = distributed.get_rank(), OF_TORCH, distributed.get_world_size()
    if rank is None:
        rank, rank_from = 0, ASSUMED
    return Identity(rank, rank_from, max(world or 1, rank + 1), local, socket.gethostname(), os.getpid())


def initialized(torch: Any) -> Any | None:
    """`torch.distributed` if the process belongs to a job, else None."""
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _number(names: Sequence[str]) -> tuple[int | None, str]:
    for name in names:
        text = os.environ.get(name, "")
        if text.isascii() and text.isdecimal() and int(text) <= LARGEST_RANK:
            return int(text), name
    return None, ""


def restarts() -> int:
    """How often the launcher restarted the job."""
    return _number((RESTARTS,))[0] or 0


# Process groups.


def groups(torch: Any) -> list[schema.Group]:
    """The process groups that this rank belongs to."""
    distributed = initialized(torch)
    if distributed is None:
        return []
    c10d = distributed.distributed_c10d
    world = getattr(c10d, "_world", None)
    known = getattr(world, "pg_config_info", None)
    if known is not None:
        described = [_described(entry, distributed.get_world_size()) for entry in known]
        return [group for group in described if group.ranks][:MOST_GROUPS]
    return _older_groups(c10d)


def _described(entry: Mapping[str, Any], world_size: int) -> schema.Group:
    """The group of an entry of torch's list, in which a group of all ranks has none."""
    size = int(entry.get("group_size", entry.get("pg_size", 0)))
    ranks = [int(rank) for rank in entry.get("ranks", ())]
    if not ranks and size == world_size:
        ranks = list(range(size))
    return schema.Group(
        str(entry.get("pg_name", "")),
        str(entry.get("pg_desc", "")),
        ranks,
        size or len(ranks),
        backend_of(str(entry.get("backend_config", entry.get("backend_id", "")))),
    )


def backend_of(configuration: str) -> str:
    """`nccl` of `cuda:nccl`; the whole text if devices have different backends."""
    backends = {part.rpartition(":")[2] for part in configuration.split(",")}
    return backends.pop() if len(backends) == 1 else configuration


def _older_groups(c10d: Any) -> list[schema.Group]:
    """The groups by the tables of torch 2.0 and before."""
    ranks_of = getattr(c10d, "_pg_group_ranks", {})
    found = []
    for group, name in getattr(c10d, "_pg_names", {}).items():
        ranks = sorted(ranks_of.get(group, {}), key=ranks_of.get(group, {}).__getitem__)
        if ranks:
            found.append(schema.Group(str(name), "", [int(rank) for rank in ranks], len(ranks)))
    return found[:MOST_GROUPS]


def mesh_of(mesh: Any) -> schema.Mesh:
    """A `torch.distributed.device_mesh.DeviceMesh` as names, shape and ranks."""
    ranks = mesh.mesh
    names = mesh.mesh_dim_names or ()
    return schema.Mesh(
        [str(name) for name in names], [int(size) for size in ranks.shape], ranks.flatten().tolist()
    )


# Versions and environment.


def versions(torch: Any) -> dict[str, str]:
    """Versions of what can change a recording."""
    found = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "torch": str(getattr(torch, "__version__", "")),
    }
    of_torch = getattr(torch, "version", None)
    for name in ("cuda", "hip", "xpu", "git_version"):
        found[name] = str(getattr(of_torch, name, None) or "")
    for name in ("numpy", "triton", "transformers", "lightning"):
        module = sys.modules.get(name)
        found[name] = str(getattr(module, "__version__", "")) if module else ""
    return {name: version for name, version in found.items() if version}


def environment(names: Iterable[str] = RECORDED_VARIABLES) -> dict[str, str]:
    """The listed variables that are set."""
    return {name: os.environ[name][:4096] for name in names if name in os.environ}
