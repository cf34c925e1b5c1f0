"""The tables of problems, of who causes them and who waits, of who came late, and of what did not fit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from tracelink.converters.flight_database import schema
from tracelink.converters.flight_database.numbering import Numbering
from tracelink.converters.flight_database.rows import Batch, clean
from tracelink.diagnosis import Lateness, Problem, Role
from tracelink.findings import Finding


def problems_table(problems: Sequence[Problem], numbering: Numbering) -> Batch:
    """Every problem, the worst first."""
    groups = [
        numbering.group_of(one.group, one.description, (*one.culprits, *one.waiting)) for one in problems
    ]
    return Batch(
        schema.PROBLEMS.name,
        {
            "id": list(range(1, len(problems) + 1)),
            "kind": [one.kind.value for one in problems],
            "group_id": groups,
            "collective_id": [
                numbering.collective_of(group, one.sequence, one.operation)
                for group, one in zip(groups, problems, strict=True)
            ],
            "sequence": [one.sequence for one in problems],
            "operation": [clean(one.operation) for one in problems],
            "message": [clean(one.message) for one in problems],
            "advice": [clean(one.advice) or None for one in problems],
            "proven": [one.proven for one in problems],
            "tie": [one.tie for one in problems],
            "collectives": [one.count for one in problems],
            "waited_ns": [one.waited_ns for one in problems],
        },
    )


def problem_ranks_table(problems: Sequence[Problem]) -> Batch:
    """Who causes each problem, and who waits."""
    rows = [
        (number, rank, role.value, one.rows.get(rank))
        for number, one in enumerate(problems, start=1)
        for role, ranks in ((Role.CULPRIT, one.culprits), (Role.WAITING, one.waiting))
        for rank in ranks
    ]
    return Batch(schema.PROBLEM_RANKS.name, _columns(schema.PROBLEM_RANKS, rows))


def lateness_table(lateness: Sequence[Lateness], numbering: Numbering) -> Batch:
    """Who came last."""
    rows = [
        (one.rank, one.collectives, one.of, one.total_ns, one.worst_ns, _worst(one, numbering))
        for one in lateness
    ]
    return Batch(schema.LATENESS.name, _columns(schema.LATENESS, rows))


def _worst(one: Lateness, numbering: Numbering) -> int | None:
    candidates = chain.from_iterable(rows for (name, _), rows in numbering.named.items() if name == one.group)
    fitting = (row for row in candidates if one.rank in numbering.members[row])
    return numbering.collective_of(next(fitting, None), one.sequence)


def findings_table(findings: Sequence[Finding]) -> Batch:
    """What did not fit."""
    rows = [
        (
            one.severity.value,
            one.reason,
            clean(one.message),
            one.count,
            clean(one.source) or None,
            clean(one.example) or None,
        )
        for one in findings
    ]
    return Batch(schema.FINDINGS.name, _columns(schema.FINDINGS, rows))


def _columns(table: schema.Table, rows: Sequence[Sequence[object]]) -> dict[str, list[object]]:
    names = [column.name for column in table.columns]
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}
