"""The work of CPU backends on threads of its own, and the calls that it is of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from builders.trace import TraceBuilder
from tracelink.linking.rank import link_rank
from tracelink.model.events import TrackKind


@dataclass
class Gloo:
    """A rank that issues work to threads of a group each."""

    def __init__(self) -> None:
        self.build = TraceBuilder()
        self.workers: dict[str, int] = {}

    def worker(self, name: str) -> int:
        if name not in self.workers:
            self.workers[name] = self.build.track(TrackKind.THREAD, name)
        return self.workers[name]

    def issue(self, start: int, operation: str = "allreduce_", group: str = "", **said: Any) -> int:
        """An operator of 10 ns, with a recorder's entry where a group is given."""
        number = {"record_function": said.pop("number")} if "number" in said else {}
        row = self.build.op(f"c10d::{operation}", start, start + 10, **number)
        self.build.communication(row, operation=f"c10d::{operation}", **said)
        if group:
            name = f"gloo:{'all_reduce' if 'reduce' in operation else operation.strip('_')}"
            record = self.build.record(name, start + 5)
            self.build.communication(record, operation=name, group=group, sequence=start)
        return row

    def work(self, start: int, worker: str, operation: str = "all_reduce", **said: Any) -> int:
        number = {"record_function": said.pop("number")} if "number" in said else {}
        row = self.build.annotation(f"gloo:{operation}", start, start + 20, self.worker(worker), **number)
        return self.build.communication(row, operation=f"gloo:{operation}", **said)

    def pairs(self) -> list[tuple[int, int]]:
        calls = link_rank(self.build.build()).calls
        both = zip(calls.operator.tolist(), calls.annotation.tolist(), strict=True)
        return sorted((operator, work) for operator, work in both if work != -1)

    def annotations(self) -> tuple[int, int, dict[str, int], dict[str, int]]:
        reports = link_rank(self.build.build()).reports
        (report,) = (report for report in reports if report.relation == "communication.annotation")
        return report.linked, report.candidates, dict(report.unlinked), dict(report.notes)


def test_the_number_of_the_work_lies_between_that_of_its_operator_and_the_next() -> None:
    gloo = Gloo()
    one = gloo.issue(0, number=10)
    gloo.build.op("aten::mm", 12, 18, record_function=15)
    other = gloo.issue(20, number=20)
    second = gloo.work(30, "a", number=22)
    first = gloo.work(40, "b", number=12)
    assert gloo.pairs() == [(one, first), (other, second)]
    assert gloo.annotations() == (2, 2, {}, {"on other threads, by record-function id": 2})


def test_a_number_that_was_given_after_the_operator_is_not_of_its_work() -> None:
    gloo = Gloo()
    gloo.issue(0, number=10)
    gloo.build.op("aten::mm", 12, 18, record_function=15)
    gloo.work(5, "a", operation="broadcast", number=17)
    assert gloo.annotations()[:3] == (0, 1, {"no operator of the profile issued it": 1})


def test_of_several_threads_the_one_that_issued_it_last_is_meant() -> None:
    gloo = Gloo()
    gloo.issue(0, number=10)
    autograd = gloo.worker("autograd")
    later = gloo.build.op("c10d::allreduce_", 5, 15, autograd, record_function=14)
    work = gloo.work(30, "a", number=16)
    assert (later, work) in gloo.pairs()


def test_without_numbers_work_is_of_the_oldest_that_waits_for_the_same() -> None:
    gloo = Gloo()
    first = gloo.issue(0, elements_in=8)
    other = gloo.issue(20, elements_in=4)
    second = gloo.issue(40, elements_in=8)
    expected = [
        (other, gloo.work(45, "a", elements_in=4)),
        (first, gloo.work(50, "a", elements_in=8)),
        (second, gloo.work(90, "a", elements_in=8)),
    ]
    assert gloo.pairs() == sorted(expected)
    assert gloo.annotations() == (3, 3, {}, {"on other threads, by order": 3})


def test_work_that_swaps_between_groups_is_told_by_the_threads_of_the_groups() -> None:
    """As it is in real runs: each group has threads of its own, and one group can overtake the other."""
    gloo = Gloo()
    learned = [
        (gloo.issue(0, group="tp"), gloo.work(12, "a")),
        (gloo.issue(50, group="dp"), gloo.work(62, "b")),
    ]
    one, other = gloo.issue(100, group="tp"), gloo.issue(120, group="dp")
    overtaking, overtaken = gloo.work(135, "b"), gloo.work(140, "a")
    assert gloo.pairs() == sorted([*learned, (one, overtaken), (other, overtaking)])


