"""The critical path through threads, launches, streams, waits, collectives and messages."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

import tracelink
from builders.data import foreign, traces
from builders.job import START, JobBuilder
from builders.paths import US, generated, path_in_words, pieces_of, ranks_of_pieces
from generators.job import Job as Made
from generators.jobs import write
from tracelink._io.sources import discover_inputs
from tracelink._join.job_reader import Reading, read_job
from tracelink._model.columns import UNKNOWN
from tracelink._model.events import Relation
from tracelink._run.processes import Processes
from tracelink._time.path.job import JobPieces
from tracelink._time.path.nodes import PieceKind
from tracelink._time.path.replay import Model, replayed
from tracelink._time.path.walk import critical_path


def test_a_host_that_is_slower_than_its_device_is_the_path() -> None:
    job = JobBuilder(unit=US)
    job.op("aten::mm", 0, 10)
    job.work("gemm", 5, 8, launched=2)
    job.op("aten::add", 12, 20)
    assert path_in_words(pieces_of(job)) == [
        "0 host aten::mm 0-2",
        "0 host aten::mm 2-10",
        "0 python 10-12",
        "0 host aten::add 12-20",
    ]


def test_a_device_that_is_slower_than_its_host_is_the_path_from_the_first_launch_on() -> None:
    job = JobBuilder(unit=US)
    job.op("aten::mm", 0, 10)
    job.work("gemm", 6, 30, launched=2)
    job.work("relu", 31, 50, launched=4)
    assert path_in_words(pieces_of(job)) == [
        "0 host aten::mm 0-2",
        "0 launch gemm 2-6",
        "0 compute gemm 6-30",
        "0 queue relu 30-31",
        "0 compute relu 31-50",
    ]


def test_a_thread_that_waits_for_its_device_continues_after_the_work() -> None:
    job = JobBuilder(unit=US)
    job.op("aten::mm", 0, 4)
    item = job.op("aten::item", 5, 34)
    job.work("gemm", 6, 30, launched=2)
    job.call("cudaDeviceSynchronize", 6, 32, inside=item)
    job.op("aten::add", 34, 40)
    assert path_in_words(pieces_of(job)) == [
        "0 host aten::mm 0-2",
        "0 launch gemm 2-6",
        "0 compute gemm 6-30",
        "0 synchronization aten::item 30-32",
        "0 host aten::item 32-34",
        "0 host aten::add 34-40",
    ]


def _met(job: JobBuilder, *rows: int) -> JobBuilder:
    job.together(job.group(0, 1), *rows)
    return job


def test_a_collective_leads_to_the_rank_that_came_last() -> None:
    job = JobBuilder(unit=US)
    job.op("aten::mm", 0, 4)
    first = job.work("ncclAllReduce", 3, 120, launched=2)
    job.work("relu", 121, 140, launched=3)
    job.op("aten::slow", 0, 104, rank=1)
    second = job.work("ncclAllReduce", 104, 120, rank=1, launched=102)
    assert path_in_words(pieces_of(_met(job, first, second))) == [
        "1 host aten::slow 0-102",
        "1 launch ncclAllReduce 102-104",
        "0 communication ncclAllReduce 104-120",
        "0 queue relu 120-121",
        "0 compute relu 121-140",
    ]


def test_a_rank_that_left_before_another_came_did_not_wait_for_it() -> None:
    """Clocks differ: it is counted, and the path stays on the rank."""
    job = JobBuilder(unit=US)
    job.op("aten::mm", 0, 4)
    first = job.work("ncclAllReduce", 3, 90, launched=2)
    job.work("relu", 91, 140, launched=3)
    job.op("aten::slow", 0, 50, rank=1)
    second = job.work("ncclAllReduce", 95, 99, rank=1, launched=40)
    pieces = pieces_of(_met(job, first, second))
    assert pieces.contradicted == 1
    assert path_in_words(pieces)[1:] == [
        "0 launch ncclAllReduce 2-3",
        "0 communication ncclAllReduce 3-90",
        "0 queue relu 90-91",
        "0 compute relu 91-140",
    ]


def test_communication_on_another_thread_leads_to_its_request_and_the_thread_that_waited_resumes() -> None:
    job = JobBuilder(unit=US)
    first = job.op("c10d::allreduce_", 0, 10)
    job.op("aten::add", 62, 70)
    left = job.note("gloo:all_reduce", 12, 60, thread="worker")
    job.op("aten::slow", 0, 40, rank=1)
    second = job.op("c10d::allreduce_", 40, 45, rank=1)
    right = job.note("gloo:all_reduce", 48, 60, rank=1, thread="worker")
    job.together(job.group(0, 1), left, right, as_what="annotation")
    for part, operator in zip(job.participations, (first, second), strict=True):
        part["operator"] = operator
    assert path_in_words(pieces_of(job)) == [
        "1 host aten::slow 0-40",
        "1 host c10d::allreduce_ 40-45",
        "1 hand_over gloo:all_reduce 45-48",
        "0 communication gloo:all_reduce 48-60",
        "0 hand_over aten::add 60-62",
        "0 host aten::add 62-70",
    ]


def test_a_message_leads_to_its_sender() -> None:
    job = JobBuilder(unit=US)
    job.op("aten::slow", 0, 50)
    sent = job.work("ncclSend", 52, 60, launched=48)
    job.op("aten::mm", 0, 4, rank=1)
    received = job.work("ncclRecv", 3, 60, rank=1, launched=2)
    job.work("relu", 61, 80, rank=1, launched=3)
    job.message(job.group(0, 1), sent, received)
    assert path_in_words(pieces_of(job)) == [
        "0 host aten::slow 0-48",
        "0 launch ncclSend 48-52",
        "1 communication ncclRecv 52-60",
        "1 queue relu 60-61",
        "1 compute relu 61-80",
    ]


def test_work_that_nothing_explains_is_idle() -> None:
    job = JobBuilder(unit=US)
    job.op("aten::mm", 0, 10)
    job.work("gemm", 6, 30, launched=2)
    job.work("relu", 630, 650, launched=4)
    assert path_in_words(pieces_of(job))[3:] == ["0 idle relu 30-630", "0 compute relu 630-650"]


def test_a_stream_that_starts_right_after_communication_on_another_one_waited_for_it() -> None:
    job = JobBuilder(unit=US)
    job.op("aten::mm", 0, 10)
    job.work("gemm", 6, 30, launched=2)
    job.work("ncclAllReduce", 8, 625, launched=4, stream=20)
    job.work("relu", 630, 650, launched=6)
    assert path_in_words(pieces_of(job))[-3:] == [
        "0 communication ncclAllReduce 8-625",
        "0 queue relu 625-630",
        "0 compute relu 630-650",
    ]


def test_steps_of_a_job_begin_on_the_first_rank_even_if_ranks_recorded_different_ones() -> None:
    job = JobBuilder(unit=US)
    for rank, steps in ((0, {1: 0, 2: 100}), (1, {2: 90, 3: 200}), (2, {})):
        for step, start in steps.items():
            job.note(f"ProfilerStep#{step}", start, start + 80, rank=rank)
        job.op("aten::mm", 20, 300, rank=rank)
    pieces = pieces_of(job)
    assert pieces.steps.tolist() == [1, 2, 3]
    assert ((pieces.begin - START) // US).tolist() == [0, 90, 200, 280]


def test_steps_whose_numbers_do_not_ascend_are_one() -> None:
    job = JobBuilder(unit=US)
    for start, step in ((0, 2), (100, 1)):
        job.note(f"ProfilerStep#{step}", start, start + 80)
        job.op("aten::mm", start + 1, start + 70)
    pieces = pieces_of(job)
    assert (pieces.steps.tolist(), ((pieces.begin - START) // US).tolist()) == ([UNKNOWN], [0, 180])


def test_operators_that_enclose_each_other_in_a_circle_end() -> None:
    job = JobBuilder(unit=US)
    first, second = job.note("one", 0, 4), job.note("other", 1, 3)
    job.edge(first, Relation.CALLS, second)
    job.edge(second, Relation.CALLS, first)
    job.op("aten::mm", 2, 20)
    job.op("aten::add", 30, 40)
    assert path_in_words(pieces_of(job))[-1] == "0 host aten::add 30-40"


def test_causes_in_a_circle_end() -> None:
    """By its clock a kernel ran before the call that launched it, which waited for it."""
    job = JobBuilder(unit=US)
    sync = job.call("cudaDeviceSynchronize", 0, 10)
    kernel = job.work("gemm", 2, 8)
    job.edge(job.call("cudaLaunchKernel", 12, 13), Relation.LAUNCHES, kernel)
    job.op("aten::add", 14, 20)
    pieces = pieces_of(job)
    assert sync != kernel
    assert critical_path(pieces).end[-1] == pieces.begin[-1]
    assert replayed(Model.of(pieces)) >= 0


# Generated jobs.


def follows_causes(pieces: JobPieces) -> None:
    """No gap, no overlap, and nothing starts before its cause has ended."""
    path = critical_path(pieces)
    assert path.start[0] == pieces.begin[0]
    assert path.end[-1] == pieces.begin[-1]
    assert (path.end > path.start).all()
    assert (path.end[:-1] == path.start[1:]).all()
    own = pieces.rank[path.piece]
    assert (own == path.rank).all()
    works = path.kind == pieces.pieces.kind[path.piece]
    inside = (pieces.pieces.start[path.piece] <= path.start) & (path.end <= pieces.pieces.end[path.piece])
    before = path.end <= pieces.pieces.start[path.piece]
    assert (np.where(works, inside, True)).all()
    assert (inside | before | (path.kind == PieceKind.IDLE)).all()
    for earlier, later in pairwise(range(len(path))):
        if path.rank[earlier] != path.rank[later]:
            arrival = int(pieces.arrival[path.piece[later]])
            assert arrival != UNKNOWN
            assert pieces.pieces.start[arrival] == path.start[later]


@given(ranks_of_pieces)
def test_the_path_has_no_gaps_and_nothing_on_it_starts_before_its_cause_ends(
    ranks: list[list[tuple[int, int, int]]],
) -> None:
    follows_causes(pieces_of(generated(ranks)))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_generated_training_is_explained_all_but_its_start(tmp_path: Path, ranks: int) -> None:
    write(Made(ranks=ranks, steps=3, clock_skew_ns=0), tmp_path)
    job = read_job(Reading(discover_inputs(tmp_path), Processes()))
    pieces = pieces_of(job)
    follows_causes(pieces)
    path = critical_path(pieces)
    length = path.end - path.start
    idle = int(length[path.kind == PieceKind.IDLE].sum())
    assert idle <= 0.02 * int(length.sum())
    assert len(np.unique(path.rank)) <= ranks


SHARED = ("matched8", "pairs/torch213_gloo2", "kineto/four_ranks_derived", "pairs/dlrm8")


@pytest.mark.parametrize("name", ["cpu_job", "data_parallel", "gpu_2023", "cluster", *foreign(*SHARED)])
def test_jobs_are_explained_without_contradictions(name: str) -> None:
    job = read_job(Reading(discover_inputs(traces(name)), Processes()))
    follows_causes(pieces_of(job))


def test_the_path_of_a_summary_adds_up() -> None:
    path = tracelink.summary("samples/gpu_pair").critical_path
    assert path is not None
    sums = {sum(part.values()) for part in (path.by_kind, path.by_rank, path.by_module)}
    assert sums == {path.length_ns} == {sum(step.length_ns for step in path.steps)}
    assert [step.step for step in path.steps] == [1, 2]
