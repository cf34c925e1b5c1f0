"""Who came late to collectives: one who stands out, or everybody."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.analysis.wording import SECOND, duration, group_in_words
from tracelink.cli.page import Page, counted, number
from tracelink.diagnosis import Lateness

HEADER = ("rank", "last in", "of", "others waited", "at most", "in")
STANDS_OUT = 4
"""So many times as long as for anybody else others have waited for one who stands out."""


def show_lateness(page: Page, lateness: Sequence[Lateness], *, verbose: bool) -> None:
    """Nothing where all come late alike, unless everything is asked for."""
    if lateness and verbose:
        page.gap()
        page.line("Who came last, and how long the others waited for it, all together:", "bold")
        page.table(HEADER, [_row(one) for one in lateness], numbers=HEADER[:-1])
    elif lateness and _stands_out(lateness):
        first = lateness[0]
        page.line(
            f"Latest: rank {first.rank} came last to {number(first.collectives)} of "
            f"{counted(first.of, 'collective')}; the others waited {duration(first.total_ns)} for it, all together, "
            f"at most {duration(first.worst_ns)} ({_place(first)})."
        )


def _stands_out(lateness: Sequence[Lateness]) -> bool:
    first, *others = lateness
    return first.total_ns >= SECOND and all(first.total_ns >= STANDS_OUT * one.total_ns for one in others[:1])


def _row(one: Lateness) -> tuple[str, ...]:
    return (
        str(one.rank),
        number(one.collectives),
        number(one.of),
        duration(one.total_ns),
        duration(one.worst_ns),
        _place(one),
    )


def _place(one: Lateness) -> str:
    return f"#{one.sequence} of {group_in_words(one.group, '')}"
