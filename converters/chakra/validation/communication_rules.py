"""Rules of communication nodes in one file: what consumers need, and what ASTRA-sim cannot finish."""

from __future__ import annotations

import numpy as np

from tracelink._model.columns import UNKNOWN, Bools
from tracelink.converters.chakra.schema import SIMULATED, CollectiveType, Name, NodeType
from tracelink.converters.chakra.validation.files import group_number
from tracelink.converters.chakra.validation.rules import Rule
from tracelink.converters.chakra.validation.trace import Breach, Trace

SPLITS = 4
"""The number of splits of a collective in ASTRA-sim's own system files (`preferred-dataset-splits`)."""

_TYPES = len(CollectiveType)
_REQUIRED = {
    NodeType.COMM_SEND: (Name.COMM_SIZE, Name.COMM_TARGET, Name.COMM_TAG),
    NodeType.COMM_RECV: (Name.COMM_SIZE, Name.COMM_SOURCE, Name.COMM_TAG),
}
_PEERS = {NodeType.COMM_SEND: Name.COMM_TARGET, NodeType.COMM_RECV: Name.COMM_SOURCE}

# What every consumer needs.


def host_communication(trace: Trace) -> Breach:
    """M9: communication is not a host operator."""
    wrong = trace.communicates & (trace.on_host.values != 0)
    return trace.breach(Rule.HOST_COMMUNICATION, np.flatnonzero(wrong), lambda _: "has is_cpu_op true")


def incomplete_collective(trace: Trace) -> Breach:
    """M10: a collective has a type and a size."""
    names = (Name.COMM_TYPE, Name.COMM_SIZE)
    missing = {name: _collectives(trace) & ~trace.number(name).present for name in names}
    return trace.breach(
        Rule.INCOMPLETE_COLLECTIVE,
        np.flatnonzero(np.logical_or.reduce(list(missing.values()))),
        lambda row: f"has no {' and no '.join(name for name in names if missing[name][row])}",
    )


def unknown_collective(trace: Trace) -> Breach:
    """M11: the type of a collective is known."""
    kind = trace.number(Name.COMM_TYPE)
    wrong = _collectives(trace) & kind.known & ((kind.values < 0) | (kind.values >= _TYPES))
    return trace.breach(
        Rule.UNKNOWN_COLLECTIVE, np.flatnonzero(wrong), lambda row: f"has comm_type {kind.values[row]}"
    )


def unsimulated_collective(trace: Trace) -> Breach:
    """M11: ASTRA-sim runs the type of a collective; the full variant may have other types."""
    kind = trace.number(Name.COMM_TYPE)
    valid = _collectives(trace) & kind.known & (kind.values >= 0) & (kind.values < _TYPES)
    wrong = np.flatnonzero(valid & ~np.isin(kind.values, sorted(SIMULATED)))
    names = [kind.name for kind in CollectiveType]
    return trace.simulator_breach(
        Rule.UNSIMULATED_COLLECTIVE, wrong, lambda row: f"has comm_type {names[kind.values[row]]}"
    )


def negative_size(trace: Trace) -> Breach:
    """No size is negative."""
    size = trace.number(Name.COMM_SIZE)
    wrong = trace.communicates & size.known & (size.values < 0)
    return trace.breach(
        Rule.NEGATIVE_SIZE, np.flatnonzero(wrong), lambda row: f"has comm_size {size.values[row]:,}"
    )


def group_name(trace: Trace) -> Breach:
    """M12: the name of a group is a number."""
    unnumbered, _ = _without_group(trace)
    return trace.breach(
        Rule.GROUP_NAME,
        np.flatnonzero(unnumbered),
        lambda row: f"is in group {_group(trace, row)!r}, which is not a number",
    )


def unknown_group(trace: Trace) -> Breach:
    """M12: every group is listed."""
    _, unlisted_rows = _without_group(trace)
    unlisted = f"{trace.groups.source} does not list" if trace.groups.source else "no file lists"
    return trace.breach(
        Rule.UNKNOWN_GROUP,
        np.flatnonzero(unlisted_rows),
        lambda row: f"is in group {_group(trace, row)}, which {unlisted}",
    )


def foreign_group(trace: Trace) -> Breach:
    """The rank is a member of the group of each of its collectives."""
    foreign = [number for number, ranks in trace.groups.members.items() if trace.rank not in ranks]
    wrong = _collectives(trace) & np.isin(trace.group, np.array(foreign, np.int64))

    def predicate(row: int) -> str:
        return f"is in group {trace.group[row]}, but rank {trace.rank} is not a member"

    return trace.breach(Rule.FOREIGN_GROUP, np.flatnonzero(wrong), predicate)


