"""How far each rank is in each group: tables, and a picture with a cell for each rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from tracelink.diagnosis.model import Diagnosis, Stage, Standing
from tracelink.model.fields import FrozenRanks, Row, Shown
from tracelink.model.ranges import Numbers
from tracelink.model.text import (
    LONGEST_GROUP,
    counted,
    group_label,
    name_in_words,
    numbered,
    rank_list,
)
from tracelink.show.document import Block, Paragraph, Section, Table, Tone

BRIEF = 4
"""Rows that a terminal shows without -v: those of the problems first."""
MOST_ROWS = 200
"""Rows of a table on a page."""
MOST_NAMES = 8


class StandingRow(Row, frozen=True):
    """Ranks that are at the same collective of a group, or of several groups."""

    group: Annotated[str, Shown(longest=LONGEST_GROUP * 2)]
    ranks: FrozenRanks
    last: Annotated[str, Shown("last collective")]
    state: str


def standings_sections(diagnosis: Diagnosis) -> Iterator[Section]:
    """The groups in which ranks differ, or that a problem names; then those whose ranks are all at one collective."""
    groups: dict[tuple[str, str], list[Standing]] = {}
    for standing in diagnosis.standings:
        groups.setdefault((standing.group, standing.description), []).append(standing)
    named = _groups_of_problems(diagnosis)
    relevant = [group for group, standings in groups.items() if _is_relevant(standings, group[0] in named)]
    relevant.sort(
        key=lambda group: (named.index(group[0]) if group[0] in named else len(named), _natural(*group))
    )
    rows = [row for group in relevant for row in _rows_of(groups[group])]
    equal = [groups[group] for group in groups if group not in relevant]
    blocks: list[Block] = [
        Table(rows, brief=BRIEF, most=MOST_ROWS, thing="row with ranks at different collectives",
              things="rows with ranks at different collectives"),
    ]  # fmt: skip
    if equal:
        others = counted(len(equal), "other group" if rows else "group")
        blocks.append(Paragraph(f"{others}: all ranks are at the same collective.", Tone.ASIDE))
    yield Section("How far each rank got", blocks, anchor="standings", verbose=not diagnosis.problems)
    same = Table(_equal_rows(equal), thing="group", most=MOST_ROWS)
    yield Section("Groups whose ranks are all at the same collective", [same], verbose=True, titled=True)


def _is_relevant(standings: Sequence[Standing], named: bool) -> bool:
    """Whether ranks differ; not knowing where a rank is makes a difference in the groups of problems."""
    return (
        len({(one.stage, one.sequence) for one in standings if named or one.stage is not Stage.UNKNOWN}) > 1
    )


def _groups_of_problems(diagnosis: Diagnosis) -> list[str]:
    names: dict[str, None] = {}
    for problem in diagnosis.problems:
        names.update(dict.fromkeys([problem.group, *(link.group for link in problem.cycle)]))
    return list(names)


def _natural(name: str, description: str) -> tuple[int, str, str]:
    """A sort key that puts 9 before 10."""
    return len(name) if name.isdigit() else LONGEST_GROUP, name, description


def _rows_of(standings: Sequence[Standing]) -> list[StandingRow]:
    """The rows of a group, the ranks that are furthest behind first."""
    front = max(standing.sequence or 0 for standing in standings)
    return [
        StandingRow(group_label(one.group, one.description), one.ranks, _last(one), _state(one, front))
        for one in standings
    ]


def _last(standing: Standing) -> str:
    if standing.sequence is None:
        return ""
    operation = numbered(standing.operation, None) if standing.operation else ""
    return f"{operation} #{standing.sequence}".strip()


def _state(standing: Standing, front: int) -> str:
    match standing.stage:
        case Stage.NEVER_JOINED:
            return "never joined" if front else "no collectives"
        case Stage.WAITING:
            return "joined, not finished"
        case Stage.ENDING:
            return "joined, others have finished"
        case Stage.FINISHED:
            sequence = standing.sequence or 0
            return f"finished, did not join #{sequence + 1}" if sequence < front else "finished"
        case Stage.UNKNOWN:
            return "unknown" if standing.sequence is None else "joined, unknown after that"


def _equal_rows(groups: Sequence[Sequence[Standing]]) -> list[StandingRow]:
    """Groups of one description that are at the same collective share a row."""
    rows: list[StandingRow] = []
    same: dict[tuple[str, str, str], list[Standing]] = {}
    for standings in groups:
        for row, one in zip(_rows_of(standings), standings, strict=True):
            same.setdefault((one.description, row.last, row.state), []).append(one)
    for (_, last, state), ones in same.items():
        ranks = tuple(sorted({rank for one in ones for rank in one.ranks}))
        rows.append(StandingRow(_group_names(ones), ranks, last, state))
    return rows


def _group_names(standings: Sequence[Standing]) -> str:
    """`1-2 (tp)`."""
    if len(standings) == 1:
        return group_label(standings[0].group, standings[0].description)
    names = list(dict.fromkeys(standing.group for standing in standings))
    if all(name.isascii() and name.isdigit() and len(name) < 10 for name in names):
        listed = rank_list([int(name) for name in names]).partition(", … ")[0]
        more = len(Numbers.of(map(int, names)).ranges) > listed.count(",") + 1
    else:
        listed, more = ", ".join(map(name_in_words, names[:MOST_NAMES])), len(names) > MOST_NAMES
    listed += f", … ({counted(len(names), 'group')})" if more else ""
    description = name_in_words(standings[0].description)
    return f"{listed} ({description})" if description else listed
