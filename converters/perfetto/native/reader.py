"""The reader: recognition, and the rest imported when needed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracelink.converters.perfetto.native.schema import PACKET, Packet
from tracelink.errors import UnreadableError
from tracelink.io.protobuf import DELIMITED, GROUP_BITS, VARINT, key

if TYPE_CHECKING:
    from tracelink.engine import Engine
    from tracelink.errors import Finding
    from tracelink.io.sources import Source
    from tracelink.model.trace import RankTrace


# Whether bytes are a native trace, and whether tracelink wrote it.


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


# The reader of native traces; what it needs to read is imported when it does, for every file is shown to it.


class PerfettoReader:
    """Reads the native traces that tracelink wrote, as far as profilers recorded what is in them."""

    name = "perfetto"
    summary = "Perfetto's own format, as tracelink writes it: .pftrace, .pftrace.gz"

    def recognises(self, head: bytes, name: str) -> bool:
        """Packets of a trace, whoever wrote them."""
        return is_native(head)

    def unpacked(self, source: Source, engine: Engine) -> tuple[list[Source], list[Finding]]:
        """A profile of each rank."""
        from tracelink.converters.perfetto.native.profiles import Profiles
        from tracelink.converters.perfetto.native.trace import findings_of, left_out, native_of

        profiles = Profiles(source, native_of(source, engine))
        sources = profiles.of_ranks()
        if not sources:
            broken = profiles.native.troubles.cut_off
            raise UnreadableError(
                f"{broken}; nothing before that is of a profiler"
                if broken
                else "nothing in this trace is of a profiler",
                source=source.path,
                advice="Give tracelink the files that it was made of; `tracelink convert` writes it as JSON.",
            )
        findings = [*findings_of(source.path, profiles.native), *left_out(source.path, profiles.left_out())]
        return sources, findings

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """The events of a rank, whose profile or whole file this is."""
        from tracelink.plugins import reader

        if not is_own(source.head()):
            return _called(reader("kineto").read(source, engine))
        ranks, findings = self.unpacked(source, engine)
        if len(ranks) != 1:
            raise UnreadableError(
                f"this is a trace of {len(ranks)} ranks, and one rank was asked for",
                source=source.path,
                advice="tracelink.load reads all of them.",
            )
        trace = self.read(ranks[0], engine)
        trace.findings += findings
        return trace


def _called(trace: RankTrace) -> RankTrace:
    """The same trace under the name of this format; beside the profile that it was made of it is passed over."""
    sources = [replace(source, format=PerfettoReader.name) for source in trace.sources]
    return replace(trace, sources=sources, derived_from=trace.derived_from | {"kineto"})
