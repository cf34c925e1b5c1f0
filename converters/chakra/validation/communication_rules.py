"""Rules of communication."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.converters.chakra.schema import SIMULATED, CollectiveType, Name, NodeType
from tracelink.converters.chakra.table import unsigned
from tracelink.converters.chakra.validation.rules import Rule, Violation
from tracelink.converters.chakra.validation.trace import Breach, Messages, Trace, group_number
from tracelink.model.columns import UNKNOWN, Bools, Int64s

# What communication nodes must say.


TYPES = len(CollectiveType)
NEEDED = {
    NodeType.COMM_SEND: (Name.COMM_SIZE, Name.COMM_TARGET, Name.COMM_TAG),
    NodeType.COMM_RECV: (Name.COMM_SIZE, Name.COMM_SOURCE, Name.COMM_TAG),
}


def host_communication(trace: Trace) -> Breach:
    """M9: communication is none of the host's operators."""
    wrong = trace.communicates & (trace.on_host.values != 0)
    return trace.breach(Rule.HOST_COMMUNICATION, np.flatnonzero(wrong), lambda _: "says is_cpu_op")


def incomplete_collective(trace: Trace) -> Breach:
    """M10: a collective says what it does, and with how many bytes."""
    names = (Name.COMM_TYPE, Name.COMM_SIZE)
    absent = {name: _collectives(trace) & ~trace.number(name).present for name in names}
    return trace.breach(
        Rule.INCOMPLETE_COLLECTIVE,
        np.flatnonzero(np.logical_or.reduce(list(absent.values()))),
        lambda row: f"has no {' and no '.join(name for name in names if absent[name][row])}",
    )


def unknown_collective(trace: Trace) -> Breach:
    """M11: the type is one that there is."""
    kind = trace.number(Name.COMM_TYPE)
    wrong = _collectives(trace) & kind.known & ((kind.values < 0) | (kind.values >= TYPES))
    return trace.breach(
        Rule.UNKNOWN_COLLECTIVE, np.flatnonzero(wrong), lambda row: f"has comm_type {kind.values[row]}"
    )


def unsimulated_collective(trace: Trace) -> Breach:
    """M11: the type is one that ASTRA-sim runs; traces of all that happened may have others."""
    kind = trace.number(Name.COMM_TYPE)
    there = _collectives(trace) & kind.known & (kind.values >= 0) & (kind.values < TYPES)
    wrong = np.flatnonzero(there & ~np.isin(kind.values, sorted(SIMULATED)))
    names = [kind.name for kind in CollectiveType]
    return trace.limit(
        Rule.UNSIMULATED_COLLECTIVE, wrong, lambda row: f"has comm_type {names[kind.values[row]]}"
    )


def negative_size(trace: Trace) -> Breach:
    """Sizes are not below 0."""
    size = trace.number(Name.COMM_SIZE)
    wrong = trace.communicates & size.known & (size.values < 0)
    return trace.breach(
        Rule.NEGATIVE_SIZE, np.flatnonzero(wrong), lambda row: f"has comm_size {size.values[row]:,}"
    )


def group_name(trace: Trace) -> Breach:
    """M12: a group is known by a number."""
    unnumbered, _ = _outside_groups(trace)
    return trace.breach(
        Rule.GROUP_NAME,
        np.flatnonzero(unnumbered),
        lambda row: f"is of group {_group(trace, row)!r}, which is no number",
    )


def unknown_group(trace: Trace) -> Breach:
    """M12: a group is one that is defined."""
    _, undefined = _outside_groups(trace)
    where = trace.groups.source or "nothing that was found"
    return trace.breach(
        Rule.UNKNOWN_GROUP,
        np.flatnonzero(undefined),
        lambda row: f"is of group {_group(trace, row)}, which {where} does not define",
    )


def foreign_group(trace: Trace) -> Breach:
    """The rank is a member of the group."""
    others = [number for number, ranks in trace.groups.members.items() if trace.rank not in ranks]
    wrong = _collectives(trace) & np.isin(trace.group, np.array(others, np.int64))

    def says(row: int) -> str:
        return f"is of group {trace.group[row]}, which rank {trace.rank} is no member of"

    return trace.breach(Rule.FOREIGN_GROUP, np.flatnonzero(wrong), says)


