"""What the bytes of a file and its first message must be."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from google.protobuf.message import Message

from tracelink.converters.chakra.schema import Said
from tracelink.converters.chakra.validation.rules import Rule
from tracelink.converters.chakra.validation.trace import FILE, Breach, Trace

RULE_OF_FAULT = {
    "no_metadata": Rule.NO_METADATA,
    "unreadable_metadata": Rule.NO_METADATA,
    "broken_off": Rule.BROKEN_MESSAGE,
    "empty_message": Rule.EMPTY_MESSAGE,
    "unreadable_node": Rule.UNREADABLE_NODE,
}

CONTINUED = 0x80
"""A byte of a length that is not its last."""
FIRST_TAGS = (0x0A, 0x12, 0x08)
"""A first message begins with its version or an attribute, or with the id of a node."""
SHOWN = 24

INCOMPLETE = frozenset(
    {
        Rule.UNREADABLE,
        Rule.NOT_CHAKRA,
        Rule.NO_METADATA,
        Rule.BROKEN_MESSAGE,
        Rule.UNREADABLE_NODE,
        Rule.NODE_COUNT,
    }
)
"""After these nobody knows what else the rank does."""


def bytes_of_file(trace: Trace) -> Iterator[Breach]:
    """Every fault that reading met, by rule; of a file that is something else only that."""
    for rule, texts in _faults(trace).items():
        yield Breach(rule, np.full(len(texts), FILE[0]), texts.__getitem__)


def compressed(trace: Trace) -> Breach | None:
    """M17: the file is as it is read."""
    return _of_file(Rule.COMPRESSED, "the file is compressed with gzip") if trace.compressed else None


def node_count(trace: Trace) -> Breach | None:
    """The nodes are as many as the file says, where it does."""
    said = trace.decoded.said(Said.NODES)
    if not isinstance(said, int) or said == len(trace.nodes) or _known_incomplete(trace):
        return None
    return _of_file(
        Rule.NODE_COUNT, f"the file says that it has {said:,} nodes, and has {len(trace.nodes):,}"
    )


def no_root(trace: Trace) -> Breach | None:
    """M1: a node depends on nothing."""
    if _known_incomplete(trace):
        return None
    if not len(trace.nodes):
        return _of_file(Rule.NO_ROOT, "the file has no node")
    stated = trace.dependencies
    depends = np.bincount(stated.owner[stated.usable], minlength=len(trace.nodes))
    return None if (depends == 0).any() else _of_file(Rule.NO_ROOT, "every node depends on another")


def no_node_count(trace: Trace) -> Breach | None:
    """A cut between nodes can be found out."""
    if trace.decoded.said(Said.NODES) is not None or _known_incomplete(trace):
        return None
    return _of_file(Rule.NO_NODE_COUNT, "the file does not say how many nodes it has")


def no_version(trace: Trace) -> Breach | None:
    """S4: the version is stated."""
    if trace.decoded.metadata.version or _known_incomplete(trace):
        return None
    return _of_file(Rule.NO_VERSION, "the metadata have no version")


def _faults(trace: Trace) -> dict[Rule, list[str]]:
    if _not_chakra(trace):
        begins = f"the file is no Chakra trace: it begins with {trace.head[:SHOWN]!r}, and has no node"
        return {Rule.NOT_CHAKRA: [begins]}
    texts: dict[Rule, list[str]] = {}
    for fault in trace.decoded.faults:
        texts.setdefault(RULE_OF_FAULT[fault.reason], []).append(fault.message)
    if Rule.NO_METADATA not in texts and _holds_something_else(trace.decoded.metadata):
        text = "the first message has fields that metadata do not have: it is a node, or of another format"
        texts[Rule.NO_METADATA] = [text]
    return texts


def _known_incomplete(trace: Trace) -> bool:
    return not INCOMPLETE.isdisjoint(_faults(trace))


def _not_chakra(trace: Trace) -> bool:
    """Whether there is no node, and the beginning is none of a Chakra trace."""
    if len(trace.nodes) or not trace.decoded.faults or trace.head.startswith(b"\0"):
        return False
    if any(fault.reason == "unreadable_metadata" for fault in trace.decoded.faults):
        return True
    length = next((place for place, byte in enumerate(trace.head) if byte < CONTINUED), len(trace.head))
    first = trace.head[length + 1 : length + 2]
    return bool(first) and first[0] not in FIRST_TAGS


def _holds_something_else(message: Message) -> bool:
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()  # type: ignore[no-untyped-call,unused-ignore]
    return known.ByteSize() != message.ByteSize()


def _of_file(rule: Rule, message: str) -> Breach:
    return Breach(rule, FILE, lambda _: message)
