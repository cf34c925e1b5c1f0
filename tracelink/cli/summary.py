"""What a merge says when it is done."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tracelink.cli.console import Console
from tracelink.cli.documents import Document, findings_document
from tracelink.cli.terminal import (
    NOTHING,
    Page,
    complain_of_errors,
    counted,
    exit_code,
    number,
    show_findings,
    size,
)
from tracelink.model.graph import LinkReport
from tracelink.text import span

if TYPE_CHECKING:
    from tracelink.api import Merged
    from tracelink.errors import Finding
    from tracelink.model.job import Job
    from tracelink.plugins import Output


# How much was linked, rank by rank: the numbers behind the summary and behind `--json`.


RELATIONS = ("launches", "calls", "backward_of", "same.et_kineto", "same.recorder_kineto")
"""Said of every rank, even where it has nothing to link."""


@dataclass(frozen=True, slots=True)
class RankLinks:
    """One rank: how many events it has, and how its relations were linked."""

    rank: int
    events: int
    links: dict[str, LinkReport]


def links_of_ranks(job: Job) -> list[RankLinks]:
    """The links of each rank."""
    events: Counter[int | None] = Counter()
    for source in job.sources:
        events[source.rank] += source.events
    return [
        RankLinks(rank.rank, events[rank.rank], _by_relation(job.reports.get(rank.rank, ())))
        for rank in job.ranks
    ]


def summed(reports: Iterable[LinkReport]) -> LinkReport:
    """One report on the same relation of several ranks."""
    relation, linked, candidates = "", 0, 0
    unlinked: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    for report in reports:
        relation = report.relation
        linked += report.linked
        candidates += report.candidates
        unlinked.update(report.unlinked)
        notes.update(report.notes)
    return LinkReport(relation, linked, candidates, unlinked, notes)


def _by_relation(reports: Iterable[LinkReport]) -> dict[str, LinkReport]:
    known = {relation: LinkReport(relation, 0, 0) for relation in RELATIONS}
    return known | {report.relation: report for report in reports}


# Shared definitions


def merge_document(merged: Merged) -> Document:
    """The result of `merge` and `convert`."""
    return {
        "outputs": [output_document(output) for output in merged.outputs],
        "ranks": [_rank(rank) for rank in links_of_ranks(merged.job)],
        "findings": findings_document(merged.findings),
    }


def output_document(output: Output) -> Document:
    """A file that was written."""
    return {
        "path": output.path,
        "format": output.format,
        "rank": output.rank,
        "bytes": output.bytes,
        "events": output.events,
    }


def _rank(rank: RankLinks) -> Document:
    links = {relation: _link(report) for relation, report in rank.links.items()}
    return {"rank": rank.rank, "events": rank.events, "links": links}


def _link(report: LinkReport) -> Mapping[str, Any]:
    counts = {"linked": report.linked, "candidates": report.candidates, "unlinked": dict(report.unlinked)}
    return counts | ({"notes": dict(report.notes)} if report.notes else {})


# What `merge`, `convert` and `demo` say when they are done.


STDOUT = "-"

ROWS = 16
"""More ranks than this are shown as one row."""

FILES = 4
"""More outputs than this are shown as one line."""

LEFT_OUT = "left_out"

SAID = ("unlinked.", LEFT_OUT)
"""Findings whose reason begins so say the same as the lines under the table."""


def stands_aside(console: Console, output: str | None) -> bool:
    """Whether standard output is of what is written, and everything that is said goes elsewhere."""
    if output != STDOUT:
        return False
    if console.json:
        raise click.UsageError("--json and an output of - both want standard output: give another output.")
    if sys.stdout.isatty():
        raise click.UsageError(
            "an output of - would fill the terminal: pipe it into something, or give a file."
        )
    return True


def report_merge(console: Console, merged: Merged, *, aside: bool = False) -> int:
    """Says what was merged, as the user wants to hear it; returns the exit code."""
    if console.json:
        console.document(merge_document(merged))
    elif console.quiet:
        complain_of_errors(console, merged.findings)
    else:
        console.info(_summary(merged, verbose=console.verbose, aside=aside), aside=aside)
    return exit_code(merged.job.sources, merged.findings)


def _summary(merged: Merged, *, verbose: bool, aside: bool) -> str:
    page = Page(aside=aside)
    ranks = links_of_ranks(merged.job)
    _show_table(page, ranks)
    for relation in dict.fromkeys(relation for rank in ranks for relation in rank.links):
        _show_relation(page, relation, [rank for rank in ranks if relation in rank.links], verbose=verbose)
    if absent := [
        spelled(name) for name in RELATIONS if not any(rank.links[name].candidates for rank in ranks)
    ]:
        page.line(f"nothing to link: {', '.join(absent)}: the sources record none", "dim")
    _show_together(page, merged.job)
    _show_selection(page, merged.findings)
    others = [
        finding
        for finding in merged.findings
        if not finding.reason.startswith(SAID) and finding not in merged.foreseen
    ]
    show_findings(page, others, verbose=verbose)
    show_outputs(page, merged.outputs)
    return page.text


def _show_table(page: Page, ranks: Sequence[RankLinks]) -> None:
    header = ("rank", "events", *map(spelled, RELATIONS))
    rows = [_row(str(rank.rank), [rank]) for rank in ranks]
    if len(ranks) > ROWS:
        rows = [_row(counted(len(ranks), "rank"), ranks)]
    page.table(header, rows, numbers=header[1:])


def _row(label: str, ranks: Sequence[RankLinks]) -> list[str]:
    totals = [summed(rank.links[relation] for rank in ranks) for relation in RELATIONS]
    return [label, number(sum(rank.events for rank in ranks)), *map(_of, totals)]


def _of(report: LinkReport) -> str:
    return f"{number(report.linked)} of {number(report.candidates)}" if report.candidates else NOTHING


def _show_relation(page: Page, relation: str, ranks: Sequence[RankLinks], *, verbose: bool) -> None:
    """What was not linked, and why; first of all, the ranks on which nothing was."""
    name = spelled(relation)
    empty = [rank for rank in ranks if rank.links[relation].candidates and not rank.links[relation].linked]
    if empty:
        nothing = summed(rank.links[relation] for rank in empty)
        on = _some([rank.rank for rank in empty])
        page.line(f"nothing linked: {name} on rank {on}: {_of(nothing)}{_why(nothing)}", "bold red")
    report = summed(rank.links[relation] for rank in ranks if rank not in empty)
    if report.candidates > report.linked:
        page.line(f"not linked: {name}: {number(report.candidates - report.linked)}{_why(report)}")
    if report.notes and verbose:
        page.line(f"note: {name}{_counts(report.notes)}", "dim")


def _show_together(page: Page, job: Job) -> None:
    """What was matched across ranks, and whether times were changed for that."""
    counts = [
        counted(count, thing)
        for count, thing in ((len(job.collectives), "collective"), (len(job.messages), "message"))
        if count
    ]
    if counts:
        page.line(f"across ranks: {' and '.join(counts)}; `tracelink collectives` lists them")
    if furthest := max((abs(rank.clock_offset_ns) for rank in job.ranks), default=0):
        page.line(f"clocks: corrected by up to {span(furthest)}; `tracelink clocks` says what that rests on")


def _show_selection(page: Page, findings: Sequence[Finding]) -> None:
    """What the user asked to leave out."""
    for finding in findings:
        if finding.reason == LEFT_OUT:
            page.line(f"left out: {finding.message}")


def _why(report: LinkReport) -> str:
    return _counts(report.unlinked) if report.unlinked else ": no reason is known"


def _counts(reasons: Mapping[str, int]) -> str:
    return ": " + ", ".join(f"{reason} ({number(count)})" for reason, count in reasons.items())


def _some(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:ROWS]))
    return f"{shown} and {number(len(ranks) - ROWS)} more" if len(ranks) > ROWS else shown


def spelled(relation: str) -> str:
    """The name of a relation as words."""
    return relation.replace(".", " ").replace("_", " ")


def show_outputs(page: Page, outputs: Sequence[Output]) -> None:
    """Which files were written; many in one line."""
    if len(outputs) > FILES:
        folder = os.path.commonpath([os.path.dirname(output.path) for output in outputs]) or os.curdir
        page.line(f"wrote {counted(len(outputs), 'file')} in {folder} {_extent(outputs)}", "bold")
        return
    for output in outputs:
        page.line(f"wrote {named(output.path)} {_extent([output])}", "bold")


def named(path: str) -> str:
    """How an output is called."""
    return "standard output" if path == STDOUT else path


def _extent(outputs: Sequence[Output]) -> str:
    events = counted(sum(output.events for output in outputs), "event")
    return f"({size(sum(output.bytes for output in outputs))}, {events})"
