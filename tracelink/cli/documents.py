"""What `--json` prints; `tracelink.schemas` says the same as JSON Schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracelink.cli.chakra_document import census_document
from tracelink.cli.finding_document import Document, findings_document
from tracelink.cli.links import RankLinks, links_of_ranks
from tracelink.cli.together import collective_columns, message_columns, participation_rows, rows_of
from tracelink.collectives import Verdict

if TYPE_CHECKING:
    from tracelink.api import Merged
    from tracelink.cli.choice import Choice
    from tracelink.converters.chakra.census import Census
    from tracelink.graph import Rank
    from tracelink.job import Job
    from tracelink.linking.report import LinkReport
    from tracelink.plugins import Output
    from tracelink.surveying import Survey
    from tracelink.trace import SourceInfo


def merge_document(merged: Merged) -> Document:
    """The result of `merge` and `convert`."""
    return {
        "outputs": [output_document(output) for output in merged.outputs],
        "ranks": [_rank(rank) for rank in links_of_ranks(merged.job)],
        "findings": findings_document(merged.findings),
    }


def inspect_document(survey: Survey, censuses: Mapping[str, Census]) -> Document:
    """The result of `inspect`."""
    return {
        "sources": [
            _source(source)
            | ({"chakra": census_document(censuses[source.path])} if source.path in censuses else {})
            for source in survey.sources
        ],
        "findings": findings_document(survey.findings),
    }


def collectives_document(job: Job, choice: Choice) -> Document:
    """The result of `collectives`."""
    rows = rows_of(collective_columns(job, choice.collectives))
    parts = participation_rows(job, choice.collectives)
    collectives = [row | {"participations": those} for row, those in zip(rows, parts, strict=True)]
    return {
        "collectives": [row for row in collectives if row["verdict"] != Verdict.UNMATCHED],
        "messages": rows_of(message_columns(job, choice.messages)),
        "unmatched": [row for row in collectives if row["verdict"] == Verdict.UNMATCHED],
        "findings": findings_document(job.findings),
    }


def clocks_document(job: Job) -> Document:
    """The result of `clocks`, which `--clock` takes as a file."""
    return {
        "reference_rank": reference_rank(job.ranks),
        "reference_ns": next((rank.clock_reference_ns for rank in job.ranks), None),
        "ranks": [_clock(rank) for rank in job.ranks],
        "findings": findings_document(job.findings),
    }


def reference_rank(ranks: Sequence[Rank]) -> int | None:
    """The first rank whose clock needs no correction."""
    return next((rank.rank for rank in ranks if not (rank.clock_offset_ns or rank.clock_drift_ppm)), None)


def _clock(rank: Rank) -> Document:
    return {
        "rank": rank.rank,
        "host": rank.host,
        "offset_ns": rank.clock_offset_ns,
        "drift_ppm": rank.clock_drift_ppm,
        "low_ns": rank.clock_low_ns,
        "high_ns": rank.clock_high_ns,
        "constraints": rank.clock_constraints,
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
