"""How far ranks are: tables, and pictures with a cell for each rank."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from tracelink.diagnosis.model import Diagnosis, Kind, Link, Problem, Stage, Standing
from tracelink.diagnosis.report.pictures import MOST_CELLS, Progress, cycle_chart, lines_of, mark_of, pictures
from tracelink.diagnosis.report.problems import followers
from tracelink.diagnosis.report.standings import standings_sections
from tracelink.show.document import Block, Chart, Paragraph, Section, Table

SVG = "{http://www.w3.org/2000/svg}"


def at(group: str, stage: Stage, *ranks: int, last: int | None = 8, kind: str = "") -> Standing:
    return Standing(group, kind, last, "nccl:all_reduce" if last else "", stage, ranks)


HANG = (
    at("0", Stage.FINISHED, 3, kind="default_pg"),
    at("0", Stage.WAITING, 0, 1, 2, last=9, kind="default_pg"),
    at("1", Stage.FINISHED, 0, 1, kind="tp"),
    at("2", Stage.FINISHED, 2, 3, kind="tp"),
)
PROBLEM = Problem(Kind.NEVER_JOINED, "0", "", 9, "nccl:all_reduce", (3,), (0,), "Rank 3 is gone.")


def drawn(*standings: Standing, culprits: tuple[int, ...] = ()) -> list[Block]:
    problems = [replace(PROBLEM, culprits=culprits)] if culprits else []
    return list(pictures(Diagnosis(standings=standings, problems=problems)))


def texts(block: Block) -> list[str]:
    assert isinstance(block, Chart)
    return [one.text or "" for one in ElementTree.fromstring(block.svg).iter(f"{SVG}text")]


def tips(block: Block) -> list[str]:
    assert isinstance(block, Chart)
    cells = [group.find(f"{SVG}title") for group in ElementTree.fromstring(block.svg).iter(f"{SVG}g")]
    return [one.text or "" for one in cells if one is not None]


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
    (picture,) = drawn(*HANG, at("7", Stage.NEVER_JOINED, 0, 2, last=None))
    assert "7" not in texts(picture)


def test_a_picture_of_few_ranks_has_a_column_for_each() -> None:
    (picture,) = drawn(*HANG, culprits=(3,))
    assert texts(picture) == [
        "Last collective of each rank in each group (▲ culprit)",
        *("0", "1", "2", "3 ▲"),
        *("0 (default_pg)", "… 9", "… 9", "… 9", "< 8"),
        *("tp (2 groups)", "✓ 8", "✓ 8", "✓ 8", "✓ 8"),
        *("<", Progress.BEHIND.words, "…", Progress.WAITING.words, "✓", Progress.FINISHED.words),
    ]


def test_a_cell_says_what_its_rank_does() -> None:
    (picture,) = drawn(*HANG)
    assert tips(picture)[3] == f"rank 3, group 0 (default_pg): {Progress.BEHIND.words}, all_reduce #8"


def test_marks_depend_on_the_front_of_the_group() -> None:
    standings = [
        at("0", Stage.NEVER_JOINED, 0, last=None),
        at("0", Stage.UNKNOWN, 1, last=None),
        at("0", Stage.FINISHED, 2, last=3),
        at("0", Stage.WAITING, 3, last=3),
        at("0", Stage.WAITING, 4, last=4),
        at("0", Stage.FINISHED, 5, last=4),
        at("0", Stage.ENDING, 6, last=4),
    ]
    assert [mark_of(one, 4) for one in standings] == [
        Progress.NEVER,
        Progress.UNKNOWN,
        Progress.BEHIND,
        Progress.EARLIER,
        Progress.WAITING,
        Progress.FINISHED,
        Progress.FINISHED,
    ]


def test_groups_with_the_same_name() -> None:
    lines = lines_of([at("0", Stage.FINISHED, 0, 1), at("0", Stage.FINISHED, 1, 2)])
    assert [line.groups for line in lines] == [["0"], ["0"]]


def test_many_ranks_are_in_rows_of_64() -> None:
    (picture,) = drawn(
        at("0", Stage.WAITING, *range(100), *range(101, 512), last=9), at("0", Stage.FINISHED, 100)
    )
    assert isinstance(picture, Chart)
    assert picture.note == f"0-99, 101-511: {Progress.WAITING.words}; 100: {Progress.BEHIND.words}"
    assert tips(picture)[:4] == [
        f"ranks 0-63, group 0: {Progress.WAITING.words}, all_reduce #9",
        f"ranks 64-99, group 0: {Progress.WAITING.words}, all_reduce #9",
        f"rank 100, group 0: {Progress.BEHIND.words}, all_reduce #8",
        f"ranks 101-127, group 0: {Progress.WAITING.words}, all_reduce #9",
    ]
    assert texts(picture)[1:4] == ["0", "…" * 64, "64"]
    assert len(tips(picture)) == 10


def test_ranks_that_are_not_in_a_group_have_no_cell() -> None:
    (picture,) = drawn(at("0", Stage.WAITING, 2, 70, last=9), at("0", Stage.FINISHED, *range(3, 40)))
    places = [
        float(one.get("x", 0))
        for one in ElementTree.fromstring(picture.svg if isinstance(picture, Chart) else "").iter(
            f"{SVG}rect"
        )
    ]
    first, second, third, *_ = places
    assert third - first == pytest.approx(4 * (second - first))


def test_equal_ranks_are_one_sentence() -> None:
    (sentence,) = drawn(at("0", Stage.FINISHED, *range(512), kind="default_pg"))
    assert sentence == Paragraph("0 (default_pg): all 512 ranks: finished the last collective, all_reduce #8")


def test_limit_of_pictures() -> None:
    apart = [
        at(f"{group}", stage, *range(first, 2000, 2), kind=f"kind {group}")
        for group in range(4)
        for first, stage in enumerate((Stage.WAITING, Stage.FINISHED))
    ]
    first, second, rest = drawn(*apart)
    assert sum(len(tips(one)) for one in (first, second)) <= MOST_CELLS
    assert rest == Paragraph("2 more lines are not drawn; the table below has all groups.")


def test_no_groups() -> None:
    assert drawn() == [Paragraph("No dump names a collective of a group.")]


# The cycle of a deadlock.


def test_followers() -> None:
    cycle = [
        Link("0", 5, "nccl:all_reduce", (0, 1, 2), (3,)),
        Link("1", 4, "nccl:broadcast", (3,), (0, 1)),
        Link("2", 4, "nccl:broadcast", (4,), (3,)),
    ]
    assert [followers(cycle, index) for index in range(3)] == [[1], [0], [1]]


def circle(count: int) -> list[Link]:
    """Each rank waits for the next one."""
    return [Link(f"g{rank}", 5, "nccl:all_reduce", (rank,), ((rank + 1) % count,)) for rank in range(count)]


def test_a_cycle_is_drawn_unless_it_is_large() -> None:
    def drawn_circle(count: int) -> list[Chart]:
        names = [f"group g{rank}" for rank in range(count)]
        return list(cycle_chart(circle(count), names, [[(rank + 1) % count] for rank in range(count)]))

    (picture,) = drawn_circle(2)
    assert texts(picture)[1:] == [
        *("1: rank 0", "all_reduce #5", "group g0"),
        *("2: rank 1", "all_reduce #5", "group g1"),
    ]
    assert drawn_circle(49) == []
