"""Communicator groups: a JSON file beside the traces, or what our own files say of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracelink.converters.chakra.table import Attribute
from tracelink.events import Int64s
from tracelink.ranks import LARGEST_RANK

EVERYBODY = 0
NOWHERE = -1
LARGEST_GROUP = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Groups:
    """The ranks of each group by its number; `source` is where that stands, empty where nothing says it."""

    members: Mapping[int, Sequence[int]] = field(default_factory=dict)
    source: str = ""
    problems: Sequence[str] = ()

    def numbers(self, names: Attribute, length: int) -> Int64s:
        """The group of each of `length` nodes; a node that names none is among all ranks."""
        column = np.full(length, EVERYBODY, np.int64)
        known: dict[str, int] = {}
        for row, name in zip(names.rows.tolist(), names.values, strict=True):
            text = name if isinstance(name, str) else None
            if text is None:
                column[row] = NOWHERE
                continue
            if text not in known:
                known[text] = self.number(text)
            column[row] = known[text]
        return column

    def number(self, name: str) -> int:
        """The group that a node names, or `NOWHERE`."""
        number = group_number(name)
        return number if number == EVERYBODY or number in self.members else NOWHERE

    def of(self, number: int, world: int) -> Sequence[int]:
        """The ranks of a group in a job of `world` ranks."""
        return range(world) if number == EVERYBODY else self.members.get(number, ())

    @property
    def largest(self) -> int:
        """The largest rank of any group, or -1."""
        return max((rank for ranks in self.members.values() for rank in ranks), default=-1)


def group_number(name: str) -> int:
    """The number that a group's name is; `NOWHERE` where it is none."""
    if not name:
        return EVERYBODY
    fits = name.isascii() and name.isdecimal() and len(name) <= len(str(LARGEST_GROUP))
    return int(name) if fits and int(name) <= LARGEST_GROUP else NOWHERE


def groups_of(text: bytes | str, source: str, *, described: bool = False) -> Groups:
    """Groups from JSON; what cannot be used is a problem. `described` ones are objects with a name and ranks."""
    try:
        stated = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Groups(source=source, problems=[f"{source} is no JSON: {error}"])
    if not isinstance(stated, dict):
        return Groups(source=source, problems=[f"{source} is no object of groups"])
    members: dict[int, Sequence[int]] = {}
    problems = []
    for name, said in stated.items():
        ranks = said.get("ranks") if described and isinstance(said, dict) else said
        number = group_number(name) if name else NOWHERE
        if problem := _problem(number, ranks, described=described):
            problems.append(f"{source}: group {name!r} {problem}")
        elif ranks and number != EVERYBODY:
            members[number] = tuple(ranks)
    return Groups(members, source, problems)


def _problem(number: int, ranks: Any, *, described: bool) -> str:
    if number == NOWHERE:
        return "is no whole number"
    if number == EVERYBODY and not described:
        return "cannot be listed: 0 means all ranks"
    if not isinstance(ranks, list) or not ranks:
        return "has no list of ranks"
    if not all(type(rank) is int and 0 <= rank <= LARGEST_RANK for rank in ranks):
        return "has members that are no ranks"
    return "has a rank twice" if len(set(ranks)) < len(ranks) else ""


def united(parts: Sequence[Groups]) -> Groups:
    """What the files of several ranks say together; where two contradict each other that is a problem."""
    members: dict[int, Sequence[int]] = {}
    problems = []
    for part in parts:
        for number, ranks in part.members.items():
            if members.setdefault(number, ranks) != ranks:
                problems.append(
                    f"{part.source} says that group {number} is {_short(ranks)}, and another file"
                    f" {_short(members[number])}"
                )
    return Groups(members, parts[0].source if parts else "", problems)


def _short(ranks: Sequence[int]) -> str:
    from tracelink.ranges import Numbers

    return f"[{Numbers.of(ranks)}]"
