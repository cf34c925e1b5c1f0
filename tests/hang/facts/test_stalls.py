"""Clocks of recorders: ages of entries, and lags of ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.dumps import MS, Entries, recorded, rounds, together
from builders.recorder import process_group
from tracelink._hang.facts.journal import Journal
from tracelink._hang.facts.stalls import Elapsed, lags_of

# Ages of unfinished entries.


def test_age_of_an_entry() -> None:
    entries = rounds(at=[[0, 0], [10, 12]])
    entries[1] += rounds(at=[[500]], ranks=[1], group=("1", ""))[1]
    journal = recorded(entries)
    elapsed = Elapsed(journal)
    assert elapsed.since({0: 1, 1: 3}) == {0: 489 * MS, 1: 488 * MS}
    assert elapsed.longest({0: 1, 1: 3}) == 489 * MS


def test_age_from_completion_times() -> None:
    entries = rounds(at=[[0, 0]], time_discovered_started_ns=together(at=[[70]]).records.created[0].item())
    assert Elapsed(recorded(entries)).since({0: 0}) == {0: 70 * MS}


def test_age_is_corrected_by_lag() -> None:
    journal = together(at=[[0, 0], [100, 100], [200, 200]], ahead={1: 3000})
    assert Elapsed(journal).since({0: 2, 1: 5}) == {0: 0, 1: 0}
    assert Elapsed(journal).longest({0: 2, 1: 5}) is None


def test_age_without_common_collectives() -> None:
    entries = rounds(at=[[0]], ranks=[0]) | rounds(at=[[9000]], ranks=[1], group=("1", ""))
    assert Elapsed(recorded(entries)).since({0: 0}) == {0: 0}


def test_age_without_times() -> None:
    entries = rounds(at=[[0, 0]])
    entries[0][0]["time_created_ns"] = 0
    assert Elapsed(recorded(entries)).since({0: 0}) == {}


# Lags of ranks.


CHAIN = process_group("1", [0, 1], "tp") | process_group("2", [1, 2], "dp")


def lags(journal: Journal) -> list[float]:
    """In ms, from that of rank 0."""
    found = lags_of(journal).lag / MS
    return [round(float(lag - found[0]), 3) for lag in found]


def chained(ahead: dict[int, float]) -> Journal:
    """Ranks 0 and 2 are in no group together."""
    one = rounds(at=[[0, 0], [10, 10], [20, 20]], ranks=[0, 1], group=("1", "tp"), ahead=ahead)
    other = rounds(at=[[5, 5], [15, 15], [25, 25]], ranks=[1, 2], group=("2", "dp"), ahead=ahead)
    entries: Entries = {rank: one.get(rank, []) + other.get(rank, []) for rank in range(3)}
    return recorded(entries, pg_config=CHAIN)


def test_lag_of_a_clock_that_is_ahead() -> None:
    assert lags(together(at=[[0, 1, 0], [9, 9, 10], [20, 20, 20]], ahead={1: 500, 2: -70})) == [0, 500, -70]


def test_late_once_is_not_a_lag() -> None:
    assert lags(together(at=[[0, 0, 0], [10, 10, 9000], [9001, 9001, 9001]])) == [0, 0, 0]


def test_lags_through_several_groups() -> None:
    assert lags(chained({1: 30, 2: -5})) == [0, 30, -5]


def test_lags_without_common_groups() -> None:
    entries = rounds(at=[[0]], ranks=[0], group=("9", "alone")) | rounds(at=[[4, 4]], ranks=[1, 2])
    assert lags_of(recorded(entries)).component.tolist() == [0, 1, 1]


def test_incomplete_collectives_are_ignored() -> None:
    entries = rounds(at=[[0, 0], [10, 90]])
    del entries[0][1]
    assert lags(recorded(entries)) == [0, 0]


def test_coalesced_entries_count_from_the_first() -> None:
    entries = rounds(at=[[0, 3], [10, 13], [20, 23]])
    entries[0] = [
        part | {"time_created_ns": part["time_created_ns"] + extra * MS}
        for part in entries[0]
        for extra in (0, 2)
    ]
    assert lags(recorded(entries)) == [0, 3]


@given(st.lists(st.integers(-10_000, 10_000), min_size=2, max_size=6), st.data())
def test_any_clock_offsets_are_found(ahead: list[int], data: st.DataObject) -> None:
    jitter = st.floats(0, 1)
    at = [[100 * number + data.draw(jitter) for _ in ahead] for number in range(5)]
    expected = [float(offset - ahead[0]) for offset in ahead]
    assert lags(together(at=at, ahead=dict(enumerate(ahead)))) == pytest.approx(expected, abs=2.01)
