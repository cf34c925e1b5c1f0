"""What waits outside memory."""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

from msgspec import Struct

from tracelink._io.system import locked, write_at
from tracelink._model.errors import TraceError

# Values between processes: pickled, with what both sides have by its number, and large arrays apart.


PROTOCOL = 5

BufferTaker = Callable[[pickle.PickleBuffer], object]
Shared = Sequence[object] | Mapping[str, object]
"""Objects that both sides have: by number, or by a name that means the same in another run."""


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, shared: Shared, take: BufferTaker | None) -> None:
        super().__init__(stream, protocol=PROTOCOL, buffer_callback=take)
        named = shared.items() if isinstance(shared, Mapping) else enumerate(shared)
        self._names: dict[int, int | str] = {id(thing): name for name, thing in named}

    def persistent_id(self, thing: object) -> int | str | None:
        return self._names.get(id(thing))


class _Unpickler(pickle.Unpickler):
    """Reads what this program wrote; never an input."""

    def __init__(self, stream: io.BytesIO, shared: Shared, buffers: Iterable[Any] | None) -> None:
        super().__init__(stream, buffers=buffers)
        self._shared: Any = shared

    def persistent_load(self, name: int | str) -> object:
        return self._shared[name]


def packed(thing: object, shared: Shared = (), take: BufferTaker | None = None) -> bytes:
    """The bytes of a value; `take` gets large arrays in place of a copy of them in the bytes."""
    stream = io.BytesIO()
    _Pickler(stream, shared, take).dump(thing)
    return stream.getvalue()


def unpacked(text: bytes, shared: Shared = (), buffers: Iterable[Any] | None = None) -> Any:
    """The value of such bytes."""
    return _Unpickler(io.BytesIO(text), shared, buffers).load()


# A temporary file of pickled objects


Item = TypeVar("Item")

PAGE = 64
"""Arrays start at multiples of this."""


class Stored(Struct, Generic[Item], frozen=True):
    """Where an object is that a store keeps; small, and the same for every process of a run."""

    @property
    def worker(self) -> str:
        """The worker of a cluster that has it; empty if all processes can read it."""
        return ""


class Ticket(Stored[Item], frozen=True):
    """Where an object is in the spool: the offset of its bytes, and the end of each of its parts after that."""

    begin: int
    ends: tuple[int, ...]


def laid_out(item: object, shared: Shared) -> tuple[list[Any], tuple[int, ...]]:
    """The bytes of an object in parts, whose arrays are not copied, and the end of each part that is not padding."""
    arrays: list[pickle.PickleBuffer] = []
    head = packed(item, shared, arrays.append)
    parts: list[Any] = []
    ends, offset = [], 0
    for part in (head, *(array.raw() for array in arrays)):
        parts += [part, bytes(-len(part) % PAGE)]
        ends.append(offset + len(part))
        offset += len(part) + -len(part) % PAGE
    return parts, tuple(ends)


def taken_out(memory: memoryview, ends: Sequence[int], shared: Shared) -> Any:
    """The object in these bytes, whose arrays are views of them."""
    begins = [0, *(end + -end % PAGE for end in ends[:-1])]
    parts = [memory[begin:end] for begin, end in zip(begins, ends, strict=True)]
    return unpacked(bytes(parts[0]), shared, parts[1:])


class Spool:
    """Objects in one unnamed temporary file, to which all processes of a run can add.

    The file disappears with the last process that has it open, even if that is killed.
    """

    def __init__(self, shared: Sequence[object] = ()) -> None:
        self._file = tempfile.TemporaryFile(prefix="tracelink-")  # noqa: SIM115  it lives as long as this
        self._shared = shared

    def put(self, item: Item) -> Ticket[Item]:
        """Writes an object; its arrays are not copied in memory."""
        parts, ends = laid_out(item, self._shared)
        handle = self._file.fileno()
        try:
            with locked(handle):
                begin = os.lseek(handle, 0, os.SEEK_END)
                _write_all(handle, parts, begin)
        except OSError as error:
            raise TraceError(
                f"cannot write temporary files in {tempfile.gettempdir()}: {error.strerror}",
                advice="Free some space there, or set the environment variable TMPDIR to another directory.",
            ) from error
        return Ticket(begin, ends)

    def get(self, ticket: Ticket[Item]) -> Item:
        """Reads an object; its arrays are read-only views of the file."""
        first = ticket.begin - ticket.begin % mmap.ALLOCATIONGRANULARITY
        last = ticket.begin + ticket.ends[-1]
        memory = memoryview(
            mmap.mmap(self._file.fileno(), last - first, access=mmap.ACCESS_READ, offset=first)
        )[ticket.begin - first :]
        return cast(Item, taken_out(memory, ticket.ends, self._shared))


def _write_all(handle: int, parts: Sequence[Any], begin: int) -> None:
    for part in parts:
        rest = memoryview(part).cast("B") if len(part) else memoryview(b"")
        while len(rest):
            written = write_at(handle, rest, begin)
            begin += written
            rest = rest[written:]


# Stores: what some work leaves for later work


class LostError(TraceError):
    """What was stored is lost, together with the machine that had it."""


class InMemory(Stored[Item], frozen=True):
    """An object in memory."""

    item: Item


class Store(Protocol):
    """Keeps objects until they are needed again; all processes of a run can use it."""

    @property
    def shared(self) -> Sequence[object]:
        """What all processes have, and no object contains a copy of."""
        ...

    def put(self, item: Item, again: Callable[[], Item] | None = None) -> Stored[Item]:
        """Keeps an object; `again` makes it once more if the machine that has it is lost."""
        ...

    def get(self, stored: Stored[Item]) -> Item:
        """Returns an object."""
        ...


class LocalStore:
    """Keeps objects in memory, or in a spool for the processes of this machine."""

    def __init__(self, shared: Sequence[object], *, in_memory: bool) -> None:
        self.shared = shared
        self._spool = None if in_memory else Spool(shared)

    def put(self, item: Item, again: Callable[[], Item] | None = None) -> Stored[Item]:
        """Keeps an object."""
        return self._spool.put(item) if self._spool else InMemory(item)

    def get(self, stored: Stored[Item]) -> Item:
        """Returns an object."""
        if isinstance(stored, InMemory):
            return cast(Item, stored.item)
        assert self._spool
        assert isinstance(stored, Ticket)
        return cast(Item, self._spool.get(stored))
