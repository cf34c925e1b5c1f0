"""What a linked trace is, and who reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelink.converters.chakra_json.recognition import is_linked

if TYPE_CHECKING:
    from tracelink.engine import Engine
    from tracelink.sources import Source
    from tracelink.trace import RankTrace


class ChakraJsonReader:
    """Reads what `chakra_trace_link`, or the writer of this format, makes of an execution trace and a profile."""

    name = "chakra-json"
    summary = "Chakra host and device trace (ET+ JSON) of chakra_trace_link: .json, .json.gz"

    def recognises(self, head: bytes, name: str) -> bool:
        """An execution trace of which a node, or the header, says what only a profile can know."""
        return is_linked(head)

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """One event for each node: on its thread, on its stream, or without a time on its logical thread."""
        # Every file is shown to this reader before others, and most are not for it.
        from tracelink.converters.chakra_json.assembly import read_linked

        return read_linked(source, engine)
