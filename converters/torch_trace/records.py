"""Records of a compile log: a prefix with time and process, an envelope of JSON, and indented lines of payload."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from msgspec import Struct

from tracelink._io.sources import Opened
from tracelink._model.columns import MILLISECOND, SECOND
from tracelink._model.errors import UnreadableError
from tracelink.converters.torch_trace.clock import local_seconds

BLOCK = 1 << 17
LONGEST = 256 << 20
"""Bytes of a record that is held in memory."""

PREFIX = re.compile(rb"\n[VIWEC](\d{4} \d\d:\d\d:\d\d)\.(\d{6}) (\d{1,10}) ([^:\n]{0,1000}):(\d{1,8})\] ")
INDENT = b"\t"


class Record(Struct, frozen=True):
    """One record; its time is local, and has no year."""

    offset: int
    """Of its first byte in the uncompressed file."""
    time_ns: int
    """Since the last day before a year, without its leap day."""
    pid: int
    where: bytes
    """The file that wrote it."""
    line: int
    envelope: bytes
    payload: bytes
    """Without the indent of its lines."""
    payload_offset: int
    payload_bytes: int
    """As stored, with the indent."""
    noise: int
    """Lines that are no part of it."""

    def has_digest(self, digest: str) -> bool:
        """Whether the payload is complete."""
        return hashlib.md5(self.payload, usedforsecurity=False).hexdigest() == digest


class Damage(Struct):
    """What of a log is no record."""

    before: int = 0
    """Bytes before the first record."""
    cut: bool = False
    """Whether the last line does not end."""


def records_in(stream: Opened, damage: Damage, advanced: Callable[[int], None]) -> Iterator[Record]:
    """The records of a log, in order; `held` begins with the newline before the first one that may continue."""
    held, offset, searched = bytearray(b"\n"), -1, 0
    begun = False
    while block := stream.read(BLOCK):
        advanced(len(block))
        held += block
        complete = held.rfind(b"\n")
        starts = [match.start() for match in PREFIX.finditer(held, searched, complete + 1)]
        if starts and not begun:
            damage.before, begun = starts[0], True
        elif begun:
            starts.insert(0, 0)
        if len(starts) > 1:
            text = bytes(held)
            for start, stop in pairwise(starts):
                yield _record(text, start, stop, offset)
        if starts:
            del held[: starts[-1]]
            offset += starts[-1]
            complete -= starts[-1]
        if len(held) > LONGEST:
            raise UnreadableError(
                f"a record is longer than {LONGEST >> 20} MB", advice="Is it a compile log?"
            )
        searched = max(complete, 1 if begun else 0)
    damage.cut = len(held) > 1 and held[-1:] != b"\n"
    if begun:
        yield _record(bytes(held), 0, _end_of_last(held, cut=damage.cut), offset)
    else:
        damage.before = len(held) - 1


def _end_of_last(held: bytearray, *, cut: bool) -> int:
    """Where the last record ends: before the newline, and before the beginning of another one."""
    last = held.rfind(b"\n")
    continues = held[last + 1 : last + 2] == INDENT
    return len(held) if cut and (last == 0 or continues) else last


def _record(text: bytes, start: int, stop: int, offset: int) -> Record:
    """The record after the newline at `start`; that before the next one is at `stop`."""
    match = PREFIX.match(text, start)
    assert match
    date_time, micros, pid, where, line = match.groups()
    begin = match.end()
    line_end = text.find(b"\n", begin, stop)
    line_end = stop if line_end < 0 else line_end
    stored = text[line_end + 1 : stop]
    payload, noise = _payload(stored)
    return Record(
        offset + start + 1,
        local_seconds(date_time) * SECOND + int(micros) * MILLISECOND // 1000,
        int(pid),
        where,
        int(line),
        text[begin:line_end],
        payload,
        offset + line_end + 1,
        len(stored),
        noise,
    )


def _payload(stored: bytes) -> tuple[bytes, int]:
    """The payload without its indent, and how many lines between belong to something else."""
    if not stored:
        return b"", 0
    if stored.startswith(INDENT):
        payload = stored[1:].replace(b"\n\t", b"\n")
        if payload.count(b"\n") == len(stored) - 1 - len(payload):
            return payload, 0
    lines = stored.split(b"\n")
    indented = [line[1:] for line in lines if line.startswith(INDENT)]
    return b"\n".join(indented), len(lines) - len(indented)
