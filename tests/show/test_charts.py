"""`tracelink._show.charts`."""

from __future__ import annotations

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink._model.errors import UsageError
from tracelink._model.fields import (
    Bytes,
    GigabytesPerSecond,
    Identifier,
    Nanoseconds,
    RankNumber,
    Row,
    UnixNanoseconds,
)
from tracelink._model.results import ResultTable
from tracelink._show.charts import (
    MOST_BARS,
    MOST_BOXES,
    MOST_POINTS,
    MOST_SERIES,
    Box,
    Cell,
    Plot,
    Series,
    bars,
    heat_map,
    lines,
    points,
    timeline,
)

SVG = "{http://www.w3.org/2000/svg}"


class Step(Row, frozen=True):
    rank: RankNumber
    step: Identifier
    start_ns: UnixNanoseconds
    compute_ns: Nanoseconds
    idle_ns: Nanoseconds | None

    plotted = ("compute_ns", "idle_ns")


class Sent(Row, frozen=True):
    operation: str
    size_bytes: Bytes
    bus_gb_s: GigabytesPerSecond


def steps(count: int = 2) -> ResultTable[Step]:
    rows = [Step(rank, step, 10**18 + step, 3_000_000, 1_000_000) for rank in (0, 1) for step in range(count)]
    return ResultTable.of_rows(Step, rows, title="Steps")


def tree(plot: Plot) -> ElementTree.Element:
    return ElementTree.fromstring(plot.svg)


def texts(plot: Plot) -> list[str]:
    return [found.text or "" for found in tree(plot).iter(f"{SVG}text")]


def tips(plot: Plot, name: str) -> list[str]:
    return [found.findtext(f"{SVG}title") or "" for found in tree(plot).iter(f"{SVG}{name}")]


def test_parts_of_steps_are_stacked_bars() -> None:
    plot = steps().plot()
    assert plot.title == "Steps: compute, idle"
    assert [tip for tip in tips(plot, "rect") if tip] == [
        f"rank {rank}, step {step}: {part}"
        for rank in (0, 1)
        for step in (0, 1)
        for part in ("compute 3 ms", "idle 1 ms")
    ]
    rects = [found.attrib for found in tree(plot).iter(f"{SVG}rect")][2:]
    assert [rect["class"] for rect in rects[:2]] == ["c1", "c0"], "idle time is gray"
    first, second = rects[:2]
    assert float(first["x"]) + float(first["width"]) == pytest.approx(float(second["x"]))
    assert float(first["width"]) == pytest.approx(3 * float(second["width"]), abs=0.1)


def test_negative_parts_go_to_the_left() -> None:
    plot = bars("Causes", ["a", "b"], {"delta": [4.0, -2.0]})
    first, second = (found.attrib for found in tree(plot).iter(f"{SVG}rect"))
    assert float(second["x"]) + float(second["width"]) == pytest.approx(float(first["x"]))
    assert "-2" in texts(plot)


def test_many_steps_are_lines_of_ranks() -> None:
    plot = steps(100).plot("compute_ns")
    assert len(list(tree(plot).iter(f"{SVG}polyline"))) == 2
    assert {"rank 0", "rank 1", "compute (ms)", "step"} <= set(texts(plot))


class Sample(Row, frozen=True):
    rank: RankNumber
    counter: str
    time_ns: UnixNanoseconds
    used_bytes: Bytes

    plotted = ("used_bytes",)


def test_each_rank_and_name_is_a_line_of_its_own() -> None:
    rows = [
        Sample(rank, name, 10**18 + time, time) for rank in (0, 1) for name in ("a", "b") for time in range(3)
    ]
    table = ResultTable.of_rows(Sample, rows)
    plot = table.plot(x="time_ns")
    names = ["rank 0, a", "rank 0, b", "rank 1, a", "rank 1, b"]
    assert [text for text in texts(plot) if text.startswith("rank")] == names
    first = next(tree(plot).iter(f"{SVG}polyline")).attrib["points"].split()
    assert len(first) == 5, "memory holds until it changes"
    assert [text for text in texts(table.plot(x="time_ns", by="counter")) if text in ("a", "b")] == ["a", "b"]


