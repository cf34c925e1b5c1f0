"""What `merge`, `convert` and `demo` say when they are done."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from tracelink.cli.documents import merge_document
from tracelink.cli.found import complain_of_errors, exit_code, show_findings
from tracelink.cli.links import RELATIONS, RankLinks, links_of_ranks, summed
from tracelink.cli.listing import span
from tracelink.cli.page import NOTHING, Page, counted, number, size
from tracelink.cli.voice import Voice

if TYPE_CHECKING:
    from tracelink.api import Merged
    from tracelink.findings import Finding
    from tracelink.job import Job
    from tracelink.linking.report import LinkReport
    from tracelink.plugins import Output

STDOUT = "-"

ROWS = 16
"""More ranks than this are shown as one row."""

FILES = 4
"""More outputs than this are shown as one line."""

LEFT_OUT = "left_out"

SAID = ("unlinked.", LEFT_OUT)
"""Findings whose reason begins so say the same as the lines under the table."""


def stands_aside(voice: Voice, output: str | None) -> bool:
    """Whether standard output is of what is written, and everything that is said goes elsewhere."""
    if output != STDOUT:
        return False
    if voice.json:
        raise click.UsageError("--json and an output of - both want standard output: give another output.")
    if sys.stdout.isatty():
        raise click.UsageError(
            "an output of - would fill the terminal: pipe it into something, or give a file."
        )
    return True


def report_merge(voice: Voice, merged: Merged, *, aside: bool = False) -> int:
    """Says what was merged, as the user wants to hear it; returns the exit code."""
    if voice.json:
        voice.document(merge_document(merged))
    elif voice.quiet:
        complain_of_errors(voice, merged.findings)
    else:
        voice.say(_summary(merged, verbose=voice.verbose, aside=aside), aside=aside)
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
