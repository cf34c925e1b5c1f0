"""M13 and X3: what is sent to a rank is received there, with the same tag and size."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.converters.chakra.table import unsigned
from tracelink.converters.chakra.validation.parts import Messages
from tracelink.converters.chakra.validation.rules import Rule
from tracelink.converters.chakra.validation.verdict import Violation
from tracelink.events import Bools, Int64s


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of messages on all ranks, one row each."""

    rank: Int64s
    node: Int64s
    sent: Bools
    peer: Int64s
    tag: Int64s
    size: Int64s
    complete: Bools

    @property
    def source(self) -> Int64s:
        """Who sends."""
        return np.where(self.sent, self.rank, self.peer)

    @property
    def target(self) -> Int64s:
        """Who receives."""
        return np.where(self.sent, self.peer, self.rank)


def unknown_peers(rank: int, path: str, messages: Messages, world: int) -> list[Violation]:
    """Messages to or from ranks that there are not."""
    wrong = np.flatnonzero(messages.complete & ((messages.peer < 0) | (messages.peer >= world)))
    return [
        Violation(
            Rule.UNKNOWN_PEER,
            rank,
            unsigned(messages.node[row]),
            f"node {unsigned(messages.node[row])} {'sends to' if messages.sent[row] else 'receives from'} rank"
            f" {messages.peer[row]}, and ranks are 0 to {world - 1:,}",
            path,
        )
        for row in wrong.tolist()
    ]


def unmatched(messages: Mapping[int, Messages], paths: Mapping[int, str]) -> Iterator[Violation]:
    """Ends without a counterpart, among ranks whose messages are all known.

    An end may belong to one that does not say where it goes: that is another rule's, and excuses it.
    """
    if not messages:
        return
    ends = _ends(messages)
    compared = np.isin(ends.peer, np.array(list(messages), np.int64))
    between: dict[tuple[int, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for row in _left(ends, np.flatnonzero(ends.complete & compared)).tolist():
        between[int(ends.source[row]), int(ends.target[row])][int(ends.sent[row])].append(row)
    vague = np.flatnonzero(~ends.complete)
    excuses = Counter(zip(ends.rank[vague].tolist(), ends.sent[vague].tolist(), strict=True))
    for received, sent in between.values():
        yield from _violations(ends, received, sent, excuses, paths)


def _violations(
    ends: Ends,
    received: Sequence[int],
    sent: Sequence[int],
    excuses: Counter[tuple[int, bool]],
    paths: Mapping[int, str],
) -> Iterator[Violation]:
    for send, receive in zip(sent, received, strict=False):
        text = f"{_called(ends, receive)}, and {_called(ends, send)}: tag and size must be the same"
        yield _violation(ends, receive, text, paths)
    for row in [*sent[len(received) :], *received[len(sent) :]]:
        counterpart = int(ends.peer[row]), not ends.sent[row]
        if excuses[counterpart]:
            excuses[counterpart] -= 1
            continue
        missing = "is received" if ends.sent[row] else "is sent"
        yield _violation(ends, row, f"{_called(ends, row)}, and nothing like it {missing} there", paths)


def _left(ends: Ends, rows: Int64s) -> Int64s:
    """Those of `rows` that are left when each sending has taken a receiving of the same peers, tag and size."""
    columns = [column[rows] for column in (ends.sent, ends.size, ends.tag, ends.target, ends.source)]
    order = np.lexsort(columns)
    sent, *message = (column[order] for column in columns)
    begins = _changes(message)
    number = np.cumsum(begins) - 1
    sendings = np.bincount(number, weights=sent, minlength=1).astype(np.int64)
    receivings = np.bincount(number, weights=~sent, minlength=1).astype(np.int64)
    turns = _changes([*message, sent])
    place = np.arange(len(rows)) - np.flatnonzero(turns)[np.cumsum(turns) - 1]
    return np.sort(rows[order[place >= np.minimum(sendings, receivings)[number]]])


def _changes(columns: Sequence[Int64s | Bools]) -> Bools:
    """Which rows of sorted columns are not like the one before."""
    changes = np.zeros(len(columns[0]), bool)
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    changes[:1] = True
    return changes


def _called(ends: Ends, row: int) -> str:
    does = "sends to" if ends.sent[row] else "receives from"
    return (
        f"node {unsigned(ends.node[row])} of rank {ends.rank[row]} {does} rank {ends.peer[row]}"
        f" {ends.size[row]:,} bytes with tag {ends.tag[row]}"
    )


def _violation(ends: Ends, row: int, text: str, paths: Mapping[int, str]) -> Violation:
    rank = int(ends.rank[row])
    return Violation(Rule.UNMATCHED_MESSAGE, rank, unsigned(ends.node[row]), text, paths[rank])


def _ends(messages: Mapping[int, Messages]) -> Ends:
    parts = list(messages.values())
    ranks = np.repeat(np.array(list(messages), np.int64), [len(part.node) for part in parts])
    return Ends(
        ranks,
        np.concatenate([part.node for part in parts]),
        np.concatenate([part.sent for part in parts]),
        np.concatenate([part.peer for part in parts]),
        np.concatenate([part.tag for part in parts]),
        np.concatenate([part.size for part in parts]),
        np.concatenate([part.complete for part in parts]),
    )
