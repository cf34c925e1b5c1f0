"""Rings of waits to problems: who waits for whom, and who left the order that all others keep."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.analysis.causes import Cause
from tracelink.analysis.elapsed import Elapsed
from tracelink.analysis.message_rings import culprits_of_ring
from tracelink.analysis.order import Order
from tracelink.analysis.waits import Wait
from tracelink.analysis.wording import group_in_words, lowered, operation_in_words, ranks_in_words
from tracelink.diagnosis import Kind, Link, Problem
from tracelink.journal import Journal

MOST_LINKS = 6
"""Of a ring, that its message tells; the rest is in `cycle`."""


def deadlock(elapsed: Elapsed, order: Order, cause: Cause) -> Problem:
    """The ring; its culprits are those who began with what comes later for most, else the fewest."""
    journal = elapsed.journal
    deviating = _deviating(order, cause.waits)
    culprits, tie = (deviating, False) if deviating else _without_order(journal, cause.waits)
    first = _first(cause.waits, culprits, messages=not deviating)
    group = journal.groups[first.group]
    return Problem(
        Kind.DEADLOCK,
        group.name,
        group.description,
        first.sequence,
        first.operation,
        culprits,
        tuple(rank for rank in cause.waiting if tie or rank not in culprits),
        f"Deadlock: {_told(journal, cause.waits)}.",
        tie=tie,
        waited_ns=elapsed.longest(first.rows),
        cycle=tuple(_link(journal, wait, cause.waits) for wait in cause.waits),
        rows={rank: row for wait in cause.waits for rank, row in _shown(wait, culprits)},
    )


def _first(ring: Sequence[Wait], culprits: Sequence[int], *, messages: bool) -> Wait:
    """What others wait for the culprits in; the first message in which these are, where messages tell of them."""
    own = [
        (min(wait.rows.values()), number)
        for number, wait in enumerate(ring)
        if wait.message and set(wait.rows) & set(culprits)
    ]
    if own and messages:
        return ring[min(own)[1]]
    return next((wait for wait in ring if set(wait.awaited) & set(culprits)), ring[0])


def _deviating(order: Order, ring: Sequence[Wait]) -> tuple[int, ...]:
    """Who is in one of the ring although another, in which it is awaited, comes first for most."""
    found: set[int] = set()
    for wait in ring:
        for other in ring:
            awaited = set(other.awaited) & set(wait.rows)
            if other is wait or not awaited or wait.message or other.message:
                continue
            other_first, wait_first = order.first_for(other, wait)
            if len(other_first) > len(wait_first):
                found |= awaited
    return tuple(sorted(found)) if found < _all(ring) else ()


def _without_order(journal: Journal, ring: Sequence[Wait]) -> tuple[tuple[int, ...], bool]:
    """The culprits where no order of collectives tells, and whether nothing tells which of them is."""
    if any(wait.message for wait in ring):
        return culprits_of_ring(journal, ring)
    return _fewest(ring)


def _fewest(ring: Sequence[Wait]) -> tuple[tuple[int, ...], bool]:
    """Those who are in what the fewest are in, and whether that is several things."""
    fewest = min(len(wait.rows) for wait in ring)
    odd = [wait for wait in ring if len(wait.rows) == fewest]
    return tuple(sorted(_all(odd))), len(odd) > 1


def _all(waits: Sequence[Wait]) -> set[int]:
    return {rank for wait in waits for rank in wait.rows}


def _shown(wait: Wait, culprits: Sequence[int]) -> list[tuple[int, int]]:
    """The entries of culprits in it, else that of one who is."""
    own = [(rank, row) for rank, row in wait.rows.items() if rank in culprits]
    return own or list(wait.rows.items())[:1]


def _told(journal: Journal, ring: Sequence[Wait]) -> str:
    left_out = len(ring) - MOST_LINKS
    shown = ring[:MOST_LINKS] if left_out > 1 else ring
    told = "; ".join(_link_in_words(journal, wait, ring) for wait in shown)
    return f"{told}; and {left_out:,} more waits" if left_out > 1 else told


def _link_in_words(journal: Journal, wait: Wait, ring: Sequence[Wait]) -> str:
    group = journal.groups[wait.group]
    return (
        f"{lowered(ranks_in_words(wait.ranks))} in {operation_in_words(wait.operation)} #{wait.sequence} of "
        f"{group_in_words(group.name, group.description)} "
        f"wait{'s' if len(wait.rows) == 1 else ''} for {lowered(ranks_in_words(_awaited(wait, ring)))}"
    )


def _awaited(wait: Wait, ring: Sequence[Wait]) -> tuple[int, ...]:
    """For whom in the ring it waits."""
    inside = _all([other for other in ring if other is not wait])
    return tuple(rank for rank in wait.awaited if rank in inside)


def _link(journal: Journal, wait: Wait, ring: Sequence[Wait]) -> Link:
    return Link(
        journal.groups[wait.group].name, wait.sequence, wait.operation, wait.ranks, _awaited(wait, ring)
    )
