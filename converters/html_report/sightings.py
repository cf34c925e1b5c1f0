"""What profiles show under a problem: the operators, stack and kernel of a call, and what came after it."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.analysis.profile_names import called
from tracelink.analysis.wording import duration
from tracelink.converters.html_report.evidence import ROLES
from tracelink.converters.html_report.markup import Child, Markup, clipped, element
from tracelink.converters.html_report.texts import numbered, time_of_day
from tracelink.diagnosis import CallSeen, Sighting, Stretch

MOST_RANKS = 8
MOST_NAMES = 40
LONGEST_NAME = 200
"""Characters of the name of an operator, a function or a kernel."""


def sightings_section(sightings: Sequence[Sighting]) -> Child:
    """The profiles of each rank."""
    return [_of_rank(one) for one in sightings[:MOST_RANKS]]


def _of_rank(sighting: Sighting) -> Child:
    what = "profile" if sighting.end_ns is not None else "execution trace"
    role = element("small", f"({ROLES[sighting.role]})")
    heading = element("h3", f"In the {what} of rank {sighting.rank} ", role)
    note = element("p", f"Note: {sighting.note}.", class_="aside") if sighting.note else None
    facts = [*(_facts(sighting.call) if sighting.call else []), *map(_stretch, sighting.stretches)]
    if sighting.later:
        what = numbered(sighting.later.operation, sighting.later.sequence)
        text = f"{what}: the profile goes on after the dump was written"
        facts.append(("Then", text))
    if sighting.end_ns is not None:
        facts.append(("It ends at", f"{time_of_day(sighting.end_ns)} UTC"))
    told = [(element("dt", name), element("dd", text)) for name, text in facts]
    return [heading, note, element("dl", told)]


def _facts(call: CallSeen) -> list[tuple[str, Child]]:
    before = f" ({call.before} before this one)" if call.before else ""
    facts: list[tuple[str, Child]] = [
        ("Call", f"{numbered(call.operation, call.sequence)}{before}"),
        ("Operators", [_chain([*call.around, call.operator]), f" on {_name(call.thread)}"]),
    ]
    if call.frames:
        names = [f"{frame.name} ({frame.filename}:{frame.line})" for frame in reversed(call.frames)]
        facts.append(("Functions", _chain(names)))
    if call.work:
        length = "no end" if call.work.duration_ns is None else duration(call.work.duration_ns)
        facts.append(("Carried out by", f"{_name(call.work.name)} on {_name(call.work.where)}, {length}"))
    elif call.launched is not None:
        ends = "a kernel that did not end before the profile"
        facts.append(("Carried out by", ends if call.launched else "nothing: it launched no kernel"))
    if call.node is not None:
        facts.append(("Node", f"{call.node} of the execution trace"))
    return facts


def _stretch(stretch: Stretch) -> tuple[str, Child]:
    part, whole = duration(stretch.running[-1].duration_ns), duration(stretch.duration_ns)
    time = f"for {whole} " if part == whole else f"for {part} of {whole} "
    return "Then", [
        time,
        _chain([called(one.name) for one in stretch.running]),
        f" on {_name(stretch.where)}",
    ]


def _chain(names: Sequence[str]) -> Markup:
    """The innermost last."""
    return element("code", " \N{RIGHTWARDS ARROW} ".join(_name(name) for name in names[-MOST_NAMES:]))


def _name(name: str) -> str:
    return clipped(called(name), LONGEST_NAME)
