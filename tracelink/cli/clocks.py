"""`tracelink clocks`: the offset and drift of each rank's clock, and their uncertainty."""

from __future__ import annotations

import click
from msgspec.structs import replace

import tracelink.api as api
from tracelink.cli.console import Console
from tracelink.cli.documents import results
from tracelink.cli.options import Inputs, command, takes_clock, takes_engine, takes_inputs
from tracelink.cli.terminal import EMPTY, Page, exit_code, print_errors, show_findings, watching
from tracelink.io.engine import Engine
from tracelink.model.clock import Clock, ClockMode, Clocks
from tracelink.model.columns import MILLISECOND
from tracelink.model.ranges import Numbers
from tracelink.model.text import date_and_time, number


@command(
    "tracelink clocks samples/gpu_pair",
    "tracelink clocks samples/cpu_job --clock collectives",
    "tracelink clocks samples/gpu_pair --json > clocks.json",
    "tracelink merge samples/gpu_pair --clock clocks.json",
)
@takes_inputs
@takes_clock
@takes_engine
def clocks(console: Console, inputs: Inputs, clock: str, engine: Engine) -> None:
    """Show the clock offset of each rank.

    Offsets are estimated from causality: no rank leaves a collective before the last one enters, and no message arrives
    before it is sent. The uncertainty of an offset follows from the same bounds.

    PATHS are files, directories, globs and archives, here or in stores such as s3://; - is standard input.
    """
    with watching(console, inputs.named) as watch:
        measured = api.clocks(**inputs.keywords(), clock=clock, engine=engine, watch=watch)
    if console.json:
        console.document(clocks_document(measured))
    elif console.quiet:
        print_errors(console, measured.findings)
    else:
        console.info(clocks_page(measured, clock, verbose=console.verbose))
    click.get_current_context().exit(exit_code(measured.sources, measured.findings))


# The page: a table of the clocks, and how they were estimated.


HEADER = ("rank", "host", "offset", "drift", "offset range", "constraints")
NUMBERS = ("offset", "drift", "offset range", "constraints")


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
        clock.host or EMPTY,
        _signed(clock.offset_ns),
        f"{clock.drift_ppm:+.2f} ppm" if clock.drift_ppm else "0 ppm",
        _between(clock.low_ns, clock.high_ns),
        number(clock.constraints),
    ]


def _between(low: int | None, high: int | None) -> str:
    if low is None and high is None:
        return EMPTY
    if low is None or high is None:
        return f"≥ {_signed(low)}" if low is not None else f"≤ {_signed(high or 0)}"
    return f"{_signed(low)} … {_signed(high)}"


def _show_basis(page: Page, measured: Clocks, mode: str) -> None:
    if mode == ClockMode.NONE:
        page.line(
            "Clocks are not corrected (--clock none). To correct them, use --clock host or --clock collectives."
        )
    elif mode not in tuple(ClockMode):
        page.line(f"Offsets are taken from {mode}.")
    else:
        _show_comparison(page, measured)


def _show_comparison(page: Page, measured: Clocks) -> None:
    clocks = list(measured.clocks.values())
    reference = reference_rank(measured)
    different = {(clock.offset_ns, clock.low_ns, clock.high_ns, clock.host) for clock in clocks}
    if len(clocks) == 1:
        page.line("Only one rank was read: name the traces of all ranks to compare their clocks.")
        return
    if len(different) == 1 and clocks[0].low_ns is not None:
        page.line(
            "All ranks share one clock, so there are no offsets. "
            "To estimate a clock for each rank, use --clock collectives."
        )
        return
    if reference is not None:
        reference_ns = clocks[0].reference_ns
        at = f", at {date_and_time(reference_ns, digits=3)} UTC" if reference_ns else ""
        page.line(f"Offsets are relative to the clock of rank {reference}{at}.")
    if all(_may_be_zero(clock) for clock in clocks) and any(
        clock.low_ns or clock.high_ns for clock in clocks
    ):
        page.line("No offset is significant: the range of every rank contains 0.")
    if any(clock.constraints for clock in clocks):
        page.line(
            "Estimated from causality: no rank leaves a collective before the last one enters; "
            "no message arrives before it is sent."
        )
    unbounded = Numbers.of(clock.rank for clock in clocks if clock.low_ns is None or clock.high_ns is None)
    if unbounded:
        page.line(
            f"The clock offset of {unbounded.called('rank')} is unbounded: too few collectives and messages "
            "are matched with other ranks. Record the same steps on all ranks, with flight-recorder dumps, or give "
            "known offsets with --clock FILE.",
            "yellow",
        )


def _may_be_zero(clock: Clock) -> bool:
    return (clock.low_ns is None or clock.low_ns <= 0) and (clock.high_ns is None or clock.high_ns >= 0)


def _signed(ns: int) -> str:
    """`+1.234 ms`, `-0.012 ms`, `0 ms`."""
    return f"{ns / MILLISECOND:+,.3f} ms" if ns else "0 ms"


# The result for `--json`.


def clocks_document(measured: Clocks) -> results.Clocks:
    """The result of `clocks`, which `--clock` takes as a file."""
    return results.Clocks(
        reference_rank=reference_rank(measured),
        reference_ns=next((clock.reference_ns for clock in measured.clocks.values()), None),
        ranks=[_clock(clock) for clock in measured.clocks.values()],
        findings=results.findings_of(measured.findings),
    )


def reference_rank(measured: Clocks) -> int | None:
    """The first rank whose clock needs no correction."""
    return next((c.rank for c in measured.clocks.values() if not (c.offset_ns or c.drift_ppm)), None)


def _clock(clock: Clock) -> results.Clock:
    return results.Clock(
        clock.rank,
        clock.host,
        clock.offset_ns,
        clock.drift_ppm,
        clock.low_ns,
        clock.high_ns,
        clock.constraints,
    )
