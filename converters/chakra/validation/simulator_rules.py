"""What ASTRA-sim loads and cannot finish, as runs of its main branch show."""

from __future__ import annotations

import numpy as np

from tracelink.converters.chakra.schema import CollectiveType, Name, NodeType
from tracelink.converters.chakra.validation.rules import Rule
from tracelink.converters.chakra.validation.trace import Breach, Trace
from tracelink.events import Bools

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
