"""What is said of one rank, on timelines of a few events."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from builders.job import START, JobBuilder
from tracelink._model.columns import MICROSECOND
from tracelink._model.communications import Evidence
from tracelink._model.events import EventKind, Relation, TrackKind
from tracelink._model.job import LinkedJob
from tracelink._time.model.results import Cause, Launches, Portion, Step, WorkIn
from tracelink._time.rank.account import Account, account_of

US = MICROSECOND
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


@dataclass
class Timeline:
    """One rank with a thread and streams; times are in µs."""

    builder: JobBuilder = field(default_factory=JobBuilder)
    streams: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.thread = self.builder.track()

    def host(self, name: str, start: int, end: int, kind: EventKind = EventKind.OPERATOR) -> int:
        """An event on the thread."""
        return self.builder.add(self.thread, name, start * US, (end - start) * US, kind)

    def step(self, number: int, start: int, end: int) -> None:
        """A step."""
        self.host(f"ProfilerStep#{number}", start, end, EventKind.ANNOTATION)

    def run(
        self,
        name: str,
        start: int,
        end: int,
        stream: int = 7,
        kind: EventKind = EventKind.KERNEL,
        *,
        launched: int | None = None,
        within: int | None = None,
    ) -> int:
        """Device work, and the call that launches it, which takes 1 µs."""
        if stream not in self.streams:
            self.streams[stream] = self.builder.track(
                TrackKind.STREAM, process="0", identity=str(stream), label=f"stream {stream}"
            )
        row = self.builder.add(self.streams[stream], name, start * US, (end - start) * US, kind)
        if launched is not None:
            call = self.host("cudaLaunchKernel", launched, launched + 1, EventKind.RUNTIME)
            self.builder.edge(call, Relation.LAUNCHES, row)
            if within is not None:
                self.builder.edge(within, Relation.CALLS, call)
        return row

    def account(self, *, with_shapes: bool = False) -> Account:
        """What is said of it."""
        graph = self.builder.build()
        return account_of(graph, LinkedJob.of(graph), None, with_shapes=with_shapes)

    def steps(self) -> list[Step]:
        """Its steps."""
        return list(self.account().summary.steps)


def portions(*parts: tuple[Cause, int, str]) -> list[Portion]:
    """Portions in µs."""
    return [Portion(cause, ns * US, None, during) for cause, ns, during in parts]


def test_a_step_is_divided_into_parts_that_add_up() -> None:
    line = Timeline()
    line.step(3, 0, 100)
    line.run("gemm", 10, 40, launched=5)
    line.run(NCCL, 30, 60, stream=20, launched=6)
    line.run("Memcpy HtoD", 50, 70, stream=21, kind=EventKind.MEMCPY, launched=7)
    (step,) = line.steps()
    assert step == Step(
        rank=0,
        step=3,
        start_ns=START,
        duration_ns=100 * US,
        compute_ns=30 * US,
        exposed_communication_ns=20 * US,
        exposed_copy_ns=10 * US,
        idle_ns=40 * US,
        communication_ns=30 * US,
        copy_ns=20 * US,
        idle=portions((Cause.HOST_BOUND, 35, "between recorded events"), (Cause.LAUNCH_BOUND, 5, "")),
        exposed_communication=portions((Cause.UNKNOWN, 20, "not matched with other ranks")),
        exposed_copies=portions((Cause.COPY, 10, "Memcpy HtoD")),
    )


def test_work_in_the_next_step_counts_there_and_the_last_step_lasts_until_its_work_ends() -> None:
    line = Timeline()
    line.step(1, 0, 48)
    line.step(2, 50, 90)
    line.run("gemm", 40, 60, launched=1)
    line.run("gemm", 70, 120, launched=60)
    assert [(step.step, step.duration_ns // US, step.compute_ns // US) for step in line.steps()] == [
        (1, 50, 10),
        (2, 70, 60),
    ]


def test_idle_time_before_a_late_launch_is_what_its_thread_did() -> None:
    line = Timeline()
    line.step(1, 0, 100)
    line.run("gemm", 0, 10, launched=0)
    line.host("cudaStreamSynchronize", 5, 15, EventKind.RUNTIME)
    line.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 15, 40, EventKind.ANNOTATION)
    line.host("cudaMalloc", 42, 50, EventKind.RUNTIME)
    line.host("aten::mm", 50, 82)
    line.run("gemm", 86, 100, launched=80)
    (step,) = line.steps()
    assert step.idle == portions(
        (Cause.HOST_BOUND, 30, "operators"),
        (Cause.DATA_LOADING, 25, ""),
        (Cause.HOST_BOUND, 8, "memory allocation"),
        (Cause.LAUNCH_BOUND, 6, ""),
        (Cause.SYNCHRONIZATION, 5, ""),
        (Cause.HOST_BOUND, 2, "between recorded events"),
    )


def test_work_that_had_been_launched_waits_for_the_device_another_stream_or_something_unknown() -> None:
    line = Timeline()
    line.step(1, 0, 200)
    line.run("first", 2, 10, launched=0)
    line.run("second", 12, 30, launched=1)  # 2 µs after work of its own stream
    line.run("third", 35, 50, stream=8, launched=2)  # the stream is new
    line.run("fourth", 53, 60, launched=3)  # its stream was free, the other one ended at 50
    line.run("fifth", 160, 200, launched=4)
    (step,) = line.steps()
    assert step.idle == portions(
        (Cause.UNKNOWN, 100, "the next work had been launched, and what held it back was not recorded"),
        (Cause.KERNEL_GAP, 7, ""),
        (Cause.STREAM_DEPENDENCY, 3, ""),
        (Cause.LAUNCH_BOUND, 2, ""),
    )


def test_exposed_communication_holds_nothing_back_while_the_next_computation_is_not_launched() -> None:
    line = Timeline()
    line.step(1, 0, 100)
    line.run("gemm", 0, 10, launched=0)
    line.run(NCCL, 10, 60, stream=20, launched=1)
    line.run("gemm", 60, 100, launched=50)
    (step,) = line.steps()
    assert step.exposed_communication == portions(
        (Cause.HOST_BOUND, 40, "nothing to compute was launched"),
        (Cause.UNKNOWN, 10, "not matched with other ranks"),
    )


def test_exposed_communication_that_the_host_waits_for_is_communication() -> None:
    line = Timeline()
    line.step(1, 0, 100)
    line.run("gemm", 0, 10, launched=0)
    line.run(NCCL, 10, 60, stream=20, launched=1)
    line.host("cudaDeviceSynchronize", 5, 61, EventKind.RUNTIME)
    line.run("gemm", 70, 100, launched=65)
    (step,) = line.steps()
    assert step.exposed_communication == portions((Cause.UNKNOWN, 50, "not matched with other ranks"))


def test_the_rank_that_enters_last_is_waited_for() -> None:
    builder = JobBuilder()
    rows = []
    for rank, start in enumerate((10, 40)):
        thread = builder.track(rank=rank)
        stream = builder.track(TrackKind.STREAM, rank, process="0", identity="7")
        builder.add(thread, "ProfilerStep#1", 0, 100 * US, EventKind.ANNOTATION)
        rows.append(builder.add(stream, NCCL, start * US, (90 - start) * US, EventKind.KERNEL))
    builder.together(builder.group(0, 1), *rows)
    for part in builder.participations:
        part["evidence"] = Evidence.KERNEL
    graph = builder.build()
    job = LinkedJob.of(graph)
    accounts = [account_of(part.load(), job, None) for part in job.parts]
    assert [account.summary.steps[0].exposed_communication for account in accounts] == [
        [Portion(Cause.TRANSFER, 50 * US), Portion(Cause.WAITING_FOR_RANK, 30 * US, 1)],
        [Portion(Cause.TRANSFER, 50 * US)],
    ]


def test_kernels_have_their_call_sites_and_delays() -> None:
    line = Timeline()
    line.step(1, 0, 100)
    line.host("train.py(3): step", 0, 90, EventKind.PYTHON)
    operator = line.host("aten::mm", 0, 20)
    line.run("gemm", 5, 30, launched=0, within=operator)
    line.run("gemm", 31, 60, launched=2, within=operator)
    (kernel,) = line.account().tables.kernels
    assert (kernel.count, kernel.total_ns, kernel.low_ns, kernel.high_ns) == (2, 54 * US, 25 * US, 29 * US)
    assert (kernel.queue_ns, kernel.launch_ns, kernel.operator) == (27 * US, 5 * US, "aten::mm")
    assert kernel.stack == ["cudaLaunchKernel", "aten::mm"]
    assert line.account().tables.operators == {("aten::mm",): [1, 20 * US, 18 * US, 54 * US]}


def test_operators_that_launch_work_are_added_up_by_their_inputs() -> None:
    line = Timeline()
    line.step(1, 0, 100)
    for start, shape in ((0, [2, 3]), (20, [2, 3]), (40, [5, 7])):
        operator = line.builder.add(
            line.thread,
            "aten::mm",
            start * US,
            10 * US,
            args={"Input Dims": [shape, []], "Input type": ["float"]},
        )
        line.run("gemm", start + 4, start + 12, launched=start + 1, within=operator)
    assert line.account(with_shapes=True).tables.shapes == {
        ("aten::mm", "[2, 3] float"): [2, 20 * US, 18 * US, 16 * US],
        ("aten::mm", "[5, 7] float"): [1, 10 * US, 9 * US, 8 * US],
    }
    assert line.account().tables.shapes == {}


def test_calls_within_calls_of_the_same_name_count_once_in_the_total() -> None:
    line = Timeline()
    line.step(1, 0, 100)
    outer = line.host("aten::to", 10, 50)
    inner = line.host("aten::to", 20, 40)
    line.builder.edge(outer, Relation.CALLS, inner)
    assert line.account().tables.operators == {("aten::to",): [2, 40 * US, 40 * US, 0]}


def test_a_rank_without_device_work_is_divided_by_its_operators() -> None:
    line = Timeline()
    line.step(1, 0, 100)
    line.host("aten::mm", 10, 40)
    line.host("c10d::allreduce_", 50, 70)
    account = line.account()
    (step,) = account.summary.steps
    assert account.summary.work is WorkIn.OPERATORS
    assert (step.compute_ns, step.exposed_communication_ns, step.idle_ns) == (30 * US, 20 * US, 50 * US)


def test_phases_of_the_compiler_are_not_computation() -> None:
    line = Timeline()
    line.step(1, 0, 100)
    line.host("aten::mm", 0, 20)
    compiling = line.host("_compile.compile_inner (dynamo_timed)", 20, 90)
    inner = line.host("aten::mm", 30, 40)
    line.builder.edge(compiling, Relation.CALLS, inner)
    (step,) = line.steps()
    assert (step.compute_ns, step.idle) == (
        20 * US,
        portions((Cause.HOST_BOUND, 70, "compilation"), (Cause.HOST_BOUND, 10, "between recorded events")),
    )


times = st.integers(0, 60)
works = st.lists(
    st.tuples(
        st.sampled_from(["gemm", NCCL, "Memcpy HtoD"]),
        times,
        st.integers(0, 20),
        st.sampled_from([7, 8, 20]),
        st.one_of(st.none(), times),
    ),
    max_size=12,
)
hosts = st.lists(
    st.tuples(
        st.sampled_from(["aten::mm", "cudaDeviceSynchronize", "DataLoader"]), times, st.integers(0, 20)
    ),
    max_size=6,
)


@given(works, hosts, st.lists(times, min_size=0, max_size=3, unique=True))
def test_parts_and_causes_of_any_timeline_add_up(
    work: list[tuple[str, int, int, int, int | None]],
    host: list[tuple[str, int, int]],
    starts: list[int],
) -> None:
    line = Timeline()
    for number, start in enumerate(sorted(starts)):
        line.step(number, start, start + 5)
    for name, start, length in host:
        kind = EventKind.RUNTIME if name.startswith("cuda") else EventKind.OPERATOR
        line.host(name, start, start + length, kind)
    for name, start, length, stream, launched in work:
        kind = EventKind.MEMCPY if name.startswith("Memcpy") else EventKind.KERNEL
        line.run(name, start, start + length, stream, kind, launched=launched)
    if not line.builder.rows:
        return
    for step in line.steps():
        parts = (step.compute_ns, step.exposed_communication_ns, step.exposed_copy_ns, step.idle_ns)
        assert min(parts) >= 0
        assert sum(parts) == step.duration_ns
        assert sum(portion.ns for portion in step.idle) == step.idle_ns
        assert sum(portion.ns for portion in step.exposed_communication) == step.exposed_communication_ns
        assert sum(portion.ns for portion in step.exposed_copies) == step.exposed_copy_ns
        busy = np.zeros(200, np.bool_)
        for _, start, length, _, _ in work:
            busy[start : start + length] = True
        first = (step.start_ns - START) // US
        if work:
            assert step.duration_ns - step.idle_ns == US * np.count_nonzero(
                busy[first : first + step.duration_ns // US]
            )


def test_work_that_is_launched_ahead_waits_in_its_queue() -> None:
    line = Timeline()
    line.step(1, 0, 1000)
    for number in range(20):  # launched every 2 µs, each takes 10 µs
        line.run("gemm", 10 + 10 * number, 20 + 10 * number, launched=1 + 2 * number)
    assert line.account().summary.launches == Launches(
        rank=0,
        count=20,
        unknown=0,
        calls=20,
        calls_ns=20 * US,
        queue_p50_ns=88 * US,
        queue_p90_ns=152 * US,
        queue_p99_ns=160 * US,
        launch_p50_ns=0,
        launch_p90_ns=0,
        shorter_than_launch=0,
        graph_launches=0,
        graph_work=0,
        graph_ns=0,
    )
