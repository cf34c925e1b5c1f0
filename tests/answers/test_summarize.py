"""Summaries of whole jobs."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import msgspec
import pytest

from tracelink import merge, samples, summarize
from tracelink.answers.model.results import Step, Summary, WorkIn
from tracelink.model.errors import UsageError


def steps(summary: Summary) -> list[Step]:
    return list(chain.from_iterable(rank.steps for rank in summary.ranks))


def assert_parts_add_up(summary: Summary) -> None:
    for step in steps(summary):
        parts = (step.compute_ns, step.exposed_communication_ns, step.exposed_copy_ns, step.idle_ns)
        assert min(parts) >= 0
        assert sum(parts) == step.duration_ns


@pytest.mark.parametrize("name", ["gpu_pair", "cpu_job", "compile_job", "hung_job"])
def test_parts_of_steps_of_samples_add_up(name: str) -> None:
    assert_parts_add_up(summarize(samples.path(name)))


def test_the_gpu_pair() -> None:
    summary = summarize(samples.path("gpu_pair"))
    assert [(rank.rank, rank.work, [step.step for step in rank.steps]) for rank in summary.ranks] == [
        (0, WorkIn.KERNELS, [1, 2]),
        (1, WorkIn.KERNELS, [1, 2]),
    ]


def test_only_the_wanted_steps_are_summed() -> None:
    both, second = (summarize(samples.path("gpu_pair"), steps=wanted) for wanted in (None, "2"))
    assert steps(second) == [step for step in steps(both) if step.step == 2]


def test_a_step_that_no_rank_has_is_an_error() -> None:
    with pytest.raises(UsageError, match="there is no step 7"):
        summarize(samples.path("gpu_pair"), steps=[7])


def test_a_summary_of_chakra_traces_can_be_encoded(tmp_path: Path) -> None:
    merge(samples.path("gpu_pair"), output=tmp_path / "job", to="chakra")
    encoded = msgspec.json.encode(summarize(tmp_path))
    assert msgspec.json.encode(msgspec.json.decode(encoded, type=Summary)) == encoded
