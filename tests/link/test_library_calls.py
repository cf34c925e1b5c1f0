"""Calls of NCCL on a thread: which of them are one unit, and which kernels each launched."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.trace import TraceBuilder
from tracelink._link.library_calls import library_calls
from tracelink._link.rank import link_rank
from tracelink._model.columns import NO_TIME, UNKNOWN
from tracelink._model.events import EventKind, TrackKind
from tracelink._model.trace import RankTrace


@dataclass
class Thread:
    """A thread that calls NCCL; every event takes 10 ns."""

    builder: TraceBuilder = field(default_factory=TraceBuilder)
    now: int = 0
    kernels: int = 0

    def __post_init__(self) -> None:
        self.stream = self.builder.lane(TrackKind.STREAM, "7")

    def call(self, name: str, **stated: object) -> int:
        row = self.mark(name)
        return self.builder.communication(row, operation=name.removeprefix("nccl"), **stated)

    def mark(self, name: str) -> int:
        self.now += 10
        return self.builder.annotation(name, self.now, self.now + 9)

    def launch(self) -> int:
        """A launch within the last event."""
        self.kernels += 1
        correlation, start = self.kernels, self.now + self.kernels % 8
        self.builder.event(EventKind.RUNTIME, "cudaLaunchKernel", start, start + 1, correlation=correlation)
        begin = 1000 + 10 * self.kernels
        return self.builder.kernel("ncclDevKernel", begin, begin + 5, self.stream, correlation=correlation)

    def trace(self) -> RankTrace:
        trace = self.builder.trace()
        trace.sources = [replace(trace.sources[0], format="nsys")]
        return trace

    def units(self) -> list[list[int]]:
        """The rows of the calls of each unit."""
        calls = library_calls(self.trace())
        found: dict[int, list[int]] = {}
        for row, unit in zip(calls.rows.tolist(), calls.unit.tolist(), strict=True):
            found.setdefault(unit, []).append(row)
        return list(found.values())

    def linked(self) -> dict[int, tuple[int, int]]:
        """The first kernel and the end of each call, by its annotation."""
        calls = link_rank(self.trace()).calls
        columns = zip(calls.annotation.tolist(), calls.kernel.tolist(), calls.end.tolist(), strict=True)
        return {row: (kernel, end) for row, kernel, end in columns}


def test_a_call_outside_of_groups_is_a_unit_with_the_kernels_that_it_launched() -> None:
    thread = Thread()
    first = thread.call("ncclAllReduce")
    kernel = thread.launch()
    second = thread.call("ncclBroadcast")
    assert thread.units() == [[first], [second]]
    assert thread.linked() == {first: (kernel, 1015), second: (UNKNOWN, NO_TIME)}


def test_calls_of_nested_groups_are_one_unit_whose_end_launches() -> None:
    thread = Thread()
    thread.mark("ncclGroupStart")
    thread.mark("ncclGroupStart")
    sent = thread.call("ncclSend", target=1, point_to_point=True)
    thread.mark("ncclGroupEnd")
    received = thread.call("ncclRecv", source=1, point_to_point=True)
    thread.mark("ncclGroupEnd")
    kernel = thread.launch()
    after = thread.call("ncclAllReduce")
    assert thread.units() == [[sent, received], [after]]
    assert thread.linked() == {sent: (kernel, 1015), received: (kernel, 1015), after: (UNKNOWN, NO_TIME)}


def test_a_group_with_as_many_kernels_as_calls_launched_one_for_each() -> None:
    thread = Thread()
    thread.mark("ncclGroupStart")
    rows = [thread.call("ncclAllReduce") for _ in range(3)]
    thread.mark("ncclGroupEnd")
    kernels = [thread.launch() for _ in range(3)]
    ends = (1015, 1025, 1035)
    assert thread.linked() == dict(zip(rows, zip(kernels, ends, strict=True), strict=True))


def test_a_recording_that_begins_within_a_group_keeps_later_units_apart() -> None:
    thread = Thread()
    first = thread.call("ncclSend", target=1, point_to_point=True)
    thread.mark("ncclGroupEnd")
    second = thread.call("ncclAllReduce")
    thread.mark("ncclGroupStart")
    third = thread.call("ncclAllReduce")
    thread.mark("ncclGroupEnd")
    assert thread.units() == [[first], [second], [third]]


def test_calls_within_an_operator_are_not_calls_of_their_own() -> None:
    thread = Thread()
    thread.builder.op("c10d::alltoall_base_", 5, 100)
    thread.mark("ncclGroupStart")
    for size in (64, 32):
        thread.call("ncclSend", target=1, point_to_point=True, elements_in=size, group="0xab", type="Byte")
    thread.mark("ncclGroupEnd")
    kernel = thread.launch()
    linked = link_rank(thread.trace())
    calls, texts = linked.calls, linked.trace.strings.texts()
    assert calls.kernel.tolist() == [kernel]
    assert (texts[calls.operation[0]], texts[calls.group[0]], calls.elements_in.tolist()) == (
        "all_to_all",
        "0xab",
        [96],
    )
    assert linked.findings == []


WORDS = st.sampled_from(["ncclGroupStart", "ncclGroupEnd", "ncclAllReduce"])


@given(st.lists(WORDS, max_size=14))
def test_units_are_those_of_a_machine_that_counts_groups(words: list[str]) -> None:
    thread, depth, expected = Thread(), 0, list[list[int]]()
    fresh = True
    for word in words:
        if word == "ncclAllReduce":
            row = thread.call(word)
            if depth and not fresh:
                expected[-1].append(row)
            else:
                expected.append([row])
            fresh = not depth
            continue
        thread.mark(word)
        depth = max(depth + (1 if word == "ncclGroupStart" else -1), 0)
        fresh |= not depth or (depth == 1 and word == "ncclGroupStart")
    assert thread.units() == expected
