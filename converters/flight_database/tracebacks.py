"""Stacks to rows: each different one once, known by a digest of what it says."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec

from tracelink.analysis.evidence import own_frames
from tracelink.converters.flight_database import schema
from tracelink.converters.flight_database.rows import Batch, whole
from tracelink.converters.flight_recorder.schema import FRAME_FILE, FRAME_LINE, FRAME_NAME
from tracelink.diagnosis import Frame

DEEPEST = 1024
"""Frames that are kept of one stack: Python's own limit is about as many."""

DIGEST = 16
NO_STACK = (b"", b"null", b"[]")


class Said(msgspec.Struct, gc=False, rename={"name": FRAME_NAME, "filename": FRAME_FILE, "line": FRAME_LINE}):
    """A frame as a dump has it."""

    name: str = ""
    filename: str = ""
    line: int | None = None


frames_in = msgspec.json.Decoder(list[Said]).decode


@dataclass(slots=True)
class Tracebacks:
    """The stacks that were seen, and those among them whose rows were not taken yet."""

    unreadable: int = 0
    cut: int = 0
    """Stacks that are too deep to be kept whole."""
    _known: dict[bytes, int | None] = field(default_factory=dict)
    _count: int = 0
    _rows: dict[str, list[Any]] = field(default_factory=dict)
    _frames: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begin()

    def number(self, raw: msgspec.Raw) -> int | None:
        """The number of a stack, None where there is none or it is no stack."""
        digest = blake2b(raw, digest_size=DIGEST).digest()
        if digest not in self._known:
            self._known[digest] = self._added(bytes(raw))
        return self._known[digest]

    def take(self) -> list[Batch]:
        """The rows of what was new since the last time."""
        taken = [Batch(schema.TRACEBACKS.name, self._rows), Batch(schema.FRAMES.name, self._frames)]
        self._begin()
        return taken

    def _begin(self) -> None:
        self._rows = {column.name: [] for column in schema.TRACEBACKS.columns}
        self._frames = {column.name: [] for column in schema.FRAMES.columns}

    def _added(self, raw: bytes) -> int | None:
        if raw in NO_STACK:
            return None
        try:
            said = frames_in(raw)
        except msgspec.DecodeError:
            self.unreadable += 1
            return None
        self.cut += len(said) > DEEPEST
        frames = [Frame(one.name, one.filename, whole(one.line) or 0) for one in said[:DEEPEST]]
        number, self._count = self._count, self._count + 1
        caller = own_frames(frames)[0]
        lines = [f'File "{one.filename}", line {one.line}, in {one.name}' for one in reversed(frames)]
        row = {
            "id": number,
            "text": "\n".join(lines),
            "name": caller.name,
            "filename": caller.filename,
            "line": caller.line or None,
        }
        for name, value in row.items():
            self._rows[name].append(value)
        self._frames["traceback_id"] += [number] * len(frames)
        self._frames["depth"] += range(len(frames))
        self._frames["name"] += [one.name for one in frames]
        self._frames["filename"] += [one.filename for one in frames]
        self._frames["line"] += [one.line or None for one in frames]
        return number
