"""What `--json` prints; `tracelink.schemas` says the same as JSON Schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracelink.cli.links import RankLinks, links_of_ranks

if TYPE_CHECKING:
    from tracelink.api import Merged
    from tracelink.surveying import Survey
    from tracelink.findings import Finding
    from tracelink.linking.report import LinkReport
    from tracelink.plugins import Output
    from tracelink.trace import SourceInfo

Document = dict[str, Any]


def merge_document(merged: Merged) -> Document:
    """The result of `merge` and `convert`."""
    return {
        "outputs": [_output(output) for output in merged.outputs],
        "ranks": [_rank(rank) for rank in links_of_ranks(merged.job)],
        "findings": _findings(merged.findings),
    }


def inspect_document(survey: Survey) -> Document:
    """The result of `inspect`."""
    return {
        "sources": [_source(source) for source in survey.sources],
        "findings": _findings(survey.findings),
    }


def _output(output: Output) -> Document:
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


def _findings(findings: Sequence[Finding]) -> list[Document]:
    return [
        {
            "severity": finding.severity.value,
            "reason": finding.reason,
            "count": finding.count,
            "source": finding.source,
            "message": finding.message,
        }
        | ({"example": finding.example} if finding.example else {})
        for finding in findings
    ]


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
