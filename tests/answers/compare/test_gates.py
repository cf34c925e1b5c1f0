"""Tests of tracelink.answers.compare.gates."""

from __future__ import annotations

import pytest

from tracelink.answers.compare.gates import Limit, gates_of
from tracelink.answers.compare.model import (
    CauseChange,
    Gate,
    GateState,
    Interval,
    PartChange,
    Status,
    StepChange,
)
from tracelink.answers.rank.costs import StepPart
from tracelink.model.errors import UsageError

PASSED, FAILED, WITHIN = GateState.PASSED, GateState.FAILED, GateState.WITHIN_VARIATION
STEP = StepChange(1_000_000, 1_100_000, 100_000, 5, 5, Interval(40_000, 160_000))
PARTS = [PartChange(StepPart.IDLE, 200_000, 210_000, 10_000)]
CAUSES = [
    CauseChange(
        "aten::mm", StepPart.COMPUTE, Status.SAME, 50_000, 100_000, 150_000, 4.0, 4.0, Interval(-10, 100_010)
    )
]


def gate(text: str) -> Gate:
    (found,) = gates_of([Limit.parsed(text)], STEP, PARTS, CAUSES, {}, decided=True)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("step_time > +5%", Gate("step_time > +5%", FAILED, 1_000_000, 1_100_000, 50_000)),
        ("step_time>10%", Gate("step_time>10%", PASSED, 1_000_000, 1_100_000, 100_000)),
        ("step_time > +0.05 ms", Gate("step_time > +0.05 ms", FAILED, 1_000_000, 1_100_000, 50_000)),
        ("idle > 9.9us", Gate("idle > 9.9us", FAILED, 200_000, 210_000, 9_900)),
        ("idle > 10us", Gate("idle > 10us", PASSED, 200_000, 210_000, 10_000)),
        ("aten::mm > +10%", Gate("aten::mm > +10%", WITHIN, 100_000, 150_000, 10_000)),
    ],
)
def test_gates(text: str, expected: Gate) -> None:
    assert gate(text) == expected


@pytest.mark.parametrize(
    "text", ["", "step_time", "step_time > 5", "step_time < 5%", "> 5%", "step_time > 5 min"]
)
def test_invalid_gates_say_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match="is invalid") as raised:
        Limit.parsed(text)
    assert "step_time > +5%" in raised.value.advice


def test_gate_for_something_unknown_suggests_a_name() -> None:
    with pytest.raises(UsageError, match="which neither run has") as raised:
        gate("step_tme > 5%")
    assert raised.value.advice == "Did you mean step_time?"
