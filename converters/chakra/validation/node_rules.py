"""What each node must be by itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tracelink.converters.chakra.schema import NodeType
from tracelink.converters.chakra.table import unsigned
from tracelink.converters.chakra.validation.rules import Rule
from tracelink.converters.chakra.validation.trace import Breach, Trace
from tracelink.events import Int64s

USABLE_TYPES = (
    NodeType.MEM_LOAD,
    NodeType.MEM_STORE,
    NodeType.COMP,
    NodeType.COMM_SEND,
    NodeType.COMM_RECV,
    NodeType.COMM_COLL,
)


def duplicate_id(trace: Trace) -> Breach:
    """M4: no two nodes have one id."""
    _, first = np.unique(trace.nodes.id, return_index=True)
    again = np.ones(len(trace.nodes), bool)
    again[first] = False
    return trace.breach(Rule.DUPLICATE_ID, np.flatnonzero(again), lambda _: "has the id of an earlier node")


def no_name(trace: Trace) -> Breach:
    """M3: every node has a name."""
    empty = _names(trace, lambda text: not text.strip())
    return trace.breach(Rule.NO_NAME, empty, lambda _: "has no name")


def comma_in_name(trace: Trace) -> Breach:
    """S3: no name has a comma."""
    return trace.breach(Rule.COMMA_IN_NAME, _names(trace, lambda text: "," in text), lambda _: "has a comma")


def node_type(trace: Trace) -> Breach:
    """M8: every node is something that a simulator runs."""
    types = trace.nodes.type

    def says(row: int) -> str:
        if types[row] == NodeType.INVALID:
            return "has no type"
        return "is a metadata node" if types[row] == NodeType.METADATA else f"is of type {types[row]}"

    return trace.breach(Rule.NODE_TYPE, np.flatnonzero(~trace.nodes.of_type(*USABLE_TYPES)), says)


def absurd_time(trace: Trace) -> Breach:
    """Times fit 63 bits, and so does the end."""
    start, duration = trace.nodes.start, trace.nodes.duration
    end = start.view(np.uint64) + duration.view(np.uint64)
    wrong = (start < 0) | (duration < 0) | (end.view(np.int64) < 0)

    def says(row: int) -> str:
        begins, lasts = unsigned(start[row]), unsigned(duration[row])
        return f"begins at {begins:,} µs and lasts {lasts:,} µs, which is beyond 2^63"

    return trace.breach(Rule.ABSURD_TIME, np.flatnonzero(wrong), says)


def no_duration(trace: Trace) -> Breach:
    """S1: what computes takes time."""
    idle = trace.nodes.of_type(NodeType.COMP) & (trace.nodes.duration == 0)
    return trace.breach(Rule.NO_DURATION, np.flatnonzero(idle), lambda _: "lasts 0 µs")


def no_host_mark(trace: Trace) -> Breach:
    """S2: every node says whether it is one of the host."""
    return trace.breach(
        Rule.NO_HOST_MARK, np.flatnonzero(~trace.on_host.present), lambda _: "does not say is_cpu_op"
    )


def host_nodes(trace: Trace) -> Breach:
    """S5: there are only device and communication nodes."""
    on_host = (trace.on_host.values != 0) & ~trace.communicates
    return trace.breach(Rule.HOST_NODES, np.flatnonzero(on_host), lambda _: "is an operator of the host")


def _names(trace: Trace, chosen: Callable[[str], bool]) -> Int64s:
    codes = np.array([chosen(text) for text in trace.nodes.strings], bool)
    return np.flatnonzero(codes[trace.nodes.name]) if len(codes) else np.empty(0, np.int64)
