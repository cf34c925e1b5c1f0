"""Profiles of the ranks whose dumps `builders.dumps` makes, on the same clock.

    profile(folder, 2, call(1), call(2), loading(2.3, 6.8))

is a profile of rank 2 in which it called the first two all-reduces and then loaded data for 4.5 seconds.
"""

from __future__ import annotations

from pathlib import Path

from builders.kineto import Elements, cpu_op, kernel, launch, python_frame, trace, write
from builders.recorder import CREATED

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
