"""Columns as people see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink._model.fields import (
    Bytes,
    Count,
    GigabytesPerSecond,
    Nanoseconds,
    PartsPerMillion,
    RankNumber,
    Ranks,
    Row,
    Share,
    Shown,
    SignedNanoseconds,
    UnixNanoseconds,
    fields_of,
)
from tracelink._show.cells import Column, column_of


class Sample(Row, frozen=True):
    name: Annotated[str, Shown(longest=6)]
    rank: RankNumber
    ranks: Ranks
    count: Count
    total_ns: Nanoseconds
    change_ns: Annotated[SignedNanoseconds, Shown(signed=True)]
    start_ns: UnixNanoseconds
    size_bytes: Annotated[Bytes, Shown("size")]
    idle_share: Share
    bus_gb_s: GigabytesPerSecond
    drift_ppm: PartsPerMillion
    busy: bool
    factor: float


def column(name: str, values: Sequence[Any], **options: Any) -> Column:
    return column_of(fields_of(Sample)[name], values, **options)


@pytest.mark.parametrize(
    ("name", "values", "heading", "cells"),
    [
        ("name", ["gemm_128x64", "", None, "a\x1bb"], "name", ["gemm_…", "-", "-", "a\\x1bb"]),
        ("rank", [1200, None], "rank", ["1200", "-"]),
        ("ranks", [[0, 1, 2, 5], []], "ranks", ["0-2, 5", "-"]),
        ("count", [12_000, 0], "count", ["12,000", "0"]),
        ("total_ns", [2_500_000, 900, 1], "total (ms)", ["2.500", "0.001", "<0.001"]),
        ("total_ns", [900, 0], "total (µs)", ["0.9", "0.0"]),
        ("total_ns", [90_000_000_000], "total (s)", ["90.000"]),
        ("change_ns", [1500, -500, 0], "change (µs)", ["+1.5", "-0.5", "0.0"]),
        ("start_ns", [0, None], "start (UTC)", ["1970-01-01 00:00:00.000000", "-"]),
        ("size_bytes", [4_200_000, 1024], "size (kB)", ["4,200.0", "1.0"]),
        ("size_bytes", [7, None], "size (B)", ["7", "-"]),
        ("idle_share", [0.063, 1.0], "idle (%)", ["6.3", "100.0"]),
        ("bus_gb_s", [19.29, 0.5, float("nan")], "bus (GB/s)", ["19.3", "0.5", "-"]),
        ("drift_ppm", [12.5], "drift (ppm)", ["12.50"]),
        ("busy", [True, False], "busy", ["yes", "no"]),
        ("factor", [1234.5, 2.0], "factor", ["1,234", "2"]),
    ],
)
def test_one_unit_in_a_column(name: str, values: list[Any], heading: str, cells: list[str]) -> None:
    found = column(name, values)
    assert (found.heading, found.cells) == (heading, cells)


def test_parts_of_a_whole_share_its_unit() -> None:
    assert column("total_ns", [400], most=2_500_000).cells == ["<0.001"]
    assert column("total_ns", [900], most=2_500_000).heading == "total (ms)"
    assert column("change_ns", [-400, 400], most=2_500_000).cells == [">-0.001", "<0.001"]


def test_times_count_from_an_instant() -> None:
    found = column("start_ns", [10**18 + 1_500_000, None], zero_ns=10**18)
    assert (found.heading, found.cells) == ("start (ms)", ["1.500", "-"])


@given(st.lists(st.integers(0, 10**15), min_size=1), st.sampled_from(["total_ns", "size_bytes", "count"]))
def test_numbers_are_aligned_on_the_point(values: list[int], name: str) -> None:
    found = column(name, values)
    assert found.right
    assert len({len(cell.partition(".")[2]) for cell in found.cells}) == 1
