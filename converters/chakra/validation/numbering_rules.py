"""By which numbers ASTRA-sim knows the collectives of all ranks, and whether the ranks count alike.

A rank counts all its collectives, those of groups too, and takes that count for a collective of all ranks; those of a
group with a number of its own are counted for themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tracelink.converters.chakra.schema import SIMULATED, CollectiveType
from tracelink.converters.chakra.table import unsigned
from tracelink.converters.chakra.validation.groups import EVERYBODY, NOWHERE
from tracelink.converters.chakra.validation.parts import Collectives
from tracelink.converters.chakra.validation.rules import Rule
from tracelink.converters.chakra.validation.simulator_rules import SPLITS
from tracelink.converters.chakra.validation.verdict import Violation
from tracelink.events import Int64s

COUNTED = sorted(SIMULATED - {CollectiveType.BROADCAST})


def miscounted(ranks: Mapping[int, tuple[str, Collectives]], world: int) -> Iterator[Violation]:
    """Ranks that count otherwise than the first one; where something does not say what it is nobody can count."""
    if not all(_known(collectives) for _, collectives in ranks.values()):
        return
    counted = {rank: _counted(collectives, world) for rank, (_, collectives) in ranks.items()}
    first = min(counted, default=0)
    for rank, (runs, before) in counted.items():
        expected = counted[first][1]
        if np.array_equal(before, expected):
            continue
        place = int(np.flatnonzero(before != expected)[0])
        node = unsigned(runs.node[place])
        text = (
            f"node {node} is {runs.called(place)} among all ranks, before which ranks {first} and {rank} run other"
            " collectives in groups"
        )
        yield Violation(Rule.MISCOUNTED, rank, node, text, ranks[rank][0])


def _known(runs: Collectives) -> bool:
    return bool(((runs.type >= 0) & (runs.size >= 0) & (runs.group != NOWHERE)).all())


def _counted(collectives: Collectives, world: int) -> tuple[Collectives, Int64s]:
    """The collectives of all ranks, and how many parts of any were begun before each."""
    runs = collectives.where(np.isin(collectives.type, COUNTED))
    parts = _parts(runs, world)
    among_all = runs.group == EVERYBODY
    return runs.where(among_all), (np.cumsum(parts) - parts)[among_all]


def _parts(runs: Collectives, world: int) -> Int64s:
    """Into how many parts each is cut; small ones are enlarged, but for those that gather."""
    part = runs.size // SPLITS
    enlarged = (part < world) & (runs.type != CollectiveType.ALL_GATHER)
    part = np.where(enlarged, 1, np.maximum(part, 1))
    return np.where(enlarged, SPLITS, -(-runs.size // part))
