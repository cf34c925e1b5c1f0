"""Tests of tracelink.compare: causes add up, runs that differ in kind are not compared, and the samples."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracelink
from tracelink import samples
from tracelink.answers.compare.compare import comparison_of
from tracelink.answers.compare.model import CauseChange, Comparison, Status
from tracelink.answers.compare.side import Series, Side, What
from tracelink.answers.model.results import Note, WorkIn
from tracelink.answers.rank.costs import StepPart
from tracelink.model.errors import Severity, UsageError

MM = What(StepPart.COMPUTE, "aten::mm", "gemm")
OLD_MM = What(StepPart.COMPUTE, "aten::mm", "old_gemm")
IDLE = What(StepPart.IDLE, "idle: data loading", "")


def side(costs: Mapping[What, list[float]], *, ranks: int = 2, **changes: object) -> Side:
    """A run whose steps took these times, in microseconds."""
    series = {
        what: Series(np.array(times) * 1e3, np.full(len(times), 0.0 if what.part is StepPart.IDLE else 2.0))
        for what, times in costs.items()
    }
    steps = len(next(iter(costs.values())))
    facts = {
        "ranks": range(ranks),
        "world_size": ranks,
        "work": frozenset({WorkIn.KERNELS}),
        "steps": [(number, 0) for number in range(steps)],
        "duration": sum((each.ns for each in series.values()), np.zeros(steps)),
        "costs": series,
        "moved": {"all_reduce": 1e6},
        "versions": {},
        "skipped": [],
    }
    return Side(**(facts | changes))  # type: ignore[arg-type]


def rows(comparison: Comparison) -> list[tuple[str, Status, int]]:
    return [(cause.what, cause.status, cause.delta_ns) for cause in comparison.causes]


def test_whole_comparison() -> None:
    before = side({OLD_MM: [10, 11, 12], IDLE: [5, 5, 5]})
    after = side({MM: [20, 21, 22], IDLE: [5, 5, 5]})
    found = comparison_of(before, after)
    assert (found.comparable, found.why_not, found.gates, found.notes) == (True, [], [], [])
    assert (found.step.before_ns, found.step.after_ns, found.step.delta_ns) == (16_000, 26_000, 10_000)
    assert [(part.part.value, part.before_ns, part.after_ns) for part in found.parts] == [
        ("compute", 11_000, 21_000),
        ("exposed_communication", 0, 0),
        ("exposed_copy", 0, 0),
        ("idle", 5_000, 5_000),
    ]
    (cause,) = found.causes
    assert (cause.what, cause.status, cause.before_count, cause.after_count) == (
        "aten::mm",
        Status.SLOWER,
        2,
        2,
    )
    assert [(kernel.name, kernel.before_ns, kernel.after_ns) for kernel in cause.kernels] == [
        ("gemm", 0, 21_000),
        ("old_gemm", 11_000, 0),
    ]


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ([], [1, 1, 1], Status.NEW),
        ([1, 1, 1], [], Status.GONE),
        ([1, 5, 9], [2, 6, 10], Status.SAME),
        ([10, 11, 10], [20, 21, 20], Status.SLOWER),
        ([20, 21, 20], [10, 11, 10], Status.FASTER),
    ],
)
def test_status(before: list[float], after: list[float], status: Status) -> None:
    other = {IDLE: [5.0, 5.0, 5.0]}
    found = comparison_of(
        side(({MM: before} if before else {}) | other), side(({MM: after} if after else {}) | other)
    )
    assert [cause.status for cause in found.causes] == [status]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ranks": 3, "world_size": 2}, "the first run has 2 ranks, the second one 3"),
        ({"world_size": 4}, "the world size was 2 and is 4"),
        (
            {"work": frozenset({WorkIn.OPERATORS})},
            "steps of the first run are times of kernels, those of the second one of operators",
        ),
        (
            {"steps": [(None, 0)] * 3},
            "the second run has no steps (ProfilerStep#N): all of its recording is compared with single steps",
        ),
        ({"moved": {"all_reduce": 2e6}}, "all_reduce moves 1.0 MB per rank and step before, 2.0 MB after"),
    ],
)
def test_runs_that_are_not_comparable(change: dict[str, object], reason: str) -> None:
    found = comparison_of(side({MM: [1, 2, 3]}), side({MM: [1, 2, 3]}, **change))  # type: ignore[arg-type]
    assert (found.comparable, found.why_not) == (False, [reason])


def test_notes_on_versions_ranks_and_few_steps() -> None:
    before = side({MM: [1, 2]}, versions={"kineto": frozenset({"1"})}, skipped=[4, 5])
    after = side({MM: [1, 2]}, versions={"kineto": frozenset({"2"})})
    assert comparison_of(before, after).notes == [
        Note(Severity.INFO, "other_version", "kineto: version 1 before, 2 after."),
        Note(
            Severity.WARNING,
            "ranks_not_compared",
            "Ranks 4-5 of the first run: no breakdown, or other steps than most ranks; not compared.",
        ),
        Note(
            Severity.WARNING,
            "few_steps",
            "With 2 steps before and 2 after, the variation between steps is unknown: record at least 3 steps to know "
            "which changes are noise.",
        ),
    ]


TIMES = st.lists(st.floats(0, 1e6), min_size=4, max_size=4)
COSTS = st.dictionaries(
    st.builds(What, st.sampled_from(StepPart), st.sampled_from(["a", "b"]), st.sampled_from(["x", "y", "z"])),
    TIMES,
    min_size=1,
)


@given(COSTS, COSTS)
def test_causes_add_up_to_the_change_of_the_step(
    first: dict[What, list[float]], second: dict[What, list[float]]
) -> None:
    found = comparison_of(side(first), side(second))
    assert sum(cause.delta_ns for cause in found.causes) == found.step.delta_ns
    assert sum(part.delta_ns for part in found.parts) == found.step.delta_ns
    assert all(cause.delta_ns == cause.after_ns - cause.before_ns for cause in found.causes)


def the(cause: str, comparison: Comparison) -> CauseChange:
    (found,) = [each for each in comparison.causes if each.what == cause]
    return found


def test_the_samples() -> None:
    found = tracelink.compare(
        samples.path("run_before"), samples.path("run_after"), gates=["step_time > +5%"]
    )
    assert found.comparable
    assert [gate.failed for gate in found.gates] == [True]
    assert the("idle: data loading", found).status is Status.NEW
    for operator in ("aten::mm", "aten::addmm"):
        cause = the(operator, found)
        assert cause.status is Status.SLOWER
        assert cause.after_ns / cause.before_ns == pytest.approx(1.3, abs=0.1)


def test_graphs_compare_like_their_files() -> None:
    paths = [samples.path(name) for name in ("run_before", "run_after")]
    assert tracelink.compare(*paths) == tracelink.compare(*map(tracelink.load, paths))


def test_a_run_with_itself_has_no_cause() -> None:
    path = samples.path("run_before")
    found = tracelink.compare(path, path)
    assert (found.step.delta_ns, found.causes) == (0, [])


def test_a_run_without_the_steps_is_an_error() -> None:
    path = samples.path("run_before")
    with pytest.raises(UsageError, match="there is no step 9 on any rank"):
        tracelink.compare(path, path, steps=[9])
