"""Perfetto traces as PyTorch and rocprofv3 write them, packet by packet.

There is no recorded sample of either: the layout is that of `torch/csrc/profiler/cuspy/cuspy_pftrace.cpp` (clock
snapshot, tracks, one packet with all texts, groups of beginnings and of their ends, stages on GPUs) and of
`generatePerfetto.cpp` of the ROCprofiler SDK (Perfetto's own client library).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from builders.inputs import held
from builders.native_packets import number, packet, text
from tracelink.io.framing import FIXED64, delimited, key

source = held("rank0.pftrace")
BASE = 1_790_857_026_000_000_000
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
BOOTTIME, REALTIME, LOCAL = 6, 1, 64
PROCESS, THREAD, OTHER_THREAD, DEVICE, SYNC_THREAD, OVERHEAD, OVERHEAD_THREAD = range(1, 8)
PID, TID = 4321, 4322


def double(place: int, value: float) -> bytes:
    return key(place, FIXED64) + struct.pack("<d", value)


def fixed(place: int, value: int) -> bytes:
    return key(place, FIXED64) + struct.pack("<Q", value)


def value(given: Any) -> bytes:
    """The fields of an annotation with this value."""
    match given:
        case bool():
            return number(2, int(given))
        case int():
            return number(4, given)
        case float():
            return double(5, given)
        case str():
            return text(6, given)
        case list() | tuple():
            return b"".join(delimited(12, value(one)) for one in given)
        case dict():
            return b"".join(delimited(11, text(10, name) + value(one)) for name, one in given.items())
    raise TypeError(given)


def annotations(arguments: Mapping[str, Any]) -> bytes:
    return b"".join(delimited(4, text(10, name) + value(given)) for name, given in arguments.items())


def process_track(uuid: int, pid: int, name: str) -> bytes:
    return packet(delimited(60, number(1, uuid) + delimited(3, number(1, pid) + text(6, name))))


def thread_track(uuid: int, parent: int, pid: int, tid: int, name: str) -> bytes:
    thread = delimited(4, number(1, pid) + number(2, tid) + text(5, name))
    return packet(delimited(60, number(1, uuid) + number(5, parent) + thread))


def plain_track(uuid: int, name: str, *more: bytes, parent: int = 0) -> bytes:
    return packet(delimited(60, number(1, uuid) + text(2, name) + number(5, parent) + b"".join(more)))


def snapshot(
    *clocks: tuple[int, int], sequence: int = 1, incremental: Sequence[int] = (), unit: int = 1
) -> bytes:
    """A snapshot of (clock, time)."""
    readings = b"".join(
        delimited(
            1,
            number(1, clock)
            + number(2, time)
            + (number(3, 1) + number(4, unit) if clock in incremental else b""),
        )
        for clock, time in clocks
    )
    return packet(number(10, sequence) + delimited(6, readings))


@dataclass
class Slice:
    """An event of PyTorch on a thread; times are nanoseconds after the base."""

    name: str
    start: int
    duration: int
    category: str = "cpu_op"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    track: int = THREAD
    submitted: Sequence[int] = ()
    flow: int = 0


@dataclass
class Stage:
    """Work of PyTorch on a GPU."""

    name: str
    start: int
    duration: int
    stage: str = "Kernel"
    stream: int = 7
    correlation: int = 0
    waits_for: Sequence[int] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    named: bool = True


STAGES = ("Kernel", "Memcpy", "Memset", "Annotation", "EventRecord", "HostNode")


@dataclass
class Torch:
    """A trace of PyTorch: groups of slices, each written as beginnings and then ends, and stages, numbered from 1."""

    groups: Sequence[Sequence[Slice]] = ()
    stages: Sequence[Stage] = ()
    samples: Sequence[tuple[int, float]] = ()
    """Time and value of the counter `Power (W)` of GPU 0."""
    with_clock: bool = True
    with_categories: bool = True

    def __bytes__(self) -> bytes:
        clock = snapshot((BOOTTIME, BASE), (REALTIME, BASE)) if self.with_clock else b""
        return b"".join(
            [clock, *self._tracks(), self._texts(), *self._slices(), *self._stages(), *self._samples()]
        )

    def _tracks(self) -> list[bytes]:
        return [
            process_track(PROCESS, PID, "python"),
            thread_track(THREAD, PROCESS, PID, TID, "thread 4322 (python)"),
            thread_track(OTHER_THREAD, PROCESS, PID, 4400, "thread 4400"),
            process_track(DEVICE, 0, "GPU 0"),
            thread_track(SYNC_THREAD, DEVICE, 0, 7, "stream 7"),
            process_track(OVERHEAD, 0x7FFFFFFF, "Overhead"),
            thread_track(OVERHEAD_THREAD, OVERHEAD, 0x7FFFFFFF, 0, "Overhead"),
        ]

    @cached_property
    def _names(self) -> list[str]:
        return list(
            dict.fromkeys(
                [one.name for group in self.groups for one in group]
                + [stage.name for stage in self.stages if stage.named]
            )
        )

    @cached_property
    def _categories(self) -> list[str]:
        return list(dict.fromkeys(one.category for group in self.groups for one in group if one.category))

    @cached_property
    def _queues(self) -> list[int]:
        return sorted({stage.stream for stage in self.stages})

    def _texts(self) -> bytes:
        tables = [delimited(2, number(1, place) + text(2, name)) for place, name in enumerate(self._names, 1)]
        if self.with_categories:
            tables += [
                delimited(1, number(1, place) + text(2, name))
                for place, name in enumerate(self._categories, 1)
            ]
        tables += [delimited(24, number(1, place) + text(2, name)) for place, name in enumerate(STAGES, 1)]
        tables += [
            delimited(24, number(1, 100 + stream) + text(2, f"[{stream:03}] stream {stream}"))
            for stream in self._queues
        ]
        kernels = [stage.name for stage in self.stages if stage.stage == "Kernel"]
        tables += [delimited(1000, number(1, place) + text(3, name)) for place, name in enumerate(kernels, 1)]
        tables.append(delimited(1001, number(1, 1) + text(2, "registers_per_thread")))
        specification = delimited(1, number(1, 0) + text(2, "Power (W)"))
        tables.append(delimited(47, number(1, 1) + number(3, 0) + delimited(2, specification)))
        return packet(number(10, 1), number(13, 1), delimited(12, b"".join(tables)))

    def _slices(self) -> list[bytes]:
        packets = []
        for group in self.groups:
            packets += [self._begin(one) for one in group]
            packets += [
                event(BASE + one.start + one.duration, END, one.track, needs_state=False) for one in group
            ]
        return packets

    def _begin(self, one: Slice) -> bytes:
        fields = number(10, self._names.index(one.name) + 1)
        if self.with_categories and one.category:
            fields += number(3, self._categories.index(one.category) + 1)
        if one.flow:
            fields += fixed(47, one.flow)
        if one.submitted:
            fields += delimited(3000, b"".join(number(1, stage) for stage in one.submitted))
        return event(BASE + one.start, BEGIN, one.track, fields + annotations(one.arguments))

    def _stages(self) -> list[bytes]:
        kernels = 0
        packets = []
        for place, stage in enumerate(self.stages, 1):
            fields = number(1, place) + number(2, stage.duration) + number(11, 0)
            fields += (
                number(13, 100 + stage.stream) + number(14, STAGES.index(stage.stage) + 1) + number(5, 1)
            )
            if stage.named:
                fields += number(20, self._names.index(stage.name) + 1)
            fields += b"".join(number(18, waited) for waited in stage.waits_for)
            if stage.stage == "Kernel":
                kernels += 1
                size = number(1, 8) + number(2, 2) + number(3, 1)
                launch = delimited(1, size) + delimited(2, size) + delimited(3, number(1, 1) + number(4, 32))
                fields += number(19, kernels) + delimited(21, launch)
            extra = {"device id": 0, "context id": 1, "stream id": stage.stream} | dict(stage.extra)
            if stage.correlation:
                extra["correlation"] = stage.correlation
            fields += b"".join(
                delimited(6, text(1, name) + text(2, str(given))) for name, given in extra.items()
            )
            packets.append(
                packet(number(8, BASE + stage.start), number(10, 1), number(13, 2), delimited(53, fields))
            )
        return packets

    def _samples(self) -> list[bytes]:
        return [
            packet(
                number(8, BASE + time),
                number(10, 1),
                number(13, 2),
                delimited(52, number(4, 1) + delimited(2, number(1, 0) + double(3, given))),
            )
            for time, given in self.samples
        ]


def event(
    time: int,
    kind: int,
    track: int,
    fields: bytes = b"",
    *,
    sequence: int = 1,
    needs_state: bool = True,
    clock: int = 0,
) -> bytes:
    """A packet with an event on a track."""
    flags = number(13, 2) if needs_state else b""
    clocked = number(58, clock) if clock else b""
    body = number(9, kind) + number(11, track) + fields
    return packet(number(8, time), number(10, sequence), flags, clocked, delimited(11, body))


def compressed(data: bytes) -> bytes:
    """Packets as the tracing service compresses them."""
    return packet(delimited(50, zlib.compress(data)))


def step_of_torch(start: int = 0) -> Torch:
    """An operator that launches a kernel, a copy, a wait for the stream, and overhead of the profiler."""
    return Torch(
        [
            [
                Slice("ProfilerStep#3", start, 1000, "user_annotation", {"External id": 1, "Ev Idx": 0}),
                Slice(
                    "aten::mm",
                    start + 100,
                    300,
                    arguments={
                        "External id": 2,
                        "Ev Idx": 1,
                        "Record function id": 9,
                        "Sequence number": 5,
                        "Input Dims": [[2, 3], [3, 4]],
                        "Concrete Inputs": ["", ""],
                    },
                ),
                Slice(
                    "f.py(1): f",
                    start + 90,
                    320,
                    "python_function",
                    {"Python id": 1, "Python parent id": "null"},
                ),
                Slice("aten::copy_", start + 500, 200, arguments={"External id": 3, "Ev Idx": 2}),
            ],
            [
                Slice(
                    "cudaLaunchKernel",
                    start + 200,
                    50,
                    "cuda_runtime",
                    {"cbid": 211, "correlation": 70},
                    submitted=[1],
                ),
                Slice(
                    "cudaMemcpyAsync",
                    start + 550,
                    50,
                    "cuda_runtime",
                    {"cbid": 41, "correlation": 71},
                    submitted=[2],
                ),
            ],
            [Slice("Activity Buffer Request", start + 10, 20, "", {}, OVERHEAD_THREAD)],
            [
                Slice(
                    "Stream Sync",
                    start + 800,
                    100,
                    "",
                    {
                        "stream": 7,
                        "correlation": 72,
                        "device": 0,
                        "context": 1,
                        "cuda_sync_kind": "Stream Sync",
                    },
                    SYNC_THREAD,
                )
            ],
        ],
        [
            Stage("gemm_kernel", start + 300, 120, correlation=70),
            Stage("Memcpy", start + 650, 40, "Memcpy", correlation=71, extra={"bytes": 4096}, named=False),
        ],
        [(start, 61.5), (start + 500, 300.0)],
    )


# rocprofv3


@dataclass
class Rocprof:
    """A trace of rocprofv3: slices on tracks by names, with interned texts and times as differences."""

    boot: int = 9_000_000_000
    """The time since boot at the start."""
    sequence: int = 3
    packets: list[bytes] = field(default_factory=list)
    texts: dict[tuple[int, str], int] = field(default_factory=dict)
    last: int = 0
    tracks: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.packets.append(snapshot((BOOTTIME, self.boot), (REALTIME, BASE), sequence=99))
        self.packets.append(process_track(PROCESS, PID, "python3"))
        self.packets.append(thread_track(THREAD, PROCESS, PID, PID, "main"))
        self.clear()

    def clear(self) -> Rocprof:
        """Clears the state of the sequence: all numbers of texts begin again."""
        self.texts.clear()
        now = self.boot + self.last
        clocks = delimited(1, number(1, BOOTTIME) + number(2, now)) + delimited(
            1, number(1, LOCAL) + number(2, now) + number(3, 1)
        )
        defaults = delimited(59, number(58, LOCAL) + delimited(11, number(11, THREAD)))
        self.packets.append(packet(number(10, self.sequence), number(13, 1), delimited(6, clocks), defaults))
        return self

    def track(self, name: str) -> int:
        """The number of a track; a description for a new one."""
        if name not in self.tracks:
            self.tracks[name] = 1000 + len(self.tracks)
            self.packets.append(plain_track(self.tracks[name], name, parent=PROCESS))
        return self.tracks[name]

    def call(
        self, category: str, name: str, start: int, duration: int, corr: int, *, track: str = "", **more: Any
    ) -> Rocprof:
        """A slice from `start` after the beginning of the trace."""
        arguments = {"begin_ns": self.boot + start, "corr_id": corr, **more}
        on = number(11, self.track(track)) if track else b""
        interned: list[bytes] = []
        fields = number(9, BEGIN) + on + number(3, self._number(1, category, interned))
        fields += number(10, self._number(2, name, interned)) + fixed(47, corr)
        for key_name, given in arguments.items():
            named = number(1, self._number(3, key_name, interned))
            fields += delimited(4, named + (number(3, given) if isinstance(given, int) else value(given)))
        texts = delimited(12, b"".join(interned)) if interned else b""
        self._add(start, delimited(11, fields), texts)
        self._add(start + duration, delimited(11, number(9, END) + on))
        return self

    def sample(self, track: str, time: int, given: int) -> Rocprof:
        """A sample of a counter in kilobytes."""
        if track not in self.tracks:
            self.tracks[track] = 1000 + len(self.tracks)
            unit = delimited(8, number(3, 3) + number(4, 1024))
            self.packets.append(plain_track(self.tracks[track], track, unit, parent=PROCESS))
        self._add(
            time, delimited(11, number(9, COUNTER) + number(11, self.tracks[track]) + number(30, given))
        )
        return self

    def _number(self, table: int, name: str, interned: list[bytes]) -> int:
        if (table, name) not in self.texts:
            place = 1 + sum(1 for other, _ in self.texts if other == table)
            self.texts[table, name] = place
            interned.append(delimited(table, number(1, place) + text(2, name)))
        return self.texts[table, name]

    def _add(self, time: int, *fields: bytes) -> None:
        """A packet whose time is the difference to the one before, or absolute if it is earlier."""
        if time >= self.last:
            self.packets.append(
                packet(number(8, time - self.last), number(10, self.sequence), number(13, 2), *fields)
            )
            self.last = time
        else:
            clock = number(58, BOOTTIME)
            self.packets.append(
                packet(number(8, self.boot + time), number(10, self.sequence), number(13, 2), clock, *fields)
            )

    def __bytes__(self) -> bytes:
        return b"".join(self.packets)


def step_of_rocprof() -> Rocprof:
    """A call that launches a kernel, a copy, a marker, and a counter."""
    trace = Rocprof().call("marker_api", "step", 0, 900, 1, tid=PID)
    trace.call("hip_api", "hipLaunchKernel", 100, 50, 2, tid=PID)
    trace.call("hip_api", "hipMemcpyAsync", 200, 80, 3, tid=PID)
    trace.clear()
    trace.call(
        "kernel_dispatch", "gemm(float*)", 300, 90, 2, track="COMPUTE AGENT [4] STREAM [1] (GPU)", agent="4"
    )
    trace.call(
        "memory_copy", "MEMORY_COPY_HOST_TO_DEVICE", 250, 40, 3, track="COPY to AGENT [4] STREAM [1] (GPU)"
    )
    return trace.sample("COPY BYTES to AGENT [4] (GPU)", 260, 4)
