"""Storages of the tensors that execution-trace nodes read and write."""

from __future__ import annotations

from array import array
from functools import lru_cache

import msgspec
import numpy as np

from tracelink._model.trace import StorageUses
from tracelink.converters.pytorch import node_schema

INPUTS = msgspec.json.Decoder(node_schema.InputsText)
OBJECT = msgspec.json.Decoder(node_schema.ValuesText)
LIST = msgspec.json.Decoder(list[msgspec.Raw])


class StorageReader:
    """Collects the storages that nodes read and write; nodes come one at a time, in any order."""

    def __init__(self) -> None:
        self._row, self._storage = array("q"), array("q")
        self._reads, self._writes = array("q"), array("q")

    def add(self, row: int, text: bytes) -> None:
        """Adds the JSON text of the node at `row`; a text without tensors adds nothing."""
        mark = node_schema.OUTPUTS_MARK.search(text)
        outputs = mark.start() if mark else len(text)
        inputs = text.find(node_schema.INPUTS_KEY, outputs)
        if inputs == -1:
            read, written = (
                node_schema.STORAGE.findall(text, 0, outputs),
                node_schema.STORAGE.findall(text, outputs),
            )
        else:
            read, written = (
                node_schema.STORAGE.findall(text, inputs),
                node_schema.STORAGE.findall(text, outputs, inputs),
            )
        if node_schema.WRITTEN in text:
            written = _written(text, read, written)
        elif read and written and not set(read).isdisjoint(written) and node_schema.RESULTS in text:
            written = [storage for storage in written if storage not in read]
        if read or written:
            self._row.append(row)
            self._reads.append(len(read))
            self._writes.append(len(written))
            self._storage.extend(map(int, read))
            self._storage.extend(map(int, written))

    def uses(self) -> StorageUses:
        """The uses of all nodes so far."""
        counts = np.stack([self._reads, self._writes], axis=1).ravel()
        row = np.repeat(np.repeat(self._row, 2), counts)
        writes = np.repeat(np.arange(len(counts)) % 2, counts)
        found = np.stack([row, writes, self._storage]).astype(np.int64)
        row, writes, storage = np.unique(found[:, found[2] != node_schema.NO_STORAGE], axis=1)
        return StorageUses(row, storage, writes == 1)


def _written(text: bytes, read: list[bytes], written: list[bytes]) -> list[bytes]:
    """The storages that a node writes, if its schema has arguments that it writes to."""
    schema = node_schema.OPERATOR_SCHEMA.search(text)
    if not schema:
        return written
    arguments, returned = written_arguments(schema[1])
    if returned:
        return written
    passed = [storage for value in _values(text, arguments) for storage in node_schema.STORAGE.findall(value)]
    return passed + [storage for storage in written if storage not in read]


@lru_cache(maxsize=4096)
def written_arguments(schema: bytes) -> tuple[tuple[int, ...], bool]:
    """The indexes of the arguments that an operator writes to, and whether it returns all of them.

    `aten::add_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)`: argument 0, which is returned.
    """
    arguments, _, results = schema.decode(errors="replace").partition("(")[2].rpartition(") -> ")
    depth, parts = 0, [""]
    for character in arguments:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    types = [text.strip() for text in parts if text.strip() != "*"]
    mark = node_schema.WRITTEN.decode()
    written = tuple(index for index, text in enumerate(types) if mark in text)
    return written, len(written) == results.count(mark)


def _values(text: bytes, indexes: tuple[int, ...]) -> list[bytes]:
    """The inputs at these indexes."""
    inputs = bytes(INPUTS.decode(text).inputs)
    values = OBJECT.decode(inputs).values if inputs.startswith(b"{") else LIST.decode(inputs)
    return [bytes(values[index]) for index in indexes if index < len(values)]
