"""A trace in the order of its times: engines then read it as they read one that is being recorded.

They sort and keep what happens at about the same time, and not everything before they draw the first of it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, cast

from tracelink.converters.perfetto_native.bundles import Packing, packed, time_of
from tracelink.converters.perfetto_native.schema import PACKET, Packet, Service
from tracelink.plugins import Target
from tracelink.targets import GzipStream
from tracelink.wire import VARINT, delimited, key, varint, varint_at

BETWEEN_MARKS = 8
"""Bundles."""

HEAD_BYTES = 32
"""As long as what stands before the packets of a bundle, at most."""


@dataclass(frozen=True, slots=True)
class Interleaved:
    """A target for a trace that is written rank by rank: its bundles are put in order once all are there."""

    target: Target
    packing: Packing

    @contextmanager
    def file(self, name: str = "") -> Iterator[BinaryIO]:
        """A file for packets in any order of time; those of one sequence in theirs."""
        directory = os.path.dirname(self.path(name)) or None
        with self.target.file(name) as out, tempfile.TemporaryFile(dir=directory) as spool:
            yield cast(BinaryIO, spool)
            spool.flush()
            packing = Packing.PLAIN if isinstance(out, GzipStream) else self.packing
            _write_in_order(spool.fileno(), out, packing)

    def path(self, name: str = "") -> str:
        """How that file is called."""
        return self.target.path(name)

    def size(self, name: str = "") -> int:
        """How many bytes it has."""
        return self.target.size(name)


def _write_in_order(spool: int, out: BinaryIO, packing: Packing) -> None:
    """Tracks and whatever has no time first, then bundles by time; of equal times as they stand."""
    bundles: list[tuple[int, int, int, int]] = []
    for begin, body, end in _packets(spool):
        time = time_of(os.pread(spool, HEAD_BYTES, body))
        if time is None:
            out.write(os.pread(spool, end - begin, begin))
        else:
            bundles.append((time, begin, body, end))
    for number, (time, begin, body, end) in enumerate(sorted(bundles)):
        if number % BETWEEN_MARKS == 0:
            out.write(_marks(time))
        if packing is Packing.BUNDLED:
            out.write(os.pread(spool, end - begin, begin))
        else:
            out.write(packed(os.pread(spool, end - body, body), packing))


def _packets(spool: int) -> Iterator[tuple[int, int, int]]:
    """Where each packet, its body and the next one begin."""
    begin, size = 0, os.fstat(spool).st_size
    while begin < size:
        length, after = varint_at(os.pread(spool, HEAD_BYTES, begin), 1)
        yield begin, begin + after, begin + after + length
        begin += after + length


def _marks(time: int) -> bytes:
    """Leave to draw, and to forget, what is earlier than all that stands behind the marks before these.

    Engines take it where two flushes have been seen since they took it last, and a reading comes.
    """
    return b"".join(
        delimited(
            PACKET,
            key(Packet.TIME, VARINT)
            + varint(time)
            + delimited(Packet.SERVICE, key(event, VARINT) + varint(True)),
        )
        for event in (Service.FLUSHED, Service.FLUSHED, Service.READ)
    )
