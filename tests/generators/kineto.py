"""A recording as a Kineto profile, in the layout of torch 2.6 on CUDA."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from generators.job import BACKWARD_THREAD, BASE_NS, COMMUNICATION_STREAM, COMPUTE_STREAM, DEVICE_COUNT, Job
from generators.recording import Event, Input, Operation, Recording, Tensor

FIRST_PROCESS = 4_200
BACKWARD_THREAD_OFFSET = 77
DEVICE_PROPERTIES = {
    "name": "Synthetic GPU",
    "totalGlobalMem": 85_899_345_920,
    "computeMajor": 8,
    "computeMinor": 0,
    "maxThreadsPerBlock": 1024,
    "warpSize": 32,
    "numSms": 108,
}
"""What a profile says of a GPU."""

Lane = tuple[int | str, int | str]
"""Process and thread."""


class KinetoText:
    """The profile of one rank."""

    def __init__(self, job: Job, recording: Recording, base_ns: int = BASE_NS) -> None:
        self.job = job
        self.recording = recording
        self.rank = recording.rank
        self.process = process_number(job, self.rank)
        self.device = job.place(self.rank) % DEVICE_COUNT
        self.clock = job.clock(self.rank)
        self.base_ns = base_ns

    def pieces(self, more: bytes = b"") -> list[bytes]:
        """The whole file; `more` are events behind its own."""
        header = "".join(
            f"  {json.dumps(key)}: {json.dumps(value)},\n" for key, value in self.header().items()
        )
        events = ",\n".join(self.events())
        before = f'{{\n{header}  "traceEvents": [\n{events}'
        after = (
            f'\n  ],\n  "traceName": "/srv/job/rank{self.rank}.json",\n'
            f'  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": {self.base_ns}\n}}\n'
        )
        return [before.encode(), b",\n" if more else b"", more, after.encode()]

    def header(self) -> dict[str, Any]:
        groups = [
            {
                "pg_name": group.name,
                "pg_desc": group.description,
                "backend_config": "cuda:nccl",
                "pg_size": len(group.ranks),
                "ranks": list(group.ranks),
            }
            for group in self.job.groups(self.rank)
        ]
        return {
            "schemaVersion": 1,
            "deviceProperties": [{"id": number, **DEVICE_PROPERTIES} for number in range(DEVICE_COUNT)],
            "cupti_version": 24,
            "cuda_runtime_version": 12040,
            "distributedInfo": {
                "backend": "nccl",
                "rank": self.rank,
                "world_size": self.job.ranks,
                "pg_count": len(groups),
                "pg_config": groups,
                "nccl_version": "2.21.5",
            },
            **({"host_name": self.job.host(self.rank)} if self.job.host(self.rank) else {}),
            "with_stack": 1,
            "record_shapes": 1,
            "profile_memory": 1,
        }

    def events(self) -> Iterator[str]:
        recording = self.recording
        yield from self.metadata()
        for operation in sorted(recording.operations, key=lambda operation: operation.start):
            yield self.operation(operation)
        yield from self.backward_flows()
        for event in sorted(recording.frames, key=lambda frame: frame.start):
            yield self.slice(
                event.category, event.name, self.on_cpu(event), event.start, event.duration, event.args
            )
        yield from map(self.memory, recording.memory)
        for event in (*recording.calls, *recording.gpu):
            yield from self.linked(event)
        yield from self.ending()

    def metadata(self) -> Iterator[str]:
        devices = {device: (f"GPU {device}", 5_000_000 + device) for device in range(DEVICE_COUNT)}
        for process, (label, order) in ({self.process: ("CPU", self.process)} | devices).items():
            yield self.described("process_name", process, 0, name="python")
            yield self.described("process_labels", process, 0, labels=label)
            yield self.described("process_sort_index", process, 0, sort_index=order)
        main, backward = self.process, self.process + BACKWARD_THREAD_OFFSET
        names = {
            (self.process, main): f"thread {main} (pt_main_thread)",
            (self.process, backward): f"thread {backward} (pt_autograd_{self.device})",
            (self.device, COMPUTE_STREAM): f"stream {COMPUTE_STREAM} ",
            (self.device, COMMUNICATION_STREAM): f"stream {COMMUNICATION_STREAM} ",
        }
        for (process, thread), name in names.items():
            yield self.described("thread_name", process, thread, name=name)
            yield self.described("thread_sort_index", process, thread, sort_index=thread)

    def described(self, name: str, process: int | str, thread: int, /, **args: Any) -> str:
        begin = self.time(self.recording.window[0])
        lane = {"name": name, "ph": "M", "ts": begin, "pid": process, "tid": thread}
        return element(lane, {"args": args})

    def operation(self, operation: Operation) -> str:
        args: dict[str, Any] = {
            "External id": operation.external_id,
            "Record function id": operation.record_function,
        }
        args |= operation.communication
        args |= described_inputs(operation.inputs)
        if operation.sequence >= 0:
            args |= {"Fwd thread id": operation.forward_thread, "Sequence number": operation.sequence}
        args["Ev Idx"] = operation.event_index
        lane = (self.process, self.thread(operation.thread))
        return self.slice(operation.category, operation.name, lane, operation.start, operation.duration, args)

    def linked(self, event: Event) -> Iterator[str]:
        """A call of the CUDA runtime or something on the GPU, and its end of the flow from the one to the other."""
        call = event.category == "cuda_runtime"
        lane = self.on_cpu(event) if call else (self.device, event.lane)
        yield self.slice(event.category, event.name, lane, event.start, event.duration, event.args)
        if call or event.category in ("kernel", "gpu_memcpy", "gpu_memset"):
            # A call without GPU work gets the end of a flow that begins nowhere.
            yield self.flow("s" if event.kernels else "f", "ac2g", event.correlation, lane, event.start)

    def backward_flows(self) -> Iterator[str]:
        """Flows from forward operators to their backward nodes."""
        for number, (forward, backward) in enumerate(self.recording.backward_of, 1):
            for phase, end in (("s", forward), ("f", backward)):
                yield self.flow(phase, "fwdbwd", number, (self.process, self.thread(end.thread)), end.start)

    def memory(self, event: Event) -> str:
        """An instant that says what was allocated."""
        what = {"ph": "i", "cat": event.category, "s": "t", "name": event.name}
        process, thread = self.on_cpu(event)
        return element(
            what, {"pid": process, "tid": thread, "ts": self.time(event.start)}, {"args": event.args}
        )

    def ending(self) -> Iterator[str]:
        """What the profiler says of itself."""
        begin, end = self.recording.window
        requested = begin + 5_000
        what = {"ph": "X", "cat": "overhead", "name": "Activity Buffer Request"}
        lasted = self.duration(requested, 2_345)
        yield element(what, {"pid": -1, "tid": 0, "ts": self.time(requested), "dur": lasted})
        name = "PyTorch Profiler"
        yield self.slice("Trace", f"{name} (0)", ("Spans", name), begin, end - begin, {"Op count": 0})
        yield self.described("process_sort_index", "Spans", 0, sort_index=536870912)
        for what, pid, tid, time in (
            ({"name": f"Iteration Start: {name}"}, "Traces", f"Trace {name}", begin),
            ({"name": "Record Window End"}, "", "", end),
        ):
            yield element(what | {"ph": "i", "s": "g"}, {"pid": pid, "tid": tid, "ts": self.time(time)})

    def slice(
        self, category: str, name: str, lane: Lane, start: int, duration: int, args: Mapping[str, Any]
    ) -> str:
        return element(
            {"ph": "X", "cat": category, "name": name, "pid": lane[0], "tid": lane[1]},
            {"ts": self.time(start), "dur": self.duration(start, duration)},
            {"args": dict(args)},
        )

    def flow(self, phase: str, name: str, number: int, lane: Lane, time: int) -> str:
        where = {"ph": phase, "id": number, "pid": lane[0], "tid": lane[1], "ts": self.time(time)}
        return element(where, {"cat": name, "name": name, **({"bp": "e"} if phase == "f" else {})})

    def on_cpu(self, event: Event) -> Lane:
        return self.process, self.thread(event.lane)

    def thread(self, logical: int) -> int:
        """The operating system's number of a logical thread."""
        return self.process + (BACKWARD_THREAD_OFFSET if logical == BACKWARD_THREAD else 0)

    def time(self, true_ns: int) -> str:
        """A true time as this rank's clock shows it, in the profile's unit."""
        return microseconds(self.clock.shown(true_ns) - self.base_ns)

    def duration(self, start: int, duration: int) -> str:
        """How long something lasted by this rank's clock, in the profile's unit."""
        return microseconds(self.clock.shown(start + duration) - self.clock.shown(start))


