"""Where nodes stand whose trace does not say it right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders.chakra import Job, written
from builders.execution_trace import PROCESS, node, process_root, thread_root


def tree(job: Job, folder: Path) -> tuple[dict[str, str], list[str]]:
    """The name of each node's parent, and the reasons of the findings."""
    content, output = written(job.build(), folder)
    names = {entry["id"]: entry["name"] for entry in content["nodes"]}
    assert list(names) == list(range(len(names)))
    reasons = [finding.reason for finding in output.findings if finding.reason != "without_times"]
    return {entry["name"]: names[entry["ctrl_deps"]] for entry in content["nodes"]}, reasons


def test_a_missing_parent_is_replaced_by_the_root_of_the_thread(tmp_path: Path) -> None:
    job = Job()
    for entry in (thread_root(2), thread_root(3, thread=4), process_root()):
        job.node(entry)
    job.node(node(9, "lost", parent=8, thread=4))
    parents, reasons = tree(job, tmp_path)
    assert parents["lost"] == thread_root().name
    assert reasons == ["parent_replaced"]


def test_a_missing_parent_is_replaced_by_what_the_profile_saw_around_it(tmp_path: Path) -> None:
    job = Job()
    job.node(thread_root(2))
    job.node(process_root())
    outer = job.operator("outer", 0, 50, node(5, "outer"))
    job.operator("lost", 10, 5, node(9, "lost", parent=8), caller=outer)
    parents, _ = tree(job, tmp_path)
    assert parents["lost"] == "outer"


def test_circles_of_parents_are_opened(tmp_path: Path) -> None:
    job = Job()
    job.node(process_root())
    for number, parent in ((5, 7), (6, 5), (7, 6), (8, 7)):
        job.node(node(number, f"n{number}", parent=parent))
    parents, reasons = tree(job, tmp_path)
    assert parents == {PROCESS: PROCESS, "n5": PROCESS, "n6": "n5", "n7": "n6", "n8": "n7"}
    assert reasons == ["parent_replaced"]


def test_a_parent_that_began_later_is_believed(tmp_path: Path) -> None:
    job = Job()
    job.node(process_root())
    job.node(node(5, "groups", parent=6))
    job.node(thread_root(6))
    parents, reasons = tree(job, tmp_path)
    assert parents["groups"] == thread_root().name
    assert not reasons


def test_a_root_is_added_where_the_file_was_cut_off_before_it(tmp_path: Path) -> None:
    job = Job()
    for number, thread in ((2, 1), (3, 2)):
        root = thread_root(number, thread)
        job.node(node(number, f"root {thread}", parent=number, thread=root.thread))
    parents, _ = tree(job, tmp_path)
    assert parents == {PROCESS: PROCESS, "root 1": PROCESS, "root 2": PROCESS}


def test_equal_ids_are_two_nodes(tmp_path: Path) -> None:
    job = Job()
    job.node(process_root())
    for name in ("one", "two"):
        job.node(node(5, name, parent=1))
    job.node(node(6, "child", parent=5))
    parents, _ = tree(job, tmp_path)
    assert parents == {PROCESS: PROCESS, "one": PROCESS, "two": PROCESS, "child": "one"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12), st.integers(0, 3)), min_size=1, max_size=12)
)
def test_whatever_the_ids_there_is_one_tree(tmp_path: Path, entries: list[tuple[int, int, int]]) -> None:
    job = Job()
    for place, (number, parent, thread) in enumerate(entries):
        job.node(node(number, f"n{place}", parent=parent, thread=thread))
    content, _ = written(job.build(), tmp_path)
    parent: dict[int, Any] = {entry["id"]: entry["ctrl_deps"] for entry in content["nodes"]}
    assert parent[0] == 0
    for place in parent:
        seen = set()
        while place and place not in seen:
            seen.add(place)
            place = parent[place]
        assert place == 0
