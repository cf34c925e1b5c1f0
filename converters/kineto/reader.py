"""Kineto file to rank trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tracelink.converters.kineto.assembly import assemble
from tracelink.converters.kineto.columns import Columns, join
from tracelink.converters.kineto.elements import Decoded, ElementDecoder
from tracelink.converters.kineto.header import is_timeline_of_ranks
from tracelink.converters.kineto.schema import EVENTS, FIRST_KEYS, MARKS
from tracelink.elements import ArrayDocument, ArrayFormat, Part
from tracelink.engine import Engine
from tracelink.salvage import Damage
from tracelink.sources import Source
from tracelink.trace import RankTrace

WORTH_SPLITTING = 16 << 20
"""Smaller files are read faster by one process."""


class KinetoReader:
    """Reads what `torch.profiler` wrote from 2020 to 2026, whatever the hardware."""

    name = "kineto"
    summary = "torch.profiler (Kineto) Chrome trace, 2020 to 2026: .json, .json.gz"

    def recognises(self, head: bytes, name: str) -> bool:
        """An object with the keys of a Chrome trace, or a bare array of events."""
        text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
        if text.startswith(b"["):
            return b'"ph"' in text and b'"ts"' in text
        return text.startswith(b"{") and any(mark in head for mark in MARKS)

    def refused(self, head: bytes) -> str:
        """A timeline of several ranks, which cannot be taken apart again."""
        if not is_timeline_of_ranks(head):
            return ""
        return (
            "a timeline of several ranks that tracelink wrote, in which they cannot be told apart. "
            "Give tracelink the files that it was made of, or its .pftrace."
        )

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """Reads a whole source, in as many processes as the engine gives."""
        parts = engine.map(lambda part: _read_part(source, part, engine), _parts(source, engine))
        header: dict[str, Any] = {}
        damage: list[Damage] = []
        for _, part_header, part_damage, _ in parts:
            header |= part_header
            damage += part_damage
        columns = join([columns for columns, *_ in parts])
        return assemble(source, columns, header, damage, parts[-1][3])


PartRead = tuple[Columns, Mapping[str, Any], Sequence[Damage], tuple[int, str] | None]


def _read_part(source: Source, part: Part, engine: Engine) -> PartRead:
    decoder = ElementDecoder()
    document: ArrayDocument[Decoded] = ArrayDocument(
        source, ArrayFormat(EVENTS, FIRST_KEYS, decoder.decode, decoder.convert), part
    )
    columns = Columns(decoder.shapes, decoder.names, decoder.lanes)
    for offset, piece in document.pieces(engine.meter.add):
        columns.add(offset, piece)
    columns.compact()
    cut_off = None if document.cut_off is None else (document.cut_off, document.cut_off_reason)
    return columns, document.header, document.damage, cut_off


def _parts(source: Source, engine: Engine) -> list[Part]:
    """Byte ranges of about equal size that begin at an event; one range where the file cannot be split."""
    with source.open() as stream:
        plain = stream.plain
    if engine.jobs < 2 or not plain or source.local is None or source.bytes < WORTH_SPLITTING:
        return [Part()]
    document: ArrayDocument[Decoded] = ArrayDocument(source, ArrayFormat(EVENTS, FIRST_KEYS, _never, _never))
    wanted = np.linspace(0, source.bytes, engine.jobs + 1)[1:-1].astype(int).tolist()
    found = [document.boundary_near(offset) for offset in wanted]
    cuts = sorted({offset for offset in found if offset is not None})
    return [Part(start, stop) for start, stop in zip([0, *cuts], [*cuts, None], strict=True)]


def _never(_: object) -> Decoded:
    raise NotImplementedError