def incomplete_message(trace: Trace) -> Breach:
    """M13: a message has a peer, a tag and a size."""
    missing: dict[Name, Bools] = {}
    for kind, names in _REQUIRED.items():
        for name in names:
            without = trace.nodes.of_type(kind) & ~trace.number(name).present
            missing[name] = missing.get(name, np.zeros(len(trace.nodes), bool)) | without
    return trace.breach(
        Rule.INCOMPLETE_MESSAGE,
        np.flatnonzero(np.logical_or.reduce(list(missing.values()))),
        lambda row: f"has no {' and no '.join(name for name in missing if missing[name][row])}",
    )


def foreign_message(trace: Trace) -> Breach:
    """M13: the own end of a message is the rank of the file."""
    wrong = np.zeros(len(trace.nodes), bool)
    own = {NodeType.COMM_SEND: Name.COMM_SOURCE, NodeType.COMM_RECV: Name.COMM_TARGET}
    for kind, name in own.items():
        end = trace.number(name)
        wrong |= trace.nodes.of_type(kind) & end.known & (end.values != trace.rank)

    def predicate(row: int) -> str:
        name = own[NodeType(int(trace.nodes.type[row]))]
        return f"has {name} {trace.number(name).values[row]} in the file of rank {trace.rank}"

    return trace.breach(Rule.FOREIGN_MESSAGE, np.flatnonzero(wrong), predicate)


def _collectives(trace: Trace) -> Bools:
    return trace.nodes.of_type(NodeType.COMM_COLL)


def _without_group(trace: Trace) -> tuple[Bools, Bools]:
    """Collectives whose group is not a number, and those whose group is not listed."""
    unnumbered, unlisted = np.zeros(len(trace.nodes), bool), np.zeros(len(trace.nodes), bool)
    for row in np.flatnonzero(_collectives(trace) & (trace.group == UNKNOWN)).tolist():
        name = _group(trace, row)
        if name is not None:
            (unnumbered if group_number(name) == UNKNOWN else unlisted)[row] = True
    return unnumbered, unlisted


def _group(trace: Trace, row: int) -> str | None:
    """The group that a node names; None if the value is not a string."""
    attribute = trace.nodes.attribute(Name.GROUP)
    value = attribute.values[int(np.searchsorted(attribute.rows, row, "right")) - 1]
    return value if isinstance(value, str) else None


# What ASTRA-sim loads but cannot finish, as runs of its main branch show.


def small_gather(trace: Trace) -> Breach:
    """An all-gather has at least one byte for each split."""
    kind, size = trace.number(Name.COMM_TYPE), trace.number(Name.COMM_SIZE)
    gathers = (
        trace.nodes.of_type(NodeType.COMM_COLL) & kind.known & (kind.values == CollectiveType.ALL_GATHER)
    )
    wrong = gathers & size.known & (size.values >= 0) & (size.values < SPLITS)
    return trace.simulator_breach(
        Rule.SMALL_GATHER, np.flatnonzero(wrong), lambda row: f"is an ALL_GATHER of {size.values[row]} bytes"
    )


def no_bytes(trace: Trace) -> Breach:
    """A message has at least one byte."""
    size = trace.number(Name.COMM_SIZE)
    wrong = _messages(trace) & size.known & (size.values == 0)
    return trace.simulator_breach(Rule.NO_BYTES, np.flatnonzero(wrong), lambda _: "has comm_size 0")


def negative_tag(trace: Trace) -> Breach:
    """No tag is negative."""
    tag = trace.number(Name.COMM_TAG)
    wrong = _messages(trace) & tag.known & (tag.values < 0)
    return trace.simulator_breach(
        Rule.NEGATIVE_TAG, np.flatnonzero(wrong), lambda row: f"has comm_tag {tag.values[row]}"
    )


def own_message(trace: Trace) -> Breach:
    """A message goes to another rank."""
    wrong = np.zeros(len(trace.nodes), bool)
    for kind, name in _PEERS.items():
        peer = trace.number(name)
        wrong |= trace.nodes.of_type(kind) & peer.known & (peer.values == trace.rank)
    return trace.simulator_breach(
        Rule.OWN_MESSAGE, np.flatnonzero(wrong), lambda _: f"is a message of rank {trace.rank} to itself"
    )


def ends_in_message(trace: Trace) -> Breach:
    """The last node of a rank with host nodes is not a message."""
    rows = np.empty(0, np.int64)
    if np.any(trace.on_host.values[trace.nodes.of_type(NodeType.COMP)]):
        dependencies = trace.dependencies
        last = np.ones(len(trace.nodes), bool)
        last[dependencies.target[dependencies.usable]] = False
        rows = np.flatnonzero(last & _messages(trace))
        if len(rows) and np.any(last & ~_messages(trace)):
            ends = trace.earliest_ends[last]
            rows = np.flatnonzero(last)[ends == ends.max()]
            rows = rows[_messages(trace)[rows]]
    return trace.simulator_breach(
        Rule.ENDS_IN_MESSAGE, rows[-1:], lambda _: "is a message, and the last node of a rank with host nodes"
    )


def _messages(trace: Trace) -> Bools:
    return trace.nodes.of_type(*_PEERS)