def test_bandwidth_over_sizes_is_points_on_logarithmic_axes() -> None:
    rows = [Sent(name, 10**power, power / 2 + 1) for name in ("a", "b") for power in range(2, 8)]
    plot = ResultTable.of_rows(Sent, rows).plot("bus_gb_s", x="size_bytes", by="operation")
    assert len(tips(plot, "circle")) == 12
    assert tips(plot, "circle")[0] == "a: 100 B, 2 GB/s"
    assert {"100 B", "1 kB", "10 MB", "bus (GB/s)", "size"} <= set(texts(plot))


def test_cells_of_a_heat_map_are_darker_the_larger_they_are() -> None:
    cells = {
        str(column): Cell(value, f"waited {value}", value == 0) for column, value in enumerate((0, 10, 100))
    }
    plot = heat_map("Waits", ["0", "1", "2"], {"all_reduce": cells})
    drawn = [(rect.get("class"), rect.findtext(f"{SVG}title")) for rect in tree(plot).iter(f"{SVG}rect")]
    assert drawn == [("h0", "waited 0"), ("h1", "waited 10"), ("h5", "waited 100")]
    assert tips(plot, "circle") == ["waited 0"]
    assert texts(plot) == ["Waits", "all_reduce", "0", "1", "2"]


def test_a_heat_map_says_what_it_does_not_draw() -> None:
    names = [str(column) for column in range(200)]
    plot = heat_map("x", names, {f"row {row}": {name: Cell(1, "") for name in names} for row in range(40)})
    assert texts(plot)[-1] == "10 more rows not drawn. 72 more columns not drawn."
    assert texts(heat_map("x", [], {}))[-1] == "No values to draw."


def test_lines_are_interrupted_where_a_value_is_unknown() -> None:
    plot = lines("x", [Series("a", [0, 1, 2, 3], [1.0, None, 2.0, 3.0])], ("", ""), ("", ""))
    assert len(list(tree(plot).iter(f"{SVG}polyline"))) == 2


def test_times_count_from_the_first() -> None:
    plot = steps(3).plot("compute_ns", x="start_ns")
    assert "start (µs)" in texts(plot)
    assert tips(plot, "circle")[:3] == [f"rank 0: {time} µs, 3 ms" for time in ("0", "0.001", "0.002")]


def test_a_chart_is_bounded() -> None:
    many = 10 * MOST_POINTS
    names = [f"name {row}" for row in range(many)]
    drawn = [
        bars("t", names, {"n": [1.0] * many}),
        points("t", [Series("n", range(many), range(many))], ("", ""), ("", "")),
        lines("t", [Series(name, [0, 1], [0, 1]) for name in names], ("", ""), ("", "")),
    ]
    assert [texts(plot)[-1] for plot in drawn] == [
        f"{many - MOST_BARS:,} more bars not drawn.",
        f"{many - MOST_POINTS:,} more points not drawn.",
        f"{many - MOST_SERIES:,} more series not drawn.",
    ]
    assert max(len(plot.svg) for plot in drawn) < 500_000


def test_labels_of_kernels_have_both_ends() -> None:
    kernels = [
        "void at::native::vectorized_elementwise_kernel<4, at::native::Threshold<float>>(int, float*)",
        "gemm(int)",
        "aten::mul",
        "train.py(41): train_step of the whole model",
    ]
    plot = bars("t", kernels, {"a": [1.0] * 4})
    assert [text for text in texts(plot) if text.endswith((">", "l", ")"))] == [
        "vectorized_ele…reshold<float>>",
        "gemm(int)",
        "aten::mul",
        "train.py(41): …the whole model",
    ]
    assert kernels[0] in plot.svg.replace("&lt;", "<").replace("&gt;", ">")


