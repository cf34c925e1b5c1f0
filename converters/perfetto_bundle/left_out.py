"""Which files of a job cannot stand in a bundle, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tracelink.converters.perfetto_bundle.schema import TAKEN
from tracelink.findings import Finding, Severity
from tracelink.job import Job
from tracelink.ranges import Numbers
from tracelink.trace import SourceInfo

BROKEN = frozenset({"cut_off", "damaged"})
"""Findings of readers on text that Perfetto refuses, and with it the whole archive."""

WORDS = {
    "broken": "Perfetto refuses an archive for one file in it that is cut off or damaged, so it is left out. To mend "
    "it: tracelink convert FILE MENDED.json",
    "too_large": "a file in an archive can have 8 GiB, so it is left out",
}


def why_not(info: SourceInfo, findings: Sequence[Finding]) -> str:
    """Why a file cannot stand in a bundle; empty where it can."""
    if info.format not in TAKEN:
        return "format"
    broken = any(finding.reason in BROKEN and finding.source == info.path for finding in findings)
    return "broken" if broken else ""


def left_out(job: Job, reasons: Mapping[str, str]) -> Iterator[Finding]:
    """What is said of the files that are left out, and of the ranks of which nothing is left."""
    formats: dict[str, list[str]] = {}
    for info in job.sources:
        if reasons.get(info.path) == "format":
            formats.setdefault(info.format, []).append(info.path)
        elif info.path in reasons:
            reason = reasons[info.path]
            yield Finding(Severity.WARNING, f"not_bundled_{reason}", WORDS[reason], source=info.path)
    for name, paths in formats.items():
        message = f"files of the format {name} are nothing that Perfetto loads: they are not in the bundle"
        yield Finding(Severity.INFO, "not_bundled_format", message, len(paths), example=paths[0])
    present = {info.rank for info in job.sources if info.path not in reasons}
    if absent := [rank.rank for rank in job.ranks if rank.rank not in present]:
        message = f"no file of rank {Numbers.of(absent)} is in the bundle"
        yield Finding(Severity.WARNING, "rank_not_bundled", message, len(absent))
