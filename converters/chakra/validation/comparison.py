"""The communication of ranks compared: collectives of a group (X2), their numbers in ASTRA-sim, and messages (X3)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from tracelink._model.columns import UNKNOWN, Bools, Int64s
from tracelink.converters.chakra.schema import SIMULATED, CollectiveType
from tracelink.converters.chakra.table import unsigned
from tracelink.converters.chakra.validation.file_rules import SPLITS, Checked
from tracelink.converters.chakra.validation.files import ALL_RANKS
from tracelink.converters.chakra.validation.rules import Rule, Violation
from tracelink.converters.chakra.validation.trace import Collectives, Messages

MATCHED = sorted(SIMULATED - {CollectiveType.BROADCAST})
"""Types that ASTRA-sim matches across ranks; it replays a broadcast on each rank by itself."""

_MOST_DIFFERENCES = 50
"""With more differences, two sequences are not of the same program and are not aligned."""


# Alignment of two sequences: a missing item is one difference, not one at every index behind it.


class Difference(Struct, frozen=True):
    """A place where two sequences differ; an index is None if only the other sequence has an item."""

    left: int | None
    right: int | None


class Alignment(Struct, frozen=True):
    """All differences; only the first one if there are too many to align the sequences."""

    differences: Sequence[Difference]
    hopeless: bool = False


def aligned(left: Int64s, right: Int64s) -> Alignment:
    """The fewest items to remove from either sequence so that the rest is equal.

    An item removed from both at the same position is one item that differs.
    """
    prefix = _common_prefix(left, right)
    suffix = _common_prefix(left[prefix:][::-1], right[prefix:][::-1])
    inner_left = left[prefix : len(left) - suffix].tolist()
    inner_right = right[prefix : len(right) - suffix].tolist()
    kept = _common_subsequence(inner_left, inner_right)
    if kept is None:
        return Alignment([Difference(prefix, prefix)], hopeless=True)
    differences = list[Difference]()
    at_left = at_right = 0
    for next_left, next_right in [*kept, (len(inner_left), len(inner_right))]:
        both = min(next_left - at_left, next_right - at_right)
        differences += [Difference(prefix + at_left + i, prefix + at_right + i) for i in range(both)]
        differences += [Difference(prefix + i, None) for i in range(at_left + both, next_left)]
        differences += [Difference(None, prefix + i) for i in range(at_right + both, next_right)]
        at_left, at_right = next_left + 1, next_right + 1
    return Alignment(differences)


def _common_prefix(left: Int64s, right: Int64s) -> int:
    count = min(len(left), len(right))
    differing = np.flatnonzero(left[:count] != right[:count])
    return int(differing[0]) if len(differing) else count


def _common_subsequence(left: Sequence[int], right: Sequence[int]) -> list[tuple[int, int]] | None:
    """Indices of common items by Myers' greedy search; None beyond `_MOST_DIFFERENCES`."""
    reached = {1: 0}
    history: list[dict[int, int]] = []
    for steps in range(min(len(left) + len(right), 2 * _MOST_DIFFERENCES) + 1):
        history.append(dict(reached))
        for diagonal in range(-steps, steps + 1, 2):
            previous = _previous_diagonal(reached, diagonal, steps)
            x = reached[previous] + (previous < diagonal)
            y = x - diagonal
            while x < len(left) and y < len(right) and left[x] == right[y]:
                x, y = x + 1, y + 1
            reached[diagonal] = x
            if x >= len(left) and y >= len(right):
                return _path(history, len(left), len(right))
    return None


def _previous_diagonal(reached: dict[int, int], diagonal: int, steps: int) -> int:
    """The diagonal from which one more step gets furthest on this one."""
    down = diagonal == -steps or (diagonal != steps and reached[diagonal - 1] < reached[diagonal + 1])
    return diagonal + 1 if down else diagonal - 1


