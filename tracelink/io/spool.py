"""What waits outside memory."""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar, cast

from msgspec import Struct

from tracelink.io.system import locked, write_at
from tracelink.model.errors import TraceError

# Values between processes: pickled, with what both sides have by its number, and large arrays apart.


PROTOCOL = 5

BufferTaker = Callable[[pickle.PickleBuffer], object]


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, shared: Sequence[object], take: BufferTaker | None) -> None:
        super().__init__(stream, protocol=PROTOCOL, buffer_callback=take)
        self._numbers = {id(thing): number for number, thing in enumerate(shared)}

    def persistent_id(self, thing: object) -> int | None:
        return self._numbers.get(id(thing))


class _Unpickler(pickle.Unpickler):
    """Reads what this program wrote; never an input."""

    def __init__(self, stream: io.BytesIO, shared: Sequence[object], buffers: Iterable[Any] | None) -> None:
        super().__init__(stream, buffers=buffers)
        self._shared = shared

    def persistent_load(self, number: int) -> object:
        return self._shared[number]


def packed(thing: object, shared: Sequence[object] = (), take: BufferTaker | None = None) -> bytes:
    """The bytes of a value; `take` gets large arrays in place of a copy of them in the bytes."""
    stream = io.BytesIO()
    _Pickler(stream, shared, take).dump(thing)
    return stream.getvalue()


def unpacked(text: bytes, shared: Sequence[object] = (), buffers: Iterable[Any] | None = None) -> Any:
    """The value of such bytes."""
    return _Unpickler(io.BytesIO(text), shared, buffers).load()


# A temporary file of pickled objects


Item = TypeVar("Item")

PAGE = 64
"""Arrays start at multiples of this."""


class Ticket(Struct, Generic[Item], frozen=True):
    """Where an object is in the spool: the offset of its bytes, and the end of each of its parts after that."""

    begin: int
    ends: tuple[int, ...]


class Spool:
    """Objects in one unnamed temporary file, to which all processes of a run can add.

    The file disappears with the last process that has it open, even if that is killed.
    """

    def __init__(self, shared: Sequence[object] = ()) -> None:
        self._file = tempfile.TemporaryFile(prefix="tracelink-")  # noqa: SIM115  it lives as long as this
        self._shared = shared

    def put(self, item: Item) -> Ticket[Item]:
        """Writes an object; its arrays are not copied in memory."""
        arrays: list[pickle.PickleBuffer] = []
        head = packed(item, self._shared, arrays.append)
        parts: list[Any] = [head, *(array.raw() for array in arrays)]
        padded = [part for part in parts for part in (part, bytes(-len(part) % PAGE))]
        handle = self._file.fileno()
        try:
            with locked(handle):
                begin = os.lseek(handle, 0, os.SEEK_END)
                _write_all(handle, padded, begin)
        except OSError as error:
            raise TraceError(
                f"cannot write temporary files in {tempfile.gettempdir()}: {error.strerror}",
                advice="Free some space there, or set the environment variable TMPDIR to another directory.",
            ) from error
        ends, offset = [], 0
        for part in parts:
            ends.append(offset + len(part))
            offset += len(part) + -len(part) % PAGE
        return Ticket(begin, tuple(ends))

    def get(self, ticket: Ticket[Item]) -> Item:
        """Reads an object; its arrays are read-only views of the file."""
        first = ticket.begin - ticket.begin % mmap.ALLOCATIONGRANULARITY
        last = ticket.begin + ticket.ends[-1]
        memory = memoryview(
            mmap.mmap(self._file.fileno(), last - first, access=mmap.ACCESS_READ, offset=first)
        )[ticket.begin - first :]
        begins = [0, *(end + -end % PAGE for end in ticket.ends[:-1])]
        parts = [memory[begin:end] for begin, end in zip(begins, ticket.ends, strict=True)]
        return cast(Item, unpacked(bytes(parts[0]), self._shared, parts[1:]))


def _write_all(handle: int, parts: Sequence[Any], begin: int) -> None:
    for part in parts:
        rest = memoryview(part).cast("B") if len(part) else memoryview(b"")
        while len(rest):
            written = write_at(handle, rest, begin)
            begin += written
            rest = rest[written:]


# Objects kept in memory if there are few, else in a spool


class InMemory(Struct, Generic[Item], frozen=True):
    """An object in memory."""

    item: Item


Stored = InMemory[Item] | Ticket[Item]


class Store:
    """Keeps objects until they are needed again, in memory or in a spool; all processes of a run can use it."""

    def __init__(self, shared: Sequence[object], *, in_memory: bool) -> None:
        self.shared = shared
        self._spool = None if in_memory else Spool(shared)

    def put(self, item: Item) -> Stored[Item]:
        """Keeps an object."""
        return self._spool.put(item) if self._spool else InMemory(item)

    def get(self, stored: Stored[Item]) -> Item:
        """Returns an object."""
        if isinstance(stored, InMemory):
            return stored.item
        assert self._spool, "a ticket comes from a spool"
        return self._spool.get(stored)
