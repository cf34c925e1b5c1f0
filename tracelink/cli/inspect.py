"""Inspect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from tracelink import api
from tracelink.api import Inspection
from tracelink.cli.console import Console
from tracelink.cli.documents import Document, census_document, findings_document
from tracelink.cli.options import Inputs, command, takes_inputs, takes_jobs
from tracelink.cli.terminal import NOTHING, Page, exit_code, print_errors, show_findings, watching
from tracelink.errors import Severity, in_order
from tracelink.io.sources import engine_for
from tracelink.text import counted, date_and_time, fine_span, number, size, span

if TYPE_CHECKING:
    from tracelink.converters.chakra.census import Census, LongestChain
    from tracelink.model.trace import SourceInfo


# Shared definitions


def inspect_document(inspection: Inspection, censuses: Mapping[str, Census]) -> Document:
    """The result of `inspect`."""
    return {
        "sources": [
            _source(source)
            | ({"chakra": census_document(censuses[source.path])} if source.path in censuses else {})
            for source in inspection.sources
        ],
        "findings": findings_document(inspection.findings),
    }


def _source(source: SourceInfo) -> Document:
    return {
        "path": source.path,
        "format": source.format,
        "version": source.version,
        "rank": source.rank,
        "host": source.host,
        "world_size": source.world_size,
        "pid": source.pid,
        "events": source.events,
        "records": source.records,
        "bytes": source.bytes,
        "start_ns": source.start_ns,
        "end_ns": source.end_ns,
    }


# What `inspect` shows of Chakra traces.


ROWS = 16
"""More traces than this are shown as one row."""


def show_censuses(page: Page, censuses: Mapping[str, Census]) -> None:
    """Tables of what the nodes are, what is communicated, and what takes longest."""
    page.gap()
    _show_nodes(page, censuses)
    page.gap()
    _show_communication(page, list(censuses.values()))
    page.gap()
    _show_chains(page, censuses)


def _show_nodes(page: Page, censuses: Mapping[str, Census]) -> None:
    from tracelink.converters.chakra.table import ROLES

    roles = [role for role in ROLES if any(role in census.nodes for census in censuses.values())]
    rows = {path: Counter(census.nodes) for path, census in censuses.items()}
    if len(rows) > ROWS:
        rows = {counted(len(rows), "trace"): sum(rows.values(), Counter())}
    header = ("nodes of", "all", *(role.value for role in roles))
    table = [
        (
            label,
            number(counts.total()),
            *(number(counts[role]) if counts[role] else NOTHING for role in roles),
        )
        for label, counts in rows.items()
    ]
    page.table(header, table, numbers=header[1:])


def _show_communication(page: Page, censuses: Sequence[Census]) -> None:
    """Each kind in each group, of all traces together."""
    counts, sizes = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    traces, sizeless = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row in (row for census in censuses for row in census.communicated):
        what = row.kind, row.group
        counts[what] += row.count
        sizes[what] += row.bytes
        sizeless[what] += row.sizeless
        traces[what] += 1
    if not counts:
        page.line("nothing is communicated", "dim")
        return
    header = ("communication", "group", "traces", "nodes", "bytes")
    table = [
        (
            kind,
            group or "all ranks",
            number(traces[kind, group]),
            number(counts[kind, group]),
            _bytes(sizes[kind, group], sizeless[kind, group]),
        )
        for kind, group in sorted(counts, key=lambda what: (-sizes[what], what))
    ]
    page.table(header, table, numbers=header[2:])


def _bytes(total: int, sizeless: int) -> str:
    return size(total) + (f", {number(sizeless)} without a size" if sizeless else "")


def _show_chains(page: Page, censuses: Mapping[str, Census]) -> None:
    header = ("longest chain of", "time", "compute", "communication", "host", "nodes", "after device work")
    shown = list(censuses.items())
    if len(shown) > ROWS:
        path, longest = max(shown, key=lambda one: one[1].longest.total_ns)
        shown = [(f"{path}, the longest of {number(len(shown))}", longest)]
    table = [(path, *_chain(census.longest), _following(census)) for path, census in shown]
    page.table(header, table, numbers=header[1:])
    if unordered := sum(census.unordered for census in censuses.values()):
        page.line(
            f"without {counted(unordered, 'node')} that wait for each other in circles, or for such", "yellow"
        )
    page.line(
        "after device work: nodes of a device that wait for another one directly, of all of them", "dim"
    )


def _chain(longest: LongestChain) -> tuple[str, ...]:
    parts = (longest.compute_ns, longest.communication_ns, longest.host_ns)
    shares = (f"{fine_span(part)} ({percent(part, longest.total_ns)})" if part else NOTHING for part in parts)
    return fine_span(longest.total_ns), *shares, number(longest.nodes)


def _following(census: Census) -> str:
    if not census.device_nodes:
        return NOTHING
    share = percent(census.device_nodes_after_device, census.device_nodes)
    return f"{number(census.device_nodes_after_device)} of {number(census.device_nodes)} ({share})"


def percent(part: int, whole: int) -> str:
    """17 %."""
    return f"{part / whole:.0%}".replace("%", " %") if whole else NOTHING


# What `inspect` shows of each source.


HEADER = (
    "path",
    "format",
    "version",
    "rank",
    "host",
    "events",
    "start (UTC)",
    "duration",
    "size",
    "problems",
)
NUMBERS = ("rank", "events", "duration", "size", "problems")


def listing(inspection: Inspection, censuses: Mapping[str, Census], *, verbose: bool) -> str:
    """A table of the sources, under it what is in those of Chakra, and the findings."""
    page = Page()
    problems = Counter(
        finding.source for finding in inspection.findings if finding.severity is not Severity.INFO
    )
    page.entries(
        HEADER, [_row(source, problems[source.path]) for source in inspection.sources], numbers=NUMBERS
    )
    if censuses:
        show_censuses(page, censuses)
        page.gap()
    show_findings(page, inspection.findings, verbose=verbose)
    return page.text


def _row(source: SourceInfo, problems: int) -> tuple[str, ...]:
    return (
        source.path,
        source.format,
        source.version or NOTHING,
        NOTHING if source.rank is None else str(source.rank),
        source.host or NOTHING,
        number(source.events),
        NOTHING if source.start_ns is None else date_and_time(source.start_ns, digits=3),
        NOTHING
        if source.start_ns is None or source.end_ns is None
        else span(source.end_ns - source.start_ns),
        size(source.bytes),
        number(problems) if problems else NOTHING,
    )


# `tracelink inspect`.


CHAKRA = "chakra"


@command(
    "tracelink inspect traces/",
    "tracelink inspect --fr dumps/",
    "tracelink inspect et/job.*.et",
    "tracelink inspect traces/ --json | jq '.sources[].rank'",
)
@takes_inputs
@takes_jobs
def inspect(console: Console, inputs: Inputs, jobs: int | None) -> None:
    """Say what each trace is and what is wrong with it.

    Of Chakra traces also: how many nodes of each sort there are, what is communicated in which group, how long the
    longest chain of nodes takes that wait for each other, and what keeps simulators from loading them.

    PATHS are files, directories, globs and archives; - is standard input.
    """
    with watching(console, inputs.named) as watch:
        inspection = api.inspect(**inputs.keywords(), jobs=jobs, watch=watch)
    inspection, censuses = _with_censuses(inspection, jobs)
    if console.json:
        console.document(inspect_document(inspection, censuses))
    elif console.quiet:
        print_errors(console, inspection.findings)
    else:
        console.info(listing(inspection, censuses, verbose=console.verbose))
    click.get_current_context().exit(exit_code(inspection.sources, inspection.findings))


def _with_censuses(inspection: Inspection, jobs: int | None) -> tuple[Inspection, Mapping[str, Census]]:
    """What is in the Chakra traces, by path; what is wrong with them joins what was found so far."""
    traces = inspection.of_format(CHAKRA)
    if not traces:
        return inspection, {}
    from tracelink.converters.chakra.validation.validate import inspect_traces

    counted_nodes = inspect_traces(traces, engine_for(jobs, None))
    findings = in_order([*inspection.findings, *counted_nodes.findings])
    return replace(inspection, findings=findings), counted_nodes.censuses