def incomplete_message(trace: Trace) -> Breach:
    """M13: a message says where it goes or comes from, its tag and its size."""
    absent: dict[Name, Bools] = {}
    for kind, names in NEEDED.items():
        for name in names:
            missing = trace.nodes.of_type(kind) & ~trace.number(name).present
            absent[name] = absent.get(name, np.zeros(len(trace.nodes), bool)) | missing
    return trace.breach(
        Rule.INCOMPLETE_MESSAGE,
        np.flatnonzero(np.logical_or.reduce(list(absent.values()))),
        lambda row: f"has no {' and no '.join(name for name in absent if absent[name][row])}",
    )


def foreign_message(trace: Trace) -> Breach:
    """M13: a message is sent and received by the rank whose file it stands in."""
    wrong = np.zeros(len(trace.nodes), bool)
    own = {NodeType.COMM_SEND: Name.COMM_SOURCE, NodeType.COMM_RECV: Name.COMM_TARGET}
    for kind, name in own.items():
        end = trace.number(name)
        wrong |= trace.nodes.of_type(kind) & end.known & (end.values != trace.rank)

    def says(row: int) -> str:
        name = own[NodeType(int(trace.nodes.type[row]))]
        return f"has {name} {trace.number(name).values[row]} in the file of rank {trace.rank}"

    return trace.breach(Rule.FOREIGN_MESSAGE, np.flatnonzero(wrong), says)


def _collectives(trace: Trace) -> Bools:
    return trace.nodes.of_type(NodeType.COMM_COLL)


def _outside_groups(trace: Trace) -> tuple[Bools, Bools]:
    """Which collectives name a group that is no number, and which one that nothing defines."""
    unnumbered, undefined = np.zeros(len(trace.nodes), bool), np.zeros(len(trace.nodes), bool)
    for row in np.flatnonzero(_collectives(trace) & (trace.group == UNKNOWN)).tolist():
        name = _group(trace, row)
        if name is not None:
            (unnumbered if group_number(name) == UNKNOWN else undefined)[row] = True
    return unnumbered, undefined


def _group(trace: Trace, row: int) -> str | None:
    """The group that a node names; None where what it says is no text."""
    attribute = trace.nodes.attribute(Name.GROUP)
    value = attribute.values[int(np.searchsorted(attribute.rows, row, "right")) - 1]
    return value if isinstance(value, str) else None


# What ASTRA-sim loads and cannot finish, as runs of its main branch show.


SPLITS = 4
"""Into so many parts ASTRA-sim's own system files let it cut a collective (`preferred-dataset-splits`)."""
PEERS = {NodeType.COMM_SEND: Name.COMM_TARGET, NodeType.COMM_RECV: Name.COMM_SOURCE}


def small_gather(trace: Trace) -> Breach:
    """A gathering of all has a byte for each part that it is cut into."""
    kind, size = trace.number(Name.COMM_TYPE), trace.number(Name.COMM_SIZE)
    gathers = (
        trace.nodes.of_type(NodeType.COMM_COLL) & kind.known & (kind.values == CollectiveType.ALL_GATHER)
    )
    wrong = gathers & size.known & (size.values >= 0) & (size.values < SPLITS)
    return trace.limit(
        Rule.SMALL_GATHER, np.flatnonzero(wrong), lambda row: f"gathers {size.values[row]} bytes from all"
    )


def no_bytes(trace: Trace) -> Breach:
    """A message has a byte."""
    size = trace.number(Name.COMM_SIZE)
    wrong = _messages(trace) & size.known & (size.values == 0)
    return trace.limit(Rule.NO_BYTES, np.flatnonzero(wrong), lambda _: "has comm_size 0")


def negative_tag(trace: Trace) -> Breach:
    """A tag is not below 0."""
    tag = trace.number(Name.COMM_TAG)
    wrong = _messages(trace) & tag.known & (tag.values < 0)
    return trace.limit(
        Rule.NEGATIVE_TAG, np.flatnonzero(wrong), lambda row: f"has comm_tag {tag.values[row]}"
    )


def own_message(trace: Trace) -> Breach:
    """A message goes to another rank."""
    wrong = np.zeros(len(trace.nodes), bool)
    for kind, name in PEERS.items():
        peer = trace.number(name)
        wrong |= trace.nodes.of_type(kind) & peer.known & (peer.values == trace.rank)
    return trace.limit(
        Rule.OWN_MESSAGE, np.flatnonzero(wrong), lambda _: f"is between rank {trace.rank} and itself"
    )


def _messages(trace: Trace) -> Bools:
    return trace.nodes.of_type(*PEERS)


# M13 and X3: what is sent to a rank is received there, with the same tag and size.


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
