"""How far each rank is in each group, as a picture with a cell for each rank; and the cycle of a deadlock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from msgspec import Struct

from tracelink.diagnosis.model import Diagnosis, Link, Stage, Standing
from tracelink.model.ranges import Numbers
from tracelink.model.text import counted, group_name, name_in_words, numbered, rank_list
from tracelink.show.diagrams import MOST_NODES, Heading, Look, Mark, Tile, grid, ring
from tracelink.show.document import Block, Chart, Paragraph

MOST_RANKS = 32
"""Ranks that have a column each in the picture; more are in rows of their own."""
PER_ROW = 64
MOST_CELLS = 4000
"""Runs of equal cells that are drawn."""

# How far ranks are: a line for each group, or for groups of one description without a common rank.


class Progress(Mark):
    """The look, the sign and the words of a standing: readable without colors."""

    NEVER = Look.WORST, "\N{MULTIPLICATION SIGN}", "never joined a collective of this group"
    BEHIND = (
        Look.BAD, "<", "finished an earlier collective and did not join the one that others are in",
    )  # fmt: skip
    EARLIER = Look.LATE, "«", "is in an earlier collective than others and has not finished it"
    WAITING = Look.WAITING, "…", "joined and has not finished"
    FINISHED = Look.DONE, "✓", "finished the last collective"
    UNKNOWN = Look.UNKNOWN, "?", "unknown: no dump, or the dump does not show it"


def mark_of(standing: Standing, front: int) -> Progress:
    """The mark of a standing, if the first rank of its group is at the collective `front`."""
    behind = (standing.sequence or 0) < front
    return {
        Stage.NEVER_JOINED: Progress.NEVER,
        Stage.ENDING: Progress.FINISHED,
        Stage.WAITING: Progress.EARLIER if behind else Progress.WAITING,
        Stage.FINISHED: Progress.BEHIND if behind else Progress.FINISHED,
        Stage.UNKNOWN: Progress.UNKNOWN,
    }[standing.stage]


class Line(Struct):
    """Groups of one description without a common rank: they share one line of a picture."""

    description: str
    groups: list[str]
    standings: dict[int, tuple[Standing, Progress]]

    @property
    def name(self) -> str:
        """`tp (4 groups)`."""
        if len(self.groups) == 1:
            return group_name(self.groups[0], self.description).removeprefix("group ")
        return f"{name_in_words(self.description) or 'groups'} ({counted(len(self.groups), 'group')})"

    @property
    def marks(self) -> set[Progress]:
        """All marks of the line."""
        return {mark for _, mark in self.standings.values()}


def lines_of(standings: Sequence[Standing]) -> list[Line]:
    """As few lines as possible for all groups that have collectives, those of one description together."""
    lines: dict[str, list[Line]] = {}
    for _, of_name in groupby(standings, key=lambda one: (one.group, one.description)):
        for group in _split_by_rank(list(of_name)):
            front = max(one.sequence or 0 for one in group)
            if not front:
                continue
            own = {rank: (one, mark_of(one, front)) for one in group for rank in one.ranks}
            same = lines.setdefault(group[0].description, [])
            line = next((one for one in same if one.standings.keys().isdisjoint(own)), None)
            if line is None:
                line = Line(group[0].description, [], {})
                same.append(line)
            line.groups.append(group[0].group)
            line.standings.update(own)
    return [line for same in lines.values() for line in same]


def _split_by_rank(standings: Sequence[Standing]) -> list[list[Standing]]:
    """Different groups can have the same name; a rank has one standing in each."""
    groups: list[list[Standing]] = [[]]
    seen: set[int] = set()
    for standing in standings:
        if not seen.isdisjoint(standing.ranks):
            groups.append([])
            seen = set()
        groups[-1].append(standing)
        seen.update(standing.ranks)
    return groups


def pictures(diagnosis: Diagnosis) -> Iterator[Block]:
    """One picture of few ranks, with a column for each; of many ranks one for each line."""
    lines = lines_of(diagnosis.standings)
    ranks = sorted({rank for line in lines for rank in line.standings})
    culprits = {rank for problem in diagnosis.problems for rank in problem.culprits}
    if not lines:
        yield Paragraph("No dump names a collective of a group.")
    elif len(ranks) <= MOST_RANKS:
        yield _small(lines, ranks, culprits)
    else:
        yield from _large(lines)


def _small(lines: Sequence[Line], ranks: Sequence[int], culprits: set[int]) -> Chart:
    title = "Last collective of each rank in each group"
    rows = [(line.name, [_cell(line.standings.get(rank), rank) for rank in ranks]) for line in lines]
    columns = [Heading(f"{rank} ▲" if rank in culprits else f"{rank}", f"rank {rank}") for rank in ranks]
    marked = f"{title} (▲ culprit)" if not culprits.isdisjoint(ranks) else title
    return Chart(
        grid(marked, rows, columns, Progress.legend({mark for line in lines for mark in line.marks})).svg,
        title,
    )


def _cell(marked: tuple[Standing, Progress] | None, rank: int) -> Tile | None:
    if marked is None:
        return None
    standing, mark = marked
    last = "" if standing.sequence is None else f" {standing.sequence}"
    return Tile(f"{mark.sign}{last}", mark.look, f"rank {rank}, {_in_words(standing, mark)}")


def _in_words(standing: Standing, mark: Progress, *, group: bool = True) -> str:
    where = f"{group_name(standing.group, standing.description)}: " if group else ""
    last = "" if standing.sequence is None else f", {numbered(standing.operation, standing.sequence)}"
    return f"{where}{mark.words}{last}"


def _large(lines: Sequence[Line]) -> Iterator[Block]:
    """A picture for each line in which ranks differ, up to a limit."""
    cells = 0
    for index, line in enumerate(lines):
        words = {_in_words(*marked, group=False) for marked in line.standings.values()}
        if len(words) == 1:
            yield Paragraph(f"{line.name}: all {counted(len(line.standings), 'rank')}: {words.pop()}")
            continue
        rows = [(f"{row * PER_ROW}", list(runs)) for row, runs in _runs(line)]
        cells += sum(len(runs) for _, runs in rows)
        if cells > MOST_CELLS:
            rest = counted(len(lines) - index, "more line")
            yield Paragraph(f"{rest} are not drawn; the table below has all groups.")
            return
        yield Chart(
            grid(line.name, rows, (), Progress.legend(line.marks)).svg, line.name, note=_summary(line)
        )


def _runs(line: Line) -> Iterator[tuple[int, Iterator[Tile | None]]]:
    """For each row of the picture its cells; consecutive ranks with the same standing share one."""
    for row, ranks in groupby(sorted(line.standings), key=lambda rank: rank // PER_ROW):
        present = set(ranks)
        columns = [rank if rank in present else None for rank in range(row * PER_ROW, max(present) + 1)]
        yield row, _cells_of(line.standings, columns)


def _cells_of(
    standings: Mapping[int, tuple[Standing, Progress]], columns: Sequence[int | None]
) -> Iterator[Tile | None]:
    def same(rank: int | None) -> tuple[Progress, int | None, str] | None:
        if rank is None:
            return None
        standing, mark = standings[rank]
        return mark, standing.sequence, standing.operation

    for _, run in groupby(columns, key=same):
        equal = list(run)
        ranks = [rank for rank in equal if rank is not None]
        if not ranks:
            yield from [None] * len(equal)
            continue
        standing, mark = standings[ranks[0]]
        one_group = len({standings[rank][0].group for rank in ranks}) == 1
        words = _in_words(standing, mark, group=one_group)
        yield mark.tile(f"{Numbers.of(ranks).called('rank')}, {words}", len(ranks))


def _summary(line: Line) -> str:
    """What the picture shows, in words."""
    by_mark: dict[Progress, list[int]] = {}
    for rank, (_, mark) in line.standings.items():
        by_mark.setdefault(mark, []).append(rank)
    return "; ".join(f"{rank_list(sorted(ranks))}: {mark.words}" for mark, ranks in by_mark.items())


# The cycle of a deadlock.


def cycle_chart(
    cycle: Sequence[Link], names: Sequence[str], next_nodes: Sequence[Sequence[int]]
) -> Iterator[Chart]:
    """The cycle, unless it is too large: `names` are those of its groups, `next_nodes` what each link waits for."""
    if not 1 < len(cycle) <= MOST_NODES:
        return
    title = "The cycle of the deadlock"
    lines = [
        (
            f"rank{'s' if len(link.ranks) != 1 else ''} {rank_list(link.ranks)}",
            numbered(link.operation, link.sequence),
            name,
        )
        for link, name in zip(cycle, names, strict=True)
    ]
    arrows = [(index, other) for index, others in enumerate(next_nodes) for other in others]
    note = "An arrow leads from ranks that wait to those they wait for."
    yield Chart(ring(title, lines, arrows).svg, title, note)
