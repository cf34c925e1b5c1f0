"""X2: the members of a group run the same collectives, in the same order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.converters.chakra.table import unsigned
from tracelink.converters.chakra.validation.alignment import Alignment, Difference, aligned
from tracelink.converters.chakra.validation.parts import UNKNOWN, Collectives
from tracelink.converters.chakra.validation.rules import Rule
from tracelink.converters.chakra.validation.verdict import Violation
from tracelink.events import Int64s


@dataclass(frozen=True, slots=True)
class Side:
    """A member of a group, what it runs in it, and the same as one number each."""

    rank: int
    path: str
    collectives: Collectives
    tokens: Int64s

    @property
    def known(self) -> bool:
        """Whether each says its type and its size."""
        return not bool(np.any((self.collectives.type == UNKNOWN) | (self.collectives.size == UNKNOWN)))

    def unknown(self, place: int) -> bool:
        """Whether one does not say its type or its size: that is another rule's."""
        return UNKNOWN in (self.collectives.type[place], self.collectives.size[place])


def disagreements(
    group: int, members: Mapping[int, tuple[str, Collectives]], astray: Mapping[int, Collectives]
) -> Iterator[Violation]:
    """How members differ from what most of them run; `astray` are collectives whose group nobody knows."""
    sides = _sides(group, members)
    if len({side.tokens.tobytes() for side in sides}) < 2:
        return
    model = _model(sides)
    for side in sides:
        if not np.array_equal(side.tokens, model.tokens):
            lost = _lost(astray.get(side.rank))
            yield from _of_side(group, model, side, lost)


def _sides(group: int, members: Mapping[int, tuple[str, Collectives]]) -> list[Side]:
    own = {rank: collectives.of(group) for rank, (_, collectives) in members.items()}
    bounds = np.cumsum([0, *map(len, own.values())])
    _, types = np.unique(np.concatenate([one.type for one in own.values()]), return_inverse=True)
    sizes, size = np.unique(np.concatenate([one.size for one in own.values()]), return_inverse=True)
    tokens = types * len(sizes) + size
    return [
        Side(rank, members[rank][0], one, tokens[bounds[place] : bounds[place + 1]])
        for place, (rank, one) in enumerate(own.items())
    ]


def _model(sides: Sequence[Side]) -> Side:
    """A member that runs what most do; of equally many the one that says and runs more."""
    times = Counter(side.tokens.tobytes() for side in sides)
    return max(
        sides, key=lambda side: (times[side.tokens.tobytes()], side.known, len(side.tokens), -side.rank)
    )


def _lost(astray: Collectives | None) -> Counter[tuple[int, int]]:
    if astray is None:
        return Counter()
    return Counter(zip(astray.type.tolist(), astray.size.tolist(), strict=True))


def _of_side(group: int, model: Side, side: Side, lost: Counter[tuple[int, int]]) -> Iterator[Violation]:
    where = "among all ranks" if not group else f"in group {group}"
    if not len(side.tokens):
        if lost.total() < len(model.tokens):
            yield _none(where, model, side)
        return
    alignment = aligned(model.tokens, side.tokens)
    if alignment.hopeless:
        same_types = np.array_equal(model.collectives.type, side.collectives.type)
        yield _sizes_differ(where, model, side) if same_types else _unlike(where, model, side, alignment)
        return
    for one in alignment.differences:
        if one.left is not None and one.right is None:
            key = int(model.collectives.type[one.left]), int(model.collectives.size[one.left])
            if lost[key]:
                lost[key] -= 1
                continue
        if violation := _difference(where, model, side, one):
            yield violation


def _difference(where: str, model: Side, side: Side, one: Difference) -> Violation | None:
    if one.left is not None and one.right is not None:
        if model.unknown(one.left) or side.unknown(one.right):
            return None
        text = (
            f"{_node(side, one.right)} is {side.collectives.called(one.right)}, the {_nth(one.right)} collective"
            f" {where}, where {_node(model, one.left)} is {model.collectives.called(one.left)}"
        )
        node = unsigned(side.collectives.node[one.right])
        return Violation(Rule.COLLECTIVE_DIFFERS, side.rank, node, text, side.path)
    if one.left is not None:
        text = (
            f"rank {side.rank} lacks {model.collectives.called(one.left)}, the {_nth(one.left)} collective"
            f" {where}, which is {_node(model, one.left)}"
        )
        return Violation(Rule.COLLECTIVE_MISSING, side.rank, None, text, side.path)
    assert one.right is not None
    text = (
        f"{_node(side, one.right)} is {side.collectives.called(one.right)}, the {_nth(one.right)} collective"
        f" {where}, which rank {model.rank} lacks"
    )
    node = unsigned(side.collectives.node[one.right])
    return Violation(Rule.COLLECTIVE_MISSING, side.rank, node, text, side.path)


def _none(where: str, model: Side, side: Side) -> Violation:
    count = len(model.tokens)
    text = f"rank {side.rank} runs none of the {count:,} collectives {where} that rank {model.rank} runs"
    return Violation(Rule.COLLECTIVE_MISSING, side.rank, None, text, side.path)


def _sizes_differ(where: str, model: Side, side: Side) -> Violation:
    differing = np.flatnonzero(model.tokens != side.tokens)
    text = (
        f"{len(differing):,} of the {len(side.tokens):,} collectives {where} are of other sizes on ranks"
        f" {model.rank} and {side.rank}"
    )
    return _from(int(differing[0]), text, side)


def _unlike(where: str, model: Side, side: Side, alignment: Alignment) -> Violation:
    text = (
        f"ranks {model.rank} and {side.rank} run {len(model.tokens):,} and {len(side.tokens):,} collectives"
        f" {where} that are not of one program"
    )
    return _from(alignment.differences[0].right or 0, text, side)


def _from(first: int, text: str, side: Side) -> Violation:
    place = min(first, len(side.tokens) - 1)
    node = unsigned(side.collectives.node[place])
    message = f"{text}, from {_node(side, place)} on, the {_nth(place)}"
    return Violation(Rule.COLLECTIVE_DIFFERS, side.rank, node, message, side.path)


def _node(side: Side, place: int) -> str:
    return f"node {unsigned(side.collectives.node[place])} of rank {side.rank}"


def _nth(place: int) -> str:
    number = place + 1
    if number % 100 in (11, 12, 13):
        return f"{number:,}th"
    return f"{number:,}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
