"""How far ranks are, and the cycle of a deadlock."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tracelink.diagnosis.model import Diagnosis, Kind, Link, Problem, Stage, Standing
from tracelink.diagnosis.report.problems import arrows_of, problem_sections
from tracelink.diagnosis.report.standings import standings_sections
from tracelink.show.document import Chart, Section, Table


def at(group: str, stage: Stage, *ranks: int, last: int | None = 8, kind: str = "") -> Standing:
    return Standing(group, kind, last, "nccl:all_reduce" if last else "", stage, ranks)


HANG = (
    at("0", Stage.FINISHED, 3, kind="default_pg"),
    at("0", Stage.WAITING, 0, 1, 2, last=9, kind="default_pg"),
    at("1", Stage.FINISHED, 0, 1, kind="tp"),
    at("2", Stage.FINISHED, 2, 3, kind="tp"),
)
PROBLEM = Problem(Kind.NEVER_JOINED, "0", "", 9, "nccl:all_reduce", (3,), (0,), "Rank 3 is gone.")


def rows(section: Section) -> list[tuple[str, str, str, str]]:
    (table,) = [block for block in section.blocks if isinstance(block, Table)]
    return [(row.group, " ".join(map(str, row.ranks)), row.last, row.state) for row in table.rows]


def test_tables_of_groups_that_differ_and_of_others() -> None:
    differ, equal = standings_sections(Diagnosis(standings=HANG, problems=[PROBLEM]))
    assert rows(differ) == [
        ("0 (default_pg)", "3", "all_reduce #8", "finished, did not join #9"),
        ("0 (default_pg)", "0 1 2", "all_reduce #9", "joined, not finished"),
    ]
    assert rows(equal) == [("1-2 (tp)", "0 1 2 3", "all_reduce #8", "finished")]
    assert (differ.verbose, equal.verbose) == (False, True)


def test_a_group_without_collectives() -> None:
    _, equal = standings_sections(Diagnosis(standings=[*HANG, at("7", Stage.NEVER_JOINED, 0, 2, last=None)]))
    assert rows(equal)[-1] == ("7", "0 2", "", "no collectives")


# The cycle of a deadlock.


def test_arrows_lead_to_the_links_that_hold_what_a_link_waits_for() -> None:
    cycle = [
        Link("0", 5, "nccl:all_reduce", (0, 1, 2), (3,)),
        Link("1", 4, "nccl:broadcast", (3,), (0, 1)),
        Link("2", 4, "nccl:broadcast", (4,), (3,)),
    ]
    assert arrows_of(cycle) == [(0, 1), (1, 0), (2, 1)]


@pytest.mark.parametrize(("count", "drawn"), [(2, 1), (49, 0)])
def test_a_cycle_is_drawn_unless_it_is_large(count: int, drawn: int) -> None:
    cycle = tuple(
        Link(f"g{rank}", 5, "nccl:all_reduce", (rank,), ((rank + 1) % count,)) for rank in range(count)
    )
    deadlock = Diagnosis(problems=[replace(PROBLEM, kind=Kind.DEADLOCK, cycle=cycle)])
    blocks = [block for section in problem_sections(deadlock, None) for block in section.blocks]
    charts = [block.svg() for block in blocks if isinstance(block, Chart) and callable(block.svg)]
    assert len(charts) == drawn
    assert all(f"{number + 1}: rank {number}" in charts[0] for number in range(count if drawn else 0))
    (links,) = [block.rows for block in blocks if isinstance(block, Table) and block.thing == "link"]
    assert [(row.ranks, row.call, row.waits_for) for row in links[:1]] == [
        ((0,), "all_reduce #5 of group g0", (1,))
    ]
