"""Signals that end a program: deferred where an exception would leave a process or a file behind."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

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
