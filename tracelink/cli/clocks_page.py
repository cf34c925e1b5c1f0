"""What `clocks` shows: where each clock stands, and what that rests on."""

from __future__ import annotations

from dataclasses import replace

from tracelink.cli.documents import reference_rank
from tracelink.cli.found import show_findings
from tracelink.cli.listing import MILLISECOND, moment
from tracelink.cli.page import NOTHING, Page, number
from tracelink.clock import ClockMode
from tracelink.graph import Rank
from tracelink.job import Job
from tracelink.ranges import Numbers

HEADER = ("rank", "host", "offset", "drift", "lies between", "constraints")
NUMBERS = ("offset", "drift", "lies between", "constraints")


def clocks_page(job: Job, clock: str, *, verbose: bool) -> str:
    """The page; ranks whose clocks are told alike share a row."""
    page = Page()
    alike: dict[Rank, list[int]] = {}
    for rank in job.ranks:
        alike.setdefault(replace(rank, rank=0, world_size=None), []).append(rank.rank)
    rows = [_cells(Numbers.of(ranks), clock_of) for clock_of, ranks in alike.items()]
    page.table(HEADER, rows, numbers=NUMBERS, optional=("constraints", "host"))
    _say_what_it_rests_on(page, job, clock)
    show_findings(page, job.findings, verbose=verbose)
    return page.text


def _cells(ranks: Numbers, clock: Rank) -> list[str]:
    return [
        str(ranks),
        clock.host or NOTHING,
        signed(clock.clock_offset_ns),
        f"{clock.clock_drift_ppm:+.2f} ppm" if clock.clock_drift_ppm else "0 ppm",
        _between(clock.clock_low_ns, clock.clock_high_ns),
        number(clock.clock_constraints),
    ]


def _between(low: int | None, high: int | None) -> str:
    if low is None and high is None:
        return NOTHING
    if low is None or high is None:
        return f"≥ {signed(low)}" if low is not None else f"≤ {signed(high or 0)}"
    return f"{signed(low)} … {signed(high)}"


def _say_what_it_rests_on(page: Page, job: Job, clock: str) -> None:
    if clock == ClockMode.NONE:
        page.line("nothing is corrected; --clock host and --clock collectives would")
    elif clock not in tuple(ClockMode):
        page.line(f"as {clock} says")
    else:
        _say_what_was_compared(page, job)


def _say_what_was_compared(page: Page, job: Job) -> None:
    reference = reference_rank(job.ranks)
    alike = {(rank.clock_offset_ns, rank.clock_low_ns, rank.clock_high_ns, rank.host) for rank in job.ranks}
    if len(alike) == 1 and job.ranks[0].clock_low_ns is not None:
        page.line("all ranks share one clock: there is nothing to compare; --clock collectives would")
        return
    if reference is not None:
        at = moment(job.ranks[0].clock_reference_ns)
        page.line(f"offsets are to the clock of rank {reference}, at {at} UTC; its own needs no correction")
    if any(rank.clock_constraints for rank in job.ranks):
        page.line(
            "they rest on this: nobody leaves before the last has entered, nothing arrives before it is sent"
        )
    loose = Numbers.of(
        rank.rank for rank in job.ranks if rank.clock_low_ns is None or rank.clock_high_ns is None
    )
    if loose:
        page.line(
            f"nothing bounds the clock of {loose.called('rank')}: too little is matched with what other ranks did. "
            "Record the same steps on all ranks, with flight-recorder dumps, or say what is known with --clock FILE.",
            "yellow",
        )


def signed(ns: int) -> str:
    """+1.234 ms, -0.012 ms, 0 ms."""
    return f"{ns / MILLISECOND:+,.3f} ms" if ns else "0 ms"
