"""`tracelink.converters.chakra.drawings`."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.chakra_files import BEGIN, EtFile, put, scene_of
from tracelink.converters.chakra.drawings import (
    ARRANGED,
    NARROWEST,
    TOP,
    WIDEST,
    dot,
    graphml,
    layout,
    quoted,
    svg,
    too_large,
)
from tracelink.converters.chakra.scene import Scene, short_name

HOSTILE = '</title></style><script>alert(1)</script>" onload="x \\N \\" ]]> &lt; \n\0\u202e -> b; } //'
SVG = "{http://www.w3.org/2000/svg}"
US = 1000


def job() -> EtFile:
    """An operator with one in it, which launches a kernel that a collective waits for."""
    trace = EtFile()
    outer = trace.operator("step", 0, 100)
    inner = trace.operator("mm", 10, 20, outer)
    gemm = trace.kernel("gemm", 20, 30, inner, stream=7)
    reduce = trace.collective(size=4096, group="3", after=[gemm])
    reduce.start_time_micros, reduce.duration_micros = BEGIN + 50, 40
    put(reduce, "stream", "int64_val", 20)
    return trace


def drawn(scene: Scene, title: str = "job.0.et") -> ElementTree.Element:
    return ElementTree.fromstring("".join(svg(scene, title)))


def texts(picture: ElementTree.Element, tag: str = "text") -> list[str]:
    return [element.text or "" for element in picture.iter(SVG + tag)]


def rows_of(scene: Scene) -> dict[str, float]:
    """How far under the top of the picture each box lies."""
    return {
        box.name: place.top - TOP for box, place in zip(scene.boxes, layout(scene).positions, strict=True)
    }


class TestSvg:
    def test_a_box_for_each_node_a_lane_for_each_thread_and_stream_a_legend(self) -> None:
        picture = drawn(scene_of(job()))
        assert {"step", "mm", "gemm", "all_reduce"} <= set(texts(picture))
        assert {"thread 1", "stream 7", "stream 20"} <= set(texts(picture))
        assert {"host (2)", "device (1)", "collective (1)", "data dependency", "control dependency"} <= set(
            texts(picture)
        )
        assert Counter(group.get("class") for group in picture.iter(SVG + "g"))["box"] == 3

    def test_the_pointer_reads_all_that_is_known(self) -> None:
        (told,) = [
            title for title in texts(drawn(scene_of(job())), "title") if title.startswith("all_reduce")
        ]
        assert told.splitlines() == [
            "all_reduce",
            "all_reduce, id 4, stream 20",
            "starts at 50 µs, takes 40 µs",
            "4.1 kB, group 3",
        ]

    def test_an_operator_stands_under_what_encloses_it_and_needs_no_arrow(self) -> None:
        scene = scene_of(job())
        rows = rows_of(scene)
        assert rows["step"] < rows["mm"] < rows["gemm"] < rows["all_reduce"]
        assert len(scene.arrows) == 3
        lines = Counter[str]()
        for group in drawn(scene).iter(SVG + "g"):
            lines[group.get("class", "")] += len(group.findall(SVG + "path"))
        in_legend = 1
        assert (lines["arrows data"] - in_legend, lines["arrows control"] - in_legend) == (1, 1)

    def test_the_scale_is_linear_in_time(self) -> None:
        scene = scene_of(job())
        places = dict(zip((box.name for box in scene.boxes), layout(scene).positions, strict=True))
        step, gemm = places["step"], places["gemm"]
        per_us = (step.right - step.left) / 100
        assert gemm.left - step.left == pytest.approx(20 * per_us)
        assert gemm.right - gemm.left == pytest.approx(30 * per_us)
        assert {"0 µs", "20 µs", "40 µs"} <= set(texts(drawn(scene)))

    def test_what_begins_before_its_cause_is_marked(self) -> None:
        trace = EtFile()
        late = trace.kernel("late", 50, 10)
        trace.kernel("early", 0, 10).data_deps.append(late.id)
        assert "starts before its cause" in texts(drawn(scene_of(trace)))

    def test_what_overlaps_in_a_stream_lies_in_rows(self) -> None:
        trace = EtFile()
        for name, start in (("a", 0), ("b", 5), ("c", 10)):
            trace.kernel(name, start, 10, stream=7)
        rows = rows_of(scene_of(trace))
        assert rows["a"] == rows["c"] != rows["b"]

    def test_what_is_not_drawn_is_written_under_the_picture(self) -> None:
        scene = scene_of(job(), limit=1)
        assert scene.findings[0].message in texts(drawn(scene))

    def test_ranks_are_named(self) -> None:
        assert {"rank 0", "rank 1"} <= set(texts(drawn(scene_of(job(), EtFile(1, job().nodes)))))

    def test_without_times_it_says_how_boxes_stand(self) -> None:
        trace = EtFile()
        trace.compute()
        assert any("the nodes have no times" in text for text in texts(drawn(scene_of(trace))))

    def test_names_are_texts_and_nothing_else(self) -> None:
        trace = job()
        for node in trace.nodes:
            node.name = HOSTILE
        put(trace.nodes[-1], "pg_name", "string_val", HOSTILE)
        picture = drawn(scene_of(trace), HOSTILE)
        tags = {element.tag.removeprefix(SVG) for element in picture.iter()}
        assert tags <= {"svg", "title", "style", "defs", "marker", "path", "rect", "text", "line", "g"}
        assert not any(name.startswith("on") or "href" in name for e in picture.iter() for name in e.keys())  # noqa: SIM118
        assert any("<script>alert(1)</script>" in title for title in texts(picture, "title"))

    @pytest.mark.parametrize("durations", [[0, 0], [1, 10**9], [(1 << 64) - 1, 1]])
    def test_it_is_neither_too_narrow_nor_too_wide(self, durations: Sequence[int]) -> None:
        trace = EtFile()
        for number, micros in enumerate(durations):
            trace.kernel("k", number, 0).duration_micros = micros
        picture = drawn(scene_of(trace))
        assert NARROWEST <= float(picture.get("width", 0)) <= WIDEST + 200


class TestDot:
    def test_nodes_in_clusters_and_edges_by_kind(self) -> None:
        text = "".join(dot(scene_of(job()), "job.0.et"))
        assert text.startswith("digraph chakra {")
        assert text.count("subgraph cluster_") == 3
        assert '"3" -> "4" [color=' in text
        assert re.search(r'"2" -> "3" \[[^]]* style=dashed\]', text)
        assert r'label="all_reduce\n40 µs, 4.1 kB"' in text

    @pytest.mark.parametrize(("count", "placed"), [(ARRANGED, False), (ARRANGED + 1, True)])
    def test_many_boxes_bring_their_places_along(self, count: int, placed: bool) -> None:
        trace = EtFile()
        for number in range(count):
            trace.kernel("k", number, 1)
        text = "".join(dot(scene_of(trace), "job.0.et"))
        assert ("layout=nop" in text) == placed
        assert text.count(" pos=") == (count if placed else 0)

    @given(st.text())
    def test_a_quoted_text_ends_where_it_ends(self, text: str) -> None:
        inside = quoted(text)[1:-1]
        assert not re.search(r'(?<!\\)(\\\\)*"', inside)
        assert not inside.endswith("\\") or len(inside) - len(inside.rstrip("\\")) != 1
        assert inside.replace('\\"', '"').replace("\\\\", "\\").replace("&amp;", "&") == text


class TestGraphml:
    def test_networkx_reads_typed_attributes(self) -> None:
        graph = nx.read_graphml(io.BytesIO("".join(graphml(scene_of(job()), "job.0.et")).encode()))
        assert graph.nodes["4"] == {
            "label": "all_reduce",
            "name": "all_reduce",
            "type": "collective",
            "chakra_id": "4",
            "lane": "stream 20",
            "start_ns": (BEGIN + 50) * US,
            "duration_ns": 40 * US,
            "start": BEGIN + 50.0,
            "duration": 40.0,
            "comm_type": "all_reduce",
            "comm_size": 4096,
            "group": "group 3",
            "nodes": 1,
        }
        assert dict(graph.edges) == {
            ("1", "2"): {"dependency": "control"},
            ("2", "3"): {"dependency": "control"},
            ("3", "4"): {"dependency": "data"},
        }

    def test_names_of_any_letters_are_read_again(self) -> None:
        trace = EtFile()
        trace.compute(HOSTILE)
        graph = nx.read_graphml(io.BytesIO("".join(graphml(scene_of(trace), HOSTILE)).encode()))
        name = graph.nodes["1"]["name"]
        assert name.replace("\\n", "\n").replace("\\x00", "\0").replace("\\u202e", "\u202e") == HOSTILE

    def test_numbers_beyond_63_bits_are_left_out_and_counted(self) -> None:
        trace = EtFile()
        trace.compute().duration_micros = (1 << 64) - 1
        scene = scene_of(trace)
        graph = nx.read_graphml(io.BytesIO("".join(graphml(scene, "huge")).encode()))
        assert "duration_ns" not in graph.nodes["1"]
        assert too_large(scene) == 1


class TestLabels:
    @pytest.mark.parametrize(
        ("name", "short"),
        [
            ("aten::mm", "aten::mm"),
            ("void at::native::(anonymous namespace)::Cat<int, 4>(int)", "Cat<int, 4>(int)"),
            ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
            ("void gemm<at::Half>(x)", "gemm<at::Half>(x)"),
            ("", "device"),
        ],
    )
    def test_kernels_are_called_by_their_own_names(self, name: str, short: str) -> None:
        trace = EtFile()
        trace.compute(name)
        assert short_name(scene_of(trace).boxes[0]) == short
