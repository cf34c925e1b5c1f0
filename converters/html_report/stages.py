"""How far a rank is in a group, as it is shown: a sign, a colour and a word, so that none stands alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from tracelink.diagnosis import Stage, Standing


class Look(Enum):
    """The class of the style sheet, the sign and the words."""

    NEVER = "never", "\N{MULTIPLICATION SIGN}", "never joined any"
    BEHIND = "behind", "<", "finished an earlier one and did not join what others are in"
    WAITING = "waiting", "…", "joined and has not finished"
    FINISHED = "finished", "✓", "finished the last"
    UNUSED = "unused", "-", "nobody has used the group"
    UNKNOWN = "unknown", "?", "unknown: no dump, or the dump does not tell"

    def __init__(self, style: str, sign: str, words: str) -> None:
        self.style = style
        self.sign = sign
        self.words = words


@dataclass(frozen=True, slots=True)
class Place:
    """A standing and how it looks beside the others of its group."""

    standing: Standing
    look: Look


@dataclass(slots=True)
class Line:
    """Groups of one description that have no rank in common: what fits into one line of a picture."""

    description: str
    groups: list[str]
    places: dict[int, Place]


def places_by_group(standings: Sequence[Standing]) -> list[list[Place]]:
    """The places of each group, in the order of the standings."""
    return [_places(group) for same in _same_names(standings) for group in _apart(same)]


def _same_names(standings: Sequence[Standing]) -> Iterator[list[Standing]]:
    for _, same in groupby(standings, key=lambda one: (one.group, one.description)):
        yield list(same)


def _apart(standings: Sequence[Standing]) -> list[list[Standing]]:
    """Different groups can have one name; no rank stands at two places in one of them."""
    groups: list[list[Standing]] = [[]]
    seen: set[int] = set()
    for one in standings:
        if not seen.isdisjoint(one.ranks):
            groups.append([])
            seen = set()
        groups[-1].append(one)
        seen.update(one.ranks)
    return groups


def _places(standings: Sequence[Standing]) -> list[Place]:
    front = max(one.sequence or 0 for one in standings)
    unused = all(one.stage is Stage.NEVER_JOINED for one in standings)
    return [Place(one, Look.UNUSED if unused else _look(one, front)) for one in standings]


def _look(standing: Standing, front: int) -> Look:
    if standing.stage is Stage.FINISHED:
        return Look.BEHIND if (standing.sequence or 0) < front else Look.FINISHED
    return {Stage.NEVER_JOINED: Look.NEVER, Stage.WAITING: Look.WAITING}.get(standing.stage, Look.UNKNOWN)


def lines_of(groups: Sequence[Sequence[Place]]) -> list[Line]:
    """As few lines as hold all groups, those of one description together."""
    lines: dict[str, list[Line]] = {}
    for places in groups:
        standing = places[0].standing
        own = {rank: place for place in places for rank in place.standing.ranks}
        same = lines.setdefault(standing.description, [])
        line = next((one for one in same if one.places.keys().isdisjoint(own)), None)
        if line is None:
            line = Line(standing.description, [], {})
            same.append(line)
        line.groups.append(standing.group)
        line.places.update(own)
    return [line for same in lines.values() for line in same]
