"""What watchdog lines in logs say of each group: which ranks gave up a collective there, and how far the others got."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from tracelink._hang.facts.model import Stage, Standing
from tracelink._io.sources import LARGEST_RANK, Source
from tracelink._model.columns import MILLISECOND, SECOND
from tracelink._model.findings import Finding, Severity, UnknownRank
from tracelink._model.text import counted, subject
from tracelink._model.trace import ProcessGroup
from tracelink._model.witnesses import RankReport, Report, Sign, WatchdogLog

EARLIEST = 60 * SECOND
"""A status this long before the last timeout may be out of date then."""
LATEST = 600 * SECOND
"""A status this long after the last timeout may be of a process that was started again."""


class LogGroup(Struct):
    """What ranks say of one group."""

    name: str
    description: str = ""
    given_up: dict[int, RankReport] = field(default_factory=dict)
    """The first collective that each rank gave up."""
    status: dict[int, RankReport] = field(default_factory=dict)
    """The last status of each rank."""

    @property
    def group(self) -> ProcessGroup:
        """The group."""
        return ProcessGroup(self.name, self.description)

    @property
    def first(self) -> int:
        """The number of the first collective that a rank gave up."""
        return min(report.sequence or 0 for report in self.given_up.values())

    @property
    def at_first(self) -> dict[int, RankReport]:
        """By rank what it gave up as the first collective."""
        first = self.first
        return {rank: report for rank, report in self.given_up.items() if report.sequence == first}

    @property
    def operation(self) -> str:
        """What most ranks gave up."""
        return Counter(report.operation for report in self.at_first.values()).most_common(1)[0][0]

    @property
    def behind(self) -> tuple[int, ...]:
        """The ranks that finished all that they enqueued, before the collective that others gave up."""
        return tuple(rank for rank in sorted(self.status) if self._is_behind(rank)) if self.given_up else ()

    def _is_behind(self, rank: int) -> bool:
        status = self.status[rank]
        if rank in self.given_up or status.enqueued is None or status.enqueued != status.completed:
            return False
        times = [report.at_ns for report in self.given_up.values() if report.at_ns is not None]
        after = 0 if status.at_ns is None or not times else status.at_ns - max(times)
        return status.enqueued < self.first and -EARLIEST <= after <= LATEST

    @property
    def silent_members(self) -> list[int]:
        """Members before the last one that printed a line, and of which no log has one."""
        members = {report.member for report in self.status.values() if report.member is not None}
        return sorted(set(range(max(members, default=0))) - members)


def groups_of(reports: Sequence[RankReport]) -> list[LogGroup]:
    """The groups that lines of known ranks name."""
    found: dict[str, LogGroup] = {}
    statuses = [one for one in reports if one.sign is Sign.STATUS and one.group and one.rank is not None]
    for one in statuses:
        group = found.setdefault(one.group, LogGroup(one.group, one.description))
        group.status[one.rank or 0] = one
    for one in reports:
        name = one.group or _group_at(one, statuses)
        if one.sign is not Sign.TIMED_OUT or one.rank is None or not name:
            continue
        given_up = found.setdefault(name, LogGroup(name)).given_up
        if one.rank not in given_up or (one.sequence or 0) < (given_up[one.rank].sequence or 0):
            given_up[one.rank] = one
    return list(found.values())


def _group_at(one: RankReport, statuses: Sequence[RankReport]) -> str:
    """The group of a collective that was given up, from the status that names the same number; empty if unclear."""
    names = {
        other.group
        for other in statuses
        if other.rank == one.rank and other.sequence == one.sequence is not None
    }
    return names.pop() if len(names) == 1 else ""


def waited_ns(reports: Sequence[Report]) -> int | None:
    """How long the first of these collectives ran until it was given up."""
    return max((one.ran_ms or one.timeout_ms or 0 for one in reports), default=0) * MILLISECOND or None


def standings_of(reports: Sequence[RankReport]) -> list[Standing]:
    """How far each rank is in each group, as its log says."""
    places: dict[tuple[str, str, int | None, str, Stage], list[int]] = defaultdict(list)
    for group in groups_of(reports):
        for rank in sorted({*group.given_up, *group.status}):
            places[group.name, group.description, *_place(group, rank)].append(rank)
    order = sorted(places.items(), key=lambda item: (item[0][0], item[0][2] or -1))
    return [Standing(*place, tuple(ranks)) for place, ranks in order]


def _place(group: LogGroup, rank: int) -> tuple[int | None, str, Stage]:
    if given_up := group.given_up.get(rank):
        return given_up.sequence, given_up.operation, Stage.WAITING
    enqueued, completed = group.status[rank].enqueued or 0, group.status[rank].completed or 0
    if enqueued < 1:
        return None, "", Stage.NEVER_JOINED
    if enqueued == completed:
        return enqueued, "", Stage.FINISHED
    return max(completed, 0) + 1, "", Stage.WAITING


ATTEMPT = re.compile(r"(?:^|/)attempt_(\d{1,6})(?=/|$)")
LOCAL_RANK = re.compile(r"/(\d{1,6})/(?:stdout|stderr)(?:\.log|\.txt)?$")
"""torchelastic writes `attempt_0/3/stderr.log`: 3 is the local rank."""
SAME_HANG = 600 * SECOND
"""Lines of one hang are within this time, if no line has a timeout."""


def assign_ranks(
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


def keep_last_hang(reports: Sequence[RankReport], findings: list[Finding]) -> list[RankReport]:
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
