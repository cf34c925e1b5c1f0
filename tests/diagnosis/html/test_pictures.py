"""Drawings of cycles and of standings."""

from __future__ import annotations

import pytest

from builders.html_page import Element, read_html
from tracelink.diagnosis.html.pictures import (
    CAPTION,
    MOST_LABELLED,
    MOST_NODES,
    MOST_ROWS,
    MOST_RUNS,
    Mark,
    followers,
    lines_of,
    patterns,
    ring_drawing,
    standings_by_group,
    standings_section,
)
from tracelink.diagnosis.model import Link, Stage, Standing
from tracelink.show.markup import element

# Cycles of deadlocks.


def ring(count: int) -> list[Link]:
    """Each rank waits for the next one."""
    return [Link(f"g{rank}", 5, "nccl:all_reduce", (rank,), ((rank + 1) % count,)) for rank in range(count)]


def drawn(count: int) -> Element:
    return read_html(element("div", ring_drawing(ring(count), {"g1": "dp"})).text)


def test_cycle_drawing() -> None:
    picture = drawn(3)
    assert [[text.text for text in node.all("text")] for node in picture.all("g")] == [
        ["1: rank 0", "all_reduce #5", "group g0"],
        ["2: rank 1", "all_reduce #5", "group g1 (dp)"],
        ["3: rank 2", "all_reduce #5", "group g2"],
    ]
    assert len(picture.all("path", class_="arrow")) == 3
    assert {one.attributes["marker-end"] for one in picture.all("path", class_="arrow")} == {"url(#head)"}


def test_followers() -> None:
    cycle = [
        Link("0", 5, "nccl:all_reduce", (0, 1, 2), (3,)),
        Link("1", 4, "nccl:broadcast", (3,), (0, 1)),
        Link("2", 4, "nccl:broadcast", (4,), (3,)),
    ]
    assert [followers(cycle, number) for number in range(3)] == [[1], [0], [1]]


@pytest.mark.parametrize("count", [2, 3, MOST_LABELLED, MOST_LABELLED + 1, MOST_NODES])
def test_nodes_are_within_the_drawing(count: int) -> None:
    picture = drawn(count).one("svg")
    _, _, width, height = map(float, picture.attributes["viewbox"].split())
    for box in picture.all("rect"):
        left, top, wide, high = (float(box.attributes[name]) for name in ("x", "y", "width", "height"))
        assert left >= 0
        assert top >= 0
        assert left + wide <= width
        assert top + high <= height
    for dot in picture.all("circle"):
        across, down, radius = (float(dot.attributes[name]) for name in ("cx", "cy", "r"))
        assert radius <= across <= width - radius
        assert radius <= down <= height - radius
    for arrow in picture.all("path", class_="arrow"):
        ends = arrow.attributes["d"].lstrip("M").replace("Q", " ").split()
        assert all(0 <= float(across) <= width for across in (ends[0], ends[4]))
        assert all(0 <= float(down) <= height for down in (ends[1], ends[5]))


def test_large_cycles() -> None:
    assert [text.text for text in drawn(MOST_LABELLED + 1).all("text")] == [*map(str, range(1, 8))]
    assert ring_drawing(ring(MOST_NODES + 1), {}) is None


def test_long_names_in_boxes() -> None:
    cycle = [Link("x" * 60, 5, "nccl:all_reduce", (rank,), (1 - rank,)) for rank in (0, 1)]
    node = read_html(element("div", ring_drawing(cycle, {})).text).all("g")[0]
    assert node.all("text")[2].text == f"group {'x' * 19}…"
    assert node.one("title").text == f"1: rank 0, all_reduce #5, group {'x' * 60}"


# Standings: a table of few ranks, a drawing of many.


WORDS = "Ranks by group"


def at(group: str, stage: Stage, *ranks: int, last: int | None = 8, kind: str = "") -> Standing:
    return Standing(group, kind, last, "nccl:all_reduce" if last else "", stage, ranks)


def shown(*standings: Standing, culprits: tuple[int, ...] = ()) -> Element:
    return read_html(element("div", standings_section(standings, culprits)).text)


HANG = (
    at("0", Stage.FINISHED, 3, kind="default_pg"),
    at("0", Stage.WAITING, 0, 1, 2, last=9, kind="default_pg"),
    at("1", Stage.FINISHED, 0, 1, kind="tp"),
    at("2", Stage.FINISHED, 2, 3, kind="tp"),
)


def test_matrix_of_ranks() -> None:
    page = shown(*HANG, culprits=(3,))
    header = page.all("table")[0].one("thead")
    assert [cell.text for cell in header.all("th")] == ["group", "0", "1", "2", "3 ▲"]
    assert page.rows(CAPTION) == [
        ["0 (default_pg)", "… 9", "… 9", "… 9", "< 8"],
        ["tp (2 groups)", "✓ 8", "✓ 8", "✓ 8", "✓ 8"],
    ]


