"""Waits of the host for a device."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.ordering import RankBuilder, found, named
from tracelink._model.events import EventKind
from tracelink._model.trace import Awaited
from tracelink._order.host import host_waits
from tracelink._order.order import Order, launched_work

COMPUTE, SIDE = 7, 20
COPY = EventKind.MEMCPY
MICROSECOND = 1000


def order_of(rank: RankBuilder) -> Order:
    part = rank.part()
    return host_waits(part, launched_work(part), rank.synchronizations())


def pairs_of(rank: RankBuilder) -> list[tuple[str, str]]:
    return named(rank.part(), order_of(rank))


class TestInferred:
    def test_what_follows_on_the_thread_waits_for_the_stream_that_it_used_last(self) -> None:
        rank = RankBuilder()
        rank.op("aten::item", 0, 60)
        rank.work("side", 10, 20, SIDE, launched=1)
        rank.work("earlier", 10, 20, COMPUTE, launched=2)
        rank.work("last", 20, 50, COMPUTE, launched=3)
        rank.call("cudaStreamSynchronize", 5, 55)
        rank.op("too early", 50, 52)
        rank.op("on another thread", 55, 70, "other")
        rank.op("next", 61, 70)
        rank.op("after next", 71, 80)
        assert pairs_of(rank) == [("last", "next")]
        assert found(order_of(rank)) == {"waits": 1, "inferred": 1}

    def test_the_outer_one_of_two_that_begin_together_follows(self) -> None:
        rank = RankBuilder()
        rank.work("last", 20, 50, launched=3)
        rank.call("hipStreamSynchronize", 5, 55)
        rank.op("inner", 60, 61)
        rank.op("outer", 60, 70, kind=EventKind.ANNOTATION)
        assert pairs_of(rank) == [("last", "outer")]

    def test_another_thread_may_have_given_the_stream_its_last_work(self) -> None:
        rank = RankBuilder()
        rank.work("own", 10, 20, launched=1)
        rank.work("of another thread", 20, 50, launched=3, thread="other")
        rank.call("cudaStreamSynchronize", 5, 55)
        rank.op("next", 60, 70)
        assert pairs_of(rank) == [("of another thread", "next")]

    @pytest.mark.parametrize("call", ["cudaDeviceSynchronize", "hipDeviceSynchronize", "cuCtxSynchronize"])
    def test_a_device_is_waited_for_on_all_its_streams(self, call: str) -> None:
        rank = RankBuilder()
        rank.work("other device", 10, 20, launched=0, device=1)
        rank.work("side", 10, 20, SIDE, launched=1)
        rank.work("compute", 20, 50, COMPUTE, launched=2)
        rank.call(call, 5, 55)
        rank.op("next", 60, 70)
        assert pairs_of(rank) == [("compute", "next"), ("side", "next")]

    def test_work_from_before_the_recording_is_waited_for(self) -> None:
        rank = RankBuilder()
        rank.work("launched before", 10, 50)
        rank.call("cudaDeviceSynchronize", 5, 55)
        rank.op("next", 60, 70)
        assert pairs_of(rank) == [("launched before", "next")]

    def test_an_event_is_waited_for_since_its_record(self) -> None:
        rank = RankBuilder()
        rank.work("recorded", 10, 20, launched=1)
        rank.call("cudaEventRecord", 2)
        rank.work("later", 20, 30, launched=3)
        rank.call("cudaEventSynchronize", 5, 55)
        rank.op("next", 60, 70)
        assert pairs_of(rank) == [("recorded", "next")]

    def test_where_the_stream_still_runs_it_was_what_ended_during_the_call(self) -> None:
        rank = RankBuilder()
        rank.work("awaited", 10, 50, SIDE, launched=1)
        rank.work("still running", 10, 9 * MICROSECOND, COMPUTE, launched=2)
        rank.call("cudaStreamSynchronize", 5, 55)
        rank.op("next", 60, 70)
        assert pairs_of(rank) == [("awaited", "next")]

    def test_clocks_of_host_and_device_may_differ_by_a_microsecond(self) -> None:
        rank = RankBuilder()
        rank.work("awaited", 10, 55 + MICROSECOND, launched=1)
        rank.call("cudaStreamSynchronize", 5, 55)
        rank.op("before its end", 60, 70)
        rank.op("next", 2 * MICROSECOND, 3 * MICROSECOND)
        assert pairs_of(rank) == [("awaited", "next")]

    def test_a_wait_that_nothing_explains_is_counted(self) -> None:
        rank = RankBuilder()
        rank.work("still running", 10, 9 * MICROSECOND, launched=2)
        rank.call("cudaStreamSynchronize", 5, 55)
        rank.op("next", 60, 70)
        order = order_of(rank)
        assert (len(order), found(order)) == (0, {"waits": 1, "unexplained": 1})

    def test_a_wait_that_nothing_follows_is_counted(self) -> None:
        rank = RankBuilder()
        rank.work("last", 10, 20, launched=2)
        rank.call("cudaStreamSynchronize", 5, 55)
        assert found(order_of(rank)) == {"waits": 1, "inferred": 1, "nothing_follows": 1}

    def test_asking_for_an_event_is_no_wait(self) -> None:
        rank = RankBuilder()
        rank.work("done", 2, 3, launched=1)
        rank.call("cudaEventQuery", 5, 55)
        rank.op("next", 60, 70)
        assert found(order_of(rank)) == {}


class TestCopies:
    @pytest.mark.parametrize(
        ("call", "copy", "blocks"),
        [
            ("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pageable)", True),
            ("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pinned)", False),
            ("cudaMemcpyAsync", "Memcpy DtoD (Device -> Device)", False),
            ("cudaMemcpyAsync", "Memcpy HtoD (Pageable -> Device)", False),
            ("cudaMemcpy", "Memcpy HtoD (Pinned -> Device)", True),
            ("hipMemcpyWithStream", "Memcpy DtoH (Device -> Host)", True),
        ],
    )
    def test_some_return_only_when_they_are_done(self, call: str, copy: str, *, blocks: bool) -> None:
        rank = RankBuilder()
        rank.work(copy, 10, 20, kind=COPY, by=rank.call(call, 0, 25))
        rank.op("next", 30, 40)
        assert pairs_of(rank) == ([(copy, "next")] if blocks else [])
        assert found(order_of(rank)) == ({"blocking_copies": 1} if blocks else {})

    def test_a_copy_that_ran_on_was_not_waited_for(self) -> None:
        rank = RankBuilder()
        rank.work(
            "Memcpy DtoH (Device -> Pageable)",
            10,
            9 * MICROSECOND,
            kind=COPY,
            by=rank.call("cudaMemcpy", 0, 25),
        )
        rank.op("next", 30, 40)
        assert pairs_of(rank) == []


class TestRecorded:
    def test_a_stream(self) -> None:
        rank = RankBuilder()
        rank.work("side", 10, 20, SIDE, launched=1)
        rank.work("compute", 10, 20, COMPUTE, launched=2)
        call = rank.call("cudaStreamSynchronize", 5, 55, correlation=1)
        rank.recorded(Awaited.STREAM, call, stream=SIDE)
        rank.op("next", 60, 70)
        assert pairs_of(rank) == [("side", "next")]
        assert found(order_of(rank)) == {"waits": 1, "recorded": 1}

    def test_a_device(self) -> None:
        rank = RankBuilder()
        rank.work("of 0", 10, 20, COMPUTE, launched=1)
        rank.work("of 1", 10, 20, COMPUTE, launched=2, device=1)
        call = rank.call("cudaDeviceSynchronize", 5, 55, correlation=1)
        rank.recorded(Awaited.DEVICE, call, device=0)
        rank.op("next", 60, 70)
        assert pairs_of(rank) == [("of 0", "next")]

    def test_an_event(self) -> None:
        rank = RankBuilder()
        rank.work("side", 10, 20, SIDE, launched=1)
        rank.call("cudaEventRecord", 2, correlation=1)
        rank.work("side, later", 20, 30, SIDE, launched=3)
        rank.work("compute", 10, 20, COMPUTE, launched=4)
        call = rank.call("cudaEventSynchronize", 5, 55, correlation=2)
        rank.recorded(Awaited.EVENT, call, event_stream=SIDE, event_record=1)
        rank.op("next", 60, 70)
        assert pairs_of(rank) == [("side", "next")]

    def test_an_event_that_was_never_recorded(self) -> None:
        rank = RankBuilder()
        rank.work("compute", 10, 20, COMPUTE, launched=4)
        call = rank.call("cudaEventSynchronize", 5, 55, correlation=2)
        rank.recorded(Awaited.EVENT, call)
        rank.op("next", 60, 70)
        assert found(order_of(rank)) == {"waits": 1, "nothing_to_wait_for": 1}

    def test_asking_for_an_event_is_recorded_too_and_no_wait(self) -> None:
        rank = RankBuilder()
        rank.work("side", 10, 20, SIDE, launched=1)
        rank.call("cudaEventRecord", 2, correlation=1)
        call = rank.call("cudaEventQuery", 30, 31, correlation=2)
        rank.recorded(Awaited.EVENT, call, event_stream=SIDE, event_record=1)
        rank.op("next", 60, 70)
        assert found(order_of(rank)) == {}


MOMENTS = st.integers(0, 40)
NAMES = st.sampled_from(
    ["cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaEventRecord"]
)


@given(
    work=st.lists(st.tuples(MOMENTS, st.integers(0, 2000), st.sampled_from([7, 20]), MOMENTS), max_size=8),
    calls=st.lists(st.tuples(NAMES, MOMENTS, MOMENTS), max_size=6),
    operators=st.lists(st.tuples(MOMENTS, MOMENTS), max_size=6),
)
def test_times_allow_every_pair(
    work: list[tuple[int, int, int, int]],
    calls: list[tuple[str, int, int]],
    operators: list[tuple[int, int]],
) -> None:
    rank = RankBuilder()
    for number, (start, length, stream, launched) in enumerate(work):
        rank.work(f"k{number}", start, start + length, stream, launched=launched or None)
    for name, start, length in calls:
        rank.call(name, start, start + length)
    for start, length in operators:
        rank.op("op", start, start + length)
    part, order = rank.part(), order_of(rank)
    events = part.events
    assert (events.end[order.before] <= events.start[order.after]).all()
    assert (events.kind[order.before] == EventKind.KERNEL).all()
    assert (events.kind[order.after] == EventKind.OPERATOR).all()
    waits = [name for name, *_ in calls if name.endswith("Synchronize")]
    assert order.counts["waits"] == len(waits) == order.counts["inferred"] + order.counts["unexplained"]
