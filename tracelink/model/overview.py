"""What a graph, a job or a result contains, in a few lines: their representations in an interpreter and a notebook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from tracelink.model.errors import Finding, Severity, printable
from tracelink.model.ranges import Numbers
from tracelink.model.text import counted, moment, number, rank_list, shortened, span
from tracelink.model.trace import SourceInfo

LONGEST = 160
"""Characters of a line that lists names."""

SEVERITIES = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def title(kind: str, events: int, ranks: Sequence[int], first_ns: int | None, last_ns: int | None) -> str:
    """`EventGraph: 1,410 events of ranks 0-1, 2.9 ms from 2025-03-01 08:05:59.999602 UTC`."""
    of_ranks = (
        f" of {Numbers.of(ranks).called('rank')}" if len(ranks) == 1 else f" of ranks {rank_list(ranks)}"
    )
    text = f"{kind}: {counted(events, 'event')}{of_ranks if ranks else ''}"
    if first_ns is None or last_ns is None:
        return f"{text}, without times" if events else text
    return f"{text}, {span(last_ns - first_ns)} from {moment(first_ns)}"


def formats(sources: Sequence[SourceInfo]) -> str:
    """`2 kineto, 2 execution-trace`."""
    counts = Counter(source.format for source in sources)
    return _listed([f"{number(count)} {name}" for name, count in counts.most_common()])


def problems(findings: Sequence[Finding]) -> str:
    """`1 warning, 4 notes`."""
    counts = Counter(finding.severity for finding in findings)
    return _listed(
        [counted(counts[severity], word) for severity, word in SEVERITIES.items() if counts[severity]]
    )


def lines(heading: str, parts: Mapping[str, str]) -> str:
    """A heading, and an indented line for each part."""
    return "\n".join([f"<{heading}", *(f"  {name}: {printable(text)}" for name, text in parts.items())]) + ">"


def html(heading: str, parts: Mapping[str, str]) -> str:
    """The same for notebooks."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(printable(text))}</td></tr>'
        for name, text in parts.items()
    )
    return f"<div><p>{escape(printable(heading))}</p><table>{rows}</table></div>"


def contents(
    sources: Sequence[SourceInfo], tables: Mapping[str, int], findings: Sequence[Finding]
) -> dict[str, str]:
    """The sources by format, the tables with their numbers of rows, and the findings by severity."""
    return {
        "sources": formats(sources),
        "tables": ", ".join(f"{name} {number(rows)}" for name, rows in tables.items()),
        "findings": problems(findings),
    }


def _listed(parts: Sequence[str]) -> str:
    return shortened(", ".join(parts), LONGEST) or "none"
