"""`tracelink.converters.metrics.cells`: whole columns give the same as cell by cell."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tracelink._model.columns import NO_TIME, SECOND
from tracelink._model.metrics import Basis
from tracelink.converters.metrics.cells import numbers, time_format, times, unwrapped

EPOCH = datetime.fromtimestamp(0, UTC)
DAY = 86400 * SECOND

cell = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.floats(-1e6, 1e6).map(lambda value: f"{value:.3f}"),
    st.integers(0, 100).map(lambda value: f"{value} %"),
    st.sampled_from(["[N/A]", "N/A", "-", "", "nan", "[Not Supported]", "x", "ERR!"]),
)


@given(st.lists(cell, max_size=30))
def test_columns_are_the_same_as_their_cells(cells: list[str]) -> None:
    values, wrong = numbers(cells, "%")
    single = [numbers([one], "%") for one in cells]
    assert [value if not math.isnan(value) else None for value in values.tolist()] == [
        None if math.isnan(float(one[0])) else float(one[0]) for one, _ in single
    ]
    assert wrong == sum(count for _, count in single) == cells.count("x")


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [
        ("MiB", "1 GiB", 1024),
        ("W", "412000 mW", 412),
        ("MHz", "1.98 GHz", 1980),
        ("MB", "5 MB", 5),
        ("%", "5 W", None),
    ],
)
def test_cells_in_another_unit_are_converted(unit: str, value: str, expected: float | None) -> None:
    (number, second), wrong = numbers([value, "1 " + unit], unit)
    assert (None if math.isnan(number) else float(number), float(second), wrong) == (
        expected,
        1,
        int(expected is None),
    )


moments = st.datetimes(datetime(2001, 9, 10), datetime(2096, 1, 1))


@given(
    moments=st.lists(moments, min_size=1, max_size=20),
    digits=st.integers(0, 6),
    separator=st.sampled_from("T "),
)
def test_dates_are_exact(moments: list[datetime], digits: int, separator: str) -> None:
    moments = [
        moment.replace(microsecond=moment.microsecond // 10 ** (6 - digits) * 10 ** (6 - digits))
        for moment in moments
    ]
    cells = [
        f"{moment:%Y/%m/%d{separator}%H:%M:%S}" + f".{moment:%f}"[: digits + 1 if digits else 0]
        for moment in moments
    ]
    form = time_format(cells[0])
    assert form
    assert form.basis is Basis.LOCAL
    expected = [
        (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) * 1000 for moment in moments
    ]
    assert times(cells, form).tolist() == expected
    assert times([*cells, "soon"], form).tolist() == [*expected, NO_TIME]


@given(
    nanoseconds=st.lists(st.integers(10**18, 4 * 10**18 - 1), min_size=1, max_size=20),
    unit=st.sampled_from([(SECOND, 9), (10**6, 6), (10**3, 3), (1, 0)]),
    digits=st.integers(0, 9),
)
@example([4 * 10**18 - 1], (SECOND, 9), 9)
@example([4 * 10**18 - 1], (1, 0), 0)
def test_decimal_times_are_exact(nanoseconds: list[int], unit: tuple[int, int], digits: int) -> None:
    scale, most = unit
    kept = [value // 10 ** max(0, most - digits) * 10 ** max(0, most - digits) for value in nanoseconds]
    cells = [
        f"{value // scale}" + (f".{value % scale:0{most}}"[: digits + 1] if most and digits else "")
        for value in kept
    ]
    form = time_format(cells[0])
    assert form
    assert (form.basis, form.scale) == (Basis.EPOCH, scale)
    assert times(cells, form).tolist() == kept


@given(st.lists(st.integers(0, 11 * 3600), max_size=20), st.integers(1, 10))
def test_times_of_day_go_on_after_midnight(steps: list[int], size: int) -> None:
    elapsed = np.cumsum([80_000, *steps]) * SECOND
    last, found = 0, []
    for begin in range(0, len(elapsed), size):
        block = unwrapped(elapsed[begin : begin + size] % DAY, last)
        last = int(block.max())
        found += block.tolist()
    assert found == elapsed.tolist()
