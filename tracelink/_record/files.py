"""The files of a rank: each appears whole or not at all, and all of them together stay within a limit."""

from __future__ import annotations

import os
import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path

from tracelink._io.system import machine
from tracelink._io.targets import Place, folder_target
from tracelink._io.temporary import abandoned_files_removed
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
