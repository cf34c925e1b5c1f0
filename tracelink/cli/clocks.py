"""Clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from tracelink import api
from tracelink.cli.console import Console
from tracelink.cli.documents import Document, findings_document
from tracelink.cli.inspect import moment
from tracelink.cli.options import Inputs, command, takes_clock, takes_inputs, takes_jobs
from tracelink.cli.terminal import (
    NOTHING,
    Page,
    complain_of_errors,
    exit_code,
    number,
    show_findings,
    watching,
)
from tracelink.model.clock import ClockMode
from tracelink.model.columns import MILLISECOND
from tracelink.model.graph import Rank
from tracelink.model.job import Job
from tracelink.ranges import Numbers

# Shared definitions


def clocks_document(job: Job) -> Document:
    """The result of `clocks`, which `--clock` takes as a file."""
    return {
        "reference_rank": reference_rank(job.ranks),
        "reference_ns": next((rank.clock_reference_ns for rank in job.ranks), None),
        "ranks": [_clock(rank) for rank in job.ranks],
        "findings": findings_document(job.findings),
    }


def reference_rank(ranks: Sequence[Rank]) -> int | None:
    """The first rank whose clock needs no correction."""
    return next((rank.rank for rank in ranks if not (rank.clock_offset_ns or rank.clock_drift_ppm)), None)


def _clock(rank: Rank) -> Document:
    return {
        "rank": rank.rank,
        "host": rank.host,
        "offset_ns": rank.clock_offset_ns,
        "drift_ppm": rank.clock_drift_ppm,
        "low_ns": rank.clock_low_ns,
        "high_ns": rank.clock_high_ns,
        "constraints": rank.clock_constraints,
    }


# What `clocks` shows: where each clock stands, and what that rests on.


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


# `tracelink clocks`.


@command(
    "tracelink clocks traces/",
    "tracelink clocks traces/ --clock collectives",
    "tracelink clocks traces/ --json > clocks.json && tracelink merge traces/ --clock clocks.json",
)
@takes_inputs
@takes_clock
@takes_jobs
def clocks(console: Console, inputs: Inputs, clock: str, jobs: int | None) -> None:
    """Say how far the clocks of ranks are apart.

    PATHS are files, directories, globs and archives; - is standard input. Nobody leaves an all-reduce before
    the last has entered it, and no message arrives before it is sent: that bounds how far clocks can be apart.
    """
    with watching(console, inputs.named) as watch:
        job = api.tables(**inputs.keywords(), clock=clock, jobs=jobs, watch=watch)
    if console.json:
        console.document(clocks_document(job))
    elif console.quiet:
        complain_of_errors(console, job.findings)
    else:
        console.info(clocks_page(job, clock, verbose=console.verbose))
    click.get_current_context().exit(exit_code(job.sources, job.findings))
