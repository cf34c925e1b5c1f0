"""`tracelink summary`: where the time went, on every rank and step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import click

from tracelink.answers.model.results import OWN, PARTS, RankSummary, Step, Summary
from tracelink.answers.model.words import cause_in_words, kernel_in_words, percent
from tracelink.answers.summarize import summarize
from tracelink.cli.answers.causes import show_late_ranks, show_path, show_what_if
from tracelink.cli.console import Console, shows
from tracelink.cli.main import FINE, NO
from tracelink.cli.options import Inputs, command, takes_clock, takes_engine, takes_inputs
from tracelink.cli.terminal import EMPTY, Page, more, paragraph, watching
from tracelink.io.engine import Engine
from tracelink.model.findings import Finding, Severity
from tracelink.model.ranges import Numbers
from tracelink.model.records import readable_name
from tracelink.model.text import fine_span, group_cell, name_in_words, number, shortened, size

ROWS = 8
"""Ranks that are shown without -v."""
SHOWN = 6
"""Rows of the other tables without -v."""
LONGEST_NAME = 44
BAR = 32
"""Characters of the bar of a rank."""
BLOCKS, ASCII = (
    ("\N{FULL BLOCK}", "\N{DARK SHADE}", "\N{LIGHT SHADE}", "\N{MIDDLE DOT}"),
    ("#", "=", "-", "."),
)
"""What a bar consists of: for each part one character."""
AWAITED = 3
"""Ranks that others wait for, each with a row of its own."""
WORTH_SHOWING = 0.005
"""Causes of a smaller share of the time are shown with -v only."""


@command(
    "tracelink summary samples/gpu_pair",
    "tracelink summary samples/gpu_pair --steps 2 -v",
    "tracelink summary samples/gpu_pair --what-if 'communication free' --what-if 'rank 1 on time'",
    "tracelink summary samples/gpu_pair --json | jq '.ranks[].steps[] | [.step, .idle_ns]'",
)
@takes_inputs
@click.option("--ranks", "only_ranks", metavar="N-M,...", help="Read only these ranks, such as 0-7,64.")
@click.option("--steps", metavar="N-M,...", help="Only these steps, such as 3-5,7.")
@click.option(
    "--what-if",
    metavar="QUESTION",
    multiple=True,
    help="How long the steps would take: 'communication free', 'kernel NAME 2x', 'operator NAME 2x', 'rank 3 on time'.",
)
@click.option("--shapes", is_flag=True, help="Also add up operators by the shapes of their inputs.")
@takes_clock
@takes_engine
def summary(
    console: Console,
    inputs: Inputs,
    only_ranks: str | None,
    steps: str | None,
    what_if: tuple[str, ...],
    shapes: bool,
    clock: str,
    engine: Engine,
) -> None:
    """Show where the time went, on every rank and step.

    A step is divided into compute, exposed communication (while nothing computes), exposed memory copies, and idle
    time; exposed and idle time by its causes.

    PATHS are files, directories, globs and archives, here or in stores such as s3://; - is standard input.
    """
    with watching(console, inputs.named) as watch:
        result = summarize(
            **inputs.keywords(),
            clock=clock,
            engine=engine,
            watch=watch,
            ranks=None if only_ranks is None else Numbers.parse(only_ranks, "--ranks"),
            steps=None if steps is None else Numbers.parse(steps, "--steps"),
            what_if=what_if,
            shapes=shapes,
        )
    errors = [note for note in result.notes if note.severity is Severity.ERROR]
    if console.json:
        console.document(result)
    elif console.quiet:
        for note in errors:
            console.error(note.message)
    else:
        console.info(summary_page(result, verbose=console.verbose))
    click.get_current_context().exit(NO if errors else FINE)


def summary_page(result: Summary, *, verbose: bool = False) -> str:
    """The page for people: the verdict first, then what it is based on."""
    page = Page()
    for sentence in result.verdict:
        page.line(sentence, "bold")
    page.gap()
    shown = None if verbose else SHOWN
    _show_ranks(page, result, verbose=verbose)
    _show_causes(page, result, verbose=verbose)
    show_what_if(page, result, verbose=verbose)
    show_path(page, result, verbose=verbose)
    _show_kernels(page, result, shown)
    _show_shapes(page, result, shown)
    _show_gaps(page, result, shown)
    _show_waits(page, result, shown)
    show_late_ranks(page, result, verbose=verbose)
    _show_collectives(page, result, shown)
    _show_memory(page, result)
    if verbose:
        _show_calls(page, result)
    _show_notes(page, result, verbose=verbose)
    return page.text


# Ranks: a bar for each.


def _show_ranks(page: Page, result: Summary, *, verbose: bool) -> None:
    ranks = [rank for rank in result.ranks if rank.steps]
    if not ranks:
        return
    glyphs = _glyphs()
    parts = zip(glyphs, ("compute", "exposed communication", "exposed copies", "idle"), strict=True)
    page.line("Time of steps: " + "  ".join(f"{glyph} {name}" for glyph, name in parts))
    shown = ranks if verbose or len(ranks) <= ROWS else _extremes(ranks)
    rows = [_rank_row(str(rank.rank), rank.steps, glyphs) for rank in shown]
    if len(ranks) > 1:
        every = [step for rank in ranks for step in rank.steps]
        rows.append(_rank_row("all", every, glyphs))
    header = ("rank", "steps", "a step", "compute", "comm.", "copies", "idle", "")
    page.table(header, rows, numbers=header[:-1], optional=("steps", ""))
    if len(shown) < len(ranks):
        page.line(more(len(ranks) - len(shown), "rank", where="between these"), "dim")
    page.gap()


def _glyphs() -> Sequence[str]:
    """Blocks on a terminal that has them, else characters of ASCII."""
    return BLOCKS if shows("".join(BLOCKS)) else ASCII


def _extremes(ranks: Sequence[RankSummary]) -> list[RankSummary]:
    """The ranks with most and with least compute, in the order of ranks."""
    ordered = sorted(ranks, key=lambda rank: _share(rank.steps, "compute_ns"))
    return sorted([*ordered[: ROWS // 2], *ordered[-ROWS // 2 :]], key=lambda rank: rank.rank)


def _share(steps: Sequence[Step], part: str) -> float:
    total = sum(step.duration_ns for step in steps)
    return sum(getattr(step, part) for step in steps) / (total or 1)


def _rank_row(label: str, steps: Sequence[Step], glyphs: Sequence[str]) -> list[str]:
    total = sum(step.duration_ns for step in steps)
    sums = [sum(getattr(step, part) for step in steps) for part in PARTS]
    ends = [round(BAR * sum(sums[: index + 1]) / (total or 1)) for index in range(len(sums))]
    widths = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    bar = "".join(glyph * width for glyph, width in zip(glyphs, widths, strict=True))
    return [
        label,
        number(len(steps)),
        fine_span(total // len(steps)),
        *(percent(ns, total) for ns in sums),
        bar,
    ]


# Causes of idle and exposed time.


NOT_COMPUTING = {"idle": "idle", "exposed_communication": "communication", "exposed_copies": "copies"}


def _show_causes(page: Page, result: Summary, *, verbose: bool) -> None:
    steps = sum(len(rank.steps) for rank in result.ranks)
    total = sum(step.duration_ns for rank in result.ranks for step in rank.steps)
    rows = [
        (ns, [name, cause, percent(ns, total), fine_span(ns // steps)])
        for part, name in NOT_COMPUTING.items()
        for cause, ns in _causes(result, part, None if verbose else AWAITED).items()
    ]
    rows.sort(key=lambda row: -row[0])
    shown = [cells for ns, cells in rows if verbose or ns >= WORTH_SHOWING * total]
    if shown:
        header = ("not computing", "because", "of the time", "a step")
        page.table(header, shown[: None if verbose else 2 * SHOWN], numbers=header[2:])
        page.gap()


def _causes(result: Summary, part: str, awaited: int | None) -> dict[str, int]:
    """The causes of a part; ranks that are waited for after the first few are one cause."""
    sums: dict[str, int] = defaultdict(int)
    by_rank: dict[str, int] = defaultdict(int)
    for rank in result.ranks:
        for step in rank.steps:
            for portion in getattr(step, part):
                causes = sums if portion.rank is None else by_rank
                causes[cause_in_words(portion, rank.work)] += portion.ns
    ordered = sorted(by_rank, key=lambda cause: -by_rank[cause])
    others = ordered[awaited:] if awaited is not None and len(ordered) > awaited + 1 else []
    for cause in ordered:
        sums[f"waiting for {len(others)} other ranks" if cause in others else cause] += by_rank[cause]
    return sums


# Tables.


def _show_kernels(page: Page, result: Summary, shown: int | None) -> None:
    if not result.kernels:
        return
    header = ("kernel", "count", "total", "share", "mean", "launched by", "line")
    rows = [
        [
            kernel_in_words(row.name),
            number(row.count),
            fine_span(row.total_ns),
            percent(row.total_ns, round(row.total_ns / row.share) if row.share else 0),
            fine_span(row.total_ns // row.count),
            _name(row.operator),
            _name(row.source_lines) if row.source_lines else _line(row.line),
        ]
        for row in result.kernels[:shown]
    ]
    _table(page, header, rows, numbers=header[1:5], optional=("line", "mean", "launched by"))
    _rest(page, result.kernels, shown, "kernel")


def _show_shapes(page: Page, result: Summary, shown: int | None) -> None:
    header = ("operator", "inputs", "count", "on devices", "mean")
    rows = [
        [
            _name(row.name),
            name_in_words(row.shapes) or EMPTY,
            number(row.count),
            fine_span(row.device_ns),
            fine_span(row.device_ns // row.count),
        ]
        for row in result.shapes[:shown]
    ]
    _table(page, header, rows, numbers=header[2:])
    _rest(page, result.shapes, shown, "combination")


def _show_gaps(page: Page, result: Summary, shown: int | None) -> None:
    header = ("idle before launches in", "operator", "line", "idle", "gaps")
    rows = [
        [
            _name(row.within),
            _name(row.operator),
            _line(row.line),
            fine_span(row.idle_ns),
            number(row.count),
        ]
        for row in result.gaps[:shown]
    ]
    _table(page, header, rows, numbers=header[3:], optional=("line",))
    _rest(page, result.gaps, shown, "place")


def _show_waits(page: Page, result: Summary, shown: int | None) -> None:
    rows = [
        [
            row.call,
            _name(row.operator),
            _line(row.line),
            number(row.count),
            fine_span(row.host_ns),
            fine_span(row.idle_ns),
        ]
        for row in result.waits[:shown]
    ]
    header = ("host waits in", "operator", "line", "count", "waited", "then idle")
    _table(page, header, rows, numbers=header[3:], optional=("line",))
    _rest(page, result.waits, shown, "place")


def _show_collectives(page: Page, result: Summary, shown: int | None) -> None:
    header = ("collective", "group", "size", "count", "residence", "waits", "bandwidth", "mostly")
    rows = [
        [
            _name(row.operation),
            group_cell(row.group_name, ""),
            EMPTY if row.bytes is None else size(row.bytes),
            number(row.count),
            fine_span(row.residence_ns) if row.measured else EMPTY,
            percent(row.wait_ns, row.residence_ns) if row.measured else EMPTY,
            EMPTY if row.bus_gb_s is None else f"{row.bus_gb_s:.3g} GB/s",
            row.cost.value,
        ]
        for row in result.collectives[:shown]
    ]
    _table(page, header, rows, numbers=header[2:7], optional=("bandwidth", "group"))
    _rest(page, result.collectives, shown, "class", plural="classes")


def _show_memory(page: Page, result: Summary) -> None:
    """The largest peak of each counter."""
    peaks: dict[str, tuple[int, int, str]] = {}
    for rank in result.ranks:
        for memory in rank.memory:
            kind = memory.counter.rpartition(" ")[2]
            if memory.counter.startswith("GPU"):
                peak = memory.peak_bytes, rank.rank, memory.peak_in
                peaks[kind] = max(peaks.get(kind, peak), peak)
    for kind, (peak_bytes, rank_number, within) in peaks.items():
        where = f", in {name_in_words(within)}" if within else ""
        page.line(f"GPU memory {kind}: at most {size(peak_bytes)} (rank {rank_number}{where}).")
    if peaks:
        page.gap()


def _show_calls(page: Page, result: Summary) -> None:
    """Operators, modules and lines; only with -v."""
    for title, table in (
        ("operator", result.operators),
        ("module", result.modules),
        ("line", result.lines),
    ):
        header = (title, "count", "total", "self", "on devices")
        rows = [
            [
                shortened(readable_name(name_in_words(row.name)), LONGEST_NAME),
                number(row.count),
                fine_span(row.total_ns),
                fine_span(row.self_ns),
                fine_span(row.device_ns),
            ]
            for row in table[: 3 * SHOWN]
        ]
        _table(page, header, rows, numbers=header[1:])
        _rest(page, table, 3 * SHOWN, title, option="--json")


def _table(
    page: Page,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[str],
    optional: Sequence[str] = (),
) -> None:
    """A table without columns that are empty in all rows."""
    kept = [
        index for index, name in enumerate(header) if not index or any(row[index] != EMPTY for row in rows)
    ]
    if rows:
        names = [header[index] for index in kept]
        page.table(
            names,
            [[row[index] for index in kept] for row in rows],
            numbers=[name for name in names if name in numbers],
            optional=[name for name in optional if name in names],
        )


def _rest(
    page: Page,
    table: Sequence[object],
    shown: int | None,
    thing: str,
    *,
    plural: str = "",
    option: str = "-v",
) -> None:
    if not table:
        return
    left = 0 if shown is None else len(table) - shown
    if left > 0:
        things = thing if left == 1 else plural or f"{thing}s"
        page.line(f"{number(left)} more {things} ({option} shows them).", "dim")
    page.gap()


def _name(text: str) -> str:
    return shortened(name_in_words(text), LONGEST_NAME) or EMPTY


def _line(text: str) -> str:
    return shortened(readable_name(name_in_words(text)), LONGEST_NAME) if text else EMPTY


# Notes.


def _show_notes(page: Page, result: Summary, *, verbose: bool) -> None:
    hidden = 0
    for note in result.notes:
        if verbose or note.severity is not Severity.INFO or note.reason.startswith(OWN):
            page.line(
                paragraph(Finding(note.severity, note.reason, note.message)), STYLES.get(note.severity, "")
            )
        else:
            hidden += 1
    if hidden:
        page.line(more(hidden, "note"), "dim")


STYLES = {Severity.ERROR: "red", Severity.WARNING: "yellow"}
