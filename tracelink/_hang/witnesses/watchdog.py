"""What watchdog lines in logs say of each group: which ranks gave up a collective there, and how far the others got."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from msgspec import Struct, field

from tracelink._hang.model import Stage, Standing
from tracelink._model.columns import MILLISECOND, SECOND
from tracelink._model.trace import ProcessGroup
from tracelink._model.witnesses import RankReport, Report, Sign

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
