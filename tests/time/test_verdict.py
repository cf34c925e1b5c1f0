"""The sentences of the verdict."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

import tracelink
from builders.data import foreign, traces
from tracelink import samples
from tracelink._time.model import results
from tracelink._time.model.results import Cause, Portion, StepTime, Summary
from tracelink._time.verdict import verdict_on

PARTS = {
    "Only communication": "exposed communication",
    "Nothing computes while data": "exposed communication",
    "Ranks wait": "exposed communication",
    "Copies": "exposed copies",
    "": "idle",
}
"""How sentences begin, and the part of a step that they are about."""


def with_parts(idle: Sequence[Portion], communication: Sequence[Portion], compute: int = 0) -> Summary:
    """A summary of a job with one step of one rank."""
    summary = tracelink.summary(samples.path("gpu_pair"), ranks=[0], steps=[1])
    (rank,) = summary.ranks
    (step,) = rank.steps
    idle_ns, exposed_ns = (sum(each.ns for each in some) for some in (idle, communication))
    changed: dict[str, Any] = {
        "duration_ns": compute + idle_ns + exposed_ns,
        "compute_ns": compute,
        "exposed_communication_ns": exposed_ns,
        "exposed_copy_ns": 0,
        "idle_ns": idle_ns,
        "idle": idle,
        "exposed_communication": communication,
        "exposed_copies": (),
    }
    step = msgspec.structs.replace(step, **changed)
    rank = msgspec.structs.replace(rank, steps=[step], later_work_ns=0)
    time = StepTime(1, *[step.duration_ns] * 5)
    return msgspec.structs.replace(summary, ranks=[rank], step_time=time, kernels=[], gaps=[])


def test_a_cause_of_two_parts_is_said_of_each_of_them() -> None:
    summary = with_parts(
        idle=[Portion(Cause.HOST_BOUND, 64_000_000, during="operators")],
        communication=[Portion(Cause.HOST_BOUND, 13_000_000, during=results.NOTHING_LAUNCHED)],
        compute=23_000_000,
    )
    assert verdict_on(summary) == [
        "The step takes 100.000 ms: 23 % compute, 13 % exposed communication, 64 % idle.",
        "The host launches work too late for 64 % of the time (64.000 ms a step), mostly in operators.",
        "Only communication runs for 13 % of the time (13.000 ms a step), while the host has nothing launched that "
        "computes.",
    ]


def test_what_is_unknown_is_said_by_why_it_is() -> None:
    summary = with_parts(
        idle=[
            Portion(Cause.UNKNOWN, 54_000_000, during=results.LAUNCHED),
            Portion(Cause.UNKNOWN, 8_000_000, during=results.NO_LAUNCH),
        ],
        communication=[Portion(Cause.UNKNOWN, 15_000_000, during=results.NOT_MATCHED)],
        compute=23_000_000,
    )
    assert verdict_on(summary)[1:] == [
        "Nothing runs for 54 % of the time (54.000 ms a step) although work had been launched; what held it back was "
        "not recorded.",
        "Only communication runs for 15 % of the time (15.000 ms a step); whether it waits for other ranks or "
        "transfers data is unknown, because it was not matched with them.",
    ]


@pytest.mark.parametrize(
    "path",
    [
        *("gpu_pair", "gpu_2021", "gpu_rocm", "data_parallel", "run_after"),
        *foreign(
            *(f"kineto/{name}.json.gz" for name in ("cuda_graphs", "mi300_resnet", "nccl_data", "h100_qwen"))
        ),
    ],
)
def test_no_sentence_has_a_larger_share_than_its_part(path: str) -> None:
    first, *others = tracelink.summary(traces(path), jobs=1).verdict
    parts = {part: float(share) for share, part in re.findall(r"([\d.]+) % ([a-z ]+)", first)}
    for sentence in others:
        if match := re.search(r"([\d.]+) % of the time", sentence):
            part = next(part for begin, part in PARTS.items() if sentence.startswith(begin))
            assert float(match[1]) <= parts[part]


def test_a_recording_without_steps_has_times_of_ranks() -> None:
    assert tracelink.summary(samples.path("compile_job")).verdict[1] == (
        "torch.compile compiles for 98 % of the time (76.857 s a rank); `tracelink compile` shows what a compile log "
        "says of it."
    )