def element(*lines: Mapping[str, Any]) -> str:
    """An element as torch lays it out; times are written as they are."""
    parts = (
        ", ".join(
            f'"{key}": {value if key in ("ts", "dur") else json.dumps(value)}' for key, value in line.items()
        )
        for line in lines
    )
    return "  {\n    " + ",\n    ".join(parts) + "\n  }"


def process_number(job: Job, rank: int) -> int:
    """The process id of a rank; those of different hosts may be equal."""
    return FIRST_PROCESS + 100 * job.place(rank)


def microseconds(ns: int) -> str:
    """Nanoseconds as microseconds with exactly three decimals."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def described_inputs(inputs: Any) -> dict[str, Any]:
    if not inputs:
        return {}
    return {
        "Concrete Inputs": [str(value) if _is_scalar(value) else "" for value in inputs],
        "Input type": [_type_name(value) for value in inputs],
        "Input Strides": [_of_tensors(value, lambda tensor: tensor.strides) for value in inputs],
        "Input Dims": [_of_tensors(value, lambda tensor: list(tensor.shape)) for value in inputs],
    }


def _is_scalar(value: Input) -> bool:
    return isinstance(value, int | float | bool)


def _type_name(value: Input) -> str:
    if isinstance(value, Tensor):
        return "float"
    if isinstance(value, list):
        return "TensorList" if value and isinstance(value[0], Tensor) else ""
    return "Scalar" if _is_scalar(value) else ""


def _of_tensors(value: Input, what: Callable[[Tensor], list[int]]) -> list[Any]:
    """Something of a tensor, or of each tensor of a list."""
    if isinstance(value, Tensor):
        return what(value)
    return [what(part) for part in value if isinstance(part, Tensor)] if isinstance(value, list) else []
