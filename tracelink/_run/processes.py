"""Work in this process, or in forked children that share what this process has read."""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from types import FrameType
from typing import Any, BinaryIO, NoReturn, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._io.engine import Meter
from tracelink._io.spool import LocalStore, Store, packed, unpacked
from tracelink._io.system import AT_ONCE, ENDING, HAS_FORK, DeferredSignals, deferred_signals, end_with_parent
from tracelink._model.errors import TraceError

Item = TypeVar("Item")
Result = TypeVar("Result")

WORTH_FORKING = 20_000
"""Events: to write fewer takes about as long as to fork two processes and to collect their results."""


class Processes(Struct):
    """This process, and as many children as may work at once."""

    jobs: int = 1
    meter: Meter = field(default_factory=Meter)

    @property
    def alone(self) -> Processes:
        """The engine of one process."""
        return self if self.jobs == 1 else replace(self, jobs=1)

    @property
    def shares_files(self) -> bool:
        """True: children have the files of their parent."""
        return True

    def for_events(self, count: int) -> Processes:
        """An engine for work on so many events: few are dealt with faster than processes are forked."""
        return self if count >= WORTH_FORKING else self.alone

    def split(self, items: int) -> tuple[Processes, Processes]:
        """An engine for so many items and one for the work inside each: whichever can use all processes does."""
        return (self, self.alone) if items >= self.jobs else (self.alone, self)

    def map(
        self, work: Callable[[Item], Result], items: Sequence[Item], shared: Sequence[object] = ()
    ) -> list[Result]:
        """`[work(item) for item in items]`, the last item in this process, the first ones in child processes.

        Each item in between goes to the next free process: a child works on one after the other, because a new one
        would have to get its memory again. Children are forked, so they see everything that this process has in
        memory; results come back pickled, except for the `shared` objects in them: those are the objects of this
        process again. Everything runs in this process if forking is unsafe (other threads run) or impossible.
        """
        if self.jobs < 2 or len(items) < 2 or not _can_fork():
            return [work(item) for item in items]
        results: dict[int, Result] = {}
        running: list[_Child] = []
        children = min(self.jobs, len(items)) - 1
        with _numbers(range(children, len(items) - 1)) as middle, _ended_on_error(running):
            if middle is None:
                return [work(item) for item in items]

            def worked(first: int) -> dict[int, Result]:
                return {number: work(items[number]) for number in chain([first], middle)}

            while len(running) < children and self._start(len(running), worked, shared, running):
                pass
            for number in chain([len(items) - 1], range(len(running), children), middle):
                results[number] = work(items[number])
                self._collect(running, results, patience=0)
            while running:
                self._collect(running, results, patience=COLLECT_AFTER)
        return [results[number] for number in range(len(items))]

    def store(self, shared: Sequence[object], *, in_memory: bool) -> Store:
        """A store in memory, or in a temporary file that the children of this process can use, too."""
        return LocalStore(shared, in_memory=in_memory)

    def _collect(self, running: list[_Child], results: dict[int, Any], patience: int) -> None:
        for child in _answering(running, patience):
            results |= child.result()
            running.remove(child)
        self.meter.add(0)

    def _start(
        self, number: int, work: Callable[[int], Any], shared: Sequence[object], running: list[_Child]
    ) -> bool:
        """Adds a child that does `work(number)` to `running`; False if the system has no process or no file for it."""
        parent = os.getpid()
        with deferred_signals() as signals:  # raised in between, one would end this process without the child
            try:
                reading, writing = os.pipe()
            except OSError:
                return False
            pid, mask = _forked()
            if not pid:
                for descriptor in (reading, *(child.pipe for child in running)):
                    os.close(descriptor)
                self.meter.enter(number + 1)
                _run_child(partial(work, number), writing, shared, _Origin(parent, signals, mask))
            os.close(writing)
            if pid < 0:
                os.close(reading)
                return False
            running.append(_Child(pid, reading, shared))
        return True


NUMBER = struct.Struct("=i")
MOST_RUNS = 1000
"""Their numbers fit into one page, the least that a pipe holds."""


