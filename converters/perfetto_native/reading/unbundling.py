"""Packets that stand compressed in others, in their place among those that do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from isal import isal_zlib

from tracelink.converters.perfetto_native.reading.framing import Batch, framed
from tracelink.converters.perfetto_native.schema import Packet
from tracelink.fields import varint_within
from tracelink.wire import DELIMITED, VARINT, key

TOGETHER = 8 << 20
"""So many bytes of packets are looked at together, at least."""
MOST = 256 << 20
"""A bundle of more is none: a small file must not be able to ask for all memory."""

LATEST = 1 << 62
"""What is said to be later is not to be believed."""

MOST_PACKETS = 1 << 16
"""Of a bundle, which has a sixteenth of that: a small file must not be able to ask for millions."""

TIME, BUNDLE = key(Packet.TIME, VARINT), key(Packet.BUNDLE, DELIMITED)


@dataclass(slots=True)
class Unbundled:
    """The packets of a batch; iterate to the end, then ask how many bundles were damaged."""

    batch: Batch
    damaged: int = 0
    _parts: list[bytes] = field(default_factory=list)
    _begins: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _anchors: list[tuple[int, int]] = field(default_factory=list)
    _size: int = 0

    def __iter__(self) -> Iterator[Batch]:
        """Batches of packets of which none is a bundle."""
        batch, first = self.batch, 0
        for place, (begin, end) in enumerate(zip(batch.begins, batch.ends, strict=True)):
            time, at = _compressed_at(batch.data, begin, end)
            if not at:
                continue
            self._add_run(first, place)
            self._add_bundle(batch.data[at:end], time)
            first = place + 1
            if self._size >= TOGETHER:
                yield self._together()
        if not first:
            yield batch
            return
        self._add_run(first, len(batch.begins))
        if self._begins:
            yield self._together()

    def _add_run(self, low: int, high: int) -> None:
        """Packets that follow one another."""
        if low < high:
            begins, ends = self.batch.begins[low:high], self.batch.ends[low:high]
            self._add(self.batch.data[begins[0] : ends[-1]], begins, ends, begins[0])

    def _add_bundle(self, compressed: bytes, time: int) -> None:
        packets, whole = _inflated(compressed)
        batch, problem = framed(0, packets, MOST_PACKETS)
        if batch.begins and 0 <= time <= LATEST:
            self._anchors.append((len(self._begins), time))
        self.damaged += bool(not whole or problem or (batch.ends[-1:] or [0]) != [len(packets)])
        self._add(packets, batch.begins, batch.ends, 0)

    def _add(self, data: bytes, begins: list[int], ends: list[int], first: int) -> None:
        shift = self._size - first
        self._parts.append(data)
        self._begins += [begin + shift for begin in begins]
        self._ends += [end + shift for end in ends]
        self._size += len(data)

    def _together(self) -> Batch:
        data = b"".join(self._parts)
        whole = Batch(self.batch.offset, data, self._begins, self._ends, self._anchors)
        self._parts, self._begins, self._ends, self._anchors, self._size = [], [], [], [], 0
        return whole


def _compressed_at(data: bytes, begin: int, end: int) -> tuple[int, int]:
    """When a bundle begins, and where what is compressed in it does; that is 0 where a packet is no bundle."""
    place, time = begin, 0
    if data.startswith(TIME, place, end):
        time, place = varint_within(data, begin + len(TIME), end)
    if not place or not data.startswith(BUNDLE, place, end):
        return 0, 0
    return time, varint_within(data, place + len(BUNDLE), end)[1]


def _inflated(compressed: bytes) -> tuple[bytes, bool]:
    """The bytes of a bundle, and whether they are all."""
    try:
        inflating = isal_zlib.decompressobj()
        packets = inflating.decompress(compressed, MOST)
    except isal_zlib.error:  # type: ignore[misc]
        return b"", False
    return packets, bool(inflating.eof)
