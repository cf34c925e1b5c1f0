"""`tracelink.converters.chakra.scene`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.chakra_files import BEGIN, EtFile, arrows, box_of, put, scene_of
from tracelink._model.errors import UsageError
from tracelink._model.selection import Window
from tracelink.converters.chakra.scene import Nesting, Scene

US = 1000


def step() -> EtFile:
    """A step with two operators in it, one of which launches a kernel that the other one waits for."""
    trace = EtFile()
    outer = trace.operator("step", 0, 100)
    mm = trace.operator("mm", 10, 20, outer)
    inner = trace.operator("inner", 12, 5, mm)
    gemm = trace.kernel("gemm", 40, 30, inner, stream=7)
    wait = trace.operator("wait", 60, 20, outer)
    wait.data_deps.extend([gemm.id, mm.id])
    return trace


def names(scene: Scene) -> list[str]:
    return [box.name for box in scene.boxes]


def reasons(scene: Scene) -> list[str]:
    return [finding.reason for finding in scene.findings]


def test_boxes_are_nodes_in_order_of_time_and_arrows_lead_from_cause_to_effect() -> None:
    scene = scene_of(step())
    assert names(scene) == ["step", "mm", "inner", "gemm", "wait"]
    assert arrows(scene) == {
        ("step", "mm", "control"),
        ("mm", "inner", "control"),
        ("inner", "gemm", "control"),
        ("step", "wait", "control"),
        ("gemm", "wait", "data"),
        ("mm", "wait", "data"),
    }
    assert scene.findings == []


def test_a_dependency_that_is_data_and_control_is_one_arrow() -> None:
    trace = EtFile()
    first = trace.compute("first")
    second = trace.compute("second", [first])
    second.data_deps.append(first.id)
    second.ctrl_deps.append(first.id)
    assert arrows(scene_of(trace)) == {("first", "second", "data control")}


class TestDepth:
    def test_what_lies_deeper_is_part_of_the_box_around_it(self) -> None:
        scene = scene_of(step(), depth=2)
        assert names(scene) == ["step", "mm", "gemm", "wait"]
        assert (box_of(scene, "mm").parts, box_of(scene, "mm").duration_ns) == (2, 25 * US)
        assert ("mm", "gemm", "control") in arrows(scene)

    def test_work_of_a_device_is_beside_its_launch_and_not_in_it(self) -> None:
        scene = scene_of(step(), depth=1)
        assert arrows(scene) == {("step", "gemm", "control"), ("gemm", "step", "data")}

    def test_arrows_that_become_one_are_drawn_once(self) -> None:
        trace = EtFile()
        outer = trace.operator("outer", 0, 50)
        inner = [trace.operator(f"inner {number}", number, 1, outer) for number in range(3)]
        last = trace.kernel("last", 60, 5)
        last.data_deps.extend(node.id for node in inner)
        assert arrows(scene_of(trace, depth=1)) == {("outer", "last", "data")}

    def test_without_marks_of_the_host_what_controls_a_node_is_around_it(self) -> None:
        trace = EtFile()
        root = trace.compute("root")
        trace.compute("leaf").ctrl_deps.append(root.id)
        assert names(scene_of(trace, depth=1)) == ["root"]

    @given(st.lists(st.integers(-1, 12), max_size=13))
    def test_circles_of_parents_are_cut_and_levels_count_from_outside(self, wished: list[int]) -> None:
        parents = [parent if parent < len(wished) else -1 for parent in wished]
        nesting = Nesting.of_parents(list(parents))
        for row, (parent, level) in enumerate(zip(nesting.parent, nesting.level, strict=True)):
            assert parent in (parents[row], -1)
            assert level == (1 if parent == -1 else nesting.level[parent] + 1)


class TestTimes:
    def test_a_window_counts_from_the_first_node_and_keeps_what_overlaps(self) -> None:
        scene = scene_of(step(), window=Window.parse("65us..75us", "--window"))
        assert names(scene) == ["step", "gemm", "wait"]
        assert (scene.first - BEGIN * US, scene.last - BEGIN * US) == (65 * US, 75 * US)

    def test_exact_times_count(self) -> None:
        trace = step()
        put(trace.nodes[3], "start_ns", "int64_val", (BEGIN + 40) * US + 123)
        assert box_of(scene_of(trace), "gemm").start_ns == (BEGIN + 40) * US + 123

    def test_a_root_without_a_time_reaches_around_what_is_in_it(self) -> None:
        trace = EtFile()
        root = trace.node(4, "thread", is_cpu_op=("bool_val", True))
        root.duration_micros = 0
        trace.operator("late", 50, 10, root)
        trace.operator("early", 20, 5, root)
        box = box_of(scene_of(trace), "thread")
        assert (box.begin, box.end) == ((BEGIN + 20) * US, (BEGIN + 60) * US)

    def test_small_times_can_begin_with_0(self) -> None:
        trace = EtFile()
        for name, start in (("a", 0), ("b", 10)):
            trace.compute(name).start_time_micros = start
        scene = scene_of(trace)
        assert [(box.begin, box.end) for box in scene.boxes] == [(0, 10 * US), (10 * US, 20 * US)]

    def test_without_times_each_stands_as_early_as_its_dependencies_let_it(self) -> None:
        trace = EtFile()
        first = trace.compute("first")
        trace.compute("second", [first])
        trace.compute("beside")
        scene = scene_of(trace)
        begins = {box.name: box.begin for box in scene.boxes}
        assert not scene.timed
        assert begins == {"first": 0, "beside": 0, "second": box_of(scene, "first").end}

    def test_without_times_a_circle_is_drawn_and_named(self) -> None:
        trace = EtFile()
        a = trace.compute("a")
        b = trace.compute("b", [a])
        a.data_deps.append(b.id)
        scene = scene_of(trace)
        assert arrows(scene) == {("a", "b", "data"), ("b", "a", "data")}
        assert [box.begin for box in scene.boxes] != [0, 0]
        assert [(finding.reason, finding.example) for finding in scene.findings] == [("cycle", "1 → 2 → 1")]

    def test_a_window_of_no_times_and_one_without_nodes_are_refused(self) -> None:
        untimed = EtFile()
        untimed.compute()
        with pytest.raises(UsageError, match="the nodes have no start times"):
            scene_of(untimed, window=Window.parse("..5us", "--window"))
        with pytest.raises(UsageError, match="no node is in this window"):
            scene_of(step(), window=Window.parse("5s..", "--window"))

    def test_a_rank_without_times_has_no_place_beside_one_with_times(self) -> None:
        untimed = EtFile(1)
        untimed.compute("lost")
        scene = scene_of(step(), untimed)
        assert "lost" not in names(scene)
        assert reasons(scene) == ["without_times"]


class TestLimit:
    def test_the_deepest_level_that_fits_is_taken_and_said(self) -> None:
        scene = scene_of(step(), limit=4)
        assert names(scene) == ["step", "mm", "gemm", "wait"]
        assert reasons(scene) == ["folded"]
        assert "depth 2 of 3: 5 nodes exceed the limit of 4" in scene.findings[0].message

    def test_else_those_that_begin_first_are_drawn_up_to_where_the_next_begins(self) -> None:
        trace = EtFile()
        for number in range(5):
            trace.kernel(f"k{number}", number * 10, 100)
        scene = scene_of(trace, limit=3)
        assert names(scene) == ["k0", "k1", "k2"]
        assert (scene.last - scene.first, scene.nodes) == (30 * US, 5)
        (finding,) = scene.findings
        assert (finding.reason, finding.count) == ("not_drawn", 2)
        assert "--limit 5 draws all" in finding.message

    def test_of_many_arrows_those_on_what_ended_last_are_drawn(self) -> None:
        trace = EtFile()
        causes = [trace.kernel(f"k{number}", number, 1) for number in range(30)]
        for number in range(10):
            trace.kernel(f"e{number}", 50, 1).data_deps.extend(cause.id for cause in causes)
        scene = scene_of(trace, limit=40)
        assert len(scene.arrows) == 160
        assert {cause for cause, _, _ in arrows(scene)} == {f"k{number}" for number in range(14, 30)}
        assert [(finding.reason, finding.count) for finding in scene.findings] == [("edges_not_drawn", 140)]


class TestIdentity:
    def test_nodes_of_one_id_and_ranks_of_one_number_have_boxes_of_their_own(self) -> None:
        first, second = EtFile(0), EtFile(0)
        first.compute("a")
        first.compute("b").id = 1
        second.compute("c")
        assert [box.key for box in scene_of(first, second).boxes] == ["0:1", "0:1@2", "0:1@3"]

    def test_dependencies_that_lead_nowhere_are_counted(self) -> None:
        trace = EtFile()
        node = trace.compute()
        node.data_deps.extend([7, 8, node.id])
        found = {finding.reason: finding.count for finding in scene_of(trace).findings}
        assert found == {"missing_dependencies": 2, "own_dependencies": 1}

    def test_a_box_says_what_is_communicated(self) -> None:
        trace = EtFile()
        reduce = trace.collective(size=4096, group="3")
        put(reduce, "group_name", "string_val", "tp")
        trace.send(5, tag=2, size=8)
        scene = scene_of(trace)
        collective, message = box_of(scene, "all_reduce"), box_of(scene, "send")
        assert (collective.kind, collective.bytes, collective.group, collective.group_name) == (
            "all_reduce",
            4096,
            "3",
            "tp",
        )
        assert (message.kind, message.bytes, message.peer, message.tag) == ("send", 8, 5, 2)

    def test_lanes_are_threads_and_streams_of_devices(self) -> None:
        trace = EtFile()
        trace.operator("op", 0, 1, thread=12)
        trace.collective()
        trace.compute("nowhere")
        for device in (0, 1):
            put(trace.kernel(f"d{device}", 0, 1, stream=7), "device", "int64_val", device)
        assert {box.name: box.lane for box in scene_of(trace).boxes} == {
            "op": "thread 12",
            "all_reduce": "communication",
            "nowhere": "device",
            "d0": "device 0 stream 7",
            "d1": "device 1 stream 7",
        }
