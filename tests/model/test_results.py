"""`tracelink._model.results`."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink._model.errors import UsageError
from tracelink._model.fields import (
    GigabytesPerSecond,
    Identifier,
    Nanoseconds,
    RankNumber,
    Share,
    UnixNanoseconds,
)
from tracelink._model.results import ResultTable


class Kernel(NamedTuple):
    """A row with every type of column."""

    rank: RankNumber
    name: str
    count: int
    total_ns: Nanoseconds
    start_ns: UnixNanoseconds | None
    share: Share
    bus_gb_s: GigabytesPerSecond | None
    busy: bool
    ranks: tuple[int, ...]
    note: str | None


class Struct(msgspec.Struct, frozen=True):
    step: Identifier | None
    duration_ns: Nanoseconds


@dataclass(frozen=True)
class Data:
    step: Identifier | None
    duration_ns: Nanoseconds


FIRST = Kernel(3, "gemm", 12_000, 123_456_789, 1_740_816_360_001_842_855, 0.25, 12.5, True, (0, 3), "a")
SECOND = Kernel(5, "<b>\x1b[1m", 2, 30, None, 0.5, None, False, (), None)


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


def kernels(*rows: Kernel) -> ResultTable[Kernel]:
    return ResultTable.of_rows(Kernel, rows or (FIRST, SECOND), title="Kernels")


def test_rows_come_back_as_they_were() -> None:
    table = kernels()
    assert list(table) == [FIRST, SECOND]
    assert (len(table), table[0], table[-1]) == (2, FIRST, SECOND)
    assert list(table[1:]) == [SECOND]
    with pytest.raises(IndexError, match="row 2 of 2 rows"):
        table[2]


@pytest.mark.parametrize("kind", [Struct, Data])
def test_rows_can_be_structs_and_dataclasses(kind: Any) -> None:
    rows = [kind(None, 5), kind(4, 6)]
    assert list(ResultTable.of_rows(kind, rows)) == rows
    assert list(ResultTable.of(kind, {"step": [None, 4], "duration_ns": np.array([5, 6])})) == rows


def test_columns_have_types_and_units() -> None:
    table = kernels()
    assert {name: column.dtype.kind for name, column in table.columns.items()} == {
        "rank": "i",
        "name": "O",
        "count": "i",
        "total_ns": "i",
        "start_ns": "i",
        "share": "f",
        "bus_gb_s": "f",
        "busy": "b",
        "ranks": "O",
        "note": "O",
    }
    assert np.ma.getmaskarray(table["start_ns"]).tolist() == [False, True]
    assert table.units == {"total_ns": "ns", "start_ns": "unix ns", "share": "share", "bus_gb_s": "GB/s"}


def test_columns_must_fit_the_rows() -> None:
    with pytest.raises(ValueError, match="columns step for rows of step, duration_ns"):
        ResultTable.of(Data, {"step": [1]})
    with pytest.raises(ValueError, match="different lengths"):
        ResultTable.of(Data, {"step": [1], "duration_ns": [1, 2]})


def test_rows_are_chosen_and_sorted() -> None:
    table = kernels()
    assert list(table.where(rank=5)) == [SECOND]
    assert list(table.where(lambda row: row.count > 5)) == [FIRST]
    assert list(table.where(table["start_ns"] > 5)) == [FIRST]
    assert list(table.where(ranks=(), name="gemm")) == []
    assert list(table.sorted_by("count")) == [SECOND, FIRST]
    assert list(table.sorted_by("share", descending=True)) == [SECOND, FIRST]
    assert list(table.sorted_by("start_ns")) == list(table.sorted_by("start_ns", descending=True))
    with pytest.raises(UsageError, match=r"there is no column 'shared'\. Did you mean share\?"):
        table.sorted_by("shared")


def test_tables_are_compared_and_pickled() -> None:
    table = kernels()
    assert table == kernels() == pickle.loads(pickle.dumps(table))
    assert table != kernels(FIRST)
    assert table != "table"


def test_a_table_in_an_interpreter() -> None:
    assert repr(kernels()).splitlines() == [
        "<Kernels: 2 rows",
        "rank  name         count  total (ms)                 start (UTC)  share (%)  bus (GB/s)  busy  ranks  note",
        "   3  gemm        12,000     123.457  2025-03-01 08:06:00.001842       25.0        12.5  yes   0, 3   a",
        "   5  <b>\\x1b[1m       2      <0.001                           -       50.0           -  no    -      ->",
    ]
    lines = repr(kernels(*[FIRST] * 1_040)).splitlines()
    assert (len(lines), lines[-1]) == (43, "… 1,000 more>")
    assert repr(kernels(FIRST)[:0]).splitlines() == ["<Kernels: 0 rows>"]


@pytest.mark.parametrize(("columns", "shown"), [(200, 10), (140, 10), (100, 6), (60, 4)])
def test_a_table_is_as_wide_as_the_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int, shown: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = repr(kernels(FIRST._replace(name="long" * 30))).splitlines()
    assert max(map(len, lines)) <= columns + 1
    headings = ("rank", "name", "count", "total", "start", "share", "bus", "busy", "ranks", "note")
    assert [name for name in headings if name in lines[1].split()] == list(headings[:shown])
    left_out = " ".join(lines[3 if shown == 10 else 4 :])
    assert all((name in left_out) == (name in headings[shown:]) for name in headings if name != "rank")


def test_a_table_in_a_notebook_is_escaped_and_bounded() -> None:
    page = kernels(*[SECOND._replace(name="<script>" * 1_000)] * 1_000)._repr_html_()
    assert "<script" not in page
    assert page.count("<tr>") == 41
    assert "… 960 more</div>" in page
    assert len(page) < 60_000


def test_tables_are_frames() -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame, arrow = kernels().to_pandas(), kernels().to_arrow()
    assert frame.attrs == {"units": dict(kernels().units)}
    assert frame["start_ns"].isna().tolist() == [False, True]
    assert [Kernel(**{**row, "ranks": tuple(row["ranks"])}) for row in arrow.to_pylist()] == [FIRST, SECOND]
    assert {field.name: (field.metadata or {}).get(b"unit", b"").decode() for field in arrow.schema} == {
        name: kernels().units.get(name, "") for name in Kernel._fields
    }


def test_numbers_that_no_column_holds_are_objects() -> None:
    rows = [Data(2**70, 2**64), Data(None, -1)]
    table = ResultTable.of_rows(Data, rows)
    assert list(table) == rows
    assert [column.dtype.kind for column in table.columns.values()] == ["O", "O"]
    assert repr(table)


@given(
    st.lists(st.builds(Data, st.none() | st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1)))
)
def test_any_numbers_come_back(rows: list[Data]) -> None:
    table = ResultTable.of_rows(Data, rows)
    assert list(table) == rows
    assert repr(table)
    assert table._repr_html_()
