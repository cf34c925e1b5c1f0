"""The bytes of an `.et` file to columns, and what is wrong with the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
from google.protobuf.message import DecodeError

from tracelink.converters.chakra.batch_nodes import nodes_of
from tracelink.converters.chakra.chakra_pb2 import GlobalMetadata
from tracelink.converters.chakra.columns import Columns
from tracelink.converters.chakra.framing import Batch, FramingError, batches
from tracelink.converters.chakra.table import NodeTable
from tracelink.converters.chakra.values import value_of


@dataclass(frozen=True, slots=True)
class Fault:
    """Bytes that are not as they must be."""

    reason: str
    message: str
    offset: int
    node: int | None = None
    """The id of the node, where there is one."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A file: what it says of itself, its nodes, and what is wrong with its bytes."""

    metadata: GlobalMetadata
    nodes: NodeTable
    offsets: list[int]
    """Where each node's message begins in the file."""
    faults: list[Fault] = field(default_factory=list)

    def said(self, name: str) -> Any:
        """An attribute of the metadata, or None."""
        for attribute in self.metadata.attr:
            if attribute.name == name:
                return value_of(attribute)
        return None


class _File:
    """What was read of a file so far."""

    def __init__(self) -> None:
        self.metadata: GlobalMetadata | None = None
        self.columns = Columns()
        self.offsets: list[int] = []
        self.faults: list[Fault] = []

    def add(self, batch: Batch) -> None:
        """Messages, of which the first one of a file is its metadata."""
        offsets, begins, ends = batch.offsets, batch.begins, batch.ends
        if self.metadata is None:
            self.metadata = self._metadata(offsets[0], batch.data[begins[0] : ends[0]])
            offsets, begins, ends = offsets[1:], begins[1:], ends[1:]
        nodes = nodes_of(batch.data, begins, ends)
        for row in np.flatnonzero(~nodes.good).tolist():
            self.faults.append(_no_node(offsets[row], empty=begins[row] == ends[row]))
        self.offsets += [offsets[row] for row in np.flatnonzero(nodes.good).tolist()]
        self.columns.add(nodes)

    def _metadata(self, offset: int, body: bytes) -> GlobalMetadata:
        try:
            return GlobalMetadata.FromString(body)
        except DecodeError:
            text = "the first message is no GlobalMetadata"
            self.faults.append(Fault("unreadable_metadata", text, offset))
            return GlobalMetadata()


def decode(stream: BinaryIO) -> Decoded:
    """A whole file. What cannot be read is a fault, and ends the reading only where no further message is found."""
    file = _File()
    broken: list[Fault] = []
    for batch in _batches(stream, broken):
        file.add(batch)
    if file.metadata is None:
        text = "the file has no first message, which says what it is"
        broken.append(Fault("no_metadata", text, 0))
    metadata = file.metadata or GlobalMetadata()
    return Decoded(metadata, file.columns.table(), file.offsets, [*file.faults, *broken])


def _batches(stream: BinaryIO, faults: list[Fault]) -> Iterator[Batch]:
    try:
        yield from batches(stream)
    except FramingError as error:
        faults.append(Fault("broken_off", str(error), error.offset))


def _no_node(offset: int, *, empty: bool) -> Fault:
    if empty:
        text = f"the message at byte {offset:,} is empty: some readers take it for the end of the file"
        return Fault("empty_message", text, offset)
    return Fault("unreadable_node", f"the message at byte {offset:,} is no Node", offset)
