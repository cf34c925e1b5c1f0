"""How far ranks are, and the cycle of a deadlock."""

from __future__ import annotations

from msgspec.structs import replace

from tracelink.diagnosis.model import Diagnosis, Kind, Link, Problem, Stage, Standing
from tracelink.diagnosis.report.problems import problem_sections
from tracelink.diagnosis.report.standings import standings_sections
from tracelink.show.document import Section, Table


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


def test_the_cycle_of_a_deadlock() -> None:
    cycle = (Link("0", 5, "nccl:all_reduce", (0, 1), (2,)), Link("1", 4, "nccl:broadcast", (2,), (0,)))
    deadlock = Diagnosis(standings=HANG, problems=[replace(PROBLEM, kind=Kind.DEADLOCK, cycle=cycle)])
    blocks = [block for section in problem_sections(deadlock, None) for block in section.blocks]
    (links,) = [block.rows for block in blocks if isinstance(block, Table) and block.thing == "link"]
    assert [(row.ranks, row.call, row.waits_for) for row in links] == [
        ((0, 1), "all_reduce #5 of group 0 (default_pg)", (2,)),
        ((2,), "broadcast #4 of group 1 (tp)", (0,)),
    ]
