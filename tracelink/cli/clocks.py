"""Clocks."""

from __future__ import annotations

from dataclasses import replace

import click

from tracelink import api
from tracelink.cli.console import Console
from tracelink.cli.documents import Document, findings_document
from tracelink.cli.options import Inputs, command, takes_clock, takes_inputs, takes_jobs
from tracelink.cli.terminal import NOTHING, Page, exit_code, print_errors, show_findings, watching
from tracelink.model.clock import Clock, ClockMode, Clocks
from tracelink.model.columns import MILLISECOND
from tracelink.ranges import Numbers
from tracelink.text import date_and_time, number

# Shared definitions


def clocks_document(measured: Clocks) -> Document:
    """The result of `clocks`, which `--clock` takes as a file."""
    return {
        "reference_rank": reference_rank(measured),
        "reference_ns": next((clock.reference_ns for clock in measured.clocks.values()), None),
        "ranks": [_clock(clock) for clock in measured.clocks.values()],
        "findings": findings_document(measured.findings),
    }


def reference_rank(measured: Clocks) -> int | None:
    """The first rank whose clock needs no correction."""
    return next((c.rank for c in measured.clocks.values() if not (c.offset_ns or c.drift_ppm)), None)


def _clock(clock: Clock) -> Document:
    return {
        "rank": clock.rank,
        "host": clock.host,
        "offset_ns": clock.offset_ns,
        "drift_ppm": clock.drift_ppm,
        "low_ns": clock.low_ns,
        "high_ns": clock.high_ns,
        "constraints": clock.constraints,
    }


# What `clocks` shows: where each clock stands, and what that rests on.


HEADER = ("rank", "host", "offset", "drift", "lies between", "constraints")
NUMBERS = ("offset", "drift", "lies between", "constraints")


def clocks_page(measured: Clocks, mode: str, *, verbose: bool) -> str:
    """The page; ranks with equal clocks share a row."""
    page = Page()
    ranks_of: dict[Clock, list[int]] = {}
    for clock in measured.clocks.values():
        ranks_of.setdefault(replace(clock, rank=0), []).append(clock.rank)
    rows = [_cells(Numbers.of(ranks), clock) for clock, ranks in ranks_of.items()]
    page.table(HEADER, rows, numbers=NUMBERS, optional=("constraints", "host"))
    _show_basis(page, measured, mode)
    show_findings(page, measured.findings, verbose=verbose)
    return page.text


def _cells(ranks: Numbers, clock: Clock) -> list[str]:
    return [
        str(ranks),
        clock.host or NOTHING,
        signed(clock.offset_ns),
        f"{clock.drift_ppm:+.2f} ppm" if clock.drift_ppm else "0 ppm",
        _between(clock.low_ns, clock.high_ns),
        number(clock.constraints),
    ]


def _between(low: int | None, high: int | None) -> str:
    if low is None and high is None:
        return NOTHING
    if low is None or high is None:
        return f"≥ {signed(low)}" if low is not None else f"≤ {signed(high or 0)}"
    return f"{signed(low)} … {signed(high)}"


def _show_basis(page: Page, measured: Clocks, mode: str) -> None:
    if mode == ClockMode.NONE:
        page.line("nothing is corrected; --clock host and --clock collectives would")
    elif mode not in tuple(ClockMode):
        page.line(f"as {mode} says")
    else:
        _show_comparison(page, measured)


def _show_comparison(page: Page, measured: Clocks) -> None:
    clocks = list(measured.clocks.values())
    reference = reference_rank(measured)
    different = {(clock.offset_ns, clock.low_ns, clock.high_ns, clock.host) for clock in clocks}
    if len(different) == 1 and clocks[0].low_ns is not None:
        page.line("all ranks share one clock: there is nothing to compare; --clock collectives would")
        return
    if reference is not None:
        at = date_and_time(clocks[0].reference_ns, digits=3)
        page.line(f"offsets are to the clock of rank {reference}, at {at} UTC; its own needs no correction")
    if any(clock.constraints for clock in clocks):
        page.line(
            "they rest on this: nobody leaves before the last has entered, nothing arrives before it is sent"
        )
    loose = Numbers.of(clock.rank for clock in clocks if clock.low_ns is None or clock.high_ns is None)
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
        measured = api.clocks(**inputs.keywords(), clock=clock, jobs=jobs, watch=watch)
    if console.json:
        console.document(clocks_document(measured))
    elif console.quiet:
        print_errors(console, measured.findings)
    else:
        console.info(clocks_page(measured, clock, verbose=console.verbose))
    click.get_current_context().exit(exit_code(measured.sources, measured.findings))
