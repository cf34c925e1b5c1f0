"""Where each rank stands in each group: what it did last, and whether it finished that."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.analysis.wording import operation_in_words
from tracelink.cli.page import NOTHING, Page, counted, number
from tracelink.diagnosis import Diagnosis, Stage, Standing
from tracelink.ranges import Numbers

HEADER = ("group", "ranks", "last", "")
MOST_GROUPS = 8
"""Groups that are shown unless everything is asked for: those of the problems first."""
LONGEST_NAME = 24
LONGEST_LIST = 28
"""Letters of a group and of a list of ranks; more is cut."""


def show_standings(page: Page, diagnosis: Diagnosis, *, verbose: bool) -> None:
    """Those groups in which ranks stand at different places, or that a problem names."""
    groups: dict[tuple[str, str], list[Standing]] = {}
    for standing in diagnosis.standings:
        groups.setdefault((standing.group, standing.description), []).append(standing)
    named = _named(diagnosis)
    telling = [
        group
        for group, those in groups.items()
        if _apart(those) or (group[0] in named and any(one.sequence is not None for one in those))
    ]
    chosen = list(groups) if verbose else telling
    chosen.sort(
        key=lambda group: (named.index(group[0]) if group[0] in named else len(named), _natural(*group))
    )
    chosen = chosen if verbose else chosen[:MOST_GROUPS]
    rows = [row for group in chosen for row in _rows(group, groups[group])]
    if rows:
        page.table(HEADER, rows)
    if verbose:
        return
    if rest := len(telling) - len(chosen):
        page.line(f"{counted(rest, 'more group')} in which ranks differ; -v lists them", "dim")
    if alike := len(groups) - len(telling):
        others = "other " if rows else ""
        page.line(f"{counted(alike, f'{others}group')}: everybody at the same place", "dim")


def _named(diagnosis: Diagnosis) -> list[str]:
    """The groups that problems name, in their order."""
    names: dict[str, None] = {}
    for problem in diagnosis.problems:
        names.update(dict.fromkeys([problem.group, *(link.group for link in problem.cycle)]))
    return list(names)


def _natural(name: str, description: str) -> tuple[int, str, str]:
    """Sorts 9 before 10."""
    return len(name) if name.isdigit() else LONGEST_NAME, name, description


def _apart(standings: Sequence[Standing]) -> bool:
    """Whether those of whom something is known stand at different places."""
    return sum(standing.stage is not Stage.UNKNOWN for standing in standings) > 1


def _rows(group: tuple[str, str], standings: Sequence[Standing]) -> list[tuple[str, ...]]:
    """The furthest behind first."""
    front = max(one.sequence or 0 for one in standings)
    return [
        (group_cell(*group) if not place else "", ranks_cell(one.ranks), _last(one), _stage(one, front))
        for place, one in enumerate(standings)
    ]


def _last(standing: Standing) -> str:
    if standing.sequence is None:
        return NOTHING
    operation = operation_in_words(standing.operation) if standing.operation else ""
    return f"{operation} #{standing.sequence}".strip()


def _stage(standing: Standing, front: int) -> str:
    match standing.stage:
        case Stage.NEVER_JOINED:
            return "never joined" if front else "in no collective"
        case Stage.WAITING:
            return "joined, not finished"
        case Stage.FINISHED:
            number = standing.sequence or 0
            return f"finished, not in #{number + 1}" if number < front else "finished"
        case Stage.UNKNOWN:
            return "joined it at least" if standing.sequence is not None else "not known"


def group_cell(name: str, description: str) -> str:
    """`0 (default_pg)`."""
    label = f"{name} ({description})" if description not in ("", name) else name
    return label if len(label) <= LONGEST_NAME else f"{label[: LONGEST_NAME - 1]}…"


def ranks_cell(ranks: Sequence[int]) -> str:
    """`0-2, 4-7`; `256: 0, 2, 4, 6, 8, …` where that is long."""
    listed = str(Numbers.of(ranks))
    if len(listed) <= LONGEST_LIST:
        return listed
    head = f"{number(len(ranks))}: "
    return f"{head}{listed[: LONGEST_LIST - len(head)].rpartition(', ')[0]}, …"
