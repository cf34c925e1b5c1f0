"""The files of a rank: each appears whole or not at all, within a limit; the capture file says what was recorded."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tracelink._io.system import machine
from tracelink._io.targets import Place, folder_target
from tracelink._io.temporary import abandoned_files_removed
from tracelink._model import __version__
from tracelink.converters.capture import schema

CHUNK = 1 << 20
PARTIAL = ".part"
FREE = 0.02
"""Part of the disk that stays free."""


@dataclass(slots=True)
class Files:
    """The folder of a capture, and what this rank wrote into it."""

    folder: Path
    max_bytes: int
    written: list[schema.File] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> None:
        """Makes the folder, and removes unfinished files of processes that were killed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for folder in (self.folder, *(path for path in self.folder.iterdir() if path.is_dir())):
            with abandoned_files_removed(str(folder / PARTIAL)):
                pass

    def write(self, name: str, content: bytes, kind: str) -> str:
        """Writes a file, compressed if its name says so; returns its name."""
        target, last = self._target(name)
        with target.file(last) as stream:
            stream.write(content)
        return self._note(name, kind)

    def move(self, recorded: Path, name: str, kind: str) -> str:
        """Makes the file `name` of one that a library wrote, compressed if the name says so."""
        target, last = self._target(name)
        try:
            with target.file(last) as stream, recorded.open("rb") as original:
                shutil.copyfileobj(original, stream, CHUNK)
        finally:
            recorded.unlink(missing_ok=True)
        return self._note(name, kind)

    def replace(self, name: str, content: bytes) -> None:
        """Writes a file that is none of the recorded ones, such as the capture file."""
        target, last = self._target(name)
        with target.file(last) as stream:
            stream.write(content)

    def scratch(self, name: str) -> Path:
        """The path of a hidden file, for a library to write into; its name says of which process it is."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.with_name(f".{path.name}.{machine()}-{os.getpid()}-{os.urandom(4).hex()}{PARTIAL}")

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(file.bytes for file in self.written)

    def room(self) -> int:
        """How many bytes may still be written: by the limit, and by the disk."""
        usage = shutil.disk_usage(self.folder)
        return min(self.max_bytes - self.bytes, usage.free - int(usage.total * FREE))

    def _target(self, name: str) -> tuple[Place, str]:
        path = self.folder / name
        return folder_target(path.parent), path.name

    def _note(self, name: str, kind: str) -> str:
        size = (self.folder / name).stat().st_size
        with self._lock:
            self.written = [file for file in self.written if file.path != name]
            self.written.append(schema.File(name, kind, size))
        return name


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
