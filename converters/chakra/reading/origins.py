"""Of which formats a Chakra trace says again what is there already, where both are read."""

from __future__ import annotations

from tracelink.converters.chakra.reader import ChakraNodesReader, ChakraReader
from tracelink.converters.chakra.reading.kinds import Kinds
from tracelink.events import EventKind

PROFILE, LINKED, TRACE, RECORDER = "kineto", "chakra-json", "execution-trace", "flight-recorder"


def origins_of(kinds: Kinds, format_name: str) -> frozenset[str]:
    """The formats; beside an execution trace only what has no times of a profile is told twice."""
    origins = {PROFILE, LINKED}
    if format_name == ChakraNodesReader.name:
        origins.add(ChakraReader.name)
    if len(kinds) and (kinds == EventKind.NODE).all():
        origins.add(TRACE)
    if (kinds == EventKind.RECORD).any():
        origins.add(RECORDER)
    return frozenset(origins)
