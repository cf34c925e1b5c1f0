"""Records a real CPU job with `tracelink.capture`: torch and gloo, one machine, and everything that it leaves behind.

PYTHONPATH=tests python -m generators cpu_job FOLDER [--ranks N]

FOLDER receives, for each rank R, `et_R.json.gz` (execution trace), `kineto_R.json.gz` (profile), `capture_R.json` and
`fr/comm_lib_trace_rank_R` (flight recorder). Paths and names of the machine are replaced.
"""

from __future__ import annotations

import datetime
import gzip
import os
import re
import socket
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

import tracelink

RECORDED_STEPS = "1-2"
STEPS = 4
BATCH, WIDTH, CLASSES = 16, 32, 8
STAND_IN_ROOT = "/srv/job"
STAND_IN_HOST = "node0"
HOST = re.compile(rb'("host(?:_name)?":\s*)"[^"]*"')
SYSTEM = re.compile(rb'("system":\s*"\w+ )[^ "]+( [^"]*")')


@dataclass(frozen=True, slots=True)
class Job:
    """What every rank needs to know."""

    ranks: int
    port: int
    scratch: Path
    folder: Path


@dataclass(frozen=True, slots=True)
class Model:
    """The parts of a training step."""

    network: nn.Module
    optimizer: Any
    tensor_group: Any
    rank: int
    ranks: int


def train_step(model: Model) -> None:
    """Forward, tensor-parallel exchange, backward, update, ring exchange, barrier."""
    inputs, targets = torch.randn(BATCH, WIDTH), torch.randint(0, CLASSES, (BATCH,))
    with record_function("## forward ##"):
        outputs = model.network(inputs)
        loss = nn.functional.cross_entropy(outputs, targets)
    exchange_activations(model, outputs.detach().clone())
    with record_function("## backward ##"):
        model.optimizer.zero_grad()
        loss.backward()
    model.optimizer.step()
    ring_exchange(model)
    dist.barrier()


def exchange_activations(model: Model, activations: torch.Tensor) -> None:
    """What a tensor-parallel layer would send."""
    dist.all_reduce(activations, group=model.tensor_group)
    gathered = torch.empty(BATCH * model.ranks, CLASSES)
    dist.all_gather_into_tensor(gathered, activations, group=model.tensor_group)


def ring_exchange(model: Model) -> None:
    """Each rank sends to the next; even ranks send first, to avoid a deadlock."""
    following, previous = (model.rank + 1) % model.ranks, (model.rank - 1) % model.ranks
    outgoing, incoming = torch.full((WIDTH,), float(model.rank)), torch.empty(WIDTH)
    if model.rank % 2 == 0:
        dist.send(outgoing, following)
        dist.recv(incoming, previous)
    else:
        dist.recv(incoming, previous)
        dist.send(outgoing, following)


def build_model(rank: int, ranks: int) -> Model:
    """A small network whose gradients need several buckets."""
    layers = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, WIDTH), nn.ReLU())
    network = DistributedDataParallel(nn.Sequential(layers, nn.Linear(WIDTH, CLASSES)), bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    tensor_group = dist.new_group(list(range(ranks)), group_desc="tensor_parallel")
    return Model(network, optimizer, tensor_group, rank, ranks)


def record_rank(rank: int, job: Job) -> None:
    """One rank of the job, in a process of its own."""
    join_job(rank, job)
    model = build_model(rank, job.ranks)
    train_step(model)
    recording = job.scratch / "recorded"
    with tracelink.capture(
        recording, RECORDED_STEPS, stacks=True, memory=True, metrics=None, compile_log=False
    ) as capture:
        for _ in range(STEPS):
            with capture.annotate("## step ##"):
                train_step(model)
            capture.step()
    dist.barrier()
    keep_recording(rank, job, recording)
    dist.destroy_process_group()


def keep_recording(rank: int, job: Job, recording: Path) -> None:
    """Copies the files of a rank, without what tells of the machine."""
    traces = {
        name: gzip.decompress((recording / f"{name}_{rank}.json.gz").read_bytes())
        for name in ("et", "kineto")
    }
    keep(rank, job, traces)
    paths = machine_paths(job)
    others = [f"capture_{rank}.json", f"fr/comm_lib_trace_rank_{rank}"]
    for name in others:
        if (recording / name).exists():
            content = without_machine((recording / name).read_bytes(), paths)
            (job.folder / name).parent.mkdir(exist_ok=True)
            (job.folder / name).write_bytes(content)


def without_machine(content: bytes, paths: dict[str, str]) -> bytes:
    """The content with other folders, and with other names of the machine and its system."""
    content = HOST.sub(rb'\1"' + STAND_IN_HOST.encode() + b'"', content)
    content = SYSTEM.sub(rb"\g<1>6\g<2>", content)
    return without_paths(content, paths)


def join_job(rank: int, job: Job) -> None:
    """Connects this process to the others."""
    os.environ.update(
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(job.port),
        GLOO_SOCKET_IFNAME="lo",
        RANK=str(rank),
        WORLD_SIZE=str(job.ranks),
        LOCAL_RANK=str(rank),
    )
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", rank=rank, world_size=job.ranks, timeout=datetime.timedelta(seconds=120))


def keep(rank: int, job: Job, traces: dict[str, bytes], dump: bytes = b"") -> None:
    """Writes what one rank recorded, without what tells of the machine."""
    paths = machine_paths(job)
    for name, content in traces.items():
        compressed = gzip.compress(without_machine(content, paths), 9, mtime=0)
        (job.folder / f"{name}_{rank}.json.gz").write_bytes(compressed)
    if not dump:
        return
    dumps = job.folder / "dumps"
    dumps.mkdir(exist_ok=True)
    (dumps / f"comm_lib_trace_rank_{rank}").write_bytes(without_paths(dump, paths))


def machine_paths(job: Job) -> dict[str, str]:
    """Folders of this machine that can occur in a recording, and what stands for each."""
    named = {
        "job": Path(__file__).resolve().parent,
        "out": job.folder.resolve(),
        "tmp": job.scratch.resolve(),
        "env": Path(sys.prefix),
        "python": Path(sys.base_prefix),
        "lib": Path(sysconfig.get_paths()["purelib"]),
        "cwd": Path.cwd(),
        "home": Path.home(),
    }
    return {str(path): f"{STAND_IN_ROOT}/{name}" for name, path in named.items() if len(path.parts) > 1}


def without_paths(content: bytes, paths: dict[str, str]) -> bytes:
    """Replaces paths by others of the same length: pickled texts carry their length."""
    for path in sorted(paths, key=len, reverse=True):
        stand_in = paths[path].ljust(len(path), "_")[: len(path)]
        content = content.replace(path.encode(), stand_in.encode())
    return content


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def record(folder: Path, ranks: int = 2) -> None:
    """Runs the job and keeps what it leaves behind in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
    with tempfile.TemporaryDirectory() as scratch:
        job = Job(ranks, free_port(), Path(scratch), folder)
        multiprocessing.spawn(record_rank, args=(job,), nprocs=ranks, join=True)
