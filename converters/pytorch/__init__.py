"""Definitions of PyTorch, whichever file contains them: arguments of profiled events, nodes of execution traces.

Formats do not know each other; what several of them contain is here.
"""

from __future__ import annotations

import re

__all__ = [
    "ATTRIBUTES_MARK",
    "arguments",
    "first_keys_of",
    "is_execution_trace",
    "is_linked",
    "node_communication",
    "node_schema",
    "node_trace",
    "nodes",
]

VERSION_MARK = re.compile(rb'"schema"\s*:\s*"\d+\.\d+\.\d+')
NODES_MARK = re.compile(rb'"nodes"\s*:\s*\[')
NODE_MARKS = (b'"rf_id"', b'"fw_parent"', b'"ctrl_deps"')
LINKED_START = re.compile(rb'^[\xef\xbb\xbf \t\r\n]*\{.*?"nodes"\s*:\s*\[', re.DOTALL)
LINKED_MARK = re.compile(
    rb'"(?:inclusive_dur|exclusive_dur|inter_thread_dep|baseTimeNanoseconds)"\s*:'
    rb'|"nodes"\s*:\s*\[\s*\{(?=[^{}]*"id"\s*:\s*0\b)[^{}]*\|process\]"'
)
"""Times, or the root as node 0: its ids count anew. The first nodes are often such as no profile saw."""

FIRST_KEY = re.compile(rb'"nodes"\s*:\s*\[\s*\{\s*"(\w+)"')
ATTRIBUTES_MARK = re.compile(rb'"attrs"\s*:')
"""Only the layout since 1.0.2 has this key."""
FIRST_KEYS = ("id",)
FLAT_FIRST_KEYS = ("name", "id")
"""A flat node contains no objects, so an object that starts with either key is a node."""


def is_execution_trace(head: bytes, name: str = "") -> bool:
    """True for an object with a list of nodes, and the schema or the keys of a node that only this format has."""
    if not _holds_nodes(head) or is_linked(head):
        return False
    return bool(VERSION_MARK.search(head)) or any(mark in head for mark in NODE_MARKS)


def is_linked(head: bytes, name: str = "") -> bool:
    """True for an execution trace that was linked to a profile."""
    return bool(LINKED_START.match(head) and LINKED_MARK.search(head))


def first_keys_of(head: bytes) -> tuple[str, ...]:
    """The keys that nodes start with; attributes can start with `name` too, so it is only used without attributes."""
    if not ATTRIBUTES_MARK.search(head):
        return FLAT_FIRST_KEYS
    match = FIRST_KEY.search(head)
    first = match[1].decode() if match else ""
    return (first,) if first not in ("", "name") else FIRST_KEYS


def _holds_nodes(head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and bool(NODES_MARK.search(head))
