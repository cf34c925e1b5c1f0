"""What waits outside memory."""

from __future__ import annotations

import fcntl
import mmap
import os
import pickle
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from tracelink.engine import packed, unpacked
from tracelink.errors import TraceError

# Keeps what memory should not: in one file without a name, which any process of the job can add to.


Thing = TypeVar("Thing")

PAGE = 64
"""Arrays begin at multiples of this."""


@dataclass(frozen=True, slots=True)
class Ticket(Generic[Thing]):
    """Where a thing lies in the spool: where its bytes begin, and where each of its parts ends after that."""

    begin: int
    ends: tuple[int, ...]


class Spool:
    """Things by ticket. The file vanishes with the last process that has it open, however that ends."""

    def __init__(self, shared: Sequence[object] = ()) -> None:
        self._file = tempfile.TemporaryFile(prefix="tracelink-")  # noqa: SIM115  it lives as long as this
        self._shared = shared

    def put(self, thing: Thing) -> Ticket[Thing]:
        """Keeps a thing; its arrays are written from where they are."""
        arrays: list[pickle.PickleBuffer] = []
        head = packed(thing, self._shared, arrays.append)
        parts: list[Any] = [head, *(array.raw() for array in arrays)]
        padded = [part for part in parts for part in (part, bytes(-len(part) % PAGE))]
        handle = self._file.fileno()
        fcntl.lockf(handle, fcntl.LOCK_EX)
        try:
            begin = os.lseek(handle, 0, os.SEEK_END)
            _write_all(handle, padded, begin)
        except OSError as error:
            raise TraceError(
                f"no room to work in {tempfile.gettempdir()}: {error.strerror}",
                advice="Free some space there, or name another directory in the environment variable TMPDIR.",
            ) from error
        finally:
            fcntl.lockf(handle, fcntl.LOCK_UN)
        ends, place = [], 0
        for part in parts:
            ends.append(place + len(part))
            place += len(part) + -len(part) % PAGE
        return Ticket(begin, tuple(ends))

    def get(self, ticket: Ticket[Thing]) -> Thing:
        """The thing again; its arrays cannot be written to."""
        first = ticket.begin - ticket.begin % mmap.ALLOCATIONGRANULARITY
        last = ticket.begin + ticket.ends[-1]
        memory = memoryview(
            mmap.mmap(self._file.fileno(), last - first, access=mmap.ACCESS_READ, offset=first)
        )[ticket.begin - first :]
        begins = [0, *(end + -end % PAGE for end in ticket.ends[:-1])]
        parts = [memory[begin:end] for begin, end in zip(begins, ticket.ends, strict=True)]
        return cast(Thing, unpacked(bytes(parts[0]), self._shared, parts[1:]))


def _write_all(handle: int, parts: Sequence[Any], begin: int) -> None:
    for part in parts:
        rest = memoryview(part).cast("B") if len(part) else memoryview(b"")
        while len(rest):
            written = os.pwrite(handle, rest, begin)
            begin += written
            rest = rest[written:]


# Where things wait until they are needed again: in memory where there are few, else in a spool.


@dataclass(frozen=True, slots=True)
class Held(Generic[Thing]):
    """A thing that is kept in memory."""

    thing: Thing


Place = Held[Thing] | Ticket[Thing]


class Keeper:
    """Keeps things by place; every process of a job can keep and fetch."""

    def __init__(self, shared: Sequence[object], *, in_memory: bool) -> None:
        self.shared = shared
        self._spool = None if in_memory else Spool(shared)

    def put(self, thing: Thing) -> Place[Thing]:
        """Keeps a thing."""
        return self._spool.put(thing) if self._spool else Held(thing)

    def get(self, place: Place[Thing]) -> Thing:
        """The thing again."""
        if isinstance(place, Held):
            return place.thing
        assert self._spool, "a ticket comes from a spool"
        return self._spool.get(place)
