"""What each rank was last doing in each group."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.analysis.parts import Outcome, Parts
from tracelink.analysis.waits import Wait
from tracelink.analysis.whereabouts import Knowledge, Whereabouts
from tracelink.communications import UNKNOWN
from tracelink.diagnosis import Stage, Standing
from tracelink.journal import Journal


def standings_of(journal: Journal, parts: Parts, where: Whereabouts, waits: Sequence[Wait]) -> list[Standing]:
    """The ranks of each group that stand at the same place, the last first: at the first that is not finished."""
    pending = {(wait.group, rank): wait for wait in waits if not wait.message for rank in wait.rows}
    together: dict[tuple[int, int, str, Stage], list[int]] = {}
    front = {group: int(where.last[where.of_group(group)].max()) for group in set(where.group.tolist())}
    for group, rank, last, part, knowledge in zip(
        where.group.tolist(),
        where.rank.tolist(),
        where.last.tolist(),
        where.part.tolist(),
        where.knowledge.tolist(),
        strict=True,
    ):
        if wait := pending.get((group, rank)):
            place = (group, wait.sequence, journal.operation(wait.rows[rank]), Stage.WAITING)
        else:
            operation = journal.operation(int(parts.row[part])) if part != UNKNOWN else ""
            place = (group, last, operation, _stage(parts, part, knowledge, behind=last < front[group]))
        together.setdefault(place, []).append(rank)
    return [
        Standing(
            journal.groups[group].name,
            journal.groups[group].description,
            last if last != UNKNOWN else None,
            operation,
            stage,
            tuple(ranks),
        )
        for (group, last, operation, stage), ranks in sorted(together.items())
    ]


def _stage(parts: Parts, part: int, knowledge: int, *, behind: bool) -> Stage:
    if part == UNKNOWN:
        return Stage.NEVER_JOINED if knowledge == Knowledge.EXACT else Stage.UNKNOWN
    if knowledge == Knowledge.UNTIL and behind:
        return Stage.UNKNOWN
    return Stage.FINISHED if parts.outcome[part] >= Outcome.RETIRED else Stage.WAITING
