"""How far a rank is in a group, as it is shown: a sign, a colour and a word, so that none stands alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from tracelink.diagnosis import Stage, Standing


class Look(Enum):
    """The class of the style sheet, the sign and the words."""

    NEVER = "never", "\N{MULTIPLICATION SIGN}", "never joined a collective there"
    BEHIND = "behind", "<", "finished an earlier one and did not join what others are in"
    EARLIER = "earlier", "<…", "is in an earlier one than others and has not finished"
    WAITING = "waiting", "…", "joined and has not finished"
    FINISHED = "finished", "✓", "finished the last"
    UNUSED = "unused", "-", "nobody recorded a collective there"
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

    @property
    def unused(self) -> bool:
        """Whether nobody has recorded a collective in any of its groups."""
        return all(place.standing.sequence is None for place in self.places.values())


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
    used = any(one.sequence is not None for one in standings)
    return [Place(one, _look(one, front) if used else _unused(one)) for one in standings]


def _unused(standing: Standing) -> Look:
    return Look.UNUSED if standing.stage is Stage.NEVER_JOINED else Look.UNKNOWN


def _look(standing: Standing, front: int) -> Look:
    behind = (standing.sequence or 0) < front
    return {
        Stage.NEVER_JOINED: Look.NEVER,
        Stage.WAITING: Look.EARLIER if behind else Look.WAITING,
        Stage.FINISHED: Look.BEHIND if behind else Look.FINISHED,
        Stage.UNKNOWN: Look.UNKNOWN,
    }[standing.stage]


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
