"""Whether bytes are a native trace, and whether tracelink wrote it: imported for every file, so it imports little."""

from __future__ import annotations

from tracelink.converters.perfetto.native.schema import PACKET, Packet
from tracelink.io.protobuf import DELIMITED, GROUP_BITS, VARINT, key

HEAD = key(PACKET, DELIMITED)


MARK = key(Packet.TRACELINK, DELIMITED)


LENGTH_BYTES = 5


LOOKED_AT = 4
"""Packets that are looked at."""


USUAL = {
    Packet.CLOCK_SNAPSHOT: DELIMITED,
    Packet.TIME: VARINT,
    Packet.SEQUENCE: VARINT,
    Packet.TRACK_EVENT: DELIMITED,
    Packet.TRACK: DELIMITED,
    Packet.BUNDLE: DELIMITED,
}
"""Fields of which most packets of any trace have one, and their wire types."""


def is_own(head: bytes) -> bool:
    """Whether the first packet is what tracelink writes there."""
    found = _body_at(head, 0)
    return found is not None and head.startswith(MARK, found[0])


def is_native(head: bytes) -> bool:
    """Whether packets follow one another, as in the traces that Perfetto records."""
    if is_own(head):
        return True
    place, usual = 0, 0
    for _ in range(LOOKED_AT):
        found = _body_at(head, place)
        if found is None or found[1] > len(head):
            return usual > 0 and place < len(head) and head.startswith(HEAD, place)
        fields = _fields(head, *found)
        if fields is None:
            return False
        usual += any(USUAL.get(Packet(number)) == wire for number, wire in fields if number in USUAL)
        place = found[1]
        if place == len(head):
            break
    return usual > 0


def _body_at(head: bytes, place: int) -> tuple[int, int] | None:
    """Where the body of the packet at a place begins and ends; None where there is no packet."""
    if not head.startswith(HEAD, place):
        return None
    number = 0
    for width, byte in enumerate(head[place + 1 : place + 1 + LENGTH_BYTES]):
        number |= (byte & 0x7F) << GROUP_BITS * width
        if byte < 0x80:
            begin = place + width + 2
            return begin, begin + number
    return None


def _fields(head: bytes, begin: int, end: int) -> list[tuple[int, int]] | None:
    """Number and wire type of the fields of a packet; None where it is no message."""
    from tracelink.io.protobuf import walked

    found = list(walked(head, begin, end))
    return None if None in found else [(field[0], field[1]) for field in found if field]
