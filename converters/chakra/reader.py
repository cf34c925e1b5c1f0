"""The readers of Chakra traces; what they need to read is imported when they do, for every file is shown to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelink.converters.chakra.recognition import is_chakra, is_node_list

if TYPE_CHECKING:
    from tracelink.engine import Engine
    from tracelink.sources import Source
    from tracelink.trace import RankTrace


class ChakraReader:
    """Reads the `.et` files that simulators load, whoever wrote them."""

    name = "chakra"
    summary = "Chakra traces (protobuf), of tracelink, chakra_converter and others: .et, .et.gz"

    def recognises(self, head: bytes, name: str) -> bool:
        """Messages behind their lengths: metadata, then nodes."""
        return is_chakra(head)

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """One event for each node."""
        from tracelink.converters.chakra.reading.files import read_messages

        return read_messages(source, self.name, engine)


class ChakraNodesReader:
    """Reads the JSON that `tracelink convert` makes of an `.et` file."""

    name = "chakra-nodes"
    summary = "the JSON that `tracelink convert` makes of an .et file: .json, .json.gz"

    def recognises(self, head: bytes, name: str) -> bool:
        """An object of metadata and nodes with Chakra's types."""
        return is_node_list(head)

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """One event for each node."""
        from tracelink.converters.chakra.reading.files import read_node_list

        return read_node_list(source, self.name, engine)
