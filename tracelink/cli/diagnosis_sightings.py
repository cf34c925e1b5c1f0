"""What profiles show under a problem: the operators and kernels of a call, and what a rank did instead of the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracelink.analysis.advice import place_of
from tracelink.analysis.profile_names import called
from tracelink.analysis.wording import duration
from tracelink.cli.page import Page
from tracelink.diagnosis import CallSeen, Problem, Sighting, Stretch

MOST_AROUND = 4
MOST_RUNNING = 3
LONGEST = 72
"""Letters of a name."""
MOST_FRAMES = 4
ARROW = " > "


def show_sightings(page: Page, problem: Problem, *, verbose: bool) -> None:
    """Rank by rank, in the order of the evidence."""
    for one in problem.sightings:
        page.gap()
        page.line(_heading(one), "bold")
        page.beneath(list(_rows(one, problem, verbose=verbose)))


def _heading(sighting: Sighting) -> str:
    what = "profile" if sighting.end_ns is not None else "execution trace"
    note = f" ({sighting.note})" if sighting.note else ""
    return f"In the {what} of rank {sighting.rank}{note}:"


def _rows(sighting: Sighting, problem: Problem, *, verbose: bool) -> Iterator[tuple[str, str]]:
    call = sighting.call
    if call:
        operators = _chain([*call.around, call.operator], MOST_AROUND, verbose=verbose)
        yield _which(call), f"{operators}, on {call.thread}"
        if call.frames and (verbose or not _has_stack(problem, sighting.rank)):
            yield "in", ", ".join(f"{frame.name} ({place_of(frame)})" for frame in call.frames[:MOST_FRAMES])
        if work := _work(call):
            yield "carried out by", work
        if call.node is not None:
            yield "node", f"{call.node} of the execution trace"
    for stretch in sighting.stretches:
        yield "then", _stretch(stretch, verbose=verbose)
    if sighting.later:
        yield "then", f"{_which(sighting.later)}: the profile goes on after the dump was written"


def _has_stack(problem: Problem, rank: int) -> bool:
    """Whether the recorder has told it already."""
    return any(one.rank == rank and one.entries[-1].frames for one in problem.evidence)


def _which(call: CallSeen) -> str:
    number = "" if call.sequence is None else f" #{call.sequence}"
    return f"{call.operation}{number}{f', {call.before} before' if call.before else ''}"


def _chain(names: Sequence[str], most: int, *, verbose: bool) -> str:
    """The innermost last."""
    shown = names if verbose else names[-most:]
    cut = ["…"] if len(shown) < len(names) else []
    return ARROW.join([*cut, *(_cut(called(name)) for name in shown)])


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _work(call: CallSeen) -> str:
    if call.work:
        length = "no end" if call.work.duration_ns is None else duration(call.work.duration_ns)
        return f"{_cut(call.work.name)} on {call.work.where}, {length}"
    if call.launched is None:
        return ""
    return (
        "a kernel that did not end before the profile" if call.launched else "nothing: it launched no kernel"
    )


def _stretch(stretch: Stretch, *, verbose: bool) -> str:
    names = _chain([one.name for one in stretch.running], MOST_RUNNING, verbose=verbose)
    part, whole = duration(stretch.running[-1].duration_ns), duration(stretch.duration_ns)
    for_ = f"for {whole}" if part == whole else f"for {part} of {whole}"
    return f"{for_} {names}, on {stretch.where}"
