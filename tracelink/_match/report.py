"""The report of `tracelink clocks`: the clock of each rank, and how it was estimated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec.structs import asdict, replace

from tracelink._model.clock import Clock, ClockMode, Clocks
from tracelink._model.columns import MILLISECOND
from tracelink._model.fields import Ranks, Shown
from tracelink._model.selection import Numbers
from tracelink._model.text import counted, date_and_time
from tracelink._show.document import Paragraph, Report, Section, Table, Tone


class SharedClock(Clock, frozen=True):
    """A clock that ranks have in common."""

    ranks: Annotated[Ranks, Shown("rank")] = ()


COLUMNS = ("ranks", "host", "offset_ns", "drift_ppm", "low_ns", "high_ns", "constraints")


def report_of(clocks: Clocks) -> Report:
    """The document of the clocks."""
    return Report(
        "clocks",
        _headline(clocks),
        Tone.PLAIN,
        sections=[Section("Clocks", [table_of(clocks.ranks)]), Section("Basis", list(_basis(clocks)))],
        findings=clocks.findings,
    )


def table_of(clocks: Sequence[Clock]) -> Table:
    """The offsets of clocks; ranks with equal clocks share a row."""
    ranks_of: dict[Clock, list[int]] = {}
    for clock in clocks:
        ranks_of.setdefault(replace(clock, rank=0), []).append(clock.rank)
    return Table(
        [SharedClock(**asdict(clock), ranks=ranks) for clock, ranks in ranks_of.items()],
        "Offsets from the reference clock",
        columns=COLUMNS,
        together=("offset_ns", "low_ns", "high_ns"),
    )


def _headline(clocks: Clocks) -> str:
    offsets = [clock.offset_ns for clock in clocks.ranks]
    if not any(offsets):
        return f"The clocks of {counted(len(offsets), 'rank')} have no offsets."
    low, high = (f"{bound / MILLISECOND:,.3f} ms" for bound in (min(offsets), max(offsets)))
    return f"The clocks of {counted(len(offsets), 'rank')} have offsets from {low} to {high}."


def _basis(clocks: Clocks) -> Iterator[Paragraph]:
    """The way in which the offsets were estimated, and what they do not show."""
    if clocks.mode == ClockMode.NONE:
        yield Paragraph(
            "Clocks are not corrected (--clock none). To correct them, use --clock host or --clock collectives."
        )
    elif clocks.mode not in tuple(ClockMode):
        yield Paragraph(f"Offsets are taken from {clocks.mode}.")
    else:
        yield from _comparison(clocks)


def _comparison(measured: Clocks) -> Iterator[Paragraph]:
    clocks = measured.ranks
    different = {(clock.offset_ns, clock.low_ns, clock.high_ns, clock.host) for clock in clocks}
    if len(clocks) == 1:
        yield Paragraph("Only one rank was read: name the traces of all ranks to compare their clocks.")
        return
    if len(different) == 1 and clocks[0].low_ns is not None:
        yield Paragraph(
            "All ranks share one clock, so there are no offsets. "
            "To estimate a clock for each rank, use --clock collectives."
        )
        return
    if measured.reference_rank is not None:
        reference_ns = measured.reference_ns
        at = f", at {date_and_time(reference_ns, digits=3)} UTC" if reference_ns else ""
        yield Paragraph(f"Offsets are relative to the clock of rank {measured.reference_rank}{at}.")
    if all(map(_may_be_zero, clocks)) and any(clock.low_ns or clock.high_ns for clock in clocks):
        yield Paragraph("No offset is significant: the range of every rank contains 0.")
    if any(clock.constraints for clock in clocks):
        yield Paragraph(
            "Estimated from causality: no rank leaves a collective before the last one enters; "
            "no message arrives before it is sent."
        )
    if unbounded := Numbers.of(c.rank for c in clocks if c.low_ns is None or c.high_ns is None):
        yield Paragraph(
            f"The clock offset of {unbounded.called('rank')} is unbounded: too few collectives and messages "
            "are matched with other ranks. Record the same steps on all ranks, with flight-recorder dumps, or give "
            "known offsets with --clock FILE.",
            Tone.WARNING,
        )


def _may_be_zero(clock: Clock) -> bool:
    return (clock.low_ns is None or clock.low_ns <= 0) and (clock.high_ns is None or clock.high_ns >= 0)
