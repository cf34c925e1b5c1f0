"""The report of `tracelink diff`: how much longer a step takes, the gates, and what the change is made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from tracelink._compile.diff import in_a_sentence, sections_of
from tracelink._compile.model import CompileDiff
from tracelink._model.fields import Shown
from tracelink._model.text import counted, percent, shortened, span
from tracelink._show.document import Block, Paragraph, Report, Section, Table, Tone
from tracelink._time.compare.model import Change, Comparison, Gate, GateState, Status

CAUSES = 15
"""Causes without -v."""
TONES = {
    Status.SLOWER.value: Tone.PROBLEM,
    Status.NEW.value: Tone.PROBLEM,
    Status.MORE.value: Tone.PROBLEM,
    Status.FASTER.value: Tone.GOOD,
    Status.GONE.value: Tone.GOOD,
    Status.FEWER.value: Tone.GOOD,
}
GATE_TONES = {GateState.FAILED: Tone.PROBLEM, GateState.NOT_DECIDED: Tone.WARNING}
CAUSES_IN_HEADLINE = 2
NOTABLE = 0.05
"""The share of the change from which on a second cause is in the headline."""
LONGEST = 60


def signed(ns: int) -> str:
    """`+1.200 ms`, `-0.030 ms`, `0.000 ms`."""
    text = span(abs(ns))
    if text == span(0):
        return text
    return f"{'+' if ns > 0 else '-'}{text}"


def unit(result: Comparison) -> str:
    """What is compared: `step`, or `recording` if the runs have no steps."""
    return "recording" if result.step.whole_recordings else "step"


def headline(result: Comparison) -> str:
    """How the step changed, whether that is noise, and the largest causes."""
    step = result.step
    percentage = percent(abs(step.delta_ns), step.before_ns) if step.before_ns else ""
    share = f" ({percentage})" if percentage not in ("", "0.0 %", "0 %") else ""
    takes = f"A {unit(result)} takes {span(step.after_ns)}"
    if not result.comparable:
        return f"The runs are not comparable. {takes} after, {span(step.before_ns)} before."
    if signed(step.delta_ns) == signed(0):
        return f"{takes}, as before."
    if step.within_variation:
        return (
            f"{takes}. The change of {signed(step.delta_ns)}{share} is not larger than the "
            f"variation between steps ({signed(step.low_ns or 0)} to {signed(step.high_ns or 0)})."
        )
    direction = 1 if step.delta_ns > 0 else -1
    causes = [
        cause for cause in result.causes if cause.delta_ns * direction > 0 and cause.status is not Status.SAME
    ]
    notable = [cause for cause in causes if abs(cause.delta_ns) >= NOTABLE * abs(step.delta_ns)]
    largest = " and ".join(
        f"{shortened(cause.what, LONGEST)} {signed(cause.delta_ns)}"
        for cause in (notable or causes[:1])[:CAUSES_IN_HEADLINE]
    )
    words = "longer" if direction > 0 else "shorter"
    reasons = f": mostly {largest}" if largest else ""
    return f"{takes}, {span(abs(step.delta_ns))}{share} {words} than before{reasons}."


STATES = {
    GateState.PASSED: "passed",
    GateState.FAILED: "failed",
    GateState.WITHIN_VARIATION: "passed, because the change is within the variation between steps",
    GateState.NOT_DECIDED: "not decided, because the runs are not comparable",
}


def gate_in_words(gate: Gate) -> str:
    """`gate step_time > +5%: failed, 10.0 ms before, 12.0 ms after (+2.0 ms, limit +0.5 ms)`."""
    return (
        f"gate {gate.gate}: {STATES[gate.state]}; {span(gate.before_ns)} before, {span(gate.after_ns)} after "
        f"({signed(gate.delta_ns)}, limit {signed(gate.limit_ns)})"
    )


class Part(Change, frozen=True):
    """A part of the step, or the step itself."""

    name: Annotated[str, Shown("part")]

    @classmethod
    def of(cls, name: str, change: Change) -> Part:
        """The row of a change."""
        return cls(name, before_ns=change.before_ns, after_ns=change.after_ns, delta_ns=change.delta_ns)


def report_of(result: Comparison) -> Report:
    """The document of a comparison: of steps, of compilations, or of both."""
    compiled = result.compile
    changes = sections_of(compiled) if compiled else []
    compiling = [_compiling(compiled)] if compiled else []
    if compiled and not result.step.before_steps:
        tone = Tone.PROBLEM if compiled.is_worse else Tone.GOOD
        return Report("diff", compiling[0].text, tone, sections=changes, findings=result.findings)
    return Report(
        "diff",
        headline(result),
        Tone.PROBLEM if result.failed else Tone.PLAIN,
        summary=[
            *(Paragraph(f"Not comparable: {reason}.", Tone.PROBLEM) for reason in result.why_not),
            *(Paragraph(gate_in_words(gate), GATE_TONES.get(gate.state, Tone.GOOD)) for gate in result.gates),
            *compiling,
        ],
        sections=[
            Section("Parts", [_parts(result)]),
            Section("Causes", list(_causes(result))),
            Section("Kernels of causes", [_kernels(result)], "kernels", verbose=True, titled=True),
            *changes,
        ],
        findings=result.findings,
    )


def _compiling(diff: CompileDiff) -> Paragraph:
    return Paragraph(in_a_sentence(diff), Tone.PROBLEM if diff.is_worse else Tone.GOOD)


SIDES = ("before_ns", "after_ns", "delta_ns")


def _parts(result: Comparison) -> Table:
    rows = [Part.of(part.part.value.replace("_", " "), part) for part in result.parts]
    return Table(
        [*rows, Part.of(unit(result), result.step)],
        f"Parts of the {unit(result)}",
        columns=("name", *SIDES),
        headings={"name": f"part of the {unit(result)}"},
        together=SIDES,
    )


def _causes(result: Comparison) -> Iterator[Block]:
    """The causes that are larger than the variation between steps, then the others."""
    rows = sorted(result.causes, key=lambda cause: cause.status is Status.SAME)
    noise = [cause for cause in rows if cause.status is Status.SAME]
    columns = (
        *("delta_ns", "what", "status", "before_ns", "after_ns"),
        *("before_count", "after_count", "part", "low_ns", "high_ns"),
    )
    yield Table(
        rows,
        "Causes, which add up to the change",
        columns=columns,
        together=(*SIDES, "low_ns", "high_ns"),
        brief=min(len(rows) - len(noise), CAUSES),
        thing="cause",
        tones=TONES,
    )
    if noise:
        rest = signed(sum(cause.delta_ns for cause in noise))
        yield Paragraph(
            f"{counted(len(noise), 'cause')} within the variation between steps: {rest} together.", Tone.ASIDE
        )


def _kernels(result: Comparison) -> Table:
    rows = [kernel for cause in result.causes if len(cause.kernels) > 1 for kernel in cause.kernels]
    columns = ("delta_ns", "what", "name", "before_ns", "after_ns", "before_count", "after_count")
    return Table(rows, columns=columns, headings={"what": "cause"}, together=SIDES)
