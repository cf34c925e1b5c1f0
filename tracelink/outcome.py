"""What a selection came to: how much it leaves out, and what there is where it asks for what is not there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracelink.errors import UsageError
from tracelink.findings import Finding, Severity
from tracelink.graph import EventGraph
from tracelink.ranges import Numbers
from tracelink.selection import Selection
from tracelink.steps import steps_of

SECOND = 10**9


@dataclass(frozen=True, slots=True)
class Stock:
    """What a selection found on one rank, and how much of it is left."""

    rank: int
    events: int = 0
    kept: int = 0
    kept_samples: int = 0
    steps: Numbers = Numbers()  # noqa: RUF009  it is frozen
    first_ns: int | None = None
    last_ns: int | None = None
    """When its first event began and its last ended; None where no event has a time."""

    @classmethod
    def of(cls, rank: int, whole: EventGraph, kept: EventGraph) -> Stock:
        """Of the graph of one rank, and of what was selected of it."""
        timed = whole.events.take(whole.events.timed)
        return cls(
            rank,
            len(whole),
            len(kept),
            len(kept.counters),
            steps_of(whole).numbers,
            int(timed.start.min()) if len(timed) else None,
            int(timed.end.max()) if len(timed) else None,
        )


def outcome(selection: Selection, stocks: Sequence[Stock], origin_ns: int | None) -> list[Finding]:
    """What is to be said of a cut of a job that begins at `origin_ns`; one that leaves nothing is refused."""
    empty = [stock for stock in stocks if not (stock.kept or stock.kept_samples)]
    if len(empty) == len(stocks):
        raise UsageError("nothing is selected", advice=f"There is: {_supply(stocks, origin_ns)}.")
    findings = _absent_steps(selection, stocks)
    if empty:
        message = f"Nothing is selected on {_supply(empty, origin_ns)}."
        findings.append(Finding(Severity.WARNING, "nothing_selected", message, len(empty)))
    events, kept = sum(stock.events for stock in stocks), sum(stock.kept for stock in stocks)
    if events > kept:
        message = f"{events - kept:,} of {events:,} events are outside the selection."
        findings.append(Finding(Severity.INFO, "left_out", message, events - kept))
    return findings


def _absent_steps(selection: Selection, stocks: Sequence[Stock]) -> list[Finding]:
    there = _steps(stocks)
    absent = selection.steps.without(there) if selection.steps else None
    if not absent:
        return []
    message = f"No rank has {absent.called('step')}; there are {there.called('step')}."
    return [Finding(Severity.WARNING, "no_such_step", message)]


def _supply(stocks: Sequence[Stock], origin_ns: int | None) -> str:
    """Ranks 0-3 with steps 4-6, from 0.000000s to 2.500000s."""
    ranks, steps = Numbers.of(stock.rank for stock in stocks), _steps(stocks)
    marked = steps.called("step") if steps else "no annotation of a step"
    begun = [stock.first_ns for stock in stocks if stock.first_ns is not None]
    ended = [stock.last_ns for stock in stocks if stock.last_ns is not None]
    if origin_ns is None or not begun:
        return f"{ranks.called('rank')} with {marked} and no times"
    first, last = (min(begun) - origin_ns) / SECOND, (max(ended) - origin_ns) / SECOND
    return f"{ranks.called('rank')} with {marked}, from {first:.6f}s to {last:.6f}s"


def _steps(stocks: Sequence[Stock]) -> Numbers:
    return Numbers.of(number for stock in stocks for number in stock.steps)
