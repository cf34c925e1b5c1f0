"""Records one process that compiles with faults: everything that a compile log can show, in a few small functions.

PYTHONPATH=tests python -m generators compile_faults FOLDER

FOLDER receives the compile logs of the process and of one that it forks, `kineto.json.gz` and `et.json.gz`. A function
is compiled before the process group exists; others have a graph break, are compiled again until the limit is reached,
fail in their backend, run under compiled autograd, and become C++ kernels. Paths and names of the machine are replaced.
`tests/recorded/compile_faults` was recorded with torch 2.13.
"""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch._dynamo import compiled_autograd
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

from generators.record_compile_job import LOGS, with_digests
from generators.record_cpu_job import Job, free_port, join_job, machine_paths, without_machine, without_paths

RECOMPILE_LIMIT = 3
compiled = torch.compile(backend="eager")


@compiled  # type: ignore[untyped-decorator]  # without torch it has no type
def early(value: torch.Tensor) -> torch.Tensor:
    """Compiled before the process group exists."""
    return value + 1


@compiled  # type: ignore[untyped-decorator]  # without torch it has no type
def broken(value: torch.Tensor) -> torch.Tensor:
    """A graph break."""
    doubled = value * 2
    print("step", flush=True)
    return doubled + 1


@compiled  # type: ignore[untyped-decorator]  # without torch it has no type
def repeated(value: torch.Tensor, mode: str) -> torch.Tensor:
    """Compiled again for each mode, until the limit."""
    return value.sum() if mode == "sum" else value.mean()


@torch.compile(backend="aot_eager")  # type: ignore[untyped-decorator]
def loss(value: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Has a backward pass."""
    return (value @ weight).relu().sum()


@torch.compile(backend=lambda graph, inputs: graph.missing)  # type: ignore[untyped-decorator]
def failing(value: torch.Tensor) -> torch.Tensor:
    """Its backend raises an exception."""
    return value - 1


@torch.compile  # type: ignore[untyped-decorator]
def fused(value: torch.Tensor) -> torch.Tensor:
    """A kernel in C++."""
    return torch.sin(value) + torch.cos(value)


@compiled  # type: ignore[untyped-decorator]  # without torch it has no type
def forked(value: torch.Tensor) -> torch.Tensor:
    """Compiled in a process that was forked."""
    return value / 2


def run() -> None:
    """All but the first function; what was compiled before is not profiled while it is compiled."""
    value, weight = torch.ones(4, 8), torch.ones(8, 2, requires_grad=True)
    broken(value)
    for mode in ("sum", "mean", "other", "last"):
        repeated(value, mode)
    for dtype in (torch.float32, torch.float64):
        loss(value.to(dtype), weight.to(dtype)).backward()
    expect_failure(failing, value)
    fused(value)
    with compiled_autograd._enable(compiled):
        (value @ weight).sum().backward()


def expect_failure(function: Callable[[torch.Tensor], Any], value: torch.Tensor) -> None:
    """Calls a function whose backend raises an exception."""
    try:
        function(value)
    except Exception as error:  # noqa: BLE001 (of any class that dynamo wraps it in)
        sys.stdout.write(f"failed as expected: {type(error).__name__}\n")


def record_process(_: int, job: Job) -> None:
    """The process that is recorded, and one that it forks."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(job.scratch / "cache")
    torch._dynamo.config.recompile_limit = RECOMPILE_LIMIT
    torch._inductor.config.fx_graph_cache = False
    torch._inductor.config.cpp.enable_kernel_profile = True
    early(torch.ones(2))
    fused(torch.ones(4, 8))
    join_job(0, job)
    nodes, events = job.scratch / "et.json", job.scratch / "kineto.json"
    observer = ExecutionTraceObserver().register_callback(str(nodes))
    with profile(activities=[ProfilerActivity.CPU], execution_trace_observer=observer) as profiler:
        run()
    profiler.export_chrome_trace(str(events))
    if child := os.fork():
        os.waitpid(child, 0)
    else:
        forked(torch.ones(2))
        os._exit(0)
    dist.destroy_process_group()


def keep(job: Job) -> None:
    """Writes what was recorded, without what tells of the machine."""
    paths = machine_paths(job)
    for name in ("et", "kineto"):
        content = without_machine((job.scratch / f"{name}.json").read_bytes(), paths)
        (job.folder / f"{name}.json.gz").write_bytes(gzip.compress(content, 9, mtime=0))
    logs = sorted((job.scratch / LOGS).iterdir(), key=lambda path: path.stat().st_size, reverse=True)
    for name, log in zip(("sample", "forked"), logs, strict=True):
        text = with_digests(without_paths(log.read_bytes(), paths))
        target = job.folder / f"dedicated_log_torch_trace_{name}.log.gz"
        target.write_bytes(gzip.compress(text, 9, mtime=0))


def record(folder: Path) -> None:
    """Runs the process and keeps what it leaves in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        # torch reads these when a process imports it.
        os.environ.update(TORCH_TRACE=str(Path(scratch) / LOGS), TORCHINDUCTOR_COMPILE_THREADS="1")
        job = Job(1, free_port(), Path(scratch), folder)
        multiprocessing.spawn(record_process, args=(job,), nprocs=1, join=True)
        keep(job)
