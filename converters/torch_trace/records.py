"""Records of a compile log: a prefix with time and process, an envelope of JSON, and indented lines of payload."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from tracelink.io.sources import Opened
from tracelink.model.columns import MILLISECOND, SECOND
from tracelink.model.errors import UnreadableError

BLOCK = 1 << 18
LONGEST = 256 << 20
"""Bytes of a record that is held in memory."""

PREFIX = re.compile(
    rb"\n[VIWEC](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6}) (\d{1,10}) ([^:\n]{0,1000}):(\d{1,8})\] "
)
DAYS_BEFORE = (0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
"""Days of a year before each month, without the leap day."""
INDENT = b"\t"


@dataclass(frozen=True, slots=True)
class Record:
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


@dataclass(slots=True)
class Damage:
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
        for start, stop in pairwise(starts):
            yield _record(held, start, stop, offset)
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
        yield _record(held, 0, len(held) - (not damage.cut), offset)
    else:
        damage.before = len(held) - 1


def _record(text: bytearray, start: int, stop: int, offset: int) -> Record:
    """The record after the newline at `start`; that before the next one is at `stop`."""
    match = PREFIX.match(text, start)
    assert match
    begin = match.end()
    line_end = text.find(b"\n", begin, stop)
    line_end = stop if line_end < 0 else line_end
    stored = bytes(text[line_end + 1 : stop])
    payload, noise = _payload(stored)
    month, day, hour, minute, second, micros = (int(match[group]) for group in range(1, 7))
    days = DAYS_BEFORE[month] + day if 1 <= month <= 12 else 0
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second
    return Record(
        offset + start + 1,
        seconds * SECOND + micros * MILLISECOND // 1000,
        int(match[7]),
        bytes(match[8]),
        int(match[9]),
        bytes(text[begin:line_end]),
        payload,
        offset + line_end + 1,
        len(stored),
        noise,
    )


def _payload(stored: bytes) -> tuple[bytes, int]:
    """The payload without its indent, and how many lines between belong to something else."""
    if not stored:
        return b"", 0
    lines = stored.count(b"\n") + 1
    if stored.startswith(INDENT) and stored.count(b"\n\t") + 1 == lines:
        return stored[1:].replace(b"\n\t", b"\n"), 0
    indented = [line[1:] for line in stored.split(b"\n") if line.startswith(INDENT)]
    return b"\n".join(indented), lines - len(indented)
