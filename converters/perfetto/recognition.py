"""Is a file a native trace, and one that tracelink wrote: by its first bytes alone."""

from __future__ import annotations

from tracelink.io.framing import DELIMITED, VARINT, fields_of, key, length_at

HEAD = key(1, DELIMITED)
"""The tag of a packet."""
MARK = key(1999, DELIMITED)
"""The tag of the field that tracelink adds to the first packet."""
LOOKED_AT = 4
"""Packets that are examined."""

CLOCK_SNAPSHOT, TIME, SEQUENCE, TRACK_EVENT, BUNDLE, TRACK = 6, 8, 10, 11, 50, 60
COMMON = {
    CLOCK_SNAPSHOT: DELIMITED,
    TIME: VARINT,
    SEQUENCE: VARINT,
    TRACK_EVENT: DELIMITED,
    TRACK: DELIMITED,
    BUNDLE: DELIMITED,
}
"""Fields of which most packets of any trace have one, and their wire types."""


def is_own(head: bytes) -> bool:
    """Whether the first packet is one that tracelink writes."""
    bounds = _packet_at(head, 0)
    return bounds is not None and head.startswith(MARK, bounds[0])


def is_native(head: bytes, name: str = "") -> bool:
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
