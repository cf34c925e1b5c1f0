"""A thread that dumps a rank while its training hangs: on a signal, or if no step ends for too long.

A handler of a signal runs in the main thread, which may wait in a collective for ever. So the interpreter writes the
number of each signal into a socket (`signal.set_wakeup_fd`), and this thread reads it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, ClassVar

from tracelink._io.system import end_by_signal

WATCHDOG = "watchdog"
DUMPING = tuple(name for name in ("SIGUSR2", "SIGTERM") if hasattr(signal, name))
"""Signals at which a rank is dumped. Launchers send SIGTERM to all other ranks when one fails."""
CHECKS = 4
"""How often the watchdog looks within its time."""
PATIENCE_S = 20.0
"""How long the end of a block, or of a process, waits for a dump that is being written."""


@dataclass
class Guard:
    """Watches one training until `stop`."""

    dump: Callable[[str], object]
    """Dumps this rank, for this reason."""
    steps: Callable[[], int]
    """How many steps ended."""
    watchdog_s: float | None
    _thread: threading.Thread | None = None
    _replaced: dict[int, Any] = field(default_factory=dict)
    _former_wakeup: int | None = None
    _pair: tuple[socket.socket, socket.socket] | None = None
    _pid: int = field(default_factory=os.getpid)

    _active: ClassVar[Guard | None] = None
    _known_to_fork: ClassVar[bool] = False

    def start(self) -> str:
        """Starts to watch; returns what it cannot do, or nothing."""
        reader, writer = self._pair = socket.socketpair()
        for end in self._pair:
            end.setblocking(False)
        problem = self._listen(writer)
        self._thread = threading.Thread(
            target=self._watch, args=(reader,), name="tracelink-guard", daemon=True
        )
        self._thread.start()
        return problem

    def stop(self) -> None:
        """Ends the thread, and gives signals back."""
        self._unlisten()
        pair, self._pair = self._pair, None
        if pair is None:
            return
        pair[1].close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(PATIENCE_S)
        pair[0].close()

    # Signals.

    def _listen(self, writer: socket.socket) -> str:
        if threading.current_thread() is not threading.main_thread():
            return "signals do not dump this rank: the block is not in the main thread"
        former = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        if former != -1:
            signal.set_wakeup_fd(former)
            return "signals do not dump this rank: another library uses signal.set_wakeup_fd"
        self._former_wakeup = former
        for name in DUMPING:
            number = getattr(signal, name)
            if signal.getsignal(number) is signal.SIG_DFL:
                self._replaced[number] = signal.signal(number, self._on_signal)
        Guard._active = self
        if not Guard._known_to_fork:
            os.register_at_fork(after_in_child=_forget)
            Guard._known_to_fork = True
        return ""

    def _unlisten(self) -> None:
        if Guard._active is self:
            Guard._active = None
        if threading.current_thread() is not threading.main_thread():
            return
        for number, former in self._replaced.items():
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, former)
        self._replaced.clear()
        if self._former_wakeup is not None:
            signal.set_wakeup_fd(self._former_wakeup)
            self._former_wakeup = None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """The thread acts, also if this never runs. Without a thread, the signal does what it does by default."""
        if self._thread is None or not self._thread.is_alive():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    # The thread.

    def _watch(self, reader: socket.socket) -> None:
        interval = self.watchdog_s / CHECKS if self.watchdog_s else None
        steps, since = self.steps(), time.monotonic()
        dumped = False
        while True:
            ready, _, _ = select.select([reader], [], [], interval)
            if ready:
                received = _read(reader)
                if not received:
                    return
                self._signalled(received)
            now = self.steps()
            if now != steps:
                steps, since, dumped = now, time.monotonic(), False
            elif self.watchdog_s and not dumped and time.monotonic() - since >= self.watchdog_s:
                dumped = True
                self.dump(WATCHDOG)

    def _signalled(self, numbers: bytes) -> None:
        for name in DUMPING:
            number = int(getattr(signal, name))
            if number not in numbers:
                continue
            ends = name == "SIGTERM" and number in self._replaced
            if ends:  # also if the dump takes too long, or fails
                timer = threading.Timer(PATIENCE_S, end_by_signal, (number,))
                timer.daemon = True
                timer.start()
            try:
                self.dump(name)
            finally:
                if ends:
                    end_by_signal(number)


def _read(reader: socket.socket) -> bytes:
    try:
        return reader.recv(4096)
    except OSError:
        return b""


def _forget() -> None:
    """A forked process, such as a worker of a DataLoader, has no thread: signals end it again."""
    guard = Guard._active
    if guard is not None and guard._pid != os.getpid():
        guard._unlisten()
