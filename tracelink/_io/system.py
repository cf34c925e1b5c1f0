"""The differences between operating systems. Linux has everything; elsewhere the same work runs in one process.

What is missing is looked up when it is needed, so that every module can be imported everywhere.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, cast

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# Processes.


HAS_FORK = sys.platform == "linux" and hasattr(os, "fork")
"""True if a forked process can go on: on macOS, libraries crash in it."""

FILES_OF_A_PROCESS = 8
"""Files that are open at once for each worker process: its pipe, and the blocks that it writes."""

FILES_OF_ALL = 32
"""Files that are open at once for other reasons."""

PR_SET_PDEATHSIG = 1


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def most_processes() -> int:
    """The number of worker processes for which the limit of open files suffices."""
    try:
        import resource
    except ImportError:
        return sys.maxsize
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(1, (limit - FILES_OF_ALL) // FILES_OF_A_PROCESS)


def end_by_signal(number: int) -> None:
    """Ends this process by a signal, as without a handler; `signal.signal` is for the main thread only."""
    _library().signal(number, None)
    os.kill(os.getpid(), number)


def end_with_parent(number: int) -> None:
    """Asks the system to send this signal to this process when its parent ends."""
    with suppress(OSError, AttributeError, ImportError):  # without it, the process ends after its work
        _library().prctl(PR_SET_PDEATHSIG, number)


@cache
def _library() -> Any:
    import ctypes

    return ctypes.CDLL(None)


def process_exists(pid: int) -> bool:
    """True if a process has this number, or if the system does not answer."""
    if os.name != "posix":
        return True  # os.kill would end it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


@cache
def machine() -> str:
    """A short name for this machine and its table of processes, of which containers have their own."""
    table = ""
    with suppress(OSError):
        table = os.readlink("/proc/self/ns/pid")
    return f"{zlib.crc32(f'{socket.gethostname()} {table}'.encode()):08x}"


# Files.


@contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Keeps the other processes of this run from entering; without fork there are no others."""
    if fcntl is None or not HAS_FORK:
        yield
        return
    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN)


def exclusive_lock(path: Path) -> BinaryIO | None:
    """A file that only one process can lock, until that ends; None if another one has locked it."""
    file = path.open("wb")
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
    return file


def read_at(descriptor: int, count: int, offset: int) -> bytes:
    """At most `count` bytes at an offset; processes that share the file do not disturb each other."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, count, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, count)


def read_into_at(descriptor: int, view: memoryview, offset: int) -> int:
    """Fills `view` with bytes at an offset, as far as there are any; returns their number."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [view], offset)
    data = read_at(descriptor, len(view), offset)
    view[: len(data)] = data
    return len(data)


def write_at(descriptor: int, data: memoryview, offset: int) -> int:
    """Writes bytes at an offset; returns the number of those that were written."""
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, data, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.write(descriptor, data)


def append(descriptor: int, parts: Iterable[Any]) -> int:
    """Writes the bytes of all parts at the end of a file; returns where they begin."""
    begin = at = os.lseek(descriptor, 0, os.SEEK_END)
    for part in parts:
        rest = memoryview(part).cast("B") if len(part) else memoryview(b"")
        while len(rest):
            written = write_at(descriptor, rest, at)
            at += written
            rest = rest[written:]
    return begin


def temporary_file() -> BinaryIO:
    """An unnamed temporary file, which the system removes with the last process that has it open."""
    return cast(BinaryIO, tempfile.TemporaryFile(prefix="tracelink-"))


def copy_within_system(source: int, target: int, size: int) -> int:
    """Appends a file to another without reading it; returns the number of bytes for which the system does that."""
    done = 0
    if hasattr(os, "sendfile"):
        with suppress(OSError):  # only to sockets on some systems, and not to every kind of file
            while done < size and (copied := os.sendfile(target, source, done, size - done)):
                done += copied
    return done


# Sockets.


def undelivered(connection: socket.socket) -> int:
    """Bytes that the other end has not acknowledged; 0 if the system does not tell."""
    try:
        import termios
    except ImportError:
        return 0
    if fcntl is None or sys.platform != "linux":
        return 0
    answer = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    return int.from_bytes(answer, sys.byteorder)


# Signals that end a program: deferred where an exception would leave a process or a file behind.


ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Interrupted by the user, terminated by a scheduler, left without a terminal."""

AGAIN = tuple(getattr(signal, name) for name in ("SIGALRM",) if hasattr(signal, name))
"""How the command line raises one of these again that was lost."""


AT_ONCE = 0.5
"""Seconds after a signal in which others do not end anything: they would interrupt the cleanup as it begins."""


def _do_nothing() -> None:
    """Does nothing: no loop is running."""


@dataclass(slots=True)
class DeferredSignals:
    """Signals that arrived so far."""

    received: list[int] = field(default_factory=list)
    callback: Callable[[], object] = _do_nothing
    """Called at each signal."""

    def on_signal(self, callback: Callable[[], object]) -> None:
        """Calls `callback` at each signal, and at once if one has arrived already."""
        self.callback = callback
        if self.received:
            callback()

    def ignore(self) -> None:
        """Calls nothing from now on."""
        self.callback = _do_nothing


@contextmanager
def deferred_signals() -> Iterator[DeferredSignals]:
    """Defers signals until the end, and raises them then: raised at once, they would interrupt what runs.

    Blocking them is not enough, because threads of libraries receive them too.
    """
    signals = DeferredSignals()

    def defer(number: int, frame: FrameType | None) -> None:
        signals.received.append(number)
        signals.callback()

    previous = {number: signal.getsignal(number) for number in (*ENDING, *AGAIN)}
    if threading.current_thread() is not threading.main_thread():
        previous = {}
    replaced = {number: old for number, old in previous.items() if old not in (signal.SIG_IGN, None)}
    try:
        for number in replaced:
            signal.signal(number, defer)
        yield signals
    finally:
        for number, old in replaced.items():
            signal.signal(number, old)
        for number in dict.fromkeys(signals.received):
            signal.raise_signal(number)  # also after an error
