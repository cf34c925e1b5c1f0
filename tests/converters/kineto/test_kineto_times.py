"""Times are exact to the nanosecond, however they are written."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.kineto import cpu_op, instant, read, reasons, seen, slice_, trace, with_texts
from tracelink.model.columns import UNFINISHED

BASE = 1_782_967_788_000_000_000
LATEST_RELATIVE_NS = (2**43 - 1) * 1000
EPOCH_US = st.integers(1_500_000_000_000_000, 3_000_000_000_000_000)

LAST = '{"ph": "X", "cat": "cpu_op", "name": "last", "pid": 1, "tid": 1, "ts": 0, "dur": 1}'


def event(ts: str, dur: str = "1") -> str:
    """A slice whose times are given as text."""
    return f'{{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": {ts}, "dur": {dur}}}'


def decimal(nanoseconds: int) -> str:
    """Microseconds with three decimals, as the profiler writes them."""
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03}"


def starts(data: bytes) -> list[int]:
    return [one.start for one in seen(read(data))][:-1]


@given(st.lists(st.integers(0, LATEST_RELATIVE_NS), min_size=1, max_size=8))
@settings(max_examples=200, deadline=None)
def test_relative_times_below_102_days_are_exact(times: list[int]) -> None:
    texts = [event(decimal(time)) for time in times]
    assert starts(with_texts(*texts, LAST, base=BASE)) == [BASE + time for time in times]


@given(
    EPOCH_US.flatmap(lambda us: st.lists(st.integers(us * 1000, us * 1000 + 10**9), min_size=1, max_size=8))
)
@settings(max_examples=200, deadline=None)
def test_absolute_times_keep_every_fraction(times: list[int]) -> None:
    assert starts(with_texts(*map(event, map(decimal, times)), LAST)) == times


@given(st.lists(EPOCH_US, min_size=1, max_size=8))
@settings(max_examples=100, deadline=None)
def test_absolute_whole_microseconds(times: list[int]) -> None:
    assert starts(with_texts(*map(event, map(str, times)), LAST)) == [1000 * time for time in times]


@given(st.lists(st.integers(0, LATEST_RELATIVE_NS), min_size=1, max_size=8))
@settings(max_examples=100, deadline=None)
def test_durations_are_exact(times: list[int]) -> None:
    result = read(with_texts(*(event("5", decimal(time)) for time in times), LAST))
    assert [one.duration for one in seen(result)][:-1] == times


@pytest.mark.parametrize("text", ["1e3", '"1000"', "1000.0", "1.0E+3", "999.9999999", "1000.0001"])
def test_unusual_spellings_of_a_time(text: str) -> None:
    assert starts(with_texts(event(text), LAST)) == [1_000_000]


def test_a_time_before_the_base() -> None:
    assert starts(with_texts(event("-0.001"), LAST, base=BASE)) == [BASE - 1]


@pytest.mark.parametrize("base", ["1775078550000000000", 1775078550000000000, 1.77507855e18])
def test_the_base_may_be_text_or_any_number(base: object) -> None:
    result = read(trace(cpu_op(ts=1), cpu_op(ts=2), baseTimeNanoseconds=base))
    assert [one.start for one in seen(result)] == [1775078550000001000, 1775078550000002000]


@pytest.mark.parametrize("base", ["", "noon", None, [], 1e30, float("inf"), float("nan")])
def test_a_base_that_is_no_time_is_told_and_left_out(base: object) -> None:
    result = read(trace(cpu_op(ts=1), cpu_op(ts=2), baseTimeNanoseconds=base))
    assert [one.start for one in seen(result)] == [1000, 2000]
    assert reasons(result) == {"unusable_base_time": 1}


@pytest.mark.parametrize(
    "text", ["null", '"noon"', "[]", "NaN", "-Infinity", "1e300", "1" * 40, '"1e99999999"']
)
def test_an_event_without_a_usable_time_is_told_and_costs_only_itself(text: str) -> None:
    result = read(with_texts(event("1"), event(text), event("2.5"), LAST))
    assert [one.start for one in seen(result)] == [1000, 2500, 0]
    assert reasons(result) == {"not_an_event": 1}


@pytest.mark.parametrize("text", ["-5", "1e17", "18446744073709551", "NaN", "Infinity", '"long"', "null"])
def test_a_duration_that_is_none_leaves_the_event_unfinished(text: str) -> None:
    result = read(with_texts(event("1", "3"), event("2", text), LAST))
    assert [one.duration for one in seen(result)] == [3000, UNFINISHED, 1000]
    assert reasons(result) == {"unusable_duration": 1}


def test_an_instant_needs_no_duration() -> None:
    result = read(trace(instant("now", 3), slice_("cpu_op", "op", 4), instant("then", 5)))
    assert [one.duration for one in seen(result)] == [0, 1000, 0]
    assert reasons(result) == {}


def test_spans_of_the_profiler_do_not_stretch_the_time_of_the_file() -> None:
    result = read(
        trace(
            slice_("Trace", "PyTorch Profiler (0)", 0, 900, pid="Spans", tid="PyTorch Profiler"),
            cpu_op(ts=100, dur=50),
            slice_("overhead", "Buffer Flush", 700, 9, pid=-1, tid=0),
        )
    )
    assert (result.source.start_ns, result.source.end_ns) == (100_000, 150_000)


def test_decimals_beyond_nanoseconds_are_rounded_not_cut() -> None:
    text = "1689360788493697.1239"
    assert starts(with_texts(event(text), LAST)) == [round(Decimal(text) * 1000)]


@pytest.mark.parametrize("ph", ["X", "i", "B", "b", "C", "s"])
@pytest.mark.parametrize("ts", ["", '"ts": null, ', '"ts": "noon", ', '"ts": 1e300, '])
@pytest.mark.parametrize("first", ["1", "1700000000000000.5"])
def test_nothing_but_metadata_goes_without_a_time(ph: str, ts: str, first: str) -> None:
    timeless = f'{{"ph": "{ph}", "name": "x", "pid": 1, "tid": 1, {ts}"id": 1, "args": {{"value": 1}}}}'
    result = read(with_texts(event(first), timeless, LAST))
    assert [one.name for one in seen(result)] == ["op", "last"]
    assert reasons(result) == {"not_an_event": 1}
    assert len(result.counters) == 0
