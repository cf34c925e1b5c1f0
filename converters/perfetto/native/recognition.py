"""Whether bytes are a native trace, and whether tracelink wrote it: imported for every file, so it imports little."""

from __future__ import annotations

from tracelink.converters.perfetto.native.schema import PACKET, Packet
from tracelink.io.framing import DELIMITED, VARINT, fields_of, key, length_at

HEAD = key(PACKET, DELIMITED)
MARK = key(Packet.TRACELINK, DELIMITED)
LOOKED_AT = 4
"""Packets that are looked at."""

COMMON = {
    Packet.CLOCK_SNAPSHOT: DELIMITED,
    Packet.TIME: VARINT,
    Packet.SEQUENCE: VARINT,
    Packet.TRACK_EVENT: DELIMITED,
    Packet.TRACK: DELIMITED,
    Packet.BUNDLE: DELIMITED,
}
"""Fields of which most packets of any trace have one, and their wire types."""


def is_own(head: bytes) -> bool:
    """Whether the first packet is one that tracelink writes."""
    bounds = _packet_at(head, 0)
    return bounds is not None and head.startswith(MARK, bounds[0])


def is_native(head: bytes) -> bool:
    """Whether packets follow one another, as in the traces that Perfetto records."""
    if is_own(head):
        return True
    offset, common = 0, False
    for _ in range(LOOKED_AT):
        bounds = _packet_at(head, offset)
        if bounds is None or bounds[1] > len(head):
            return common and head.startswith(HEAD, offset)
        fields = list(fields_of(head, *bounds))
        if None in fields:
            return False
        common |= any(field and (field.number, field.wire) in COMMON.items() for field in fields)
        offset = bounds[1]
        if offset == len(head):
            break
    return common


def _packet_at(head: bytes, offset: int) -> tuple[int, int] | None:
    """Where the body of the packet at an offset begins and ends; None if there is no packet."""
    if not head.startswith(HEAD, offset) or not (found := length_at(head, offset + len(HEAD))):
        return None
    length, begin = found
    return begin, begin + length
