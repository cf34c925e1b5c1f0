"""What profiles show under a problem: the operators and kernels of a call, and what a rank did instead of the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracelink.analysis.advice import place_of
from tracelink.analysis.wording import duration, group_in_words
from tracelink.cli.page import Page
from tracelink.diagnosis import CallSeen, Problem, Sighting, Stretch

MOST_AROUND = 4
MOST_RUNNING = 3
LONGEST = 60
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
    if sighting.end_ns is None:
        return f"In the execution trace of rank {sighting.rank}:"
    return f"In the profile of rank {sighting.rank}:"


def _rows(sighting: Sighting, problem: Problem, *, verbose: bool) -> Iterator[tuple[str, str]]:
    call = sighting.call
    if sighting.note:
        yield "note", sighting.note
    if call:
        yield _which(call), _chain([*call.around, call.operator], MOST_AROUND, verbose=verbose)
        yield "thread", call.thread
        if call.frames and (verbose or not _has_stack(problem, sighting.rank)):
            yield (
                "inside",
                ", ".join(f"{frame.name} ({place_of(frame)})" for frame in call.frames[:MOST_FRAMES]),
            )
        if work := _work(call):
            yield "carried out by", work
        if call.node is not None:
            yield "node", f"{call.node} of the execution trace"
    for stretch in sighting.stretches:
        yield f"{duration(stretch.duration_ns)} after it", _stretch(stretch, verbose=verbose)
    if sighting.later:
        yield "then", _later(sighting.later)


def _has_stack(problem: Problem, rank: int) -> bool:
    """Whether the recorder has told it already."""
    return any(one.rank == rank and one.entries[-1].frames for one in problem.evidence)


def _which(call: CallSeen) -> str:
    number = "" if call.sequence is None else f" #{call.sequence}"
    if call.before == 0:
        return f"{call.operation}{number}"
    earlier = f", {call.before} before" if call.before else ", an earlier one"
    return f"{call.operation}{number}{earlier}"


def _chain(names: Sequence[str], most: int, *, verbose: bool) -> str:
    """The innermost last."""
    shown = names if verbose else names[-most:]
    cut = ["…"] if len(shown) < len(names) else []
    return ARROW.join([*cut, *(_cut(name) for name in shown)])


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _work(call: CallSeen) -> str:
    if call.work:
        length = "no end" if call.work.duration_ns is None else duration(call.work.duration_ns)
        return f"{_cut(call.work.name)} on {call.work.where}, {length}"
    if call.launched is None:
        return ""
    return (
        "a kernel that did not end in the profile" if call.launched else "nothing: it never launched a kernel"
    )


def _stretch(stretch: Stretch, *, verbose: bool) -> str:
    names = _chain([one.name for one in stretch.running], MOST_RUNNING, verbose=verbose)
    return f"{names} for {duration(stretch.running[-1].duration_ns)}, on {stretch.where}"


def _later(call: CallSeen) -> str:
    """What the dump does not hold was called after it was written."""
    number = "" if call.sequence is None else f" #{call.sequence}"
    group = f" of {group_in_words(call.group, '')}" if call.group else ""
    return f"{call.operation}{number}{group}, after the dump was written"
