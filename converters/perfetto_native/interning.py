"""Texts that stand once in a sequence of packets; events name them by number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    jsons: dict[str, int] = field(default_factory=dict)
    """Arguments that are shown as JSON, apart from equal ones that are texts in their source."""

    def number(self, table: Table, text: str) -> int:
        """The number of a text, from 1 on."""
        known = self.tables[table]
        return known.setdefault(text, len(known) + 1)

    def numbers(self, table: Table, texts: Sequence[str]) -> Int64s:
        """The numbers of many texts."""
        return np.array([self.number(table, text) for text in texts], np.int64)

    def argument(self, text: str) -> int:
        """The number of an argument's text: an odd one."""
        known = self.tables[Table.ARGUMENT_TEXTS]
        return known.setdefault(text, 2 * len(known) + 1)

    def json(self, text: str) -> int:
        """The number of an argument that is shown as JSON: an even one, so that readers see it was no text."""
        return self.jsons.setdefault(text, 2 * len(self.jsons) + 2)

    def message(self) -> bytes:
        """All tables as the content of one field."""
        tables: Iterable[tuple[Table, Mapping[str, int]]] = (
            *self.tables.items(),
            (Table.ARGUMENT_TEXTS, self.jsons),
        )
        return b"".join(
            delimited(
                table,
                key(Entry.NUMBER, VARINT) + varint(number) + delimited(Entry.TEXT, whole_text(text).encode()),
            )
            for table, texts in tables
            for text, number in texts.items()
        )
