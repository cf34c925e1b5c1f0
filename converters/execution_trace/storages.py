"""Which storages each node reads and writes, from its text."""

from __future__ import annotations

from array import array
from functools import lru_cache

import msgspec
import numpy as np

from tracelink.analysis.ordering.tensors import StorageUses
from tracelink.converters.execution_trace.schema import (
    INPUTS_KEY,
    NO_STORAGE,
    OPERATOR_SCHEMA,
    OUTPUTS_MARK,
    STORAGE,
    WRITTEN,
    InputsText,
    ValuesText,
)
from tracelink.events import Int64s

INPUTS = msgspec.json.Decoder(InputsText)
OBJECT = msgspec.json.Decoder(ValuesText)
LIST = msgspec.json.Decoder(list[msgspec.Raw])


class StorageReader:
    """Collects what the nodes of an execution trace say, one after the other, in any order."""

    def __init__(self) -> None:
        self._read, self._written = _Column(), _Column()

    def add(self, row: int, text: bytes) -> None:
        """Takes the text of the node at `row`; a text that is no node says nothing."""
        mark = OUTPUTS_MARK.search(text)
        outputs = mark.start() if mark else len(text)
        inputs = text.find(INPUTS_KEY, outputs)
        if inputs == -1:
            read, written = STORAGE.findall(text, 0, outputs), STORAGE.findall(text, outputs)
        else:
            read, written = STORAGE.findall(text, inputs), STORAGE.findall(text, outputs, inputs)
        if WRITTEN in text or not (read and written and set(read).isdisjoint(written)):
            written = _new_values(text, read, written)
        if read:
            self._read.add(row, read)
        if written:
            self._written.add(row, written)

    def uses(self) -> StorageUses:
        """Everything so far."""
        read, written = self._read.pairs(), self._written.pairs()
        row, storage = np.concatenate([read, written], axis=1)
        return StorageUses(row, storage, np.arange(len(row)) >= read.shape[1])


class _Column:
    """Storages by row."""

    def __init__(self) -> None:
        self._row, self._count, self._storage = array("q"), array("q"), array("q")

    def add(self, row: int, storages: list[bytes]) -> None:
        self._row.append(row)
        self._count.append(len(storages))
        self._storage.extend(map(int, storages))

    def pairs(self) -> Int64s:
        """Row and storage, each pair once."""
        pairs = np.stack([np.repeat(self._row, self._count), self._storage]).astype(np.int64)
        return np.unique(pairs[:, pairs[1] != NO_STORAGE], axis=1)


def _new_values(text: bytes, read: list[bytes], written: list[bytes]) -> list[bytes]:
    """The storages that a node writes to, where it is told which arguments it writes to."""
    schema = OPERATOR_SCHEMA.search(text)
    if not schema:
        return written
    values = [storage for storage in written if storage not in read]
    if arguments := written_arguments(schema[1]):
        values += [storage for value in _values(text, arguments) for storage in STORAGE.findall(value)]
    return values


@lru_cache(maxsize=4096)
def written_arguments(schema: bytes) -> tuple[int, ...]:
    """Which arguments an operator writes to: 0 for `aten::add_.Tensor(Tensor(a!) self, Tensor other)`.

    What it gives back without writing is a view of what it was given, and no new value.
    """
    written, depth, number = [], 0, 0
    _, _, arguments = schema.decode(errors="replace").partition("(")
    text = ""
    for sign in arguments:
        depth += (sign in "([") - (sign in ")]")
        if (sign == "," and depth == 0) or depth < 0:
            if text.strip() not in ("", "*"):
                if WRITTEN.decode() in text:
                    written.append(number)
                number += 1
            text = ""
            if depth < 0:
                break
        else:
            text += sign
    return tuple(written)


def _values(text: bytes, places: tuple[int, ...]) -> list[bytes]:
    """The inputs at these places."""
    inputs = bytes(INPUTS.decode(text).inputs)
    values = OBJECT.decode(inputs).values if inputs.startswith(b"{") else LIST.decode(inputs)
    return [bytes(values[place]) for place in places if place < len(values)]
