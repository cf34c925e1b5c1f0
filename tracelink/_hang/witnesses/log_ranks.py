"""Which rank printed each watchdog line, and which lines are of the last hang."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from msgspec.structs import asdict, replace

from tracelink._io.sources import LARGEST_RANK, Source
from tracelink._model.columns import MILLISECOND, SECOND
from tracelink._model.findings import Finding, Severity, UnknownRank
from tracelink._model.text import counted, subject
from tracelink._model.witnesses import RankReport, Report, Sign, WatchdogLog

ATTEMPT = re.compile(r"(?:^|/)attempt_(\d{1,6})(?=/|$)")
LOCAL_RANK = re.compile(r"/(\d{1,6})/(?:stdout|stderr)(?:\.log|\.txt)?$")
"""torchelastic writes `attempt_0/3/stderr.log`: 3 is the local rank."""
SAME_HANG = 600 * SECOND
"""Lines of one hang are within this time, if no line has a timeout."""


def reports_by_rank(
    logs: Sequence[tuple[Source, WatchdogLog]], findings: list[Finding]
) -> tuple[list[RankReport], list[int]]:
    """The lines of all logs, with their ranks where they are known; and the ranks that have a log."""
    newest = _of_last_attempt(logs, findings)
    weak = _weak_ranks(newest)
    found: list[RankReport] = []
    ranks: set[int] = set()
    for source, log in newest:
        certain = {report.rank for report in log.reports if report.rank is not None}
        own = _own_rank(source, certain, weak, findings)
        ranks |= certain | ({own} if own is not None else set())
        found += _ranked(source, log, certain, own, weak)
    _count_without_rank(found, findings)
    return found, sorted(ranks)


def _of_last_attempt(
    logs: Sequence[tuple[Source, WatchdogLog]], findings: list[Finding]
) -> list[tuple[Source, WatchdogLog]]:
    """torchelastic restarts a job in a new folder; logs in no such folder are kept."""
    attempts = [int(match[1]) if (match := ATTEMPT.search(source.path)) else None for source, _ in logs]
    last = max((attempt for attempt in attempts if attempt is not None), default=None)
    kept = [log for log, attempt in zip(logs, attempts, strict=True) if attempt in (None, last)]
    if older := len(logs) - len(kept):
        message = f"{counted(older, 'log')} of attempts before attempt_{last} were not used."
        findings.append(Finding(Severity.INFO, "attempts", message, older))
    return kept


def _own_rank(
    source: Source, certain: set[int], weak: Mapping[tuple[str, int], int | None], findings: list[Finding]
) -> int | None:
    """The rank of all lines that name none; None if the file has lines of several ranks."""
    if source.rank is not None:
        return source.rank
    hint = source.rank_hint.rank if source.rank_hint else None
    if hint is not None and certain <= {hint}:
        return hint
    if len(certain) == 1:
        if hint is not None and source.rank_hint and source.rank_hint.certain:
            message = (
                f"{source.path}: its lines are of rank {min(certain)}, its name says rank {hint}. "
                "The lines were used."
            )
            findings.append(Finding(Severity.WARNING, "rank_conflict", message, source=source.path))
        return min(certain)
    if not certain and (local := LOCAL_RANK.search(source.path)):
        return weak.get((source.path, int(local[1])))
    return None


def _weak_ranks(logs: Sequence[tuple[Source, WatchdogLog]]) -> dict[tuple[str, int], int | None]:
    """By path and label of a launcher the rank; None if several files have the same label.

    A label is the rank within a host, or the task: it is the rank in the job only if no other file uses it.
    """
    ranks: dict[tuple[str, int], set[int]] = defaultdict(set)
    for source, log in logs:
        if local := LOCAL_RANK.search(source.path):
            ranks[source.path, int(local[1])] |= set()
        for report in log.reports:
            if report.label is not None:
                ranks[source.path, report.label] |= set() if report.rank is None else {report.rank}
    users = Counter(label for _, label in ranks)
    files_with_ranks = {path for (path, _), known in ranks.items() if known}
    found: dict[tuple[str, int], int | None] = {}
    for (path, label), known in ranks.items():
        alone = users[label] == 1 and path not in files_with_ranks and label <= LARGEST_RANK
        found[path, label] = min(known) if len(known) == 1 else label if alone else None
    return found


def _ranked(
    source: Source,
    log: WatchdogLog,
    certain: set[int],
    own: int | None,
    weak: Mapping[tuple[str, int], int | None],
) -> list[RankReport]:
    """Each line with its rank; a line without one that repeats a line with one is left out."""
    reported = {_content(report) for report in log.reports if report.rank is not None}
    found = []
    for report in log.reports:
        rank = report.rank if source.rank is None else source.rank
        if rank is None:
            if _content(report) in reported:
                continue
            rank = weak.get((source.path, report.label)) if report.label is not None else None
            rank = own if rank is None and (report.label is None or len(certain) <= 1) else rank
        found.append(RankReport(**asdict(replace(report, rank=rank)), source=source.path))
    return found


def _content(report: Report) -> Report:
    """What a line says, without who says it and when."""
    return replace(report, rank=None, label=None, at_ns=None, group="", description="", member=None)


def _count_without_rank(reports: Sequence[RankReport], findings: list[Finding]) -> None:
    unknown = [one for one in reports if one.rank is None]
    if unknown:
        what = f"{subject(len(unknown), 'watchdog line', 'have')} no rank, in this or other files"
        findings.append(UnknownRank(unknown[0].source, what).finding(count=len(unknown)))


def of_last_hang(reports: Sequence[RankReport], findings: list[Finding]) -> list[RankReport]:
    """Without lines of earlier hangs in the same logs: no rank times out twice within one timeout."""
    times = [one.at_ns for one in reports if one.at_ns is not None]
    if not times:
        return list(reports)
    ended = [one for one in reports if one.sign is Sign.TIMED_OUT and one.at_ns is not None]
    last = max(ended, key=lambda report: report.at_ns or 0, default=None)
    timeout = SAME_HANG if last is None or last.timeout_ms is None else last.timeout_ms * MILLISECOND
    first = (max(times) if last is None else last.at_ns or 0) - timeout
    kept = [one for one in reports if one.at_ns is None or one.at_ns >= first]
    if older := len(reports) - len(kept):
        message = f"{counted(older, 'watchdog line')} of earlier hangs in the same logs were not used."
        findings.append(Finding(Severity.INFO, "older_reports", message, older))
    return kept