def _path(history: Sequence[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    """The common items on the way to the end, first to last."""
    kept = []
    for steps in range(len(history) - 1, -1, -1):
        reached = history[steps]
        diagonal = x - y
        previous = _previous_diagonal(reached, diagonal, steps)
        from_x, from_y = reached[previous], reached[previous] - previous
        while x > from_x and y > from_y:
            x, y = x - 1, y - 1
            kept.append((x, y))
        x, y = from_x, from_y
    return kept[::-1]


# X2: the members of a group run the same collectives in the same order.


class _Member(Struct, frozen=True):
    """A rank of a group and its collectives in this group."""

    rank: int
    path: str
    collectives: Collectives
    tokens: Int64s
    """The collectives as numbers: equal for equal type and size."""

    @property
    def known(self) -> bool:
        """True if every collective has a type and a size."""
        return not bool(np.any((self.collectives.type == UNKNOWN) | (self.collectives.size == UNKNOWN)))

    def is_unknown(self, index: int) -> bool:
        """True if a collective has no type or no size, which is a violation of another rule."""
        return UNKNOWN in (self.collectives.type[index], self.collectives.size[index])

    def node(self, index: int) -> int:
        return unsigned(self.collectives.node[index])

    def label(self, index: int) -> str:
        """One collective by its node."""
        return f"node {self.node(index)} of rank {self.rank}"


def differing_collectives(group: int, ranks: Mapping[int, Checked]) -> Iterator[Violation]:
    """Differences of the members of a group from the sequence that most of them run.

    A collective of unknown group may be one that is missing here.
    """
    sequences = _members(group, ranks)
    if len({member.tokens.tobytes() for member in sequences}) < 2:
        return
    reference = _reference(sequences)
    for member in sequences:
        if not np.array_equal(member.tokens, reference.tokens):
            excused = _types_and_sizes(ranks[member.rank].collectives.of_group(UNKNOWN))
            yield from _differences(group, reference, member, excused)


def _members(group: int, ranks: Mapping[int, Checked]) -> list[_Member]:
    own = {rank: file.collectives.of_group(group) for rank, file in ranks.items()}
    bounds = np.cumsum([0, *map(len, own.values())])
    _, types = np.unique(np.concatenate([part.type for part in own.values()]), return_inverse=True)
    sizes, size = np.unique(np.concatenate([part.size for part in own.values()]), return_inverse=True)
    tokens = types * len(sizes) + size
    return [
        _Member(rank, ranks[rank].file.path, part, tokens[bounds[at] : bounds[at + 1]])
        for at, (rank, part) in enumerate(own.items())
    ]


def _reference(members: Sequence[_Member]) -> _Member:
    """A member with the most frequent sequence; of several the most complete and longest."""
    counts = Counter(member.tokens.tobytes() for member in members)

    def preference(member: _Member) -> tuple[int, bool, int, int]:
        return counts[member.tokens.tobytes()], member.known, len(member.tokens), -member.rank

    return max(members, key=preference)


def _types_and_sizes(collectives: Collectives) -> Counter[tuple[int, int]]:
    return Counter(zip(collectives.type.tolist(), collectives.size.tolist(), strict=True))


def _differences(
    group: int, reference: _Member, member: _Member, excused: Counter[tuple[int, int]]
) -> Iterator[Violation]:
    where = "of all ranks" if not group else f"in group {group}"
    if not len(member.tokens):
        if excused.total() < len(reference.tokens):
            yield _runs_none(where, reference, member)
        return
    alignment = aligned(reference.tokens, member.tokens)
    if alignment.hopeless:
        if np.array_equal(reference.collectives.type, member.collectives.type):
            yield _other_sizes(where, reference, member)
        else:
            yield _other_program(where, reference, member, alignment)
        return
    for difference in alignment.differences:
        if difference.left is not None and difference.right is None:
            at = difference.left
            key = int(reference.collectives.type[at]), int(reference.collectives.size[at])
            if excused[key]:
                excused[key] -= 1
                continue
        if violation := _difference(where, reference, member, difference):
            yield violation


def _difference(where: str, reference: _Member, member: _Member, difference: Difference) -> Violation | None:
    left, right = difference.left, difference.right
    if left is not None and right is not None:
        if reference.is_unknown(left) or member.is_unknown(right):
            return None
        text = (
            f"{member.label(right)} is {member.collectives.label(right)}, the {_ordinal(right)} collective {where};"
            f" {reference.label(left)} is {reference.collectives.label(left)}"
        )
        return Violation(Rule.COLLECTIVE_DIFFERS, member.rank, member.node(right), text, member.path)
    if left is not None:
        text = (
            f"rank {member.rank} does not run {reference.collectives.label(left)}, the {_ordinal(left)} collective"
            f" {where}, which is {reference.label(left)}"
        )
        return Violation(Rule.COLLECTIVE_MISSING, member.rank, None, text, member.path)
    assert right is not None
    text = (
        f"{member.label(right)} is {member.collectives.label(right)}, the {_ordinal(right)} collective {where},"
        f" which rank {reference.rank} does not run"
    )
    return Violation(Rule.COLLECTIVE_MISSING, member.rank, member.node(right), text, member.path)


def _runs_none(where: str, reference: _Member, member: _Member) -> Violation:
    count = len(reference.tokens)
    text = (
        f"rank {member.rank} runs none of the {count:,} collectives {where} that rank {reference.rank} runs"
    )
    return Violation(Rule.COLLECTIVE_MISSING, member.rank, None, text, member.path)


def _other_sizes(where: str, reference: _Member, member: _Member) -> Violation:
    differing = np.flatnonzero(reference.tokens != member.tokens)
    text = (
        f"{len(differing):,} of {len(member.tokens):,} collectives {where} have different sizes on ranks"
        f" {reference.rank} and {member.rank}"
    )
    return _from_first(int(differing[0]), text, member)


def _other_program(where: str, reference: _Member, member: _Member, alignment: Alignment) -> Violation:
    text = (
        f"ranks {reference.rank} and {member.rank} run {len(reference.tokens):,} and {len(member.tokens):,}"
        f" collectives {where} that are not of the same program"
    )
    return _from_first(alignment.differences[0].right or 0, text, member)


def _from_first(first: int, text: str, member: _Member) -> Violation:
    at = min(first, len(member.tokens) - 1)
    message = f"{text}, starting at {member.label(at)}, the {_ordinal(at)}"
    return Violation(Rule.COLLECTIVE_DIFFERS, member.rank, member.node(at), message, member.path)


def _ordinal(index: int) -> str:
    number = index + 1
    if number % 100 in (11, 12, 13):
        return f"{number:,}th"
    return f"{number:,}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


# The numbers of collectives in ASTRA-sim: it numbers those of all ranks together with those of groups.


def miscounted_collectives(ranks: Mapping[int, Checked], world_size: int) -> Iterator[Violation]:
    """Ranks on which a collective of all ranks has another number than on the first rank."""
    if not all(_countable(file.collectives) for file in ranks.values()):
        return
    numbered = {rank: _numbered(file.collectives, world_size) for rank, file in ranks.items()}
    first = min(numbered, default=0)
    for rank, (collectives, numbers) in numbered.items():
        expected = numbered[first][1]
        if np.array_equal(numbers, expected):
            continue
        at = int(np.flatnonzero(numbers != expected)[0])
        node = unsigned(collectives.node[at])
        text = (
            f"node {node} is {collectives.label(at)} of all ranks; before it, ranks {first} and {rank} run"
            " different numbers of collectives in groups"
        )
        yield Violation(Rule.MISCOUNTED, rank, node, text, ranks[rank].file.path)


def _countable(collectives: Collectives) -> bool:
    known = (collectives.type >= 0) & (collectives.size >= 0) & (collectives.group != UNKNOWN)
    return bool(known.all())


def _numbered(collectives: Collectives, world_size: int) -> tuple[Collectives, Int64s]:
    """The collectives of all ranks, and how many splits of any collective start before each."""
    matched = collectives.take(np.isin(collectives.type, MATCHED))
    splits = _splits(matched, world_size)
    of_all_ranks = matched.group == ALL_RANKS
    return matched.take(of_all_ranks), (np.cumsum(splits) - splits)[of_all_ranks]


def _splits(collectives: Collectives, world_size: int) -> Int64s:
    """The number of splits of each collective; small ones are enlarged, except all-gathers."""
    size = collectives.size // SPLITS
    enlarged = (size < world_size) & (collectives.type != CollectiveType.ALL_GATHER)
    size = np.where(enlarged, 1, np.maximum(size, 1))
    return np.where(enlarged, SPLITS, -(-collectives.size // size))


# M13 and X3: a message that is sent to a rank is received there, with the same tag and size.


class _MessageEnds(Messages, frozen=True):
    """The ends of messages on all ranks, one row each."""

    rank: Int64s
    paths: Mapping[int, str]

    @classmethod
    def of(cls, ranks: Mapping[int, Checked]) -> _MessageEnds:
        parts = [file.messages for file in ranks.values()]
        columns = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in Messages.__struct_fields__
        }
        rank = np.repeat(np.array(list(ranks), np.int64), [len(part.node) for part in parts])
        return cls(**columns, rank=rank, paths={number: file.file.path for number, file in ranks.items()})

    @property
    def source(self) -> Int64s:
        """The sending rank."""
        return np.where(self.sent, self.rank, self.peer)

    @property
    def target(self) -> Int64s:
        """The receiving rank."""
        return np.where(self.sent, self.peer, self.rank)

    def label(self, row: int) -> str:
        """One end in words."""
        verb, preposition = ("sends", "to") if self.sent[row] else ("receives", "from")
        return (
            f"node {unsigned(self.node[row])} of rank {self.rank[row]} {verb} {self.size[row]:,} bytes with tag"
            f" {self.tag[row]} {preposition} rank {self.peer[row]}"
        )

    def violation(self, row: int, text: str) -> Violation:
        """A violation at one end."""
        rank = int(self.rank[row])
        return Violation(Rule.UNMATCHED_MESSAGE, rank, unsigned(self.node[row]), text, self.paths[rank])


def unknown_peers(file: Checked, world_size: int) -> list[Violation]:
    """Messages to or from ranks that are not in the job."""
    messages = file.messages
    wrong = np.flatnonzero(messages.complete & ((messages.peer < 0) | (messages.peer >= world_size)))
    return [
        Violation(
            Rule.UNKNOWN_PEER,
            file.file.rank,
            unsigned(messages.node[row]),
            f"node {unsigned(messages.node[row])} {'sends to' if messages.sent[row] else 'receives from'} rank"
            f" {messages.peer[row]}, but the ranks of the job are 0 to {world_size - 1:,}",
            file.file.path,
        )
        for row in wrong.tolist()
    ]


def unmatched_messages(ranks: Mapping[int, Checked]) -> Iterator[Violation]:
    """Ends without a counterpart, among ranks whose messages are all known.

    An incomplete message, which is a violation of another rule, may be the counterpart of one end.
    """
    if not ranks:
        return
    ends = _MessageEnds.of(ranks)
    compared = np.isin(ends.peer, np.array(list(ranks), np.int64))
    between: dict[tuple[int, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for row in _unpaired(ends, np.flatnonzero(ends.complete & compared)).tolist():
        between[int(ends.source[row]), int(ends.target[row])][int(ends.sent[row])].append(row)
    incomplete = np.flatnonzero(~ends.complete)
    excused = Counter(zip(ends.rank[incomplete].tolist(), ends.sent[incomplete].tolist(), strict=True))
    for received, sent in between.values():
        yield from _unmatched_ends(ends, received, sent, excused)


def _unmatched_ends(
    ends: _MessageEnds,
    received: Sequence[int],
    sent: Sequence[int],
    excused: Counter[tuple[int, bool]],
) -> Iterator[Violation]:
    for send, receive in zip(sent, received, strict=False):
        text = f"{ends.label(receive)}, but {ends.label(send)}: tag and size must be equal"
        yield ends.violation(receive, text)
    for row in [*sent[len(received) :], *received[len(sent) :]]:
        counterpart = int(ends.peer[row]), not ends.sent[row]
        if excused[counterpart]:
            excused[counterpart] -= 1
            continue
        verb = "receive" if ends.sent[row] else "send"
        text = f"{ends.label(row)}, but rank {ends.peer[row]} does not {verb} such a message"
        yield ends.violation(row, text)


def _unpaired(ends: _MessageEnds, rows: Int64s) -> Int64s:
    """The rows left after pairing each send with a receive of the same ranks, tag and size."""
    columns = [column[rows] for column in (ends.sent, ends.size, ends.tag, ends.target, ends.source)]
    order = np.lexsort(columns)
    sent, *message = (column[order] for column in columns)
    starts = _starts_of_runs(message)
    number = np.cumsum(starts) - 1
    sends = np.bincount(number, weights=sent, minlength=1).astype(np.int64)
    receives = np.bincount(number, weights=~sent, minlength=1).astype(np.int64)
    runs = _starts_of_runs([*message, sent])
    index = np.arange(len(rows)) - np.flatnonzero(runs)[np.cumsum(runs) - 1]
    return np.sort(rows[order[index >= np.minimum(sends, receives)[number]]])


def _starts_of_runs(columns: Sequence[Int64s | Bools]) -> Bools:
    """Rows of sorted columns that differ from the row before."""
    starts = np.zeros(len(columns[0]), bool)
    for column in columns:
        starts[1:] |= column[1:] != column[:-1]
    starts[:1] = True
    return starts
