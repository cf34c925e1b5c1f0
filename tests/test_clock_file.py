"""Clocks from a file: what `tracelink clocks --json` writes, or a few offsets by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink.clocks.clock import read_clocks
from tracelink.errors import UsageError
from tracelink.model.clock import Clock, Clocks


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "clocks.json"


def written(file: Path, said: Any) -> Path:
    file.write_text(said if isinstance(said, str) else json.dumps(said))
    return file


def test_clocks_are_read_as_they_were_written(file: Path) -> None:
    said = {
        "reference_ns": 1_790_000_000_000_000_000,
        "ranks": [
            {
                "rank": 1,
                "host": "b",
                "offset_ns": -1500,
                "drift_ppm": 2.5,
                "low_ns": -2000,
                "high_ns": -1000,
                "constraints": 7,
            },
            {
                "rank": 4,
                "host": "c",
                "offset_ns": 0,
                "drift_ppm": 0.0,
                "low_ns": None,
                "high_ns": None,
                "constraints": 0,
            },
        ],
        "findings": [],
    }
    assert read_clocks(written(file, said)) == Clocks(
        {
            1: Clock(1, "b", -1500, 2.5, -2000, -1000, 7, 1_790_000_000_000_000_000),
            4: Clock(4, "c", 0, 0.0, None, None, 0, 1_790_000_000_000_000_000),
        }
    )


def test_offsets_by_hand_are_enough(file: Path) -> None:
    assert read_clocks(written(file, {"0": 0, "3": -1500})) == Clocks(
        {0: Clock(0), 3: Clock(3, offset_ns=-1500)}
    )


@given(st.dictionaries(st.integers(0, 999_999), st.integers(-(10**18), 10**18)))
def test_every_offset_by_hand_is_kept(
    tmp_path_factory: pytest.TempPathFactory, offsets: dict[int, int]
) -> None:
    file = tmp_path_factory.getbasetemp() / "clocks.json"
    found = read_clocks(written(file, {str(rank): offset for rank, offset in offsets.items()}))
    assert found == Clocks({rank: Clock(rank, offset_ns=offset) for rank, offset in offsets.items()})


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("{", "is no file of clocks: Input data was truncated"),
        ([1], "is no file of clocks: Expected `object`, got `array`"),
        ({"zero": 1}, "is no file of clocks: Expected `int`, got `str`"),
        ({"0": 1.5}, "is no file of clocks: Expected `int`, got `float`"),
        ({"-1": 5}, "is no file of clocks: Expected `int` >= 0"),
        (
            {"ranks": [{"rank": 0}]},
            "is no file of clocks: Object missing required field `offset_ns` - at `$.ranks[0]`",
        ),
        (
            {"ranks": [{"rank": 0, "offset_ns": "1"}]},
            "is no file of clocks: Expected `int`, got `str` - at `$.ranks[0].offset_ns`",
        ),
        ({"ranks": [{"rank": 2, "offset_ns": 1}] * 2}, "has rank 2 twice"),
        ({"0": 10**30}, "is no file of clocks"),
        ({"1000000": 0}, "is no file of clocks"),
        ({"ranks": [{"rank": 2, "offset_ns": 10**19}]}, "is no file of clocks"),
        (
            {"reference_ns": 0, "ranks": [{"rank": 2, "offset_ns": 1, "drift_ppm": 1e300}]},
            "is no file of clocks",
        ),
        (
            {"ranks": [{"rank": 2, "offset_ns": 1, "low_ns": 3, "high_ns": 2}]},
            "has low_ns above high_ns for rank 2",
        ),
        (
            {"ranks": [{"rank": 2, "offset_ns": 1, "drift_ppm": 3.0}]},
            "has a drift for rank 2, but no reference_ns",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said(file: Path, said: Any, problem: str) -> None:
    with pytest.raises(UsageError) as error:
        read_clocks(written(file, said))
    assert error.value.source == str(file)
    assert error.value.problem.startswith(problem)
    assert error.value.advice


def test_a_word_that_is_neither_a_mode_nor_a_file_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"hosts: cannot be read: No such file or directory\. Give none, host, coll"
    ):
        read_clocks("hosts")


def test_ranks_that_a_file_does_not_name_are_not_corrected() -> None:
    clocks = Clocks({1: Clock(1, offset_ns=-5), 7: Clock(7, offset_ns=3)}).for_ranks({0: "a", 1: "b"})
    assert clocks.clocks == {0: Clock(0, "a"), 1: Clock(1, "b", -5)}
    assert [(finding.reason, finding.count) for finding in clocks.findings] == [("clock_of_no_rank", 1)]
