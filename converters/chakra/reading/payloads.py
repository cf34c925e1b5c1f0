"""Whole nodes, read again from their file when someone asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracelink.converters.chakra.framing import FramingError, frames
from tracelink.converters.chakra.json_form.messages import NODES
from tracelink.converters.chakra.streaming import buffered
from tracelink.sources import Source
from tracelink.trace import Payload

TOGETHER = 1024


@dataclass(frozen=True, slots=True)
class NodePayloads:
    """The JSON of each node of an `.et` file."""

    source: Source
    offsets: Sequence[int]
    """Where the message of each node begins."""

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Runs of consecutive nodes."""
        wanted = self.offsets[first:last]
        texts: list[Payload] = []
        for text in self._texts(wanted):
            texts.append(text)
            if len(texts) == TOGETHER:
                yield first, texts
                first, texts = first + len(texts), []
        if texts:
            yield first, texts

    def _texts(self, wanted: Sequence[int]) -> Iterator[Payload]:
        if not len(wanted):
            return
        place, begin = 0, wanted[0]
        with buffered(self.source, offset=begin) as (stream, _):
            try:
                for frame in frames(stream):
                    if begin + frame.offset == wanted[place]:
                        yield NODES.text(frame.body)
                        place += 1
                        if place == len(wanted):
                            return
            except FramingError:
                return
