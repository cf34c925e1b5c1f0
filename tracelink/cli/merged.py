"""The summary of a merge: how many events were linked on each rank, and what was written."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from tracelink.cli.console import Console, is_terminal
from tracelink.cli.terminal import EMPTY, Page, exit_code, print_errors, show_findings
from tracelink.model.graph import LinkReport
from tracelink.model.text import about, counted, number, size, span

if TYPE_CHECKING:
    from tracelink.api import Merged
    from tracelink.cli.terminal import Bar
    from tracelink.model.findings import Finding
    from tracelink.model.job import Job
    from tracelink.pipeline.forecast import OnForecast, OutputForecast
    from tracelink.plugins import Output


# The links of each rank: the numbers behind the summary and behind `--json`.


RELATIONS = ("launches", "calls", "backward_of", "same.et_kineto", "same.recorder_kineto")
"""Relations that are reported for every rank, even if it has nothing to link."""


class RankLinks(Struct, frozen=True):
    """The events of a rank, and a report on each of its relations."""

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


# The summary that `merge`, `convert` and `demo` print when they are done.


STDOUT = "-"

SHOWN = "perfetto"
"""Prefix of the formats that Perfetto's UI opens."""

ROWS = 16
"""Jobs with more ranks have one row for all of them."""

FILES = 4
"""More outputs than this share one line."""

LEFT_OUT = "left_out"

IN_SUMMARY = ("unlinked.", LEFT_OUT)
"""Reasons of findings that other lines of the summary report already, as prefixes."""

RELATION_NAMES = {
    "same.et_kineto": "ET = Kineto",
    "same.recorder_kineto": "recorder = Kineto",
    "same.nsys": "nsys = Kineto",
    "same.compile_kineto": "compile log = Kineto",
    "compiles.region": "compiled regions",
    "compiles.backward": "compiled backward passes",
    "compiles.graph": "calls of compiled graphs",
    "compiles.kernel": "generated kernels",
    "compiles.code": "calls of generated code",
    "compiles.recorder": "collectives in generated code",
}
SOMETIMES = ("compiles.region", "same.nsys")
"""Shown in the table if there is a compile log, or if Nsight Systems and a profiler recorded the same process."""


def writes_to_stdout(console: Console, output: str | None) -> bool:
    """True if the trace goes to standard output, so that every message must go to standard error."""
    if output != STDOUT:
        return False
    if console.json:
        raise click.UsageError("--json and an output of - both use standard output: name an output file.")
    if is_terminal():
        raise click.UsageError(
            "an output of - would print the trace to the terminal: pipe it into a command, or name an output file."
        )
    return True


def announcing(console: Console, bar: Bar | None, *, to_stderr: bool) -> OnForecast | None:
    """A function that prints the estimated size of an output before it is written; None if nothing is printed."""
    if console.silent:
        return None

    def announce(output: OutputForecast) -> None:
        if bar:
            bar.now_writing()
        page = Page(to_stderr=to_stderr)
        page.line(_estimate(output))
        show_findings(page, output.findings, verbose=console.verbose)
        console.info(page.text, to_stderr=to_stderr)

    return announce


def _estimate(output: OutputForecast) -> str:
    forecast = output.forecast
    unpacked = f" ({about(forecast.unpacked)} uncompressed)" if forecast.unpacked != forecast.bytes else ""
    return f"Writing {output_name(output.path)}: about {about(forecast.bytes)}{unpacked}"


def report_merge(console: Console, merged: Merged, *, to_stderr: bool = False, opening: bool = False) -> int:
    """Prints the result of a merge, and how to open it unless `opening` says that it is; returns the exit code."""
    if console.json:
        from tracelink.cli.documents.results import merge_document, rank_links_document

        ranks = [
            rank_links_document(rank.rank, rank.events, rank.links) for rank in links_of_ranks(merged.job)
        ]
        console.document(merge_document(merged.outputs, ranks, merged.findings))
    elif console.quiet:
        print_errors(console, merged.findings)
    else:
        summary = _summary(merged, verbose=console.verbose, to_stderr=to_stderr)
        console.info(summary, *([] if opening else _how_to_open(merged.outputs)), to_stderr=to_stderr)
    return exit_code(merged.job.sources, merged.findings)


def _how_to_open(outputs: Sequence[Output]) -> list[str]:
    """The line with the command that opens the only output, if the UI shows it."""
    shown = [output.path for output in outputs if output.format.startswith(SHOWN)]
    if len(outputs) != 1 or not shown or shown[0] == STDOUT:
        return []
    return [f"Open it: {own_command('open', shown[0])}"]


def own_command(*words: str) -> str:
    """A command line that runs tracelink as it was run now: by its path if the shell would not find it."""
    program, name = sys.argv[0], "tracelink"
    if os.path.basename(program) == name and os.path.exists(program) and shutil.which(name) is None:
        inside = os.path.relpath(program)
        name = os.path.abspath(program) if inside.startswith(os.pardir) else inside
    return shlex.join([name, *words])


