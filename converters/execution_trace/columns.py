"""Columns of the node array, gathered piece by piece."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracelink.communications import Communications
from tracelink.converters.execution_trace.nodes import ID, PARENT, Piece
from tracelink.converters.execution_trace.schema import COLUMNS
from tracelink.events import Int64s
from tracelink.statements import Statement, communications
from tracelink.strings import StringTable

NAME, PLACE = "name", "place"
TABLE = (ID, PARENT, *COLUMNS, NAME, PLACE)


@dataclass(slots=True)
class Columns:
    """Everything in the node array."""

    names: StringTable = field(default_factory=StringTable)
    chunks: dict[str, list[Int64s]] = field(default_factory=lambda: {name: [] for name in TABLE})
    group_nodes: list[Mapping[str, Any]] = field(default_factory=list)
    stated: list[tuple[int, Statement]] = field(default_factory=list)
    """What nodes say of communication, by their row."""
    offsets: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    """Where each piece begins in the file, and how many elements it holds."""
    nodes: int = 0
    elements: int = 0
    without_communication: int = 0

    def add(self, offset: int, piece: Piece) -> None:
        """Takes in one piece."""
        for name, column in piece.columns.items():
            self.chunks[name].append(column)
        self.chunks[NAME].append(self.names.encode(piece.names).astype(np.int64))
        self.chunks[PLACE].append(self.elements + piece.place)
        self.group_nodes += piece.group_nodes
        self.stated += [(self.nodes + row, statement) for row, statement in piece.stated]
        self.nodes += len(piece.names)
        self.offsets.append(offset)
        self.counts.append(piece.elements)
        self.elements += piece.elements
        self.without_communication += piece.without_communication

    def communications(self) -> Communications:
        """What was stated, as a table."""
        rows, statements = [row for row, _ in self.stated], [statement for _, statement in self.stated]
        return communications(rows, statements, self.names)

    def table(self) -> dict[str, Int64s]:
        """The columns of the whole file, one row for each node."""
        nothing = np.empty(0, np.int64)
        return {name: np.concatenate([nothing, *chunks]) for name, chunks in self.chunks.items()}
