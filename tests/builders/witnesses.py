"""Profiles and compile logs of the ranks whose dumps `builders.dumps` makes, on the same clock."""

from __future__ import annotations

from pathlib import Path

from builders.compile_log import START_US, artifact, begin, end, log, metrics, record, started
from builders.dumps import SECOND
from builders.kineto import Elements, cpu_op, kernel, launch, python_frame, trace, write
from builders.recorder import CREATED

# Profiles of the ranks whose dumps `builders.dumps` makes, on the same clock.


MICROSECONDS = 1e6
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
RING = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def call(number: int, *, launched: bool = True, finished: bool = True) -> Elements:
    """The all-reduce that the recorder saw `number` seconds after the beginning, from its stack to its kernel."""
    time = number * MICROSECONDS
    said = {"Collective_name": "allreduce", "Process_Group_Name": "0", "In_msg_nelems": 1024, "Group_size": 4}
    issued = [
        python_frame("train.py(20): step", time - 50, 200),
        cpu_op("DistributedDataParallel.forward", time - 40, 180),
        cpu_op("c10d::allreduce_", time - 20, 100),
        cpu_op("record_param_comms", time - 10, 80, **said),
    ]
    launches = [launch(time + 20, 10, correlation=number)] if launched else []
    kernels = [kernel(RING, time + 100, 1000, stream=20, correlation=number)] if finished else []
    return [*issued, *launches, *kernels]


def loading(first: float, last: float) -> Elements:
    """Waits for a batch of data, from one second to another."""
    time, length = first * MICROSECONDS, (last - first) * MICROSECONDS
    return [
        python_frame("data.py(12): batches", time, length),
        python_frame("torch/utils/data/dataloader.py(700): __next__", time, length),
        cpu_op(LOADER, time, length),
    ]


def profile(folder: Path, rank: int, *parts: Elements, until: float = 7) -> Path:
    """A file whose name says nothing of its rank."""
    main = python_frame("train.py(100): main", MICROSECONDS / 2, (until - 0.5) * MICROSECONDS)
    elements = [main, *(element for part in parts for element in part)]
    name = f"host_{4000 + 7 * rank}.1741000000.pt.trace.json"
    return write(folder / name, trace(*elements, rank=rank, baseTimeNanoseconds=CREATED))


# Compile logs of the ranks whose dumps `builders.dumps` makes, on the same clock.


ZERO = CREATED / SECOND - START_US / 1e6
"""When dumps begin, in seconds after the beginning of compile logs: the third all-reduce is 3 s later."""


def compile_log(folder: Path, rank: int, *records: str, name: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (name or f"dedicated_log_torch_trace_rank_{rank}_abc.log")
    path.write_bytes(log(*records))
    return path


def compiling(id_: str, since: float, until: float | None = None, name: str = "train_step") -> list[str]:
    """A compilation that waits for its workers, in seconds of the dumps; `until` is None if it has no end."""
    start = ZERO + since
    begun = [
        started(id_, name, at=start),
        begin("entire_frame_compile", id_, at=start, fn_name="_compile.compile_inner"),
        begin("async_compile.wait", id_, at=start + 0.25),
    ]
    if until is None:
        return begun
    stop = ZERO + until
    ends = [
        end("async_compile.wait", id_, at=stop - 0.25),
        end("entire_frame_compile", id_, at=stop),
        metrics(id_, start=start, seconds=stop - start, co_name=name),
    ]
    return [*begun, *ends]


def recompiled(id_: str, because: str, since: float) -> str:
    """Why a function is compiled again."""
    return artifact("recompile_reasons", because, id_, at=ZERO + since)


def alive(at: float) -> str:
    """A record without meaning that shows that the process was alive."""
    return record("artifact", {"name": "x", "encoding": "string"}, "x", at=ZERO + at)


def near(ns: int, seconds: float) -> bool:
    """Times of compile logs have microseconds."""
    return abs(ns - CREATED - seconds * SECOND) <= 2000
