"""One running rank: CPU and GPU streams over time, and what they record."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from generators.job import COMMUNICATION_STREAM, COMPUTE_STREAM, DEVICE_COUNT, MAIN_THREAD, Group, Job
from generators.recording import Event, Footprint, Input, Operation, Recording, Tensor

RUNTIME_CODES = {
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaStreamSynchronize": 131,
    "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147,
    "cudaDeviceSynchronize": 165,
    "cudaLaunchKernel": 211,
    "cudaGraphLaunch": 311,
    "cudaLaunchKernelExC": 430,
}
FIRST_CORRELATION = 100
LAUNCH_LATENCY_NS = 4_000
GAP_ON_STREAM_NS = 1_000


@dataclass(frozen=True, slots=True)
class Meeting:
    """A communication that a rank is ready for; the answer is when it ends on this rank."""

    key: tuple[int, str, int]
    ranks: tuple[int, ...]
    ready: int
    transfer: int
    awaited: tuple[int, ...]
    """The ranks that have to be ready before it can end here."""


Program = Generator[Meeting, int, None]


class Machine:
    """One rank: its clocks and counters, and its recording."""

    def __init__(self, job: Job, rank: int) -> None:
        self.job = job
        self.rank = rank
        self.device = job.place(rank) % DEVICE_COUNT
        self.random = Random(f"work {job.seed} {rank}")
        self.now = job.start_ns + self.random.randrange(30_000)
        self.streams = defaultdict(int, {COMPUTE_STREAM: 0, COMMUNICATION_STREAM: 0})
        self.recording = Recording(rank)
        self.thread = MAIN_THREAD
        self.record_functions, self.external_id = count(2), 0
        self.event_indices, self.frame_numbers = count(0), count(1)
        self.nodes, self.events, self.sequences = count(5), count(1), count(10)
        self.group_sequences: Counter[tuple[int, bool]] = Counter()
        self.group_orders: Counter[int] = Counter()
        self.messages: Counter[tuple[int, tuple[int, int]]] = Counter()
        self.allocated = 0
        self.slower: dict[str, float] = {}
        """How many times as long kernels of a name take."""
        self.open_operations: dict[int, list[Operation]] = {}
        self._open_frames: list[Event] = []
        self._module_numbers: dict[str, int] = {}
        self._annotated: list[tuple[Operation, dict[int, tuple[int, int]]]] = []

    def work(self, least: int, most: int) -> int:
        """Lets the CPU work for some ns."""
        spent = self.random.randint(least, most)
        self.now += spent
        return spent

    def tensor(self, *shape: int) -> Tensor:
        return Tensor(next(self.nodes), next(self.nodes), shape)

    @property
    def next_correlation(self) -> int:
        return FIRST_CORRELATION + len(self.recording.calls)

    @contextmanager
    def footprint(self) -> Iterator[Footprint]:
        """The ids of everything that happens in here; known when it is over."""
        left = Footprint()
        operation, call = self.external_id + 1, self.next_correlation
        yield left
        left.operations = range(operation, self.external_id + 1)
        left.calls = range(call, self.next_correlation)

    @contextmanager
    def on_thread(self, thread: int) -> Iterator[None]:
        """What happens in here happens on another thread."""
        before, self.thread = self.thread, thread
        yield
        self.thread = before

    @contextmanager
    def operation(
        self, name: str, inputs: Sequence[Input] = (), outputs: Sequence[Input] = (), **more: Any
    ) -> Iterator[Operation]:
        """An operator that runs for as long as what happens in it."""
        self.work(600, 2_500)
        stack = self.open_operations.setdefault(self.thread, [])
        self.external_id += 1
        numbers = (self.external_id, next(self.record_functions), next(self.event_indices), next(self.nodes))
        parent = stack[-1].node if stack else thread_node(self.thread)
        done = Operation(name, self.thread, self.now, *numbers, parent, inputs, outputs, **more)
        stack.append(done)
        self.work(300, 1_800)
        yield done
        self.work(300, 1_800)
        stack.pop()
        done.duration = self.now - done.start
        self.recording.operations.append(done)

    @contextmanager
    def annotation(self, name: str, inputs: Sequence[Input] = ()) -> Iterator[Operation]:
        """A user annotation; the GPU shows it over the kernels that were launched in it."""
        with self.operation(name, inputs, category="user_annotation", scope=7) as done:
            spans: dict[int, tuple[int, int]] = {}
            self._annotated.append((done, spans))
            yield done
            self._annotated.pop()
            for stream, (start, end) in spans.items():
                # The profiler widens these by a nanosecond to each side.
                span, args = (start - 1, end - start + 2), {"External id": done.external_id}
                self.recording.gpu.append(Event("gpu_user_annotation", name, stream, *span, args))

    @contextmanager
    def frame(self, name: str, *, module: bool = False) -> Iterator[None]:
        """A Python function on the main thread."""
        parent = self._open_frames[-1].args["Python id"] if self._open_frames else None
        number = self._module_numbers.setdefault(name, len(self._module_numbers)) if module else None
        self.work(200, 900)
        args = {"Python id": next(self.frame_numbers), "Python parent id": parent}
        args |= {"Ev Idx": next(self.event_indices)} | (
            {} if number is None else {"Python module id": number}
        )
        frame = Event("python_function", name, MAIN_THREAD, self.now, 0, args)
        self._open_frames.append(frame)
        yield
        self.work(100, 700)
        self._open_frames.pop()
        frame.duration = self.now - frame.start
        self.recording.frames.append(frame)

    def call(self, name: str, kernels: int = 0, duration: int | None = None) -> Event:
        """A call of the CUDA runtime from the innermost open operator."""
        self.work(200, 600)
        stack = self.open_operations.get(self.thread)
        spent = self.random.randint(2_500, 7_000) if duration is None else duration
        args = {"External id": stack[-1].external_id} if stack else {}
        args |= {"cbid": RUNTIME_CODES[name], "correlation": self.next_correlation}
        call = Event("cuda_runtime", name, self.thread, self.now, spent, args, kernels)
        self.now += spent
        self.recording.calls.append(call)
        return call

    def ready(self, call: Event, stream: int) -> int:
        """When the GPU can start what `call` launches."""
        delay = self.random.randrange(2_000)
        return max(self.streams[stream] + GAP_ON_STREAM_NS, call.start + LAUNCH_LATENCY_NS) + delay

    def place(
        self, call: Event, category: str, name: str, stream: int, span: tuple[int, int], **args: Any
    ) -> None:
        """Puts onto a stream what `call` launched."""
        common = {"device": self.device, "context": 1, "stream": stream, "correlation": call.correlation}
        start, end = span
        self.recording.gpu.append(
            Event(category, name, stream, start, end - start, call.linked | common | args)
        )
        self.streams[stream] = end
        for _, spans in self._annotated:
            first, last = spans.get(stream, span)
            spans[stream] = (min(first, start), max(last, end))

    def launch(self, kernel: str, least: int = 5_000, most: int = 40_000) -> None:
        call = self.call("cudaLaunchKernel", kernels=1)
        start = self.ready(call, COMPUTE_STREAM)
        end = start + round(self.random.randint(least, most) * self.slower.get(kernel, 1.0))
        self.place(call, "kernel", kernel, COMPUTE_STREAM, (start, end), **kernel_shape(self.random))

    def synchronize(self, kind: str, stream: int, call: Event, span: tuple[int, int], **args: Any) -> None:
        """A `cuda_sync` event: who waited for what."""
        common = {"stream": stream, "correlation": call.correlation, "device": self.device, "context": 1}
        start, end = span
        self.recording.gpu.append(Event("cuda_sync", kind, stream, start, end - start, common | args))

    def stream_waits_for_stream(self, waiting: int, awaited: int) -> None:
        """An event is recorded on one stream, and the other waits for it."""
        recorded = self.call("cudaEventRecord", duration=self.random.randint(700, 1_600))
        waited = self.call("cudaStreamWaitEvent", duration=self.random.randint(700, 1_600))
        on = {
            "wait_on_stream": awaited,
            "wait_on_cuda_event_record_corr_id": recorded.correlation,
            "wait_on_cuda_event_id": next(self.events),
        }
        span = (waited.start + 100, waited.start + waited.duration - 100)
        self.synchronize("Stream Wait Event", waiting, waited, span, **on)
        self.streams[waiting] = max(self.streams[waiting], self.streams[awaited])

    def wait_for_device(self) -> None:
        """The CPU waits until all streams are idle."""
        spent = max(max(self.streams.values()) - self.now, 0) + 3_000
        call = self.call("cudaDeviceSynchronize", duration=spent)
        self.synchronize("Context Sync", -1, call, (call.start + 500, call.start + spent - 500))

    def wait_for_stream(self, stream: int) -> None:
        """The CPU waits until one stream is idle."""
        spent = max(self.streams[stream] - self.now, 0) + 2_000
        call = self.call("cudaStreamSynchronize", duration=spent)
        self.synchronize("Stream Sync", stream, call, (call.start + 300, call.start + spent - 300))

    def allocate(self, size: int) -> None:
        """Memory on the device; negative sizes give it back."""
        self.work(100, 300)
        self.allocated += size
        args = {
            "Total Reserved": 1 << 30,
            "Total Allocated": self.allocated,
            "Bytes": size,
            "Addr": 0x7F00_0000_0000 + len(self.recording.memory) * 0x200,
            "Device Id": self.device,
            "Device Type": 1,
            "Ev Idx": next(self.event_indices),
        }
        self.recording.memory.append(Event("cpu_instant_event", "[memory]", self.thread, self.now, 0, args))

    def next_sequence(self, group: Group, *, point_to_point: bool) -> int:
        """The number of the next collective, or of the next send or receive, of a group."""
        self.group_sequences[group.number, point_to_point] += 1
        return self.group_sequences[group.number, point_to_point]

    def sequences_of(self, group: Group) -> tuple[int, int]:
        """The numbers of the last collective and of the last message or batch of a group."""
        return self.group_sequences[group.number, False], self.group_sequences[group.number, True]

    def next_message(self, group: Group, peers: tuple[int, int]) -> int:
        """The number of the next message from the first to the second of the peers."""
        self.messages[group.number, peers] += 1
        return self.messages[group.number, peers]

    def next_order(self, group: Group) -> int:
        """The number of the next operation of a group."""
        self.group_orders[group.number] += 1
        return self.group_orders[group.number]


def thread_node(thread: int) -> int:
    """The execution-trace node that stands for a thread; 1 is the process, 2 describes the groups."""
    return 2 + thread


def kernel_shape(random: Random) -> dict[str, Any]:
    return {
        "queued": 0,
        "registers per thread": random.choice((32, 64, 128)),
        "shared memory": random.choice((0, 16_384, 49_152)),
        "blocks per SM": 1.185185,
        "warps per SM": 9.481481,
        "grid": [random.choice((8, 16, 128)), 1, 1],
        "block": [256, 1, 1],
        "est. achieved occupancy %": 15,
    }
