"""The capture file of a rank: what it is, what was recorded, what was not."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from tracelink._model import __version__
from tracelink._record.files import Files
from tracelink.converters.capture import schema

MOST_TROUBLES = 200
LOG = logging.getLogger("tracelink.capture")
"""Not `warnings`: a filter of the program could turn these into errors, which would end the training."""


@dataclass(slots=True)
class Journal:
    """The capture file as it grows; every change of importance is saved at once."""

    document: schema.Capture = field(
        default_factory=lambda: schema.Capture(schema.VERSION, __version__, 0, "assumed", 1, "", 0)
    )
    files: Files | None = None
    name: str = ""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def trouble(self, subject: str, message: str, advice: str = "") -> None:
        """Notes what could not be recorded, and warns."""
        with self._lock:
            if len(self.document.troubles) < MOST_TROUBLES:
                self.document.troubles.append(schema.Trouble(subject, message[:4096], advice))
        text = f"{subject}: {message}".rstrip(".")
        LOG.warning("tracelink capture, rank %d: %s. %s", self.document.rank, text, advice)

    def attempt(self, subject: str, action: Callable[[], object]) -> bool:
        """Calls `action`; if it fails, that is noted under `subject`, and the result is False."""
        try:
            action()
        except Exception as error:  # noqa: BLE001  a training must not end because it is recorded
            self.trouble(subject, f"{type(error).__name__}: {error}")
            return False
        return True

    def save(self) -> None:
        """Writes the file."""
        if self.files is None:
            return
        with self._lock:
            self.document.files = sorted(self.files.written, key=lambda file: file.path)
            content = msgspec.json.format(msgspec.json.encode(self.document), indent=1)
            self.files.replace(self.name, content)

    def read_clocks(self) -> None:
        """Adds a reading of both clocks: a wall clock that was set shows in their difference."""
        before = time.monotonic_ns()
        wall = time.time_ns()
        monotonic = (before + time.monotonic_ns()) // 2
        with self._lock:
            self.document.readings.append(schema.Reading(wall, monotonic))
