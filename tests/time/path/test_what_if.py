"""Replays of changed jobs, against the jobs that really ran so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import generators.communication
import generators.training
import tracelink
from builders.data import foreign, traces
from builders.job import JobBuilder
from builders.paths import US, generated, pieces_of, ranks_of_pieces
from generators.job import Job as Made
from generators.jobs import write, write_cluster
from generators.machine import Machine
from tracelink._model.errors import UsageError
from tracelink._time.model.results import WhatIf
from tracelink._time.path.questions import Change, changes_in
from tracelink._time.path.replay import Model, replayed


def answer(traces: Any, question: str) -> WhatIf:
    (only,) = tracelink.what_if(traces, question)
    return only


def slow_pair() -> JobBuilder:
    """Rank 1 comes 100 us late to a collective of 10 us, after which rank 0 works for 20 us."""
    job = JobBuilder(unit=US)
    job.op("aten::mm", 0, 4)
    first = job.work("ncclAllReduce", 4, 114, launched=2)
    job.work("relu", 115, 135, launched=3)
    job.op("aten::slow", 0, 104, rank=1)
    second = job.work("ncclAllReduce", 104, 114, rank=1, launched=102)
    job.together(job.group(0, 1), first, second)
    return job


def test_without_a_late_rank_its_delay_is_gone() -> None:
    found = answer(slow_pair().build(), "rank 1 on time")
    assert (found.recorded_ns, found.replayed_ns, found.expected_ns) == (135_000, 135_000, 35_000)
    assert (found.answered, found.error, found.saving_ns) == (True, 0.0, 100_000)


def test_a_rank_that_is_never_late_changes_nothing() -> None:
    assert answer(slow_pair().build(), "rank 0 on time").saving_ns == 0


def test_free_communication_leaves_the_wait_for_the_late_rank() -> None:
    assert answer(slow_pair().build(), "communication free").expected_ns == 125_000


def test_a_kernel_twice_as_fast_shortens_what_waits_for_it() -> None:
    assert answer(slow_pair().build(), "kernel relu 2x").expected_ns == 125_000


def test_changes_at_once_are_separated_by_commas() -> None:
    both = answer(slow_pair().build(), "kernel relu 2x, rank 1 on time")
    assert both.expected_ns == 25_000


def test_a_replay_that_cannot_explain_the_job_is_no_answer() -> None:
    job = JobBuilder(unit=US)
    job.op("aten::mm", 0, 10)
    job.work("gemm", 5, 30, launched=2)
    job.work("relu", 530, 550, launched=4)
    found = answer(job.build(), "kernel gemm 2x")
    assert (found.answered, found.expected_ns, found.saving_ns) == (False, None, None)
    assert found.error > 0.5
    assert "are not known" in found.why_not


@pytest.mark.parametrize(
    ("question", "changes"),
    [
        ("communication free", [Change(None, "communication", "", 0.0)]),
        ("Communication 2x", [Change(None, "communication", "", 0.5)]),
        ("kernel flash fwd twice", None),
        ("kernel flash fwd 4 times faster", [Change(None, "kernel", "flash fwd", 0.25)]),
        ("operator aten::mm free", [Change(None, "operator", "aten::mm", 0.0)]),
        ("rank 12 on time", [Change(rank=12)]),
        ("rank 1 on time, kernel a, b 2x", [Change(rank=1), Change(None, "kernel", "a, b", 0.5)]),
        ("kernel x 0x", None),
        ("", None),
        ("rank one on time", None),
    ],
)
def test_questions(question: str, changes: list[Change] | None) -> None:
    if changes is None:
        with pytest.raises(UsageError, match="not understood"):
            changes_in(question)
    else:
        assert changes_in(question) == changes


@pytest.mark.parametrize(
    ("question", "message"),
    [("rank 7 on time", "there is no rank 7"), ("kernel gemmm 2x", "there is no kernel 'gemmm'")],
)
def test_what_the_job_does_not_have_is_an_error(question: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tracelink.what_if(slow_pair().build(), question)


def test_dumps_alone_cannot_be_replayed() -> None:
    with pytest.raises(UsageError, match="no rank has a profile"):
        tracelink.what_if("samples/hung_job", "communication free")


@given(ranks_of_pieces)
def test_the_unchanged_replay_is_no_longer_than_the_job(ranks: list[list[tuple[int, int, int]]]) -> None:
    model = Model.of(pieces_of(generated(ranks)))
    assert replayed(model) == model.recorded_ns()


@given(ranks_of_pieces, some.floats(0, 1))
def test_faster_pieces_never_make_the_job_longer(
    ranks: list[list[tuple[int, int, int]]], factor: float
) -> None:
    model = Model.of(pieces_of(generated(ranks)))
    chosen = np.arange(len(model.own)) % 2 == 0
    assert replayed(model, np.where(chosen, model.own * factor, model.own)) <= replayed(model)


# Against jobs that really ran with the change: the same random numbers, with one thing different.


def _nothing(patch: pytest.MonkeyPatch) -> None:
    del patch


def _free_transfers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(generators.communication, "transfer", lambda machine, elements: 0)


def _fast_matrices(patch: pytest.MonkeyPatch) -> None:
    launch = Machine.launch

    def faster(machine: Machine, kernel: str, least: int = 5_000, most: int = 40_000) -> None:
        if kernel != generators.training.MATRIX_KERNEL:
            launch(machine, kernel, least, most)
            return
        place = machine.place

        def shorter(call: Any, category: str, name: str, stream: int, span: Any, **args: Any) -> None:
            start, end = span
            place(call, category, name, stream, (start, start + (end - start) // 2), **args)

        patch.setattr(machine, "place", shorter)
        launch(machine, kernel, least, most)
        patch.setattr(machine, "place", place)

    patch.setattr(Machine, "launch", faster)


LATE_NS = 700_000


def _late_rank(patch: pytest.MonkeyPatch) -> None:
    load = generators.training.load_batch

    def slow(machine: Machine) -> Any:
        if machine.rank == 1:
            machine.now += LATE_NS
        return load(machine)

    patch.setattr(generators.training, "load_batch", slow)


def recorded_with(change: Callable[[pytest.MonkeyPatch], None], folder: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        change(patch)
        write(Made(ranks=4, steps=4, clock_skew_ns=0), folder)
    return folder


@pytest.mark.parametrize(
    ("before", "question", "after"),
    [
        (_nothing, "communication free", _free_transfers),
        (_nothing, f"kernel {generators.training.MATRIX_KERNEL} 2x", _fast_matrices),
        (_late_rank, "rank 1 on time", _nothing),
    ],
)
def test_answers_are_within_three_percent_of_the_job_that_ran_so(
    before: Callable[[pytest.MonkeyPatch], None],
    question: str,
    after: Callable[[pytest.MonkeyPatch], None],
    tmp_path: Path,
) -> None:
    found = answer(recorded_with(before, tmp_path / "before"), question)
    truth = answer(recorded_with(after, tmp_path / "after"), "communication 1x")
    assert found.answered
    assert found.expected_ns is not None
    assert found.error <= 0.01
    assert found.expected_ns < 0.95 * found.recorded_ns
    assert found.expected_ns == pytest.approx(truth.recorded_ns, rel=0.03)


SHARED = (
    *("matched8", "pairs/torch213_gloo2", "pairs/dlrm8", "kineto/four_ranks_derived"),
    *("kineto/h100_qwen.json.gz", "kineto/resnet50_2021.json.gz"),
)


@pytest.mark.parametrize(
    "name", ["cpu_job", "gpu_2021", "gpu_2023", "data_parallel", "cluster", *foreign(*SHARED)]
)
def test_jobs_are_replayed_within_three_percent(name: str) -> None:
    assert answer(traces(name), "operator aten:: 1x").error <= 0.03


def test_the_stragglers_of_a_cluster_are_on_the_path_and_without_them_steps_are_as_long_as_they_are(
    tmp_path: Path,
) -> None:
    """Pipeline, tensor and data parallel; a different rank of each step keeps the others waiting for 2 ms."""
    size = {"ranks": 16, "steps": 3, "drift_ppm": 0.0, "clock_skew_ns": 0}
    truth = write_cluster(tmp_path / "late", straggler_ns=2_000_000, **size)
    write_cluster(tmp_path / "on time", straggler_ns=0, **size)
    path = tracelink.summary(tmp_path / "late").critical_path
    assert path is not None
    longest = [max(step.by_rank, key=lambda rank: step.by_rank[rank]) for step in path.steps]
    assert longest == [str(rank) for rank in truth["stragglers"]]
    question = ", ".join(f"rank {rank} on time" for rank in truth["stragglers"])
    expected = answer(tmp_path / "late", question).expected_ns
    assert expected == pytest.approx(answer(tmp_path / "on time", "communication 1x").recorded_ns, rel=0.03)
