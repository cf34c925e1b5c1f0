"""Summaries of whole jobs."""

from __future__ import annotations

import gzip
import json
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tracelink
from tracelink import load, merge, samples, what_if
from tracelink._model.errors import UsageError
from tracelink._time.model.results import Step, Summary, WorkIn


def steps(summary: Summary) -> list[Step]:
    return list(chain.from_iterable(rank.steps for rank in summary.ranks))


def assert_parts_add_up(summary: Summary) -> None:
    for step in steps(summary):
        parts = (step.compute_ns, step.exposed_communication_ns, step.exposed_copy_ns, step.idle_ns)
        assert min(parts) >= 0
        assert sum(parts) == step.duration_ns


@pytest.mark.parametrize("name", ["gpu_pair", "cpu_job", "compile_job", "hung_job"])
def test_parts_of_steps_of_samples_add_up(name: str) -> None:
    assert_parts_add_up(tracelink.summary(samples.path(name)))


def test_the_gpu_pair() -> None:
    summary = tracelink.summary(samples.path("gpu_pair"))
    assert [(rank.rank, rank.work, [step.step for step in rank.steps]) for rank in summary.ranks] == [
        (0, WorkIn.KERNELS, [1, 2]),
        (1, WorkIn.KERNELS, [1, 2]),
    ]


def test_only_the_wanted_steps_are_summed() -> None:
    both, second = (tracelink.summary(samples.path("gpu_pair"), steps=wanted) for wanted in (None, "2"))
    assert steps(second) == [step for step in steps(both) if step.step == 2]


def test_a_step_that_no_rank_has_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"there is no step 7 on any rank\. There are steps 1-2\."):
        tracelink.summary(samples.path("gpu_pair"), steps=[7])


def test_some_steps_that_no_rank_has_are_a_warning() -> None:
    notes = tracelink.summary(samples.path("gpu_pair"), steps="1,99").findings
    assert [note.message for note in notes if note.reason == "summary.missing_steps"] == [
        "There is no step 99 on any rank. There are steps 1-2."
    ]


@pytest.mark.parametrize("paths", [None, 5, [None]])
def test_what_is_no_path_is_an_error_of_usage(paths: Any) -> None:
    with pytest.raises(UsageError, match="is no path and no list of paths"):
        tracelink.summary(paths)


def test_one_question_can_be_a_text() -> None:
    (answer,) = tracelink.summary(samples.path("gpu_pair"), what_if="communication free").what_if
    assert answer.question == "communication free"


@pytest.mark.parametrize("questions", [5, [5]])
def test_what_is_no_question_is_an_error_of_usage(questions: Any) -> None:
    with pytest.raises(UsageError, match="what-if question not understood: 5"):
        tracelink.summary(samples.path("gpu_pair"), what_if=questions)


def test_what_if_without_a_question_is_an_error_of_usage() -> None:
    with pytest.raises(UsageError, match="no what-if question"):
        what_if(samples.path("gpu_pair"))


def test_a_summary_of_chakra_traces_can_be_encoded(tmp_path: Path) -> None:
    merge(samples.path("gpu_pair"), output=tmp_path / "job", to="chakra")
    encoded = msgspec.json.encode(tracelink.summary(tmp_path))
    assert msgspec.json.encode(msgspec.json.decode(encoded, type=Summary)) == encoded


# Inputs that are damaged.


def profile(
    path: Path, rank: int, starts_us: list[float], *, base_ns: int | None = 1_700_000_000_000_000_000
) -> Path:
    """A profile with operators of 10 us; without a base time, times count from 1970."""
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 100, "tid": 100, "ts": start, "dur": 10}
        for start in starts_us
    ]
    document: dict[str, Any] = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}}
    document["traceEvents"] = events
    if base_ns is not None:
        document["baseTimeNanoseconds"] = base_ns
    path.write_text(json.dumps(document))
    return path


DAY_US = 86_400e6
NO_ANSWER = (False, None, None)


def test_an_event_decades_away_is_the_verdict(tmp_path: Path) -> None:
    profile(tmp_path / "rank0.json", 0, [0, 20, 40, 5_000 * DAY_US])
    summary = tracelink.summary(tmp_path, what_if=["communication free"])
    (reason,) = summary.verdict
    assert reason == (
        "Times of rank 0 are wrong: its recording lasts from 2023-11-14 22:13:20.000 to 2037-07-23 22:13:20.000, with "
        "work in less than 0.1 % of it, around 2023-11-14 22:13:20.000. Remove the events with times far from the "
        "others, or record again."
    )
    (answer,) = summary.what_if
    assert summary.critical_path is None
    assert (answer.answered, answer.expected_ns, answer.share, answer.why_not) == (*NO_ANSWER, reason)
    (alone,) = what_if(load(tmp_path), "communication free")
    assert alone == answer


@pytest.mark.parametrize(
    ("base_ns", "reason"),
    [
        (
            1_600_000_000_000_000_000,
            "Rank 1 and rank 0 were recorded 1,157 days apart (2020-09-13 12:26:40.000 and 2023-11-14 22:13:20.000): "
            "they are of different jobs, or the times of some are wrong. Name the ranks of one recording, such as "
            "--ranks 0.",
        ),
        (
            None,
            "Rank 1 and rank 0 were recorded 19,675 days apart (1970-01-01 00:00:00.000 and 2023-11-14 22:13:20.000): "
            "the base time of a truncated profile is missing. Name the ranks of one recording, such as --ranks 0.",
        ),
    ],
)
def test_ranks_of_two_jobs_are_the_verdict(tmp_path: Path, base_ns: int | None, reason: str) -> None:
    profile(tmp_path / "rank0.json", 0, [0, 20, 40])
    profile(tmp_path / "rank1.json", 1, [0, 20, 40], base_ns=base_ns)
    summary = tracelink.summary(tmp_path, what_if=["rank 1 on time"], clock="none")
    assert (summary.verdict, summary.critical_path) == ([reason], None)
    assert [answer.why_not for answer in summary.what_if] == [reason]


def test_the_last_sentence_is_on_inputs_that_are_truncated_or_unreadable(tmp_path: Path) -> None:
    profile(tmp_path / "rank0.json", 0, [0, 20, 40])
    whole = profile(tmp_path / "rank1.json", 1, list(range(0, 2_000, 20))).read_text()
    at = whole.index('"traceEvents"')
    (tmp_path / "rank1.json").write_text(whole[: at + 6_000])
    (tmp_path / "rank2.json").write_text("{")
    files = [tmp_path / f"rank{rank}.json" for rank in range(3)]
    truncated = tracelink.summary(files[:1] + files[2:], clock="none").verdict
    assert truncated[-1] == "rank2.json cannot be read, and is missing."
    assert len(truncated) <= 3
    last = tracelink.summary(files, rank_of={str(files[1]): 1}, clock="none").verdict[-1]
    assert last == (
        "A file of rank 1 is truncated: what the lost end contains is missing in all numbers; rank2.json cannot be "
        "read, and is missing."
    )


def test_runs_of_one_program_on_two_days_are_two_jobs_although_their_collectives_fit(tmp_path: Path) -> None:
    for rank in range(2):
        packed = samples.path("cpu_job") / f"kineto_{rank}.json.gz"
        document = json.loads(gzip.decompress(packed.read_bytes()))
        document["baseTimeNanoseconds"] += rank * 10 * round(DAY_US * 1000)
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(document))
    summary = tracelink.summary(tmp_path)
    assert summary.critical_path is None
    assert summary.verdict[0].startswith("Rank 0 and rank 1 were recorded 10 days apart (")
