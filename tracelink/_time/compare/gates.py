"""Gates for CI: limits such as `step_time > +5%` for the changes between two runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from tracelink._model.errors import UsageError, did_you_mean
from tracelink._time.compare.model import (
    CauseChange,
    Change,
    Gate,
    GateState,
    PartChange,
    StepChange,
    UncertainChange,
)

STEP_TIME = "step_time"
FORM = re.compile(r"^\s*(?P<what>.+?)\s*>\s*\+?(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>%|ns|us|µs|ms|s)\s*$")
NANOSECONDS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
EXAMPLE = "'step_time > +5%', 'idle > +2ms' or 'aten::mm > +10%'"


class Limit(Struct, frozen=True):
    """A gate before anything was measured."""

    text: str
    what: str
    number: float
    unit: str

    @classmethod
    def parsed(cls, text: str) -> Limit:
        """The limit that a gate states; raises `UsageError` if it states none."""
        found = FORM.match(text)
        if found is None:
            raise UsageError(f"the gate {text!r} is invalid", advice=f"Write it as {EXAMPLE}.")
        return cls(text.strip(), found["what"], float(found["number"]), found["unit"])

    def of(self, before_ns: int) -> int:
        """The largest change that passes."""
        if self.unit == "%":
            return int(before_ns * self.number / 100)
        return int(self.number * NANOSECONDS[self.unit])


def gates_of(
    limits: Sequence[Limit],
    step: StepChange,
    parts: Sequence[PartChange],
    causes: Sequence[CauseChange],
    families: Mapping[str, Change],
    *,
    decided: bool,
) -> list[Gate]:
    """What became of each gate; raises `UsageError` if a gate is for something that neither run has.

    `families` are sums of causes by the beginning of their names.
    """
    measured: dict[str, Change] = {STEP_TIME: step, **{part.part.value: part for part in parts}}
    for cause in causes:
        measured.setdefault(cause.what, cause)
    measured = {**families, **measured}
    return [_gate(limit, measured, decided=decided) for limit in limits]


def _gate(limit: Limit, measured: Mapping[str, Change], *, decided: bool) -> Gate:
    found = measured.get(limit.what)
    if found is None:
        advice = did_you_mean(limit.what, measured) or f"There are {', '.join(list(measured)[:8])}."
        raise UsageError(
            f"the gate {limit.text!r} is for {limit.what!r}, which neither run has", advice=advice
        )
    most = limit.of(found.before_ns)
    change = found.after_ns - found.before_ns
    if not decided:
        state = GateState.NOT_DECIDED
    elif change <= most:
        state = GateState.PASSED
    elif isinstance(found, UncertainChange) and found.low_ns is not None and found.low_ns <= 0:
        state = GateState.WITHIN_VARIATION
    else:
        state = GateState.FAILED
    return Gate(
        limit.text,
        state,
        most,
        before_ns=found.before_ns,
        after_ns=found.after_ns,
        delta_ns=change,
    )