def _summary(merged: Merged, *, verbose: bool, to_stderr: bool) -> str:
    page = Page(to_stderr=to_stderr)
    ranks = links_of_ranks(merged.job)
    _show_table(page, ranks)
    for relation in dict.fromkeys(relation for rank in ranks for relation in rank.links):
        _show_relation(page, relation, [rank for rank in ranks if relation in rank.links], verbose=verbose)
    if absent := [
        relation_name(name) for name in RELATIONS if not any(rank.links[name].candidates for rank in ranks)
    ]:
        page.line(f"Nothing to link: the sources do not record {', '.join(absent)}.", "dim")
    _show_matches(page, merged.job)
    _show_selection(page, merged.findings)
    others = [
        finding
        for finding in merged.findings
        if not finding.reason.startswith(IN_SUMMARY) and finding not in merged.forecast_findings
    ]
    show_findings(page, others, verbose=verbose)
    if merged.resumed:
        page.line(f"Resumed: an earlier run had read {merged.resumed:,} of {counted(len(ranks), 'rank')}.")
    show_outputs(page, merged.outputs)
    return page.text


def _show_table(page: Page, ranks: Sequence[RankLinks]) -> None:
    found = [relation for relation in SOMETIMES if any(relation in rank.links for rank in ranks)]
    relations = [*RELATIONS, *found]
    header = ("rank", "events", *map(relation_name, relations))
    rows = [_row(str(rank.rank), [rank], relations) for rank in ranks]
    if len(ranks) > ROWS:
        rows = [_row(counted(len(ranks), "rank"), ranks, relations)]
    page.table(header, rows, numbers=header[1:])


def _row(label: str, ranks: Sequence[RankLinks], relations: Sequence[str]) -> list[str]:
    totals = [
        summed(rank.links[relation] for rank in ranks if relation in rank.links) for relation in relations
    ]
    return [label, number(sum(rank.events for rank in ranks)), *map(_share, totals)]


def _share(report: LinkReport) -> str:
    return f"{number(report.linked)} of {number(report.candidates)}" if report.candidates else EMPTY


def _show_relation(page: Page, relation: str, ranks: Sequence[RankLinks], *, verbose: bool) -> None:
    """The events that were not linked, with reasons; ranks without any link first."""
    name = relation_name(relation)
    empty = [rank for rank in ranks if rank.links[relation].candidates and not rank.links[relation].linked]
    if empty:
        total = summed(rank.links[relation] for rank in empty)
        where = f"rank{'' if len(empty) == 1 else 's'} {_some([rank.rank for rank in empty])}"
        page.line(
            f"{name}: nothing linked on {where} ({_share(total)}): {_reasons(total.unlinked)}.", "bold red"
        )
    report = summed(rank.links[relation] for rank in ranks if rank not in empty)
    if report.candidates > report.linked:
        missing = f"{number(report.candidates - report.linked)} of {number(report.candidates)}"
        page.line(f"{name}: {missing} not linked: {_reasons(report.unlinked)}.")
    if report.notes and verbose:
        page.line(f"note: {name}: {_reasons(report.notes)}.", "dim")


def _show_matches(page: Page, job: Job) -> None:
    """What was matched across ranks, and by how much clocks were corrected."""
    counts = [
        counted(count, thing)
        for count, thing in ((len(job.collectives), "collective"), (len(job.messages), "message"))
        if count
    ]
    if counts:
        page.line(f"Matched across ranks: {' and '.join(counts)} (`tracelink collectives` lists them).")
    if furthest := max((abs(rank.clock_offset_ns) for rank in job.ranks), default=0):
        page.line(
            f"Clocks corrected by up to {span(furthest)} (`tracelink clocks` shows how they were estimated)."
        )


def _show_selection(page: Page, findings: Sequence[Finding]) -> None:
    for finding in findings:
        if finding.reason == LEFT_OUT:
            page.line(f"Left out: {finding.message}")


def _reasons(counts: Mapping[str, int]) -> str:
    if not counts:
        return "the reason is unknown"
    return ", ".join(f"{reason} ({number(count)})" for reason, count in counts.items())


def _some(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:ROWS]))
    return f"{shown} and {number(len(ranks) - ROWS)} more" if len(ranks) > ROWS else shown


def relation_name(relation: str) -> str:
    """A relation as people read it: `backward of`, `ET = Kineto`."""
    return RELATION_NAMES.get(relation) or relation.replace(".", " ").replace("_", " ")


def show_outputs(page: Page, outputs: Sequence[Output]) -> None:
    """A line for each file that was written; one line for many."""
    if len(outputs) > FILES:
        from tracelink.io.targets import common_folder

        folder = common_folder([output.path for output in outputs])
        page.line(f"Wrote {counted(len(outputs), 'file')} to {folder} ({_extent(outputs)}).", "bold")
        return
    for output in outputs:
        page.line(f"Wrote {output_name(output.path)} ({_extent([output])}).", "bold", path=output.path)


def output_name(path: str) -> str:
    """The path of an output, or `standard output`."""
    return "standard output" if path == STDOUT else path


def _extent(outputs: Sequence[Output]) -> str:
    events = sum(output.events for output in outputs)
    bytes_written = size(sum(output.bytes for output in outputs))
    return f"{bytes_written}, {counted(events, 'event')}" if events else bytes_written
