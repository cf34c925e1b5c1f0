"""Processes that share what their parent read."""

from __future__ import annotations

import io
import mmap
import os
import pickle
import select
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn, TypeVar

from tracelink.model.errors import TraceError

# Values between this process, its children and the spool; what all of them have is sent by its number.


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


# The engine: work in this process, or in forked children that share what this process has read.


Item = TypeVar("Item")
Result = TypeVar("Result")

SLOTS = 256
SLOT = struct.Struct("=q")

WORTH_FORKING = 20_000
"""Events: to write fewer takes about as long as to fork two processes and to collect their results."""


class Meter:
    """Counts bytes across processes: each adds to a slot of its own in shared memory.

    `watch`, where set, is called with the total as the counting process goes on; a child has no watcher.
    """

    def __init__(self, watch: Callable[[int], None] | None = None) -> None:
        self.watch = watch
        self._memory = mmap.mmap(-1, SLOTS * SLOT.size)
        self._slot = 0
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


@dataclass(slots=True)
class Engine:
    """How many processes may work at once, and who counts what they do."""

    jobs: int = 1
    meter: Meter = field(default_factory=Meter)

    @classmethod
    def of_this_machine(cls) -> Engine:
        """As many processes as there are cores to run on."""
        return cls(
            jobs=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        )

    def for_events(self, count: int) -> Engine:
        """An engine for work on so many events: few are dealt with faster than processes are forked."""
        return self if count >= WORTH_FORKING else replace(self, jobs=1)

    def split(self, items: int) -> tuple[Engine, Engine]:
        """An engine for so many items and one for the work inside each: whichever can use all processes does."""
        alone = replace(self, jobs=1)
        return (self, alone) if items >= self.jobs else (alone, self)

    def map(
        self, work: Callable[[Item], Result], items: Sequence[Item], shared: Sequence[object] = ()
    ) -> list[Result]:
        """`[work(item) for item in items]`, the last item in this process, the others in child processes.

        Children are forked, so they see everything that this process has in memory; results come back pickled,
        except for the `shared` objects in them: those are the objects of this process again.
        Everything runs in this process if forking is unsafe (other threads run) or impossible.
        """
        if self.jobs < 2 or len(items) < 2 or not _can_fork():
            return [work(item) for item in items]
        results: dict[int, Result] = {}
        waiting = list(range(len(items)))
        running: list[_Child] = []
        with _ended_on_error(running):
            while waiting or running:
                while len(waiting) > 1 and len(running) < self.jobs - 1:
                    number = waiting.pop(0)
                    running.append(self._start(number, partial(work, items[number]), shared))
                if waiting:
                    number = waiting.pop()
                    results[number] = work(items[number])
                self._collect(running, results, patience=0 if waiting else 0.1)
        return [results[number] for number in range(len(items))]

    def _collect(self, running: list[_Child], results: dict[int, Any], patience: float) -> None:
        ready, _, _ = select.select([child.pipe for child in running], [], [], patience if running else 0)
        for child in [child for child in running if child.pipe in ready]:
            results[child.number] = child.result()
            running.remove(child)
        self.meter.add(0)

    def _start(self, number: int, work: Callable[[], Any], shared: Sequence[object]) -> _Child:
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reading)
            self._become_child(number, work, writing, shared)
        os.close(writing)
        return _Child(number, pid, reading, shared)

    def _become_child(
        self, number: int, work: Callable[[], Any], writing: int, shared: Sequence[object]
    ) -> NoReturn:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.meter.enter(number + 1)
        _run_child(work, writing, shared)


@dataclass(slots=True)
class _Child:
    number: int
    pid: int
    pipe: int
    shared: Sequence[object]

    def result(self) -> Any:
        with os.fdopen(self.pipe, "rb") as stream:
            self.pipe = -1
            answer = stream.read()
        _, status = os.waitpid(self.pid, 0)
        self.pid = -1
        if status or not answer:
            raise TraceError(
                "a worker process ended without an answer",
                advice="It may have run out of memory: try fewer workers with --jobs 1.",
            )
        ok, value = unpacked(answer, self.shared)
        if not ok:
            raise value
        return value

    def end(self) -> None:
        if self.pipe >= 0:
            os.close(self.pipe)
        if self.pid > 0:
            os.kill(self.pid, signal.SIGTERM)
            os.waitpid(self.pid, 0)


def _run_child(work: Callable[[], Any], pipe: int, shared: Sequence[object]) -> NoReturn:
    status = 1
    try:
        answer = _answer(work, shared)
        with os.fdopen(pipe, "wb") as stream:
            stream.write(answer)
        status = 0
    finally:
        os._exit(status)


def _answer(work: Callable[[], Any], shared: Sequence[object]) -> bytes:
    try:
        return packed((True, work()), shared)
    except Exception as error:  # noqa: BLE001  whatever happened here is raised again in the parent
        error.add_note("".join(traceback.format_exception(error)))
        try:
            return packed((False, error))
        except Exception:  # noqa: BLE001  an error that cannot be pickled still has a text
            return packed((False, RuntimeError(repr(error))))


@contextmanager
def _ended_on_error(children: list[_Child]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for child in children:
            child.end()
        raise


def _can_fork() -> bool:
    return sys.platform == "linux" and threading.active_count() == 1
