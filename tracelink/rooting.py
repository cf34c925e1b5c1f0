"""Profiles to roots: what ranks that broadcast, reduce, gather or scatter said of the one that gives or gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tracelink.analysis.roots import Roots, rooted_entries
from tracelink.beside import profiles_among, sources_of
from tracelink.collectives import RankCalls
from tracelink.communications import UNKNOWN
from tracelink.engine import Engine
from tracelink.errors import TraceError
from tracelink.findings import Finding, Severity
from tracelink.gathering import gather
from tracelink.journal import Journal
from tracelink.operations import ROOTED
from tracelink.reading import Task
from tracelink.sources import Discovery

MOST_BYTES = 1 << 30
"""Of profiles, as stored: more of them would keep a user waiting for what is seldom the cause."""

WITHOUT_TIMES = "execution-trace"
"""Which entry is which of its nodes is known only with a profile beside it."""


def roots_of(journal: Journal, tasks: Sequence[Task], engine: Engine) -> tuple[Roots, list[Finding]]:
    """What all profiles tell; none is read unless there is something that has a root."""
    timed = {task.likely_rank for task in profiles_among(tasks) if task.reader.name != WITHOUT_TIMES}
    found = sources_of(_ranks_with_roots(journal) & timed, tasks, journal)
    sources = [source for of_rank in found.values() for source in of_rank]
    if len(found) < 2:
        return Roots.of(), []
    if (size := sum(source.bytes for source in sources)) > MOST_BYTES:
        return Roots.of(), [_too_large(size, len(found))]
    try:
        gathered = gather(Discovery(sources), engine, with_events=False)
    except TraceError as error:
        message = f"whether ranks name the same root is not checked: {error}"
        return Roots.of(), [Finding(Severity.WARNING, "roots_unreadable", message, source=error.source)]
    rows = [row for one in gathered.ranks for row in _told(one.calls, journal)]
    return Roots.of(rows), [one for one in gathered.findings if one.severity is Severity.ERROR]


def _ranks_with_roots(journal: Journal) -> set[int]:
    """The ranks that do something together that has a root."""
    return set(np.unique(journal.rank[rooted_entries(journal)]).tolist())


def _told(calls: RankCalls, journal: Journal) -> list[tuple[int, int, int, int]]:
    """Group, number, rank and root of calls that a profile shows at the time of their entry."""
    table = calls.calls
    rooted = [code for code, text in enumerate(calls.strings) if text in ROOTED]
    known = np.isin(table.operation, rooted) & (table.record != UNKNOWN) & (table.operator != UNKNOWN)
    known &= (table.source != UNKNOWN) & (table.sequence != UNKNOWN) & ~table.point_to_point
    rows: list[tuple[int, int, int, int]] = []
    for row in np.flatnonzero(known).tolist():
        group = _group(journal.group_rows, calls, int(table.group[row]))
        root = int(table.source[row])
        if table.global_ranks[row] and group != UNKNOWN:
            members = journal.groups[group].ranks
            root = members.index(root) if root in members else UNKNOWN
        if UNKNOWN not in (group, root):
            rows.append((group, int(table.sequence[row]), calls.rank, root))
    return rows


def _group(rows: Mapping[tuple[int, str], int], calls: RankCalls, code: int) -> int:
    return UNKNOWN if code == UNKNOWN else rows.get((calls.rank, calls.strings[code]), UNKNOWN)


def _too_large(size: int, ranks: int) -> Finding:
    message = (
        f"whether ranks name the same root is not checked: the profiles of {ranks} ranks have "
        f"{size / 1e9:.1f} GB. Give those of the ranks in doubt."
    )
    return Finding(Severity.INFO, "roots_unchecked", message, ranks)
