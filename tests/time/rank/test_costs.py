"""Tests of tracelink._time.rank.costs: the costs of a part add up to it, on every rank and step."""

from __future__ import annotations

from collections import Counter

import pytest

import tracelink
from builders.data import foreign, traces
from tracelink._model.job import LinkedJob
from tracelink._time.rank.account import rank_costs_of
from tracelink._time.rank.costs import StepPart

FIELDS = {
    StepPart.COMPUTE: "compute_ns",
    StepPart.EXPOSED_COMMUNICATION: "exposed_communication_ns",
    StepPart.EXPOSED_COPY: "exposed_copy_ns",
    StepPart.IDLE: "idle_ns",
}


SHARED = ("nccl_data.json.gz", "h100_qwen.json.gz", "cuda_graphs.json.gz", "four_ranks_derived")


@pytest.mark.parametrize(
    "path",
    [
        *("gpu_pair", "cpu_job", "compile_job", "run_after", "gpu_2021", "gpu_rocm", "data_parallel"),
        *foreign(*(f"kineto/{name}" for name in SHARED)),
    ],
)
def test_the_costs_of_a_part_add_up_to_it(path: str) -> None:
    job = LinkedJob.of(tracelink.load(traces(path), jobs=1))
    for part in job.parts:
        rank = rank_costs_of(part.load(), job, None)
        for number, step in enumerate(rank.steps):
            spent: Counter[StepPart] = Counter()
            for cost in rank.costs:
                assert cost.ns[number] >= 0
                spent[cost.part] += cost.ns[number]
            assert {of: spent[of] for of in StepPart} == {
                of: getattr(step, name) for of, name in FIELDS.items()
            }
