"""What each node is to whoever counts or draws: where its type alone does not say it, its attributes do."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import numpy.typing as npt

from tracelink.converters.chakra.schema import Category, Name, NodeType
from tracelink.converters.chakra.table import Attribute, NodeTable
from tracelink.events import Bools

Roles = npt.NDArray[np.uint8]


class Role(StrEnum):
    """What a node does."""

    HOST = "host"
    """Computation on the host."""
    IDLE = "idle"
    """A gap between operators of a thread."""
    DEVICE = "device"
    """Computation on a device."""
    MEMCPY = "memcpy"
    MEMSET = "memset"
    COLLECTIVE = "collective"
    SEND = "send"
    RECV = "recv"
    LOAD = "load"
    STORE = "store"
    METADATA = "metadata"
    UNKNOWN = "unknown"
    """Of no type that the format knows."""


ROLES = tuple(Role)
COMMUNICATION = (Role.COLLECTIVE, Role.SEND, Role.RECV)
ON_DEVICE = (Role.DEVICE, Role.MEMCPY, Role.MEMSET, Role.LOAD, Role.STORE, *COMMUNICATION)
"""Roles of nodes that work on a device, where they do not say that they are of the host."""

ROLE_OF_TYPE = {
    NodeType.METADATA: Role.METADATA,
    NodeType.MEM_LOAD: Role.LOAD,
    NodeType.MEM_STORE: Role.STORE,
    NodeType.COMM_SEND: Role.SEND,
    NodeType.COMM_RECV: Role.RECV,
    NodeType.COMM_COLL: Role.COLLECTIVE,
}
ROLE_OF_CATEGORY = {
    Category.IDLE: Role.IDLE,
    Category.MEMCPY: Role.MEMCPY,
    Category.MEMSET: Role.MEMSET,
}
ROLE_OF_NAME = {"Memcpy": Role.MEMCPY, "Memset": Role.MEMSET}
"""How the profiler begins the names of copies, for traces whose nodes have no category."""


def roles_of(nodes: NodeTable) -> Roles:
    """One place in `ROLES` for each node."""
    roles = np.full(len(nodes), ROLES.index(Role.UNKNOWN), np.uint8)
    for node_type, role in ROLE_OF_TYPE.items():
        roles[nodes.type == node_type] = ROLES.index(role)
    computing, host = nodes.of_type(NodeType.COMP), nodes.on_host()
    roles[computing] = np.where(host[computing], ROLES.index(Role.HOST), ROLES.index(Role.DEVICE))
    for beginning, role in ROLE_OF_NAME.items():
        codes = [code for code, text in enumerate(nodes.strings) if text.startswith(beginning)]
        roles[computing & ~host & np.isin(nodes.name, codes)] = ROLES.index(role)
    category = nodes.attribute(Name.CATEGORY)
    for word, role in ROLE_OF_CATEGORY.items():
        roles[_saying(category, word, len(nodes)) & computing] = ROLES.index(role)
    return roles


def among(roles: Roles, *wanted: Role) -> Bools:
    """Which nodes have one of these roles."""
    found: Bools = np.isin(roles, np.array([ROLES.index(role) for role in wanted], np.uint8))
    return found


def _saying(attribute: Attribute, word: str, length: int) -> Bools:
    said = np.zeros(length, np.bool_)
    said[attribute.rows[np.array([value == word for value in attribute.values], np.bool_)]] = True
    return said
