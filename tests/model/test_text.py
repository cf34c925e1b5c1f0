"""`tracelink._model.text`."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink._model.text import (
    KILO,
    LONGEST_LIST,
    UNITS,
    about,
    collective_in_words,
    count_of_ranks,
    counted,
    date_and_time,
    duration,
    fine_span,
    group_in_words,
    moment,
    operation_in_words,
    ranks_cell,
    ranks_in_words,
    size,
    span,
    subject,
    time_of_day,
)
from tracelink._model.trace import ProcessGroup

# Counts and sizes.


@pytest.mark.parametrize(
    ("count", "thing", "text"),
    [(1, "rank", "1 rank"), (2000, "rank", "2,000 ranks"), (3, "entry", "3 entries"), (0, "file", "0 files")],
)
def test_counts(count: int, thing: str, text: str) -> None:
    assert counted(count, thing) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (12_345_678, "12.3 MB"), (5 * 10**15, "5000.0 TB")],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (7, "7 B"),
        (994, "990 B"),
        (996, "1.0 kB"),
        (3_140_000, "3.1 MB"),
        (9_960_000, "10 MB"),
        (312_345_678, "310 MB"),
        (4_200_000_000, "4.2 GB"),
        (12 * 10**15, "12000 TB"),
    ],
)
def test_sizes_in_two_digits(count: int, text: str) -> None:
    assert about(count) == text


@given(st.integers(100, 10**14))
def test_sizes_in_two_digits_are_within_5_percent(count: int) -> None:
    match = re.fullmatch(r"(\d{1,3}|\d\.\d) (\w+)", about(count))
    assert match
    assert float(match[1]) * KILO ** UNITS.index(match[2]) == pytest.approx(count, rel=0.051)


# Ranks, collectives and times.


MS = 1_000_000
SECOND = 1_000 * MS


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([3], "Rank 3"),
        ([1, 6], "Ranks 1 and 6"),
        (range(8), "Ranks 0-7"),
        ([0, 1, 2, 4], "Ranks 0-2, 4"),
        (range(0, 128, 2), "64 ranks (0, 2, 4, 6, 8, 10, 12, 14, …)"),
    ],
)
def test_ranks(ranks: list[int], words: str) -> None:
    assert ranks_in_words(ranks) == words


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        (range(512), "0-511"),
        ([0, 2, 5], "0, 2, 5"),
        (range(0, 512, 8), "64: 0, 8, 16, 24, 32, 40, …"),
        (range(100_000, 900_000, 1000), "800: 100000, 101000, …"),
    ],
)
def test_many_ranks_in_a_cell_are_counted_and_the_first_listed(ranks: Sequence[int], text: str) -> None:
    assert ranks_cell(ranks) == text
    assert len(text) <= LONGEST_LIST + 1


@pytest.mark.parametrize(("ranks", "words"), [([2], "rank 2 waits"), ([2, 5], "2 ranks wait")])
def test_how_many_ranks(ranks: list[int], words: str) -> None:
    assert count_of_ranks(ranks, "wait") == words


@pytest.mark.parametrize(
    ("nanoseconds", "words"),
    [
        (0, "0 µs"),
        (7_400, "7 µs"),
        (100_000, "0.1 ms"),
        (99 * MS, "99.0 ms"),
        (100 * MS, "0.1 s"),
        (4 * SECOND, "4.0 s"),
        (119 * SECOND, "119.0 s"),
        (120 * SECOND, "2 min"),
        (200 * SECOND, "3 min 20 s"),
        (600 * SECOND, "10 min"),
        (7_199 * SECOND, "119 min 59 s"),
        (7_200 * SECOND, "2 h"),
        (7_500 * SECOND, "2 h 5 min"),
    ],
)
def test_durations(nanoseconds: int, words: str) -> None:
    assert duration(nanoseconds) == words


@pytest.mark.parametrize(
    ("ns", "text"), [(0, "0.000 ms"), (2_912_000, "2.912 ms"), (3_600_000_000_000, "3,600.000 s")]
)
def test_spans_are_in_seconds_or_milliseconds(ns: int, text: str) -> None:
    assert span(ns) == text


@pytest.mark.parametrize(
    ("ns", "text"), [(500, "0.5 µs"), (1_234_567, "1.235 ms"), (2_500_000_000, "2.500 s")]
)
def test_fine_spans_have_microseconds(ns: int, text: str) -> None:
    assert fine_span(ns) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "1970-01-01 00:00:00.000"),
        (1_763_472_750_999_999_999, "2025-11-18 13:32:30.999"),
        (-1, "1969-12-31 23:59:59.999"),
        (10**20 * 10, "1000000000000000000000 ns"),
    ],
)
def test_dates_are_truncated_not_rounded(ns: int, text: str) -> None:
    assert date_and_time(ns, digits=3) == text


def test_a_moment_has_a_zone_and_a_time_of_day_has_no_date() -> None:
    assert moment(1_500) == "1970-01-01 00:00:00.000001 UTC"
    assert moment(10**21) == "1000000000000000000000 ns"
    assert time_of_day(1_500) == "00:00:00.000001"


@pytest.mark.parametrize(
    ("name", "description", "words"),
    [("0", "default_pg", "group 0 (default_pg)"), ("tp", "tp", "group tp"), ("7", "", "group 7")],
)
def test_groups(name: str, description: str, words: str) -> None:
    assert group_in_words(name, description) == words


@pytest.mark.parametrize(
    ("recorded", "words"),
    [("gloo:all_reduce", "all_reduce"), ("nccl:send 1->2", "send 1->2"), ("all_reduce", "all_reduce")],
)
def test_operations_without_their_backend(recorded: str, words: str) -> None:
    assert operation_in_words(recorded) == words


def test_a_collective() -> None:
    group = ProcessGroup("0", "default_pg")
    assert collective_in_words("gloo:all_reduce", 9, group) == "all_reduce #9 of group 0 (default_pg)"


@pytest.mark.parametrize(
    ("count", "thing", "verb", "text"),
    [
        (1, "event", "are", "1 event is"),
        (0, "event", "have", "0 events have"),
        (2_000, "entry", "were", "2,000 entries were"),
    ],
)
def test_the_verb_fits_the_count(count: int, thing: str, verb: str, text: str) -> None:
    assert subject(count, thing, verb) == text
