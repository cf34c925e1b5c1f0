"""What each entry recorded, as JSON, decoded again from the source when someone asks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tracelink.converters.flight_recorder.decoding import decode
from tracelink.converters.flight_recorder.entries import entry_of
from tracelink.converters.flight_recorder.plain import Sizes, json_text
from tracelink.diagnosis import Entry
from tracelink.sources import Source
from tracelink.trace import Payload

RUN = 512
OMITTED = {"tracelink_omitted": "not an entry, or too large to be written as JSON"}
"""Stands for what is no entry, and for one whose parts refer to each other until it would fill the memory."""


@dataclass(frozen=True, slots=True)
class RecorderPayloads:
    """The entries of one dump; nothing decoded is kept between two questions."""

    source: Source

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Runs of entries in the order of the file."""
        entries = decode(self.source).dump.entries
        sizes = Sizes()
        chosen = iter(range(*slice(first, last).indices(len(entries))))
        while run := list(islice(chosen, RUN)):
            yield run[0], [_text(entries[number], sizes) for number in run]

    def entries(self, places: Collection[int]) -> dict[int, Entry]:
        """The entries at some places of the dump, as far as they can be used."""
        dump = decode(self.source).dump
        sizes = Sizes()
        chosen = {
            place: dump.entries[place]
            for place in places
            if 0 <= place < len(dump.entries) and sizes.fits(dump.entries[place])
        }
        found = {place: entry_of(said, dump.layout) for place, said in chosen.items()}
        return {place: entry for place, entry in found.items() if entry}


def _text(entry: Any, sizes: Sizes) -> bytes:
    if type(entry) is not dict or not sizes.fits(entry):
        return json_text(OMITTED)
    return json_text(entry)
