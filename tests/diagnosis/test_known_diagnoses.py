"""Diagnoses of recorded jobs with known faults."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import pytest

import tracelink
from builders.data import shared
from tracelink import Diagnosis, Kind

Told = tuple[Kind, str, int | None, tuple[int, ...]]


def diagnosed(case: str) -> Diagnosis:
    return tracelink.diagnose(shared(f"fr/{case}"))


def told(diagnosis: Diagnosis) -> list[Told]:
    return [(one.kind, one.group, one.sequence, one.culprits) for one in diagnosis.problems]


HEALTHY = ("healthy8/dumps", "healthy8/json", "healthy8_rawpg/dumps", "wrapped/dumps", "straggler/dumps_end")

BROKEN = {
    "skip_hang/dumps_hang": (Kind.NEVER_JOINED, "0", 9, (3,)),
    "skip_hang/dumps_after_timeout": (Kind.NEVER_JOINED, "0", 9, (3,)),
    "skip_hang/json_hang": (Kind.NEVER_JOINED, "0", 9, (3,)),
    "skip_hang/json_after_timeout": (Kind.NEVER_JOINED, "0", 9, (3,)),
    "missing_other/dumps": (Kind.NEVER_JOINED, "0", 9, (3,)),
    "skip_next/dumps_hang": (Kind.SKIPPED, "0", 7, (5,)),
    "skip_next/dumps_after_timeout": (Kind.SKIPPED, "0", 7, (5,)),
    "op_mismatch/dumps_hang": (Kind.OPERATION_MISMATCH, "0", 5, (4,)),
    "op_mismatch/dumps_after_timeout": (Kind.OPERATION_MISMATCH, "0", 5, (4,)),
    "dtype_mismatch/dumps_hang": (Kind.DTYPE_MISMATCH, "0", 5, (1,)),
    "dtype_mismatch/dumps_after_timeout": (Kind.DTYPE_MISMATCH, "0", 5, (1,)),
    "straggler/dumps_hang": (Kind.NEVER_JOINED, "0", 7, (6,)),
    "subgroup_deadlock/dumps_hang": (Kind.DEADLOCK, "0", 5, (6,)),
    "subgroup_deadlock/dumps_after_timeout": (Kind.DEADLOCK, "0", 5, (6,)),
}


@pytest.mark.parametrize("case", HEALTHY)
def test_healthy_job(case: str) -> None:
    assert (diagnosed(case).verdict, told(diagnosed(case))) == ("ok", [])


@pytest.mark.parametrize("case", BROKEN)
def test_faulty_job(case: str) -> None:
    assert told(diagnosed(case)) == [BROKEN[case]]


def test_healthy_job_with_profiles() -> None:
    diagnosis = tracelink.diagnose(shared("matched8"))
    assert (diagnosis.verdict, list(diagnosis.present)) == ("ok", list(range(8)))


def test_all_others_wait() -> None:
    (problem,) = diagnosed("skip_hang/dumps_hang").problems
    assert problem.waiting == (0, 1, 2, 4, 5, 6, 7)


def test_links_of_a_deadlock() -> None:
    (problem,) = diagnosed("subgroup_deadlock/dumps_hang").problems
    assert [(link.group, link.sequence, link.ranks, link.waits_for) for link in problem.cycle] == [
        ("0", 5, (0, 1, 2, 3, 4, 5, 7), (6,)),
        ("5", 5, (6,), (0, 2, 4)),
    ]


def test_missing_dump_of_another_rank() -> None:
    assert list(diagnosed("missing_other/dumps").missing) == [5]


def test_truncated_dump() -> None:
    diagnosis = diagnosed("truncated/dumps")
    assert (diagnosis.verdict, list(diagnosis.unreadable)) == ("ok", [4])
    assert list(diagnosis.present) == [0, 1, 2, 3, 5, 6, 7]


def test_missing_dump_of_the_culprit(tmp_path: Path) -> None:
    for dump in shared("fr/skip_hang/dumps_hang").iterdir():
        if not dump.name.endswith("_3"):
            shutil.copy(dump, tmp_path / dump.name)
    diagnosis = tracelink.diagnose(tmp_path)
    assert (told(diagnosis), list(diagnosis.missing)) == ([(Kind.NEVER_JOINED, "0", 9, (3,))], [3])
    assert not diagnosis.problems[0].proven


def test_all_cases_are_tested() -> None:
    truth = orjson.loads(shared("fr/truth.json").read_bytes())
    cases = {case.partition("/")[0] for case in (*HEALTHY, *BROKEN, "truncated/dumps")}
    assert {case for case in truth if not case.startswith("_")} == cases
