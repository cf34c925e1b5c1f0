"""Signals that ask for the end of what runs in a loop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType


def _nobody() -> None:
    """There is no loop to be told, yet or any more."""


@dataclass(slots=True)
class Asked:
    """What was asked for so far."""

    signals: list[int] = field(default_factory=list)
    tell: Callable[[], object] = _nobody
    """Called at each signal."""

    def at_each(self, tell: Callable[[], object]) -> None:
        """Tells also of what came before."""
        self.tell = tell
        if self.signals:
            tell()

    def no_more(self) -> None:
        """Nobody is told from now on."""
        self.tell = _nobody


@contextmanager
def kept() -> Iterator[Asked]:
    """Keeps signals until the end, and does then what they do: raised anywhere they would leave half a loop.

    Blocking them is not enough, for threads of libraries take them too.
    """
    asked = Asked()

    def keep(number: int, frame: FrameType | None) -> None:
        asked.signals.append(number)
        asked.tell()

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if threading.current_thread() is not threading.main_thread():
        before = {}
    heeded = {number: old for number, old in before.items() if old not in (signal.SIG_IGN, None)}
    for number in heeded:
        signal.signal(number, keep)
    try:
        yield asked
    finally:
        for number, old in heeded.items():
            signal.signal(number, old)
    for asked_for in asked.signals[:1]:
        signal.raise_signal(asked_for)
