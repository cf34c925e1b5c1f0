"""Deadlocks: ranks wait for each other in different calls."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from tracelink._hang.model import Category, Kind, Link
from tracelink._hang.verdicts.base import Verdict, called_at
from tracelink._model.operations import POINT_TO_POINT, operation_of
from tracelink._model.text import (
    capitalized,
    collective_in_words,
    group_in_words,
    lowered,
    ranks_in_words,
)
from tracelink._model.trace import ProcessGroup

MOST_LINKS = 6
"""How many waits of a cycle its message names; all of them are in `cycle`."""


class Deadlock(Verdict, frozen=True, kw_only=True):
    """A cycle of waits."""

    kind: Kind = Kind.DEADLOCK
    descriptions: Mapping[str, str] = field(default_factory=dict)
    """Of the groups of the cycle."""

    gone_on: tuple[int, ...] = ()
    """Ranks that went on without their end of the message in which a culprit waits."""

    usual = Category.CODE_PATH
    counts_waiting = False

    def claim(self) -> str:
        """The waits of the cycle."""
        more = len(self.cycle) - MOST_LINKS
        shown = self.cycle[:MOST_LINKS] if more > 1 else self.cycle
        links = "; ".join(map(self._link_in_words, shown))
        subject = "Deadlock" if self.tie else f"{self.ranks} deadlock{'s' if len(self.culprits) == 1 else ''}"
        return f"{subject}: {links}{f'; and {more:,} more waits' if more > 1 else ''}"

    def _link_in_words(self, link: Link) -> str:
        group = ProcessGroup(link.group, self.descriptions.get(link.group, ""))
        return (
            f"{lowered(ranks_in_words(link.ranks))} in {collective_in_words(link.operation, link.sequence, group)} "
            f"wait{'s' if len(link.ranks) == 1 else ''} for {lowered(ranks_in_words(link.waits_for))}"
        )

    def next_step(self) -> str:
        """The order of calls on all ranks."""
        if self.gone_on:
            return (
                f"{ranks_in_words(self.gone_on)} went on without the other end of {self.call}: look at the peer that "
                f"{self.example} names{f', at {self.own_line}' if self.own_line else ''}."
            )
        if all(operation_of(link.operation) in POINT_TO_POINT for link in self.cycle):
            last = [called_at(evidence.entries[-1]) for evidence in self.evidence]
            lines = " and ".join(dict.fromkeys(filter(None, last)))
            return (
                "Let one side send while the other receives, in the same order, or issue both with batch_isend_irecv"
                f"{f': see {lines}' if lines else ''}."
            )
        groups = list(dict.fromkeys(link.group for link in self.cycle))
        between = f"groups {' and '.join(groups)}" if len(groups) > 1 else "these ranks"
        first_calls = [
            f"rank {evidence.rank} is in {group_in_words(entry.group, self.descriptions.get(entry.group, ''))} first"
            + (f", at {called_at(entry)}" if entry.frames else "")
            for evidence in self.evidence
            for entry in evidence.entries[-1:]
        ]
        shown = f": {'; '.join(first_calls)}" if first_calls else ""
        same_order = f"call all the collectives of {between} in the same order on all ranks{shown}."
        if self.in_other_order or self.tie:
            return capitalized(same_order)
        return (
            f"{capitalized(self.example)} has skipped its part in {self.call}, or would call it later than the others: "
            f"look for the branch that skips it, else {same_order}"
        )