def test_names_have_no_effect() -> None:
    name = '<script>alert(1)</script>" onload="x\x1b[1m'
    plot = bars(name, [name], {name: [1.0], "b": [2.0]})
    assert {element.tag.removeprefix(SVG) for element in tree(plot).iter()} == {
        "svg",
        "title",
        "style",
        "text",
        "line",
        "rect",
    }
    assert "onload" not in {key for element in tree(plot).iter() for key in element.attrib}
    assert "\x1b" not in plot.svg


def test_a_plot_is_text_and_a_file(tmp_path: Path) -> None:
    plot = steps().plot()
    plot.save(tmp_path / "steps.svg")
    assert (tmp_path / "steps.svg").read_text("utf-8") == plot.svg == str(plot) == plot._repr_svg_()
    assert repr(plot) == "<Plot: Steps: compute, idle>"
    assert "prefers-color-scheme: dark" in plot.svg


def test_what_cannot_be_plotted() -> None:
    sent = ResultTable.of_rows(Sent, [Sent("a", 1, 2.0)])
    with pytest.raises(UsageError, match=r"columns of different units: GB/s, bytes"):
        sent.plot("size_bytes", "bus_gb_s")
    with pytest.raises(UsageError, match=r"no column of numbers to plot\. There are: size_bytes, bus_gb_s"):
        sent.plot("operation")
    with pytest.raises(UsageError, match="there is no column 'size'"):
        sent.plot("size")


numbers = st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats(-1e30, 1e30, allow_subnormal=False)


@given(
    st.lists(st.tuples(numbers, numbers)), st.sampled_from(["ns", "unix ns", "bytes", "share", "", "GB/s"])
)
def test_any_numbers_are_drawn_inside_the_chart(
    pairs: list[tuple[float | None, float | None]], unit: str
) -> None:
    x, y = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    for plot in (
        lines("t", [Series("a", x, y)], ("x", unit), ("y", unit)),
        points("t", [Series("a", x, y), Series("b", y, x)], ("x", unit), ("y", unit)),
        bars("t", ["n"] * len(pairs), {"a": x, "b": y}, unit),
    ):
        box = tree(plot).attrib["viewBox"].split()
        for attribute, limit in (("x", 2), ("cx", 2), ("cy", 3), ("x2", 2), ("y2", 3)):
            found = [float(text) for text in re.findall(rf'\b{attribute}="([^"]+)"', plot.svg)]
            assert all(math.isfinite(value) and -1 <= value <= float(box[limit]) + 1 for value in found)


def test_a_timeline_has_a_box_in_the_row_of_each_rank() -> None:
    boxes = [Box(0, 1000, 500, "ok", "a", "c-0"), Box(1, 1500, 500, "error", "b")]
    plot = timeline("When", ["rank 0", "rank 1"], boxes, {"ok": "c4", "error": "c2", "open": "c2"})
    root = ElementTree.fromstring(plot.svg)
    (linked,) = root.iter(f"{SVG}a")
    keyed = [box for box in root.iter(f"{SVG}rect") if box.find(f"{SVG}title") is not None]
    assert (linked.get("href"), linked.get("aria-label")) == ("#c-0", "a")
    first, second = (
        (float(box.get("x", 0)), float(box.get("y", 0)), float(box.get("width", 0))) for box in keyed
    )
    assert (first[0] + first[2], first[2]) == (second[0], second[2])
    assert second[1] > first[1]
    assert [box.get("class") for box in keyed] == ["c4", "c2"]
    assert {text.text for text in root.iter(f"{SVG}text")} >= {"rank 0", "rank 1", "ok", "error"}


def test_boxes_and_rows_that_a_timeline_does_not_draw_are_counted() -> None:
    rows = [f"rank {rank}" for rank in range(MOST_BARS + 2)]
    boxes = [Box(index % len(rows), index, 1, "ok", "") for index in range(MOST_BOXES + 1)]
    plot = timeline("When", rows, boxes, {"ok": "c4"})
    assert "1 more shorter box not drawn. 2 more rows not drawn." in plot.svg
