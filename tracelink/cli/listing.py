"""What `inspect` shows of each source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tracelink.cli.chakra_page import show_censuses
from tracelink.cli.found import show_findings
from tracelink.cli.page import NOTHING, Page, number, size
from tracelink.findings import Severity

if TYPE_CHECKING:
    from tracelink.converters.chakra.census import Census
    from tracelink.surveying import Survey
    from tracelink.trace import SourceInfo

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
SECOND = 10**9
MILLISECOND = 10**6


def listing(survey: Survey, censuses: Mapping[str, Census], *, verbose: bool) -> str:
    """A table of the sources, under it what is in those of Chakra, and the findings."""
    page = Page()
    problems = Counter(finding.source for finding in survey.findings if finding.severity is not Severity.INFO)
    page.entries(HEADER, [_row(source, problems[source.path]) for source in survey.sources], numbers=NUMBERS)
    if censuses:
        show_censuses(page, censuses)
        page.gap()
    show_findings(page, survey.findings, verbose=verbose)
    return page.text


def _row(source: SourceInfo, problems: int) -> tuple[str, ...]:
    return (
        source.path,
        source.format,
        source.version or NOTHING,
        NOTHING if source.rank is None else str(source.rank),
        source.host or NOTHING,
        number(source.events),
        NOTHING if source.start_ns is None else moment(source.start_ns),
        NOTHING
        if source.start_ns is None or source.end_ns is None
        else span(source.end_ns - source.start_ns),
        size(source.bytes),
        number(problems) if problems else NOTHING,
    )


def moment(ns: int) -> str:
    """2026-11-18 13:32:30.123."""
    seconds, rest = divmod(ns, SECOND)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest // MILLISECOND:03}"


def span(ns: int) -> str:
    """1.234 s, 12.345 ms."""
    return f"{ns / SECOND:,.3f} s" if ns >= SECOND else f"{ns / MILLISECOND:.3f} ms"
