"""Texts that stand once in a sequence of packets; events name them by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tracelink.converters.perfetto.text import whole_text
from tracelink.converters.perfetto_native.schema import Entry, Table
from tracelink.events import Int64s
from tracelink.wire import VARINT, delimited, key, varint


@dataclass(slots=True)
class Texts:
    """The tables of one sequence."""

    tables: dict[Table, dict[str, int]] = field(default_factory=lambda: {table: {} for table in Table})

    def number(self, table: Table, text: str) -> int:
        """The number of a text, from 1 on."""
        known = self.tables[table]
        return known.setdefault(text, len(known) + 1)

    def numbers(self, table: Table, texts: Sequence[str]) -> Int64s:
        """The numbers of many texts."""
        return np.array([self.number(table, text) for text in texts], np.int64)

    def message(self) -> bytes:
        """All tables as the content of one field."""
        return b"".join(
            delimited(
                table,
                key(Entry.NUMBER, VARINT) + varint(number) + delimited(Entry.TEXT, whole_text(text).encode()),
            )
            for table, texts in self.tables.items()
            for text, number in texts.items()
        )
