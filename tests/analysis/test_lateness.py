"""Who comes late, and by how much."""

from __future__ import annotations

from builders.journal import MS, rounds, together
from builders.journal import recorded as journal_of_entries
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.lateness import latecomers_of
from tracelink.diagnosis.model import Lateness
from tracelink.diagnosis.participation import parts_of


def lateness(journal: Journal) -> list[Lateness]:
    return list(latecomers_of(journal, parts_of(journal)).lateness)


def test_the_last_rank_of_a_collective_is_late_by_how_long_it_was_the_only_one_missing() -> None:
    assert lateness(together(at=[[0, 5, 2], [10, 11, 13], [20, 29, 20]])) == [
        Lateness(1, collectives=2, of=3, worst_ns=9 * MS, total_ns=12 * MS, group="0", sequence=3),
        Lateness(2, collectives=1, of=3, worst_ns=2 * MS, total_ns=2 * MS, group="0", sequence=2),
    ]


def test_where_all_come_at_once_nobody_is_late() -> None:
    assert lateness(together(at=[[0, 0], [7, 7]])) == []


def test_nobody_waits_for_the_last_rank_of_a_broadcast() -> None:
    assert lateness(together(at=[[0, 50]], name="gloo:broadcast")) == []


def test_a_collective_that_not_all_joined_tells_of_nobody() -> None:
    entries = rounds(at=[[0, 1, 2], [10, 11, 12]])
    del entries[2][1]
    assert [(one.rank, one.of) for one in lateness(journal_of_entries(entries))] == [(2, 1)]


def test_a_rank_without_a_dump_is_nobody_that_the_others_can_be_compared_with() -> None:
    entries = rounds(at=[[0, 1, 2], [10, 12, 11]])
    del entries[2]
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    assert [(one.rank, one.total_ns) for one in lateness(journal_of_entries(entries, pg_config=config))] == [
        (1, 3 * MS)
    ]


def test_each_group_is_looked_at_by_itself() -> None:
    entries = rounds(at=[[0, 1], [5, 6]])
    pair = rounds(at=[[8, 30]], ranks=[0, 1], group=("1", "tp"))
    both = {rank: entries[rank] + pair[rank] for rank in entries}
    config = {name: {"name": name, "desc": "", "ranks": "[0, 1]"} for name in ("0", "1")}
    (late,) = lateness(journal_of_entries(both, pg_config=config))
    assert (late.rank, late.collectives, late.group, late.sequence) == (1, 3, "1", 1)


def test_entries_without_a_time_are_left_out() -> None:
    entries = rounds(at=[[0, 3], [10, 11]])
    entries[1][0]["time_created_ns"] = 0
    assert [(one.rank, one.of) for one in lateness(journal_of_entries(entries))] == [(1, 1)]


def test_a_journal_without_entries_knows_of_nobody() -> None:
    assert lateness(journal_of_entries({0: [], 1: []})) == []
