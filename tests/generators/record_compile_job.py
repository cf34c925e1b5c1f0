"""Records a real job with compiled functions: torch.compile and gloo on one machine, and everything that it leaves.

PYTHONPATH=tests python -m generators compile_job FOLDER [--ranks N]

FOLDER receives, for each rank R, `dedicated_log_torch_trace_rank_R_sample.log.gz` (compile log), `kineto_R.json.gz` and
`dumps/comm_lib_trace_rank_R`. On all ranks a function is compiled twice, because the size of its
input changes; on the last rank another one has a graph break. Paths and names of the machine are replaced.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch._C._distributed_c10d import _dump_fr_trace
from torch.distributed._functional_collectives import all_reduce
from torch.profiler import ProfilerActivity, profile

from generators.record_cpu_job import Job, free_port, join_job, keep, machine_paths, without_paths

SIZES = (16, 16, 24)
"""Rows of the input of each step: the third makes the compiler begin again."""
LOGS = "logs"
DIGEST = re.compile(rb'("has_payload": ")[0-9a-f]{32}(")')
RECORD = re.compile(rb"^[VIWEC]\d{4} ", re.MULTILINE)


def layer(inputs: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Some arithmetic, and a collective within the graph."""
    hidden = torch.nn.functional.gelu(inputs @ weight)
    return all_reduce(hidden.sum(0), "sum", dist.group.WORLD)


def report(value: torch.Tensor, verbose: bool) -> torch.Tensor:
    """A function that breaks its graph if it prints."""
    doubled = value * 2
    if verbose:
        print("step", flush=True)
    return doubled + 1


def train(rank: int, ranks: int) -> None:
    """Three steps of compiled functions."""
    compiled_layer, compiled_report = torch.compile(layer), torch.compile(report)
    weight = torch.randn(8, 8, requires_grad=True)
    for rows in SIZES:
        loss = compiled_layer(torch.randn(rows, 8), weight).sum()
        loss.backward()
        compiled_report(weight.detach(), rank == ranks - 1)
        dist.barrier()


def record_rank(rank: int, job: Job) -> None:
    """One rank of the job, in a process of its own."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(job.scratch / f"cache_{rank}")
    join_job(rank, job)
    kineto = job.scratch / f"kineto_{rank}.json"
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        train(rank, job.ranks)
    profiler.export_chrome_trace(str(kineto))
    keep(rank, job, {"kineto": kineto.read_bytes()}, bytes(_dump_fr_trace()))
    (log,) = (job.scratch / LOGS).glob(f"*_rank_{rank}_*")
    text = with_digests(without_paths(log.read_bytes(), machine_paths(job)))
    name = f"dedicated_log_torch_trace_rank_{rank}_sample.log.gz"
    (job.folder / name).write_bytes(gzip.compress(text, 9, mtime=0))
    dist.barrier()
    dist.destroy_process_group()


def with_digests(log: bytes) -> bytes:
    """The log with the checksums of its payloads, in which paths were replaced."""
    starts = [match.start() for match in RECORD.finditer(log)]
    return b"".join(
        _with_digest(log[start:stop]) for start, stop in zip(starts, [*starts[1:], len(log)], strict=True)
    )


def _with_digest(record: bytes) -> bytes:
    first, _, stored = record.partition(b"\n")
    payload = b"\n".join(line[1:] for line in stored.removesuffix(b"\n").split(b"\n"))
    digest = hashlib.md5(payload, usedforsecurity=False).hexdigest().encode()
    return DIGEST.sub(rb"\g<1>" + digest + rb"\g<2>", first) + b"\n" + stored


def record(folder: Path, ranks: int = 2) -> None:
    """Runs the job and keeps what it leaves in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
    with tempfile.TemporaryDirectory() as scratch:
        # torch reads these when a process imports it.
        os.environ.update(TORCH_TRACE=str(Path(scratch) / LOGS), TORCHINDUCTOR_COMPILE_THREADS="1")
        job = Job(ranks, free_port(), Path(scratch), folder)
        multiprocessing.spawn(record_rank, args=(job,), nprocs=ranks, join=True)
