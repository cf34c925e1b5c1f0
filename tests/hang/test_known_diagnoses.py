"""Diagnoses of recorded jobs with known faults."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest

import tracelink
from builders import data
from builders.data import foreign, shared, traces
from tracelink import Diagnosis, Kind
from tracelink._hang.facts.model import Category

Told = tuple[Kind, str, int | None, tuple[int, ...]]


def diagnosed(case: str) -> Diagnosis:
    return tracelink.diagnose(traces(case))


def told(diagnosis: Diagnosis) -> list[Told]:
    return [(one.kind, one.group, one.sequence, one.culprits) for one in diagnosis.problems]


HEALTHY = (
    *("fr/healthy8/dumps", "fr/healthy8/json", "fr/healthy8_rawpg/dumps", "fr/wrapped/dumps"),
    "fr/straggler/dumps_end",
)
GENERATED = {
    "never_joined": (Kind.IN_FLIGHT, "0", 7, (3,)),
    "skipped": (Kind.SKIPPED, "6", 13, (5,)),
    "operation_mismatch": (Kind.OPERATION_MISMATCH, "5", 8, (4,)),
    "dtype_mismatch": (Kind.DTYPE_MISMATCH, "6", 9, (1,)),
    "deadlock": (Kind.DEADLOCK, "4", 10, (6,)),
}
BROKEN = {
    "fr/skip_hang/dumps_hang": (Kind.IN_FLIGHT, "0", 9, (3,)),
    "fr/skip_hang/dumps_after_timeout": (Kind.IN_FLIGHT, "0", 9, (3,)),
    "fr/skip_hang/json_hang": (Kind.IN_FLIGHT, "0", 9, (3,)),
    "fr/skip_hang/json_after_timeout": (Kind.IN_FLIGHT, "0", 9, (3,)),
    "fr/missing_other/dumps": (Kind.IN_FLIGHT, "0", 9, (3,)),
    "fr/skip_next/dumps_hang": (Kind.SKIPPED, "0", 7, (5,)),
    "fr/skip_next/dumps_after_timeout": (Kind.SKIPPED, "0", 7, (5,)),
    "fr/op_mismatch/dumps_hang": (Kind.OPERATION_MISMATCH, "0", 5, (4,)),
    "fr/op_mismatch/dumps_after_timeout": (Kind.OPERATION_MISMATCH, "0", 5, (4,)),
    "fr/dtype_mismatch/dumps_hang": (Kind.DTYPE_MISMATCH, "0", 5, (1,)),
    "fr/dtype_mismatch/dumps_after_timeout": (Kind.DTYPE_MISMATCH, "0", 5, (1,)),
    "fr/straggler/dumps_hang": (Kind.IN_FLIGHT, "0", 7, (6,)),
    "fr/subgroup_deadlock/dumps_hang": (Kind.DEADLOCK, "0", 5, (6,)),
    "fr/subgroup_deadlock/dumps_after_timeout": (Kind.DEADLOCK, "0", 5, (6,)),
}


@pytest.mark.parametrize("case", [*data.HEALTHY, *foreign(*HEALTHY)])
def test_healthy_job(case: str) -> None:
    assert (diagnosed(case).verdict, told(diagnosed(case))) == ("ok", [])


@pytest.mark.parametrize(
    ("case", "problem"),
    [*((case, GENERATED[case.split("/")[1]]) for case in data.HANGS), *foreign(*BROKEN.items())],
)
def test_faulty_job(case: str, problem: Told) -> None:
    first, *others = told(diagnosed(case))
    missing = [(Kind.ABSENT, (5,))] if "missing_other" in case else []
    assert (first, [(kind, ranks) for kind, _, _, ranks in others]) == (problem, missing)


@pytest.mark.parametrize("case", ["gpu_pair", "cpu_job", *foreign("matched8")])
def test_healthy_job_with_profiles(case: str) -> None:
    diagnosis = diagnosed(case)
    assert (diagnosis.verdict, [*diagnosis.missing, *diagnosis.unreadable]) == ("ok", [])


def test_all_others_wait() -> None:
    (problem,) = diagnosed("gloo/never_joined/settled").problems
    assert problem.waiting == (0, 1, 2, 4, 5, 6, 7)


def test_links_of_a_deadlock() -> None:
    (problem,) = diagnosed("gloo/deadlock/settled").problems
    assert [(link.group, link.sequence, link.ranks, link.waits_for) for link in problem.cycle] == [
        ("4", 10, (7,), (6,)),
        ("0", 5, (0, 1, 2, 3, 4, 5, 6), (7,)),
    ]


def test_missing_dump_of_another_rank() -> None:
    assert list(diagnosed("gloo/never_joined/missing_other").missing) == [5]


def test_truncated_dump() -> None:
    diagnosis = diagnosed("gloo/truncated")
    assert (diagnosis.verdict, list(diagnosis.unreadable)) == ("ok", [4])
    assert list(diagnosis.present) == [0, 1, 2, 3, 5, 6, 7]


def test_missing_dump_of_the_culprit(tmp_path: Path) -> None:
    for dump in traces("gloo/never_joined/settled").iterdir():
        if not dump.name.endswith("_3"):
            shutil.copy(dump, tmp_path / dump.name)
    diagnosis = tracelink.diagnose(tmp_path)
    assert (told(diagnosis), list(diagnosis.missing)) == ([(Kind.IN_FLIGHT, "0", 7, (3,))], [3])
    assert not diagnosis.problems[0].proven


# The second set of recorded and simulated jobs: hangs, running jobs, missing dumps, wrong arguments.


NODE = tuple(range(24, 32))
CODE, HOST, GONE = Category.CODE_PATH, Category.NOT_REACHED, Category.PROCESS_GONE
SKIPPED = 1, Kind.SKIPPED, CODE
NEVER = 1, Kind.NEVER_JOINED, HOST
BEHIND = 4, Kind.IN_FLIGHT, Category.IN_FLIGHT

SECOND_SET: Mapping[str, tuple[int, Kind, Category, tuple[int, ...]]] = {
    "b16_fewer_mb": (*SKIPPED, (0, 1, 2, 3)),
    "b16_skip_tp_pp2": (*SKIPPED, (5,)),
    "coalesced_size": (1, Kind.SIZE_MISMATCH, Category.WRONG_ARGUMENTS, (1,)),
    "crash_between": (4, Kind.ABSENT, GONE, (6,)),
    "ddp_uneven/dumps_hang": (*SKIPPED, (7,)),
    "ddp_uneven/dumps_after_timeout": (*SKIPPED, (7,)),
    "eval_skip/dumps_hang": (*SKIPPED, (6,)),
    "eval_skip/dumps_after_timeout": (*SKIPPED, (6,)),
    "first_iter_init_stuck/dumps_hang": (*BEHIND, (0,)),
    "first_iter_init_stuck/dumps_after_timeout": (*NEVER, (0,)),
    "fsdp2/dumps_hang": (*SKIPPED, (6,)),
    "m64_culprit_truncated": (*BEHIND, (37,)),
    "n64_device_stuck": (*BEHIND, (50,)),
    "n64_node_crash": (*BEHIND, NODE),
    "n64_skip_tp": (*SKIPPED, (20,)),
    "peer_outside": (1, Kind.PEER_MISMATCH, Category.WRONG_ARGUMENTS, (1,)),
    "py_sleep/dumps_hang": (*BEHIND, (2,)),
    "reinit_hang/dumps_hang": (*BEHIND, (2,)),
    "reinit_hang/dumps_after_timeout": (*BEHIND, (2,)),
    "sigkill/dumps_after_error": (*BEHIND, (5,)),
    "sigkill/dumps_after_timeout": (*BEHIND, (5,)),
    "sigkill_rawpg/dumps_after_error": (*BEHIND, (5,)),
    "sigkill_rawpg/dumps_after_timeout": (*BEHIND, (5,)),
    "slow_rank/dumps_end": (4, Kind.STRAGGLER, HOST, (4,)),
    "slow_rank/dumps_running": (4, Kind.STRAGGLER, HOST, (4,)),
    "twice/dumps_t2": (*BEHIND, (0,)),
    "two_jobs/dumps_hang": (*BEHIND, (2,)),
    "weak_dup": (*BEHIND, (2,)),
    "weak_perrank": (*BEHIND, (2,)),
    "world_kill_dp_only/dumps_after_error": (*BEHIND, (2,)),
    "world_kill_dp_only/dumps_after_timeout": (4, Kind.ABSENT, GONE, (2,)),
    "wrapped_far/dumps_hang": (*BEHIND, (3,)),
    "wrapped_far/dumps_after_timeout": (*BEHIND, (3,)),
}
"""The exit code, and of the worst problem its kind, its class and its culprits."""
OK = ("py_sleep/dumps_after_timeout", "twice/dumps_t1", "weak_attempts")
UNDECIDED = {
    "h16_snapshot_same_ns": (1, 3, 4, 5, 6, 7, 11, 12, 14, 15),
    "healthy_running_close/dumps_running": (2,),
    "w8_network_stuck": (),
}
"""In flight, and whom ranks wait for: such dumps are the same for a job that runs and for one that just hung."""
OTHERS = ("monitored/dumps_hang", "monitored/dumps_after_timeout", "weak_twojobs6")
"""Tested with what the recorder does not see, and with sets of dumps."""


@pytest.mark.foreign
@pytest.mark.parametrize("case", SECOND_SET)
def test_second_set(case: str) -> None:
    diagnosis = tracelink.diagnose(shared(f"fr2/{case}"))
    problem = diagnosis.problems[0]
    found = (1 if diagnosis.verdict == "problem" else 4, problem.kind, problem.category, problem.culprits)
    assert found == SECOND_SET[case]


@pytest.mark.foreign
@pytest.mark.parametrize("case", OK)
def test_second_set_healthy(case: str) -> None:
    assert tracelink.diagnose(shared(f"fr2/{case}")).verdict == "ok"


@pytest.mark.foreign
@pytest.mark.parametrize("case", UNDECIDED)
def test_second_set_in_flight(case: str) -> None:
    diagnosis = tracelink.diagnose(shared(f"fr2/{case}"))
    (problem,) = diagnosis.problems
    assert (diagnosis.verdict, problem.category, problem.culprits) == (
        "in_flight",
        Category.IN_FLIGHT,
        UNDECIDED[case],
    )


@pytest.mark.foreign
def test_network_that_is_known_to_be_stuck() -> None:
    (problem,) = tracelink.diagnose(shared("fr2/w8_network_stuck"), hung=True).problems
    assert (problem.kind, problem.category, problem.sequence) == (
        Kind.TIMED_OUT,
        Category.DEVICE_OR_NETWORK,
        6,
    )


@pytest.mark.foreign
def test_every_case_of_the_second_set_is_tested() -> None:
    root = shared("fr2")
    cases = {
        f"{case.name}/{phase.name}" if phase.name.startswith("dumps") else case.name
        for case in root.iterdir()
        if case.is_dir()
        for phase in case.iterdir()
        if phase.name.startswith("dumps") or not any(case.glob("dumps*"))
    }
    assert cases == {*SECOND_SET, *OK, *UNDECIDED, *OTHERS}


@pytest.mark.foreign
def test_all_cases_are_tested() -> None:
    truth = orjson.loads(shared("fr/truth.json").read_bytes())
    cases = {case.split("/")[1] for case in (*HEALTHY, *BROKEN, "fr/truncated/dumps")}
    assert {case for case in truth if not case.startswith("_")} == cases
