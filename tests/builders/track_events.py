"""Perfetto traces as PyTorch and rocprofv3 write them, packet by packet.

There is no recorded sample of either: the layout is that of `torch/csrc/profiler/cuspy/cuspy_pftrace.cpp` (clock
snapshot, tracks, one packet with all texts, groups of beginnings and of their ends, stages on GPUs) and of
`generatePerfetto.cpp` of the ROCprofiler SDK (Perfetto's own client library).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from builders.inputs import held
from builders.packets import BEGIN, COUNTED, END, Fields, Fixed, interned, message, packet

BASE = 1_790_857_026_000_000_000
BOOTTIME, REALTIME, LOCAL = 6, 1, 64
PROCESS, THREAD, OTHER_THREAD, DEVICE, SYNC_THREAD, OVERHEAD, OVERHEAD_THREAD = range(1, 8)
PID, TID = 4321, 4322
source = held("rank0.pftrace")


def value(given: Any) -> dict[int, Any]:
    match given:
        case bool():
            return {2: given}
        case int():
            return {4: given}
        case float():
            return {5: given}
        case str():
            return {6: given}
        case list() | tuple():
            return {12: [value(one) for one in given]}
        case dict():
            return {11: annotations(given)[4]}
    raise TypeError(given)


def annotations(arguments: Mapping[str, Any]) -> dict[int, Any]:
    return {4: [{10: name} | value(given) for name, given in arguments.items()]}


def process_track(uuid: int, pid: int, name: str) -> bytes:
    return packet({60: {1: uuid, 3: {1: pid, 6: name}}})


def thread_track(uuid: int, parent: int, pid: int, tid: int, name: str) -> bytes:
    return packet({60: {1: uuid, 5: parent, 4: {1: pid, 2: tid, 5: name}}})


def plain_track(uuid: int, name: str, *more: Fields, parent: int = 0) -> bytes:
    return packet({60: message({1: uuid, 2: name, 5: parent}, *more)})


def snapshot(
    *clocks: tuple[int, int], sequence: int = 1, incremental: Sequence[int] = (), unit: int = 1
) -> bytes:
    readings = [
        {1: clock, 2: time} | ({3: 1, 4: unit} if clock in incremental else {}) for clock, time in clocks
    ]
    return packet({10: sequence, 6: {1: readings}})


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
        queues = {f"[{stream:03}] stream {stream}": 100 + stream for stream in self._queues}
        kernels = [stage.name for stage in self.stages if stage.stage == "Kernel"]
        tables = {
            2: interned(_numbers(self._names)),
            1: interned(_numbers(self._categories)) if self.with_categories else [],
            24: interned(_numbers(STAGES) | queues),
            1000: [{1: number, 3: name} for number, name in enumerate(kernels, 1)],
            1001: {1: 1, 2: "registers_per_thread"},
            47: {1: 1, 3: 0, 2: {1: {1: 0, 2: "Power (W)"}}},
        }
        return packet({10: 1, 13: 1, 12: tables})

    def _slices(self) -> list[bytes]:
        packets = []
        for group in self.groups:
            packets += [self._begin(one) for one in group]
            packets += [
                event(BASE + one.start + one.duration, END, one.track, needs_state=False) for one in group
            ]
        return packets

    def _begin(self, one: Slice) -> bytes:
        fields: dict[int, Any] = {10: self._names.index(one.name) + 1}
        if self.with_categories and one.category:
            fields[3] = self._categories.index(one.category) + 1
        if one.flow:
            fields[47] = Fixed(one.flow)
        if one.submitted:
            fields[3000] = {1: one.submitted}
        return event(BASE + one.start, BEGIN, one.track, fields | annotations(one.arguments))

    def _stages(self) -> list[bytes]:
        kernels = 0
        packets = []
        for number, stage in enumerate(self.stages, 1):
            fields: dict[int, Any] = {1: number, 2: stage.duration, 11: 0}
            fields |= {13: 100 + stage.stream, 14: STAGES.index(stage.stage) + 1, 5: 1}
            if stage.named:
                fields[20] = self._names.index(stage.name) + 1
            fields[18] = stage.waits_for
            if stage.stage == "Kernel":
                kernels += 1
                size = {1: 8, 2: 2, 3: 1}
                fields |= {19: kernels, 21: {1: size, 2: size, 3: {1: 1, 4: 32}}}
            extra = {"device id": 0, "context id": 1, "stream id": stage.stream} | dict(stage.extra)
            if stage.correlation:
                extra["correlation"] = stage.correlation
            fields[6] = [{1: name, 2: str(given)} for name, given in extra.items()]
            packets.append(packet({8: BASE + stage.start, 10: 1, 13: 2, 53: fields}))
        return packets

    def _samples(self) -> list[bytes]:
        return [
            packet({8: BASE + time, 10: 1, 13: 2, 52: {4: 1, 2: {1: 0, 3: float(given)}}})
            for time, given in self.samples
        ]


def _numbers(texts: Sequence[str]) -> dict[str, int]:
    return {text: number for number, text in enumerate(texts, 1)}


def event(
    time: int,
    kind: int,
    track: int,
    fields: Fields = b"",
    *,
    sequence: int = 1,
    needs_state: bool = True,
    clock: int = 0,
) -> bytes:
    state = ({13: 2} if needs_state else {}) | ({58: clock} if clock else {})
    return packet({8: time, 10: sequence}, state, {11: message({9: kind, 11: track}, fields)})


def step_of_torch(start: int = 0) -> Torch:
    """An operator that launches a kernel, a copy, a wait for the stream, and overhead of the profiler."""
    shapes = {"Input Dims": [[2, 3], [3, 4]], "Concrete Inputs": ["", ""]}
    multiplied = {"External id": 2, "Ev Idx": 1, "Record function id": 9, "Sequence number": 5} | shapes
    frame = {"Python id": 1, "Python parent id": "null"}
    launched, copied = {"cbid": 211, "correlation": 70}, {"cbid": 41, "correlation": 71}
    waited = {"stream": 7, "correlation": 72, "device": 0, "context": 1, "cuda_sync_kind": "Stream Sync"}
    operators = [
        Slice("ProfilerStep#3", start, 1000, "user_annotation", {"External id": 1, "Ev Idx": 0}),
        Slice("aten::mm", start + 100, 300, arguments=multiplied),
        Slice("f.py(1): f", start + 90, 320, "python_function", frame),
        Slice("aten::copy_", start + 500, 200, arguments={"External id": 3, "Ev Idx": 2}),
    ]
    calls = [
        Slice("cudaLaunchKernel", start + 200, 50, "cuda_runtime", launched, submitted=[1]),
        Slice("cudaMemcpyAsync", start + 550, 50, "cuda_runtime", copied, submitted=[2]),
    ]
    overhead = Slice("Activity Buffer Request", start + 10, 20, "", {}, OVERHEAD_THREAD)
    wait = Slice("Stream Sync", start + 800, 100, "", waited, SYNC_THREAD)
    work = [
        Stage("gemm_kernel", start + 300, 120, correlation=70),
        Stage("Memcpy", start + 650, 40, "Memcpy", correlation=71, extra={"bytes": 4096}, named=False),
    ]
    return Torch([operators, calls, [overhead], [wait]], work, [(start, 61.5), (start + 500, 300.0)])


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
        clocks = [{1: BOOTTIME, 2: now}, {1: LOCAL, 2: now, 3: 1}]
        defaults = {58: LOCAL, 11: {11: THREAD}}
        self.packets.append(packet({10: self.sequence, 13: 1, 6: {1: clocks}, 59: defaults}))
        return self

    def track(self, name: str, *more: Fields) -> int:
        """The number of a track; a description for a new one."""
        if name not in self.tracks:
            self.tracks[name] = 1000 + len(self.tracks)
            self.packets.append(plain_track(self.tracks[name], name, *more, parent=PROCESS))
        return self.tracks[name]

    def call(
        self, category: str, name: str, start: int, duration: int, corr: int, *, track: str = "", **more: Any
    ) -> Rocprof:
        """A slice from `start` after the beginning of the trace."""
        arguments = {"begin_ns": self.boot + start, "corr_id": corr, **more}
        on = {11: self.track(track)} if track else {}
        new: dict[int, Any] = {1: [], 2: [], 3: []}
        fields = {9: BEGIN, **on, 3: self._number(1, category, new), 10: self._number(2, name, new)}
        said = [
            {1: self._number(3, key, new)} | ({3: given} if isinstance(given, int) else value(given))
            for key, given in arguments.items()
        ]
        self._add(start, {11: {**fields, 47: Fixed(corr), 4: said}}, {12: new} if any(new.values()) else {})
        self._add(start + duration, {11: {9: END, **on}})
        return self

    def sample(self, track: str, time: int, given: int) -> Rocprof:
        """A sample of a counter in kilobytes."""
        number = self.track(track, {8: {3: 3, 4: 1024}})
        self._add(time, {11: {9: COUNTED, 11: number, 30: given}})
        return self

    def _number(self, table: int, name: str, new: dict[int, Any]) -> int:
        if (table, name) not in self.texts:
            self.texts[table, name] = 1 + sum(1 for other, _ in self.texts if other == table)
            new[table] += interned({name: self.texts[table, name]})
        return self.texts[table, name]

    def _add(self, time: int, *fields: Fields) -> None:
        """A packet whose time is the difference to the one before, or absolute if it is earlier."""
        later = time >= self.last
        when = {8: time - self.last if later else self.boot + time, 10: self.sequence, 13: 2}
        self.packets.append(packet(when, *fields) if later else packet(when, {58: BOOTTIME}, *fields))
        self.last = max(time, self.last)

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
