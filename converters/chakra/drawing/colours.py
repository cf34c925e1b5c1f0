"""One colour for each role, the same in all drawings; letters are readable on all of them."""

from __future__ import annotations

from tracelink.converters.chakra.roles import Role

FILL = {
    Role.HOST: "#cfe0f5",
    Role.IDLE: "#f3f3f3",
    Role.DEVICE: "#bfe3c0",
    Role.MEMCPY: "#9fd8d2",
    Role.MEMSET: "#d5eeeb",
    Role.COLLECTIVE: "#ff9d5c",
    Role.SEND: "#f48fb1",
    Role.RECV: "#ce93d8",
    Role.LOAD: "#e6d690",
    Role.STORE: "#d9bd7a",
    Role.METADATA: "#dedede",
    Role.UNKNOWN: "#f2b8b5",
}
EDGE = {
    Role.HOST: "#6f93bd",
    Role.IDLE: "#b0b0b0",
    Role.DEVICE: "#5fa563",
    Role.MEMCPY: "#3c9188",
    Role.MEMSET: "#7fb8b2",
    Role.COLLECTIVE: "#b34700",
    Role.SEND: "#ad1457",
    Role.RECV: "#6a1b9a",
    Role.LOAD: "#8d7a1c",
    Role.STORE: "#7d5a14",
    Role.METADATA: "#8c8c8c",
    Role.UNKNOWN: "#b3261e",
}
DATA = "#30343b"
CONTROL = "#7a8699"
BACKWARDS = "#c62828"
"""Of an arrow to something that begins before its cause does."""
