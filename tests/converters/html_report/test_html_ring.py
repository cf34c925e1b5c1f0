"""The ring of a deadlock: who waits for whom, drawn and listed."""

from __future__ import annotations

import pytest

from builders.html_page import Element, read_html
from tracelink.diagnosis.html.markup import element
from tracelink.diagnosis.html.pictures import MOST_LABELLED, MOST_NODES, followers, ring_drawing
from tracelink.diagnosis.model import Link


def ring(count: int) -> list[Link]:
    """Each rank waits for the next one."""
    return [Link(f"g{rank}", 5, "nccl:all_reduce", (rank,), ((rank + 1) % count,)) for rank in range(count)]


def drawn(count: int) -> Element:
    return read_html(element("div", ring_drawing(ring(count), {"g1": "dp"})).text)


def test_an_arrow_leads_from_those_who_wait_to_those_they_wait_for() -> None:
    picture = drawn(3)
    assert [[text.text for text in node.all("text")] for node in picture.all("g")] == [
        ["1: rank 0", "all_reduce #5", "group g0"],
        ["2: rank 1", "all_reduce #5", "group g1 (dp)"],
        ["3: rank 2", "all_reduce #5", "group g2"],
    ]
    assert len(picture.all("path", class_="arrow")) == 3
    assert {one.attributes["marker-end"] for one in picture.all("path", class_="arrow")} == {"url(#head)"}


def test_those_who_wait_for_nobody_in_the_ring_have_no_arrow() -> None:
    cycle = [
        Link("0", 5, "nccl:all_reduce", (0, 1, 2), (3,)),
        Link("1", 4, "nccl:broadcast", (3,), (0, 1)),
        Link("2", 4, "nccl:broadcast", (4,), (3,)),
    ]
    assert [followers(cycle, number) for number in range(3)] == [[1], [0], [1]]


@pytest.mark.parametrize("count", [2, 3, MOST_LABELLED, MOST_LABELLED + 1, MOST_NODES])
def test_everything_lies_within_the_picture(count: int) -> None:
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


def test_a_large_ring_has_numbers_and_a_very_large_one_no_picture() -> None:
    assert [text.text for text in drawn(MOST_LABELLED + 1).all("text")] == [*map(str, range(1, 8))]
    assert ring_drawing(ring(MOST_NODES + 1), {}) is None


def test_a_long_name_is_cut_in_the_box_and_told_by_the_pointer() -> None:
    cycle = [Link("x" * 60, 5, "nccl:all_reduce", (rank,), (1 - rank,)) for rank in (0, 1)]
    node = read_html(element("div", ring_drawing(cycle, {})).text).all("g")[0]
    assert node.all("text")[2].text == f"group {'x' * 19}…"
    assert node.one("title").text == f"1: rank 0, all_reduce #5, group {'x' * 60}"
