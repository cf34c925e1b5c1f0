"""`tracelink.show.diagrams`."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tracelink.show.charts import Plot
from tracelink.show.diagrams import MOST_LABELLED, MOST_NODES, ring

SVG = "{http://www.w3.org/2000/svg}"


def tree(plot: Plot) -> ElementTree.Element:
    return ElementTree.fromstring(plot.svg)


def texts(plot: Plot) -> list[str]:
    return [found.text or "" for found in tree(plot).iter(f"{SVG}text")]


def circle(count: int) -> Plot:
    """Each node leads to the next one."""
    nodes = [(f"rank {node}", "all_reduce #5", f"group g{node}") for node in range(count)]
    return ring("Cycle", nodes, [(node, (node + 1) % count) for node in range(count)])


def test_a_small_ring_has_boxes_with_text_and_arrows() -> None:
    plot = circle(3)
    assert [[text.text for text in node.iter(f"{SVG}text")] for node in tree(plot).iter(f"{SVG}g")] == [
        ["1: rank 0", "all_reduce #5", "group g0"],
        ["2: rank 1", "all_reduce #5", "group g1"],
        ["3: rank 2", "all_reduce #5", "group g2"],
    ]
    assert [len(list(tree(plot).iter(f"{SVG}{name}"))) for name in ("path", "polygon")] == [3, 3]


@pytest.mark.parametrize("count", [2, 3, MOST_LABELLED, MOST_LABELLED + 1, MOST_NODES])
def test_nodes_and_arrows_are_within_the_drawing(count: int) -> None:
    root = tree(circle(count))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for box in root.iter(f"{SVG}rect"):
        left, top, wide, high = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
        assert 0 <= left <= left + wide <= width
        assert 0 <= top <= top + high <= height
    for dot in root.iter(f"{SVG}circle"):
        across, down, radius = (float(dot.attrib[name]) for name in ("cx", "cy", "r"))
        assert radius <= across <= width - radius
        assert radius <= down <= height - radius
    for path in root.iter(f"{SVG}path"):
        begin_x, begin_y, _, _, end_x, end_y = map(
            float, path.attrib["d"].lstrip("M").replace("Q", " ").split()
        )
        assert all(0 <= x <= width for x in (begin_x, end_x))
        assert all(0 <= y <= height for y in (begin_y, end_y))


def test_a_large_ring_has_numbers_whose_text_is_a_tip() -> None:
    plot = circle(MOST_LABELLED + 1)
    assert texts(plot) == ["Cycle", *map(str, range(1, MOST_LABELLED + 2))]
    assert "2: rank 1, all_reduce #5, group g1" in plot.svg


def test_long_lines_of_a_node_are_shortened() -> None:
    plot = ring("Cycle", [("rank 0", "x" * 60), ("rank 1", "y")], [(0, 1)])
    assert texts(plot)[2] == "x" * 25 + "…"
    assert f"1: rank 0, {'x' * 60}" in plot.svg