def test_nothing_is_learned_of_threads_where_work_could_be_of_several_calls() -> None:
    gloo = Gloo()
    one, other = gloo.issue(0, group="tp"), gloo.issue(20, group="dp")
    first, second = gloo.work(35, "b"), gloo.work(40, "a")
    again, last = gloo.issue(100, group="dp"), gloo.issue(200, group="tp")
    third, fourth = gloo.work(120, "b"), gloo.work(220, "a")
    assert gloo.pairs() == [(one, second), (other, first), (again, third), (last, fourth)]


def test_gloo_does_a_reduce_scatter_as_an_all_reduce() -> None:
    gloo = Gloo()
    operator = gloo.issue(0, "_reduce_scatter_base_", elements_in=8)
    work = gloo.work(20, "a", elements_in=8)
    assert gloo.pairs() == [(operator, work)]


def test_a_barrier_has_a_tensor_only_in_its_operator() -> None:
    gloo = Gloo()
    operator = gloo.issue(0, "barrier", elements_in=1)
    work = gloo.work(20, "a", "barrier", elements_in=0)
    assert gloo.pairs() == [(operator, work)]


def test_sending_is_annotated_on_the_issuing_thread() -> None:
    gloo = Gloo()
    operator = gloo.issue(0, "send")
    work = gloo.build.annotation("gloo:send", 5, 90)
    assert gloo.pairs() == [(operator, work)]


def test_work_that_began_before_anything_was_issued_stands_alone() -> None:
    gloo = Gloo()
    work = gloo.work(0, "a")
    operator = gloo.issue(20)
    gloo.work(40, "a", operation="broadcast")
    calls = link_rank(gloo.build.build()).calls
    assert (work, operator) not in gloo.pairs()
    assert sorted(calls.annotation.tolist()) == [-1, work, operator + 1]
    assert gloo.annotations()[:3] == (0, 2, {"no operator of the profile issued it": 2})


def test_entries_from_before_the_profile_wait_for_no_work() -> None:
    gloo = Gloo()
    gloo.build.communication(gloo.build.record("gloo:all_reduce", -100), operation="gloo:all_reduce")
    operator = gloo.issue(0)
    work = gloo.work(20, "a")
    assert gloo.pairs() == [(operator, work)]


ISSUED = st.lists(
    st.tuples(
        st.sampled_from(["allreduce_", "broadcast_"]),
        st.integers(1, 3),
        st.sampled_from(["tp", "dp"]),
        st.integers(1, 60),
        st.booleans(),
    ),
    max_size=25,
)
ANNOTATED = {"allreduce_": "all_reduce", "broadcast_": "broadcast"}


@settings(max_examples=40)
@given(ISSUED)
def test_every_pair_can_be_and_numbers_find_the_true_ones(
    issued: list[tuple[str, int, str, int, bool]],
) -> None:
    """Groups work in order, one at a time, each at its own speed."""
    for numbered in (True, False):
        gloo, truth, free = Gloo(), [], {"tp": 0, "dp": 0}
        seen: dict[int, tuple[str, int, int]] = {}
        for place, (operation, elements, group, delay, is_annotated) in enumerate(issued):
            start, number = place * 20, place * 10 + 1
            mine = {"number": number} if numbered else {}
            row = gloo.issue(start, operation, group, elements_in=elements, **mine)
            seen[row] = operation, elements, start
            free[group] = max(free[group], start) + delay
            if is_annotated:
                mine = {"number": number + 1} if numbered else {}
                work = gloo.work(free[group], group, ANNOTATED[operation], elements_in=elements, **mine)
                seen[work] = operation, elements, free[group]
                truth.append((row, work))
        found = [(row, work) for row, work in gloo.pairs() if row != -1]
        assert all(seen[row][:2] == seen[work][:2] and seen[row][2] <= seen[work][2] for row, work in found)
        assert len({row for row, _ in found}) == len(found)
        if len({group for _, _, group, _, _ in issued}) == 1 and len(truth) == len(issued):
            assert len(found) == len(truth)
        if numbered:
            assert found == sorted(truth)
