"""The results of a comparison in sentences, and as Markdown for a comment on a pull request."""

from __future__ import annotations

from tracelink.answers.compare.model import Comparison, Gate, GateState, Status
from tracelink.answers.model.words import notes_in_markdown
from tracelink.model.text import shortened, span
from tracelink.show.markdown import markdown_escaped, markdown_table

GATES = (
    "Fail (exit code 1) if a change exceeds a limit and the variation between steps: 'step_time > +5%', 'idle > +2ms', "
    "'aten::mm > +10%'. Repeatable."
)
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
    interval = step.interval
    percentage = f"{abs(step.delta_ns) / step.before_ns:.1%}" if step.before_ns else ""
    share = f" ({percentage})" if percentage not in ("", "0.0%") else ""
    takes = f"A {unit(result)} takes {span(step.after_ns)}"
    if not result.comparable:
        return f"The runs are not comparable. {takes} after, {span(step.before_ns)} before."
    if signed(step.delta_ns) == signed(0):
        return f"{takes}, as before."
    if interval is not None and interval.low_ns <= 0 <= interval.high_ns:
        return (
            f"{takes}. The change of {signed(step.delta_ns)}{share} is not larger than the "
            f"variation between steps ({signed(interval.low_ns)} to {signed(interval.high_ns)})."
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
MARKS = {GateState.FAILED: "❌", GateState.NOT_DECIDED: "❔"}
"""Before gates in Markdown; others passed."""


def gate_in_words(gate: Gate) -> str:
    """`gate step_time > +5%: failed, 10.0 ms before, 12.0 ms after (+2.0 ms, limit +0.5 ms)`."""
    change = gate.after_ns - gate.before_ns
    return (
        f"gate {gate.gate}: {STATES[gate.state]}; {span(gate.before_ns)} before, {span(gate.after_ns)} after "
        f"({signed(change)}, limit {signed(gate.limit_ns)})"
    )


# As Markdown.


MOST_CAUSES = 20
LONGEST_NAME = 80


def markdown_of(result: Comparison) -> str:
    """The comparison as Markdown; names in it have no effect."""
    lines = [f"**{markdown_escaped(headline(result))}**", ""]
    lines += [f"- {markdown_escaped(reason)}." for reason in result.why_not]
    lines += [
        f"- {MARKS.get(gate.state, '✅')} {markdown_escaped(gate_in_words(gate))}" for gate in result.gates
    ]
    lines += [""] if len(lines) > 2 else []
    parts = [(part.part.value.replace("_", " "), part.before_ns, part.after_ns) for part in result.parts]
    parts.append((f"**{unit(result)}**", result.step.before_ns, result.step.after_ns))
    rows = [[name, span(before), span(after), signed(after - before)] for name, before, after in parts]
    lines += markdown_table(["part", "before", "after", "change"], rows)
    causes = [
        [
            markdown_escaped(shortened(cause.what, LONGEST_NAME)),
            cause.status.value,
            span(cause.before_ns),
            span(cause.after_ns),
            signed(cause.delta_ns),
        ]
        for cause in result.causes[:MOST_CAUSES]
    ]
    if hidden := result.causes[MOST_CAUSES:]:
        causes.append([f"{len(hidden)} more", "", "", "", signed(sum(cause.delta_ns for cause in hidden))])
    if causes:
        lines += ["", "<details><summary>Causes, which add up to the change</summary>", ""]
        lines += markdown_table(["cause", "status", "before", "after", "change"], causes)
        lines += ["", "</details>"]
    return "\n".join([*lines, *notes_in_markdown(result.notes)])
