"""Tests of tracelink._time.compare.gates."""

from __future__ import annotations

import pytest

from tracelink._model.errors import UsageError
from tracelink._time.compare.gates import Limit, gates_of
from tracelink._time.compare.model import (
    CauseChange,
    Gate,
    GateState,
    PartChange,
    Status,
    StepChange,
)
from tracelink._time.rank.costs import StepPart

PASSED, FAILED, WITHIN = GateState.PASSED, GateState.FAILED, GateState.WITHIN_VARIATION
STEP = StepChange(
    5, 5, before_ns=1_000_000, after_ns=1_100_000, delta_ns=100_000, low_ns=40_000, high_ns=160_000
)
PARTS = [PartChange(StepPart.IDLE, before_ns=200_000, after_ns=210_000, delta_ns=10_000)]
CAUSES = [
    CauseChange(
        "aten::mm",
        StepPart.COMPUTE,
        Status.SAME,
        4.0,
        4.0,
        before_ns=100_000,
        after_ns=150_000,
        delta_ns=50_000,
        low_ns=-10,
        high_ns=100_010,
    )
]


def decided(text: str, state: GateState, before_ns: int, after_ns: int, limit_ns: int) -> Gate:
    delta_ns = after_ns - before_ns
    return Gate(text, state, limit_ns, before_ns=before_ns, after_ns=after_ns, delta_ns=delta_ns)


def gate(text: str) -> Gate:
    (found,) = gates_of([Limit.parsed(text)], STEP, PARTS, CAUSES, {}, decided=True)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("step_time > +5%", decided("step_time > +5%", FAILED, 1_000_000, 1_100_000, 50_000)),
        ("step_time>10%", decided("step_time>10%", PASSED, 1_000_000, 1_100_000, 100_000)),
        ("step_time > +0.05 ms", decided("step_time > +0.05 ms", FAILED, 1_000_000, 1_100_000, 50_000)),
        ("idle > 9.9us", decided("idle > 9.9us", FAILED, 200_000, 210_000, 9_900)),
        ("idle > 10us", decided("idle > 10us", PASSED, 200_000, 210_000, 10_000)),
        ("aten::mm > +10%", decided("aten::mm > +10%", WITHIN, 100_000, 150_000, 10_000)),
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
