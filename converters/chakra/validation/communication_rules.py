"""What communication nodes must say."""

from __future__ import annotations

import numpy as np

from tracelink.converters.chakra.schema import SIMULATED, CollectiveType, Name, NodeType
from tracelink.converters.chakra.validation.groups import NOWHERE, group_number
from tracelink.converters.chakra.validation.rules import Rule
from tracelink.converters.chakra.validation.trace import Breach, Trace
from tracelink.events import Bools

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
    for row in np.flatnonzero(_collectives(trace) & (trace.group == NOWHERE)).tolist():
        name = _group(trace, row)
        if name is not None:
            (unnumbered if group_number(name) == NOWHERE else undefined)[row] = True
    return unnumbered, undefined


def _group(trace: Trace, row: int) -> str | None:
    """The group that a node names; None where what it says is no text."""
    attribute = trace.nodes.attribute(Name.GROUP)
    value = attribute.values[int(np.searchsorted(attribute.rows, row, "right")) - 1]
    return value if isinstance(value, str) else None