@contextmanager
def _numbers(numbers: range) -> Iterator[Iterator[int] | None]:
    """The numbers, each for one of the processes that iterate over them, in runs if many; None if there is no pipe."""
    length = max(-(-len(numbers) // MOST_RUNS), 1)
    try:
        reading, writing = os.pipe()
    except OSError:  # the limit of open files
        yield None
        return
    try:
        os.write(writing, b"".join(map(NUMBER.pack, numbers[::length])))
    finally:
        os.close(writing)

    def taken() -> Iterator[int]:
        while text := os.read(reading, NUMBER.size):
            (first,) = NUMBER.unpack(text)
            yield from range(first, min(first + length, numbers.stop))

    try:
        yield taken()
    finally:
        os.close(reading)


# Children. They end as this process does, with their unfinished files removed.


LENGTH = struct.Struct("=q")
LARGE = 1 << 16
"""Bytes: larger arrays are sent as they are, and not copied into the other bytes of an answer."""
MOST_PARTS = 1 << 24
COLLECT_AFTER = 100
"""Milliseconds to wait for an answer before bytes are counted again."""

TRIES = 10
BETWEEN_TRIES = 1.0
"""Seconds for a child to remove its unfinished files, before it is terminated again, and finally killed."""

BETWEEN_LOOKS = 0.002
"""Seconds between two looks whether a child has ended."""


class _Child(Struct):
    pid: int
    pipe: int
    shared: Sequence[object]

    def result(self) -> Any:
        """What the child answered; its lengths decide if that is complete, because others can reap the child."""
        pipe, self.pipe = self.pipe, -1
        with os.fdopen(pipe, "rb") as stream:
            answer = _received(stream)
        while not self.has_ended():
            time.sleep(BETWEEN_LOOKS)
        if answer is None:
            raise TraceError(
                "a worker process ended without an answer",
                advice="It may have run out of memory: try fewer workers with --jobs 1.",
            )
        ok, value = unpacked(bytes(answer[0]), self.shared, answer[1:])
        if not ok:
            raise value
        return value

    def has_ended(self) -> bool:
        """True if the child is no process any more, reaped here, by the system or by a handler of the program."""
        if self.pid > 0:
            try:
                ended, _ = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                ended = self.pid
            if ended:
                self.pid = -1
        return self.pid < 0

    def send(self, number: int) -> None:
        """Sends a signal, unless the child has ended."""
        if not self.has_ended():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def close(self) -> None:
        """Closes the pipe."""
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1


class _Origin(Struct, frozen=True):
    """What a child has of its parent: its number, the signals since the fork, and those that are blocked in it."""

    parent: int
    signals: DeferredSignals
    mask: Iterable[int]


def _forked() -> tuple[int, Iterable[int]]:
    """Forks; returns 0 in the child, where signals are still blocked, -1 if it is impossible, and the mask of signals.

    Without the block, Python would drop a signal that a child gets before its first instruction.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        pid = os.fork()
    except OSError:
        pid = -1
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return pid, mask


def _answering(children: Sequence[_Child], patience: int) -> list[_Child]:
    """The children with an answer, or without a process, after `patience` milliseconds at most."""
    if not children:
        return []
    poll = select.poll()  # has no limit of 1,024 open files
    for child in children:
        poll.register(child.pipe, select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll(patience)}
    return [child for child in children if child.pipe in ready]


@contextmanager
def _ended_on_error(children: list[_Child]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with deferred_signals():
            _end(children)
        raise


def _end(children: Sequence[_Child]) -> None:
    for child in children:
        child.close()
    for number in (*[signal.SIGTERM] * TRIES, signal.SIGKILL):
        for child in children:
            child.send(number)
        latest = time.monotonic() + BETWEEN_TRIES
        while not all(child.has_ended() for child in children):
            if time.monotonic() > latest:
                break
            time.sleep(BETWEEN_LOOKS)
        else:
            return


def _run_child(work: Callable[[], Any], pipe: int, shared: Sequence[object], origin: _Origin) -> NoReturn:
    """Sends the answer and ends the process, whatever happens: nothing of the parent may run in a child."""
    status = 1
    try:
        try:
            _end_with(origin)
            answer = _answer(work, shared)
            with os.fdopen(pipe, "wb") as stream:
                stream.write(b"".join(map(LENGTH.pack, (len(answer), *map(len, answer)))))
                for part in answer:
                    stream.write(part)
            status = 0
        except BaseException:  # noqa: BLE001  its frames are released here, so that they remove unfinished files
            status = 1
    finally:
        os._exit(status)


def _end_with(origin: _Origin) -> None:
    """Lets this child end with its parent; only the parent handles what the terminal sends to both."""
    last = -AT_ONCE

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        if last - before >= AT_ONCE:
            sys.exit(1)

    for number in ENDING:  # one that waits would be dropped if it were ignored for a moment
        signal.signal(number, end if number == signal.SIGTERM else signal.SIG_IGN)
    sys.unraisablehook = lambda _: (
        None
    )  # the signal is sent again if a callback of the interpreter drops the exit
    end_with_parent(signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_SETMASK, origin.mask)
    if signal.SIGTERM in origin.signals.received or os.getppid() != origin.parent:
        sys.exit(1)


def _answer(work: Callable[[], Any], shared: Sequence[object]) -> list[bytes | memoryview]:
    """The pickled result, and after it the large arrays in it."""
    arrays: list[memoryview] = []

    def take(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if len(raw) < LARGE:
            return True
        arrays.append(raw)
        return False

    try:
        return [packed((True, work()), shared, take), *arrays]
    except Exception as error:  # noqa: BLE001  whatever happened here is raised again in the parent
        error.add_note("".join(traceback.format_exception(error)))
        try:
            return [packed((False, error))]
        except Exception:  # noqa: BLE001  an error that cannot be pickled still has a text
            return [packed((False, RuntimeError(repr(error))))]


def _received(stream: BinaryIO) -> list[bytearray] | None:
    """The parts of an answer; None if it is incomplete."""
    (count,) = LENGTH.unpack(stream.read(LENGTH.size).ljust(LENGTH.size, b"\0"))
    lengths = stream.read(LENGTH.size * count) if 0 < count < MOST_PARTS else b""
    if not lengths or len(lengths) < LENGTH.size * count:
        return None
    parts = []
    for (length,) in LENGTH.iter_unpack(lengths):
        parts.append(bytearray(length))
        if stream.readinto(parts[-1]) < length:  # type: ignore[attr-defined]
            return None
    return parts


def _can_fork() -> bool:
    return HAS_FORK and threading.active_count() == 1
