"""Dumps do not tell the root of a broadcast; profiles beside them do, and are read where that can matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tracelink
from builders.data import shared
from builders.dumps import dumps, steps
from builders.kineto import Element, cpu_op, trace, write
from builders.recorder import CREATED
from tracelink import Diagnosis, Kind
from tracelink.diagnosis.profiles import MOST_BYTES

RANKS = range(4)


def entries(*, finished: bool) -> dict[int, list[dict[str, Any]]]:
    """An all-reduce, and a broadcast in which all are."""
    both = {rank: steps(rank, 3 if finished else 2)[:2] for rank in RANKS}
    return {rank: [one, other | {"profiling_name": "nccl:broadcast"}] for rank, (one, other) in both.items()}


def call(number: int, name: str, rank: int) -> list[Element]:
    time = number * 1e6
    said = {"Collective_name": name, "Process_Group_Name": "0", "Rank": rank, "In_msg_nelems": 1024}
    return [
        cpu_op(f"c10d::{name}_", time - 20, 100),
        cpu_op("record_param_comms", time - 10, 80, Group_size=4, **said),
    ]


def job(folder: Path, roots: dict[int, int], *, finished: bool = False) -> Path:
    """What each rank named as the root of the broadcast."""
    dumps(folder / "dumps", entries(finished=finished))
    for rank, root in roots.items():
        elements = [*call(1, "allreduce", rank), *call(2, "broadcast", root)]
        profile = trace(*elements, rank=rank, baseTimeNanoseconds=CREATED)
        write(folder / "traces" / f"k_{rank}.json", profile)
    return folder


def told(diagnosis: Diagnosis) -> list[tuple[Kind, int | None, tuple[int, ...]]]:
    return [(one.kind, one.sequence, one.culprits) for one in diagnosis.problems]


def test_a_broadcast_hangs_because_one_rank_names_another_root(tmp_path: Path) -> None:
    job(tmp_path, {0: 0, 1: 0, 2: 3, 3: 0})
    assert told(tracelink.diagnose(tmp_path / "dumps", jobs=1)) == []
    (problem,) = tracelink.diagnose(tmp_path, jobs=1).problems
    assert (problem.kind, problem.culprits, problem.waiting) == (Kind.PEER_MISMATCH, (2,), (0, 1, 3))
    assert "Compare the root (src, dst) of the calls at train.py:20 (step)" in problem.advice
    assert [(one.rank, one.call and one.call.operation) for one in problem.sightings] == [
        (2, "broadcast"),
        (0, "broadcast"),
    ]


def test_a_finished_broadcast_is_checked_only_where_profiles_are_named(tmp_path: Path) -> None:
    job(tmp_path, {0: 0, 1: 0, 2: 3, 3: 0}, finished=True)
    traces = tmp_path / "traces"
    assert told(tracelink.diagnose(tmp_path, jobs=1)) == []
    named = tracelink.diagnose(tmp_path / "dumps", kineto=traces, jobs=1)
    assert told(named) == [(Kind.PEER_MISMATCH, 2, (2,))]


def test_all_name_the_same_root(tmp_path: Path) -> None:
    job(tmp_path, dict.fromkeys(RANKS, 3))
    assert told(tracelink.diagnose(tmp_path, jobs=1)) == []


def test_one_profile_alone_tells_nothing_of_roots(tmp_path: Path) -> None:
    job(tmp_path, {2: 3})
    assert told(tracelink.diagnose(tmp_path, jobs=1)) == []


def test_profiles_that_are_too_many_to_be_read_for_this_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job(tmp_path, {0: 0, 1: 0, 2: 3, 3: 0})
    assert MOST_BYTES > 1 << 20
    monkeypatch.setattr("tracelink.diagnosis.profiles.MOST_BYTES", 1000)
    diagnosis = tracelink.diagnose(tmp_path, jobs=1)
    assert (told(diagnosis), [one.reason for one in diagnosis.findings]) == ([], ["roots_unchecked"])


def test_a_damaged_profile_costs_only_what_it_says_of_roots(tmp_path: Path) -> None:
    job(tmp_path, {0: 0, 1: 0, 2: 3, 3: 0})
    broken = tmp_path / "traces" / "k_3.json"
    broken.write_text('{"schemaVersion": 1, "traceEvents": 7}')
    diagnosis = tracelink.diagnose(tmp_path, jobs=1)
    assert told(diagnosis) == [(Kind.PEER_MISMATCH, 2, (2,))]
    assert any(str(broken) in one.message for one in diagnosis.findings)


def test_roots_that_change_from_step_to_step_agree_in_a_recorded_job() -> None:
    data = shared("matched8")
    diagnosis = tracelink.diagnose(fr=data / "fr", kineto=data, et=data)
    assert (diagnosis.verdict, [one for one in diagnosis.findings if one.severity == "error"]) == ("ok", [])
