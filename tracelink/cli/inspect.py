"""`tracelink inspect`: format, rank, time and problems of each source, and the nodes of Chakra traces."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

import tracelink.api as api
from tracelink.api import Inspection
from tracelink.cli.console import Console
from tracelink.cli.options import Inputs, command, takes_engine, takes_inputs
from tracelink.cli.terminal import EMPTY, Page, exit_code, print_errors, show_findings, watching
from tracelink.io.engine import Engine
from tracelink.model.columns import SECOND
from tracelink.model.findings import Severity, in_order
from tracelink.model.text import counted, date_and_time, fine_span, moment, number, size, span

if TYPE_CHECKING:
    from tracelink.converters.chakra.census import Census, LongestChain
    from tracelink.model.trace import SourceInfo


CHAKRA = "chakra"
METRICS = "metrics"


@command(
    "tracelink inspect samples/gpu_pair",
    "tracelink inspect --fr samples/hung_job/dumps",
    "tracelink inspect samples/gpu_pair --json | jq '.sources[] | {path, rank, events}'",
    "tracelink merge samples/gpu_pair --to chakra -o et/job     and then:",
    "tracelink inspect et/",
)
@takes_inputs
@takes_engine
def inspect(console: Console, inputs: Inputs, engine: Engine) -> None:
    """Show the format, rank, time and problems of each trace.

    For Chakra traces, also shows the number of nodes of each type, the communication in each group, the longest chain
    of dependent nodes and its duration, and everything that keeps simulators from loading them.

    PATHS are files, directories, globs and archives, here or in stores such as s3://; - is standard input.
    """
    with watching(console, inputs.named) as watch:
        inspection = api.inspect(**inputs.keywords(), engine=engine, watch=watch)
    inspection, censuses = _with_censuses(inspection, engine)
    if console.json:
        from tracelink.cli.documents.traces import inspect_document

        console.document(inspect_document(inspection, censuses))
    elif console.quiet:
        print_errors(console, inspection.findings)
    else:
        console.info(inspect_page(inspection, censuses, verbose=console.verbose))
    click.get_current_context().exit(exit_code(inspection.sources, inspection.findings))


def _with_censuses(inspection: Inspection, engine: Engine) -> tuple[Inspection, Mapping[str, Census]]:
    """The censuses of the Chakra traces by path, and the inspection with the problems that they found."""
    traces = inspection.of_format(CHAKRA)
    if not traces:
        return inspection, {}
    from tracelink.converters.chakra.validation.validate import inspect_traces

    chakra = inspect_traces(traces, inspection.contents, engine)
    findings = in_order([*inspection.findings, *chakra.findings])
    return replace(inspection, findings=findings), chakra.censuses


# The page: a table of the sources, tables of Chakra traces, and findings.


HEADER = (
    "path",
    "format",
    "version",
    "rank",
    "host",
    "events",
    "start",
    "duration",
    "size",
    "problems",
)
NUMBERS = ("rank", "events", "start", "duration", "size", "problems")
OPTIONAL = ("size", "version")
"""Columns that are left out of a narrow terminal, in this order, without -v."""


def inspect_page(inspection: Inspection, censuses: Mapping[str, Census], *, verbose: bool) -> str:
    """The sources, the nodes of those that are Chakra traces, and the findings."""
    page = Page()
    problems = Counter(
        finding.source for finding in inspection.findings if finding.severity is not Severity.INFO
    )
    folder = common_folder([source.path for source in inspection.sources])
    if folder:
        page.line(f"In {folder}", path=folder)
    zero_ns = _zero(inspection)
    header = (
        HEADER if zero_ns is not None else [f"{name} (UTC)" if name == "start" else name for name in HEADER]
    )
    rows = [_row(source, folder, zero_ns, problems[source.path]) for source in inspection.sources]
    known = [column for column in range(len(header)) if any(row[column] != EMPTY for row in rows)]
    page.entries(
        [header[column] for column in known],
        [[row[column] for column in known] for row in rows],
        numbers=NUMBERS,
        optional=() if verbose else OPTIONAL,
    )
    if zero_ns is not None:
        _show_zero(page, inspection, zero_ns)
    if censuses:
        _show_censuses(page, censuses)
        page.gap()
    show_findings(page, inspection.findings, verbose=verbose)
    return page.text


APART_NS = 3600 * SECOND
"""If recordings start further apart, they are of several jobs: their starts are shown in UTC."""


def _zero(inspection: Inspection) -> int | None:
    """The first event of all sources; None if nothing has a time, or they are not of one job."""
    starts = [source.start_ns for source in inspection.sources if source.start_ns is not None]
    return min(starts) if starts and max(starts) - min(starts) <= APART_NS else None


def _show_zero(page: Page, inspection: Inspection, first_ns: int) -> None:
    """The time that starts count from: that of all commands, unless ranks have clocks that these correct."""
    clocks = {source.host or source.rank for source in inspection.sources if source.start_ns is not None}
    corrected = (
        " by the ranks' own clocks. Other commands correct these (`tracelink clocks` shows by how much)."
    )
    page.line(
        f"Starts count from the first event, at {moment(first_ns)}{corrected if len(clocks) > 1 else '.'}",
        "dim",
    )


def common_folder(paths: Sequence[str]) -> str:
    """The folder, or the archive, that contains all of several paths, up to its last separator; or empty."""
    if len(paths) < 2:
        return ""
    first, last = min(paths), max(paths)
    length = next(
        (index for index, pair in enumerate(zip(first, last, strict=False)) if len(set(pair)) > 1), 0
    )
    return re.sub(r"[^/:]*$", "", first[:length])


def _row(source: SourceInfo, folder: str, zero_ns: int | None, problems: int) -> tuple[str, ...]:
    return (
        source.path.removeprefix(folder),
        source.format,
        source.version or EMPTY,
        EMPTY if source.rank is None else str(source.rank),
        source.host or EMPTY,
        number(source.events) if source.format != METRICS else counted(source.records, "sample"),
        _start(source.start_ns, zero_ns),
        EMPTY if source.start_ns is None or source.end_ns is None else span(source.end_ns - source.start_ns),
        size(source.bytes),
        number(problems) if problems else EMPTY,
    )


def _start(start_ns: int | None, zero_ns: int | None) -> str:
    if start_ns is None:
        return EMPTY
    return date_and_time(start_ns, digits=3) if zero_ns is None else span(start_ns - zero_ns)


ROWS = 16
"""More Chakra traces than this share one row."""


def _show_censuses(page: Page, censuses: Mapping[str, Census]) -> None:
    """Tables of Chakra traces: node types, communication, and longest chains."""
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
    header = ("trace", "nodes", *(role.value for role in roles))
    table = [
        (
            label,
            number(counts.total()),
            *(number(counts[role]) if counts[role] else EMPTY for role in roles),
        )
        for label, counts in rows.items()
    ]
    page.table(header, table, numbers=header[1:])


def _show_communication(page: Page, censuses: Sequence[Census]) -> None:
    """Communication by kind and group, summed over all traces."""
    counts, sizes = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    traces, sizeless = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row in (row for census in censuses for row in census.communicated):
        key = row.kind, row.group
        counts[key] += row.count
        sizes[key] += row.bytes
        sizeless[key] += row.sizeless
        traces[key] += 1
    if not counts:
        page.line("No communication nodes.", "dim")
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
        for kind, group in sorted(counts, key=lambda key: (-sizes[key], key))
    ]
    page.table(header, table, numbers=header[2:])


def _bytes(total: int, sizeless: int) -> str:
    return size(total) + (f" + {number(sizeless)} of unknown size" if sizeless else "")


def _show_chains(page: Page, censuses: Mapping[str, Census]) -> None:
    header = ("longest chain of", "time", "compute", "communication", "host", "nodes", "after device work")
    shown = list(censuses.items())
    if len(shown) > ROWS:
        path, longest = max(shown, key=lambda item: item[1].longest.total_ns)
        shown = [(f"{path} (longest of {number(len(shown))})", longest)]
    table = [(path, *_chain(census.longest), _following(census)) for path, census in shown]
    page.table(header, table, numbers=header[1:])
    if unordered := sum(census.unordered for census in censuses.values()):
        page.line(
            f"Not counted: {counted(unordered, 'node')} in dependency cycles, or that depend on one.",
            "yellow",
        )
    page.line(
        "after device work: device nodes that depend directly on another device node, of all device nodes",
        "dim",
    )


def _chain(longest: LongestChain) -> tuple[str, ...]:
    parts = (longest.compute_ns, longest.communication_ns, longest.host_ns)
    shares = (f"{fine_span(part)} ({_percent(part, longest.total_ns)})" if part else EMPTY for part in parts)
    return fine_span(longest.total_ns), *shares, number(longest.nodes)


def _following(census: Census) -> str:
    if not census.device_nodes:
        return EMPTY
    share = _percent(census.device_nodes_after_device, census.device_nodes)
    return f"{number(census.device_nodes_after_device)} of {number(census.device_nodes)} ({share})"


def _percent(part: int, total: int) -> str:
    """`17 %`."""
    return f"{part / total:.0%}".replace("%", " %") if total else EMPTY