def test_cell_title() -> None:
    cell = shown(*HANG).all("span", class_="behind")[1]
    assert cell.text == "< 8"
    assert cell.attributes["title"] == (
        "rank 3, group 0 (default_pg): finished an earlier collective and did not join the one that others are in, "
        "all_reduce #8"
    )


def test_standings_table() -> None:
    assert shown(*HANG).rows(WORDS) == [
        ["0 (default_pg)", "…", "joined and has not finished", "all_reduce #9", "0-2"],
        ["0 (default_pg)", "<", Mark.BEHIND.words, "all_reduce #8", "3"],
        ["1-2 (tp)", "✓", "finished the last collective", "all_reduce #8", "0-3"],
    ]


def test_unused_group() -> None:
    page = shown(*HANG, at("7", Stage.NEVER_JOINED, 0, 2, last=None))
    assert [row[0] for row in page.rows(CAPTION)] == ["0 (default_pg)", "tp (2 groups)"]
    assert page.rows(WORDS)[-1] == ["7", "-", "no rank recorded a collective of this group", "none", "0, 2"]


def test_marks_depend_on_the_group() -> None:
    (places,) = standings_by_group(
        [
            at("0", Stage.NEVER_JOINED, 0, last=None),
            at("0", Stage.UNKNOWN, 1, last=None),
            at("0", Stage.FINISHED, 2, last=3),
            at("0", Stage.WAITING, 3, last=3),
            at("0", Stage.WAITING, 4, last=4),
            at("0", Stage.FINISHED, 5, last=4),
        ]
    )
    assert [place.mark for place in places] == [
        Mark.NEVER,
        Mark.UNKNOWN,
        Mark.BEHIND,
        Mark.EARLIER,
        Mark.WAITING,
        Mark.FINISHED,
    ]


def test_groups_with_the_same_name() -> None:
    groups = standings_by_group([at("0", Stage.FINISHED, 0, 1), at("0", Stage.FINISHED, 1, 2)])
    assert [line.groups for line in lines_of(groups)] == [["0"], ["0"]]


def test_drawing_of_many_ranks() -> None:
    page = shown(at("0", Stage.WAITING, *range(100), *range(101, 512), last=9), at("0", Stage.FINISHED, 100))
    drawing = page.one("svg", class_="map")
    assert drawing.attributes["aria-label"].endswith(
        f"0: ranks 0-99, 101-511: joined and has not finished; ranks 100: {Mark.BEHIND.words}"
    )
    titles = [one.text for one in drawing.all("title")]
    assert len(titles) == 10
    assert titles[1:4] == [
        "ranks 64-99, group 0: joined and has not finished, all_reduce #9",
        f"rank 100, group 0: {Mark.BEHIND.words}, all_reduce #8",
        "ranks 101-127, group 0: joined and has not finished, all_reduce #9",
    ]
    assert [text.text for text in drawing.all("text")] == [
        "0",
        "64",
        "128",
        "192",
        "256",
        "320",
        "384",
        "448",
    ]


def test_every_mark_has_a_pattern() -> None:
    page = shown(at("0", Stage.WAITING, *range(0, 64, 2), last=9), at("0", Stage.FINISHED, *range(1, 64, 2)))
    tiles = read_html(element("defs", patterns()).text).all("pattern")
    assert {one.attributes["id"] for one in tiles} == {look.style for look in Mark}
    assert {one.attributes["fill"] for one in page.one("svg", class_="map").all("rect")} == {
        "url(#waiting)",
        "url(#behind)",
    }


def test_all_ranks_equal() -> None:
    page = shown(at("0", Stage.FINISHED, *range(512), kind="default_pg"))
    assert page.all("svg") == []
    assert "0 (default_pg)All 512 ranks: finished the last collective, all_reduce #8" in page.text.replace(
        "\n", ""
    )


def test_drawing_limit() -> None:
    apart = [
        at(f"{group}", stage, *range(first, 2000, 2), kind=f"kind {group}")
        for group in range(4)
        for first, stage in enumerate((Stage.WAITING, Stage.FINISHED))
    ]
    page = shown(*apart)
    assert len(page.all("svg", class_="map")) == 2
    assert sum(len(one.all("rect")) for one in page.all("svg", class_="map")) <= MOST_RUNS
    assert "2 more lines are not drawn; the table below has all groups." in page.text
    assert len(page.rows(WORDS)) == 8


def test_table_limit() -> None:
    page = shown(*(at(f"{group}", Stage.FINISHED, 0, kind=f"kind {group}") for group in range(MOST_ROWS + 3)))
    assert len(page.rows(WORDS)) == MOST_ROWS
    assert "3 more rows are not shown." in page.text


def test_no_groups() -> None:
    assert shown().text.strip() == "No dump names a group."
