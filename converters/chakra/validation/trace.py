"""One rank's nodes as the rules look at them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracelink.converters.chakra.decoding import Decoded
from tracelink.converters.chakra.schema import COMMUNICATION, WHOLE_NUMBERS, Kind, Name, Profile
from tracelink.converters.chakra.table import Attribute, NodeTable, chosen, signed, unsigned
from tracelink.converters.chakra.validation.groups import Groups
from tracelink.converters.chakra.validation.order import Issued, issued
from tracelink.converters.chakra.validation.rules import RULES, Rule
from tracelink.converters.chakra.validation.verdict import Found, Violation
from tracelink.events import Bools, Int64s

LONGEST_NAME = 60
FILE = np.array([-1])
"""In place of rows: the file as a whole."""


@dataclass(frozen=True, slots=True)
class Breach:
    """The nodes that break a rule; `says` tells what is wrong with the one at a place of `rows`."""

    rule: Rule
    rows: Int64s
    says: Callable[[int], str]
    warns: bool = False


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Both sorts, one row for each id that a node states."""

    owner: Int64s
    """The row of the node that depends."""
    place: Int64s
    """The row of the node that it depends on, or -1."""
    id: Int64s
    control: Bools

    @property
    def usable(self) -> Bools:
        """Those on another node that there is."""
        usable: Bools = (self.place >= 0) & (self.place != self.owner)
        return usable


@dataclass(frozen=True, slots=True)
class Told:
    """An attribute that is a number, one row for each node."""

    values: Int64s
    known: Bools
    """Which nodes have it as the kind that it must be."""
    present: Bools
    """Which nodes have it, whatever it is."""


@dataclass(frozen=True)
class Trace:
    """A file that was read, and what is known around it."""

    path: str
    rank: int
    profile: Profile
    groups: Groups
    decoded: Decoded
    head: bytes = b""
    """The first bytes of the file."""
    compressed: bool = False

    @property
    def nodes(self) -> NodeTable:
        """Its nodes."""
        return self.decoded.nodes

    @cached_property
    def dependencies(self) -> Dependencies:
        """What its nodes depend on."""
        data, control = self.nodes.data, self.nodes.control
        return Dependencies(
            np.concatenate([data.owners, control.owners]),
            np.concatenate([self.nodes.places(data), self.nodes.places(control)]),
            np.concatenate([data.ids, control.ids]),
            np.repeat([False, True], [len(data.ids), len(control.ids)]),
        )

    @cached_property
    def issued(self) -> Issued:
        """The order in which a simulator begins its nodes."""
        dependencies = self.dependencies
        usable = dependencies.usable
        return issued(self.nodes.id, dependencies.owner[usable], dependencies.place[usable])

    @cached_property
    def communicates(self) -> Bools:
        """Which nodes are communication."""
        return self.nodes.of_type(*COMMUNICATION)

    @cached_property
    def on_host(self) -> Told:
        """Which nodes are operators of the host."""
        return told(self.nodes.attribute(Name.IS_CPU_OP), len(self.nodes), frozenset({Kind.BOOL}))

    @cached_property
    def group(self) -> Int64s:
        """The number of each communication's group, `groups.NOWHERE` where it is in none that is known."""
        return self.groups.numbers(self.nodes.attribute(Name.GROUP), len(self.nodes))

    def number(self, name: str) -> Told:
        """An attribute that is a whole number."""
        if name not in self._numbers:
            self._numbers[name] = told(self.nodes.attribute(name), len(self.nodes), WHOLE_NUMBERS)
        return self._numbers[name]

    @cached_property
    def _numbers(self) -> dict[str, Told]:
        return {}

    def called(self, row: int) -> str:
        """A node by id and name."""
        text = self.nodes.text(row)
        shown = text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"
        return f"node {self.id(row)} ({shown})" if shown else f"node {self.id(row)}"

    def id(self, row: int) -> int:
        """The id of a node."""
        return unsigned(self.nodes.id[row])

    def breach(self, rule: Rule, rows: Int64s, says: Callable[[int], str]) -> Breach:
        """Nodes that break a rule; `says` is given a row, and tells what is wrong after the node's name."""
        return Breach(rule, rows, lambda place: f"{self.called(int(rows[place]))} {says(int(rows[place]))}")

    def limit(self, rule: Rule, rows: Int64s, says: Callable[[int], str]) -> Breach:
        """The same of what ASTRA-sim only cannot run: a trace of all that happened may have it."""
        breach = self.breach(rule, rows, says)
        return Breach(breach.rule, breach.rows, breach.says, warns=self.profile is Profile.FULL)

    def found(self, breach: Breach, limit: int | None) -> list[Found]:
        """A breach in words, the first `limit` of them."""
        if not len(breach.rows):
            return []
        shown = len(breach.rows) if limit is None else min(limit, len(breach.rows))
        listed = [
            Violation(
                breach.rule,
                self.rank,
                self.id(int(breach.rows[place])) if breach.rows[place] >= 0 else None,
                breach.says(place),
                self.path,
            )
            for place in range(shown)
        ]
        return [Found(breach.rule, breach.warns or RULES[breach.rule].warns, len(breach.rows), listed)]


def told(attribute: Attribute, length: int, kinds: frozenset[Kind]) -> Told:
    """An attribute as numbers, where it is of one of these kinds."""
    values, known, present = np.zeros(length, np.int64), np.zeros(length, bool), np.zeros(length, bool)
    present[attribute.rows] = True
    fits = np.flatnonzero(np.isin(attribute.kinds, np.array(sorted(kinds), np.uint8)))
    rows = attribute.rows[fits]
    values[rows] = signed(chosen(attribute.values, fits))
    known[rows] = True
    return Told(values, known, present)
