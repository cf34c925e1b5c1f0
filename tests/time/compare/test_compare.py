"""Tests of tracelink.diff: causes add up, runs that differ in kind are not compared, and the samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracelink
from builders import dumps, kineto
from tracelink import samples
from tracelink._model.errors import RankConflictError, UnreadableError, UsageError
from tracelink._model.findings import Finding, Severity
from tracelink._model.job import LinkedJob
from tracelink._model.selection import Numbers
from tracelink._run import engine_for
from tracelink._time.compare.compare import comparison_of
from tracelink._time.compare.gates import Limit
from tracelink._time.compare.model import CauseChange, Comparison, GateState, Status
from tracelink._time.compare.side import Series, Side, What, side_of
from tracelink._time.model.results import WorkIn
from tracelink._time.rank.costs import StepPart

MM = What(StepPart.COMPUTE, "aten::mm", "gemm")
OLD_MM = What(StepPart.COMPUTE, "aten::mm", "old_gemm")
TRUNCATED = Finding(Severity.WARNING, "truncated", "b.json is truncated.", source="b.json")
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
        "recorded": {rank: Numbers.of(range(steps)) for rank in range(ranks)},
    }
    return Side(**(facts | changes))  # type: ignore[arg-type]


def rows(comparison: Comparison) -> list[tuple[str, Status, int]]:
    return [(cause.what, cause.status, cause.delta_ns) for cause in comparison.causes]


def test_whole_comparison() -> None:
    before = side({OLD_MM: [10, 11, 12], IDLE: [5, 5, 5]})
    after = side({MM: [20, 21, 22], IDLE: [5, 5, 5]})
    found = comparison_of(before, after)
    assert (found.comparable, found.why_not, found.gates, found.findings) == (True, [], [], [])
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
        ({"findings": [TRUNCATED]}, "the second run is incomplete: 1 file is truncated or unreadable"),
        ({"moved": {"all_reduce": 2e6}}, "all_reduce moves 1.0 MB per rank and step before, 2.0 MB after"),
    ],
)
def test_runs_that_are_not_comparable(change: dict[str, object], reason: str) -> None:
    found = comparison_of(side({MM: [1, 2, 3]}), side({MM: [1, 2, 3]}, **change))  # type: ignore[arg-type]
    assert (found.comparable, found.why_not) == (False, [reason])


def test_notes_on_versions_ranks_and_few_steps() -> None:
    before = side({MM: [1, 2]}, versions={"kineto": frozenset({"1"})}, skipped=[4, 5])
    after = side({MM: [1, 2]}, versions={"kineto": frozenset({"2"})})
    assert comparison_of(before, after).findings == [
        Finding(Severity.INFO, "other_version", "kineto: version 1 before, 2 after."),
        Finding(
            Severity.WARNING,
            "ranks_not_compared",
            "Ranks 4-5 of the first run: no breakdown, or other steps than most ranks; not compared.",
        ),
        Finding(
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
    found = tracelink.diff(samples.path("run_before"), samples.path("run_after"), gates=["step_time > +5%"])
    assert found.comparable
    assert [gate.failed for gate in found.gates] == [True]
    assert the("idle: data loading", found).status is Status.NEW
    for operator in ("aten::mm", "aten::addmm"):
        cause = the(operator, found)
        assert cause.status is Status.SLOWER
        assert cause.after_ns / cause.before_ns == pytest.approx(1.3, abs=0.1)


def test_graphs_compare_like_their_files() -> None:
    paths = [samples.path(name) for name in ("run_before", "run_after")]
    assert tracelink.diff(*paths) == tracelink.diff(*map(tracelink.load, paths))


def test_a_run_with_itself_has_no_cause() -> None:
    path = samples.path("run_before")
    found = tracelink.diff(path, path)
    assert (found.step.delta_ns, found.causes) == (0, [])


def test_a_run_without_the_steps_is_an_error() -> None:
    path = samples.path("run_before")
    with pytest.raises(UsageError, match="the first run has no step 9 on any rank") as raised:
        tracelink.diff(path, path, steps=[9])
    assert (raised.value.source, raised.value.advice) == (str(path), "Its recordings have steps 1-6.")


def test_steps_that_are_missing_are_named() -> None:
    path = samples.path("run_before")
    notes = tracelink.diff(path, path, steps="3,99").findings
    assert [note.message for note in notes if note.reason == "no_such_step"] == [
        "First run: most ranks have no step 99; only step 3 is compared.",
        "Second run: most ranks have no step 99; only step 3 is compared.",
    ]


def recorded(folder: Path, steps: dict[int, Sequence[int]], name: str = "rank{}.json") -> str:
    """A run whose ranks recorded these steps, each with an operator."""
    folder.mkdir()
    for rank, numbers in steps.items():
        events = [
            element
            for number in numbers
            for element in (
                kineto.slice_("user_annotation", f"ProfilerStep#{number}", number * 100, 90),
                kineto.cpu_op("aten::mm", number * 100 + 10, 50),
            )
        ] or [kineto.cpu_op("aten::mm", 10, 50)]
        kineto.write(
            folder / name.format(rank), kineto.trace(*events, distributedInfo=kineto.distributed(rank, 2))
        )
    return str(folder)


def test_ranks_without_a_common_step(tmp_path: Path) -> None:
    good, run = (
        recorded(tmp_path / "a", {0: [1, 2], 1: [1, 2]}),
        recorded(tmp_path / "b", {0: [1, 2], 1: [5]}),
    )
    with pytest.raises(UnreadableError, match="the ranks of the second run have no step in common") as raised:
        tracelink.diff(good, run)
    assert raised.value.source == run
    assert raised.value.advice == (
        "Rank 0 has steps 1-2; Rank 1 has step 5. Choose ranks that recorded the same steps."
    )


def test_the_steps_of_most_ranks_are_compared(tmp_path: Path) -> None:
    run = recorded(tmp_path / "a", {0: [1, 2, 3], 1: [7], 2: [7]})
    found = tracelink.diff(run, run)
    assert found.step.before_steps == 1
    assert "Rank 0 of the first run: no breakdown, or other steps than most ranks; not compared." in [
        note.message for note in found.findings
    ]


def test_bytes_per_step_do_not_depend_on_the_steps_that_are_compared() -> None:
    job, engine = LinkedJob.of(tracelink.load(samples.path("run_before"))), engine_for(1, None)
    every, one = (side_of(job, engine, steps) for steps in (None, Numbers.of([1])))
    assert (len(every.steps), len(one.steps)) == (6, 1)
    assert every.moved == one.moved


def test_a_run_without_profiles_is_named(tmp_path: Path) -> None:
    good = recorded(tmp_path / "a", {0: [1, 2]})
    dumps.dumps(tmp_path / "dumps", dumps.healthy(1))
    with pytest.raises(
        UnreadableError, match="the second run has no breakdown of time on any rank"
    ) as raised:
        tracelink.diff(good, tmp_path / "dumps")
    assert raised.value.source == str(tmp_path / "dumps")


def test_a_truncated_run_is_incomplete(tmp_path: Path) -> None:
    good, cut = (recorded(tmp_path / name, {0: [1, 2, 3], 1: [1, 2, 3]}) for name in "ab")
    file = tmp_path / "b" / "rank1.json"
    file.write_bytes(file.read_bytes()[:-60])
    found = tracelink.diff(good, cut, gates="step_time > 5%")
    assert found.why_not[0] == "the second run is incomplete: 1 file is truncated or unreadable"
    assert any(
        note.reason == "truncated" and note.message.startswith("Second run: ") for note in found.findings
    )
    assert (found.gates[0].state, found.failed) == (GateState.NOT_DECIDED, False)


def test_whole_recordings(tmp_path: Path) -> None:
    run = recorded(tmp_path / "a", {0: [], 1: []})
    found = tracelink.diff(run, run)
    assert (found.comparable, found.step.whole_recordings) == (True, True)
    assert [note.reason for note in found.findings if note.severity is Severity.WARNING] == [
        "whole_recordings"
    ]
    assert "A recording takes" in repr(found)


def test_two_files_of_one_rank_are_refused_with_advice_that_fits(tmp_path: Path) -> None:
    run = recorded(tmp_path / "a", {0: [1]})
    kineto.write(
        tmp_path / "a" / "other_rank0.json",
        kineto.trace(kineto.cpu_op("aten::mm", 110, 50), distributedInfo=kineto.distributed(0, 2)),
    )
    with pytest.raises(RankConflictError) as raised:
        tracelink.diff(run, run)
    assert "--rank" not in str(raised.value)


def test_gates_of_runs_that_are_not_comparable() -> None:
    sides = side({MM: [10, 10, 10]}), side({MM: [20, 20, 20]}, ranks=3)
    limits = [Limit.parsed("step_time > 5%")]
    found, forced = (comparison_of(*sides, limits, anyway=anyway) for anyway in (False, True))
    assert [(each.gates[0].state, each.failed) for each in (found, forced)] == [
        (GateState.NOT_DECIDED, False),
        (GateState.FAILED, True),
    ]


def test_a_gate_for_a_family_is_for_the_sum_of_its_causes() -> None:
    transfer, wait = (
        What(StepPart.EXPOSED_COMMUNICATION, f"all_reduce: {reason}", "")
        for reason in ("transfer", "waiting for rank")
    )
    found = comparison_of(
        side({transfer: [10, 10, 10], wait: [5, 5, 5]}),
        side({transfer: [8, 8, 8], wait: [9, 9, 9]}),
        [Limit.parsed("all_reduce > 1us"), Limit.parsed("all_reduce: transfer > 1us")],
    )
    assert [(gate.before_ns, gate.after_ns, gate.state) for gate in found.gates] == [
        (15_000, 17_000, GateState.FAILED),
        (10_000, 8_000, GateState.PASSED),
    ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((None, "."), "None is no path and no list of paths"),
        ((".", 5), "5 is no path and no list of paths"),
        (([1], "."), r"\[1\] is no path and no list of paths"),
        ((b"a", "."), "b'a' is no path and no list of paths"),
    ],
)
def test_runs_of_wrong_types(arguments: tuple[Any, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        tracelink.diff(*arguments)


def test_a_gate_of_a_wrong_type() -> None:
    with pytest.raises(UsageError, match="gates: 5 is not a limit"):
        tracelink.diff(".", ".", gates=5)  # type: ignore[arg-type]
