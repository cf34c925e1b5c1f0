"""Extra calls: what is said of calls that only some ranks made."""

from __future__ import annotations

from tracelink._hang.model import Category
from tracelink._hang.verdicts.mismatches import ExtraCall
from tracelink._model.trace import ProcessGroup


def made(number: int) -> ExtraCall:
    group = ProcessGroup("0", "tp")
    return ExtraCall.of_call(
        group, 31, "gloo:all_gather", culprits=(0,), waiting=(1, 2, 3), number=number, other=1
    )


def test_several_calls() -> None:
    problem = made(3).settled()
    assert (problem.message, problem.advice, problem.category) == (
        "Rank 0 made 3 calls that rank 1 did not make: all_gather #31 of group 0 (tp) and the 2 calls after it; "
        "3 ranks wait.",
        "Look for the branch or the loop that only rank 0 takes, or make the call on all ranks.",
        Category.CODE_PATH,
    )


def test_one_call() -> None:
    assert made(1).claim() == "Rank 0 made a call that rank 1 did not make: all_gather #31 of group 0 (tp)"
