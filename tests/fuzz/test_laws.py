"""The laws of every diagnosis, on a few simulated jobs; `python -m fuzz.laws` tries more."""

from __future__ import annotations

from random import Random

import pytest

from fuzz.laws import LAWS, broken, diagnosed
from fuzz.simulated_jobs import FAULTS, RUNNING, Case

CASES, MANY, SNAPSHOTS = 15, 300, 192
MENDED = [
    *("2/1/43", "2/1/46", "2/1/128", "2/2/57", "3/1/10", "3/1/40", "3/1/44", "3/1/53", "5/1/26", "5/1/42"),
    *("5/1/45", "5/1/103", "5/1/116", "6/1/46", "6/1/54", "6/1/98", "6/1/121"),
]
"""The smallest cases of each class that was found, as `--case` takes them."""
NOT_YET = ["1/3/297", "3/2/90", "3/2/123"]
"""Those that break a law: a send without a receive next to wrapped buffers; clocks and ranks that decide on names."""


def check(law: int, seed: str) -> None:
    case, message = broken(law, seed)
    assert not message, f"python -m fuzz.laws --case {case.seed}: {case}"


@pytest.mark.parametrize("law", LAWS)
def test_laws(law: int) -> None:
    for number in range(CASES):
        check(law, f"1/{number}")


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_laws_on_more_jobs(law: int) -> None:
    for number in range(MANY):
        if f"{law}/2/{number}" not in NOT_YET:
            check(law, f"2/{number}")


@pytest.mark.parametrize(
    "case", [*MENDED, *(pytest.param(case, marks=pytest.mark.xfail(strict=True)) for case in NOT_YET)]
)
def test_cases_that_once_broke_a_law(case: str) -> None:
    law, seed = case.split("/", 1)
    check(int(law), seed)


def test_no_snapshot_of_a_running_job_is_a_problem() -> None:
    for number in range(SNAPSHOTS):
        case = Case(f"snapshot {number}", [RUNNING], [4, 8])
        absent = Random(number).sample(sorted(case.moments), number % 2)
        assert diagnosed(case.dumps(absent)).verdict != "problem", f"snapshot {number}: {case}"


def test_simulated_jobs_depend_on_their_seed_only_and_have_all_faults() -> None:
    cases = [Case(number) for number in range(100)]
    assert [case.dumps() for case in cases[:5]] == [Case(number).dumps() for number in range(5)]
    assert {case.fault.kind for case in cases} == set(FAULTS)
    assert all(case.hung for case in cases if case.fault.kind in ("stuck", "dead", "device", "skip", "size"))
    assert not any(case.hung for case in cases if case.fault.kind in (RUNNING, "slow", "dtype"))
