"""Where work runs: what readers, writers and analyses ask of an engine. `tracelink._run` has the engines."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from tracelink._io.spool import Store

Item = TypeVar("Item")
Result = TypeVar("Result")

SLOTS = 256
SLOT = struct.Struct("=q")


class Meter:
    """Counts bytes across processes: each adds to a slot of its own in shared memory.

    `watch`, where set, is called with the total as the counting process goes on; a child has no watcher.
    """

    def __init__(self, watch: Callable[[int], None] | None = None) -> None:
        self.watch = watch
        self._memory = mmap.mmap(-1, SLOTS * SLOT.size)
        self._slot = 0
        self._count = 0

    def __reduce__(self) -> tuple[type[Meter], tuple[()]]:
        """A worker of a cluster counts by itself."""
        return Meter, ()

    def restart(self, watch: Callable[[int], None] | None) -> None:
        """Counts from 0 again, for another watcher."""
        self.watch = watch
        self._memory[:] = bytes(SLOTS * SLOT.size)
        self._count = 0

    def add(self, count: int) -> None:
        """Counts `count` more bytes as done."""
        self._count += count
        SLOT.pack_into(self._memory, self._slot * SLOT.size, self._count)
        if self.watch:
            self.watch(self.total)

    def enter(self, slot: int) -> None:
        """From here on this process counts in `slot`, unwatched."""
        self.watch = None
        self._slot = slot % SLOTS
        (self._count,) = SLOT.unpack_from(self._memory, self._slot * SLOT.size)

    @property
    def total(self) -> int:
        """Bytes that all processes have done."""
        return sum(count for (count,) in SLOT.iter_unpack(self._memory[:]))


def worker_of(item: object) -> str:
    """The worker of a cluster that has what an item needs; empty if there is none."""
    worker = getattr(item, "worker", "")
    return worker if isinstance(worker, str) else ""


class Engine(Protocol):
    """Runs work on many items, in one process or in several, on one machine or on a cluster."""

    @property
    def jobs(self) -> int:
        """How many items are worked on at once."""
        ...

    @property
    def meter(self) -> Meter:
        """Counts the bytes that were read and written."""
        ...

    @property
    def alone(self) -> Engine:
        """An engine for work inside of an item: it runs where the item is worked on, in one process."""
        ...

    @property
    def shares_files(self) -> bool:
        """True if work can write to files that this process has opened."""
        ...

    def for_events(self, count: int) -> Engine:
        """An engine for work on so many events: few are dealt with faster in one process."""
        ...

    def split(self, items: int) -> tuple[Engine, Engine]:
        """An engine for so many items and one for the work inside each: whichever can use all processes does."""
        ...

    def map(
        self, work: Callable[[Item], Result], items: Sequence[Item], shared: Sequence[object] = ()
    ) -> list[Result]:
        """`[work(item) for item in items]`, with the `shared` objects in results as they are in this process."""
        ...

    def store(self, shared: Sequence[object], *, in_memory: bool) -> Store:
        """A store for what work leaves for later work; `in_memory` if that is little."""
        ...
