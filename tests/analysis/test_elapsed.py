"""How long something has been pending."""

from __future__ import annotations

from builders.journal import MS, recorded, rounds, together
from tracelink.diagnosis.clocks import Elapsed


def test_an_entry_is_as_old_as_the_last_that_any_recorder_saw() -> None:
    entries = rounds(at=[[0, 0], [10, 12]])
    entries[1] += rounds(at=[[500]], ranks=[1], group=("1", ""))[1]
    journal = recorded(entries)
    elapsed = Elapsed(journal)
    assert elapsed.since({0: 1, 1: 3}) == {0: 489 * MS, 1: 488 * MS}
    assert elapsed.longest({0: 1, 1: 3}) == 489 * MS


def test_what_a_watchdog_saw_counts_too() -> None:
    entries = rounds(at=[[0, 0]], time_discovered_started_ns=together(at=[[70]]).records.created[0].item())
    assert Elapsed(recorded(entries)).since({0: 0}) == {0: 70 * MS}


def test_a_rank_that_is_usually_late_tells_less_for_its_clock_may_be_ahead() -> None:
    journal = together(at=[[0, 0], [100, 100], [200, 200]], ahead={1: 3000})
    assert Elapsed(journal).since({0: 2, 1: 5}) == {0: 0, 1: 0}
    assert Elapsed(journal).longest({0: 2, 1: 5}) is None


def test_recorders_that_share_nothing_tell_nothing_of_each_other() -> None:
    entries = rounds(at=[[0]], ranks=[0]) | rounds(at=[[9000]], ranks=[1], group=("1", ""))
    assert Elapsed(recorded(entries)).since({0: 0}) == {0: 0}


def test_what_has_no_time_has_no_age() -> None:
    entries = rounds(at=[[0, 0]])
    entries[0][0]["time_created_ns"] = 0
    assert Elapsed(recorded(entries)).since({0: 0}) == {}
