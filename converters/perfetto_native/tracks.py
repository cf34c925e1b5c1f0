"""Packets that say which tracks there are, how they are called, and in which order they stand."""

from __future__ import annotations

from collections.abc import Iterable

from tracelink.converters.perfetto.layout import Layout, Seats
from tracelink.converters.perfetto.numbering import Numbering
from tracelink.converters.perfetto.text import whole_text
from tracelink.converters.perfetto_native.schema import BY_RANK, PACKET, UNITS, Counter, Packet, Track
from tracelink.converters.perfetto_native.sequence import number_field
from tracelink.converters.perfetto_native.tree import Branch
from tracelink.wire import delimited


def counter_numbers(layout: Layout, seats: Seats, numbering: Numbering) -> dict[int, int]:
    """The number of the track of each counter, behind those of all processes and threads."""
    first = len(layout.processes) + len(seats.tid) + 1
    return {row: numbering.seat(number) for number, row in enumerate(layout.process_of_counter, first)}


def declared(branches: Iterable[Branch], base: int) -> bytes:
    """Packets for tracks, before all events; the tracks of each parent are shown in their order here."""
    time = number_field(Packet.TIME, base)
    tracks = (_track(branch, place) for place, branch in enumerate(branches))
    return b"".join(delimited(PACKET, time + delimited(Packet.TRACK, track)) for track in tracks)


def _track(branch: Branch, place: int) -> bytes:
    """A track of no process and no thread."""
    return (
        number_field(Track.NUMBER, branch.number)
        + (number_field(Track.PARENT, branch.parent) if branch.parent else b"")
        + delimited(Track.NAME, whole_text(branch.name).encode())
        + (b"" if branch.unit is None else delimited(Track.COUNTER, _in_unit(branch.unit)))
        + number_field(Track.CHILD_ORDERING, BY_RANK)
        + number_field(Track.RANK, place)
    )


def _in_unit(unit: str) -> bytes:
    if unit in UNITS:
        return number_field(Counter.UNIT, UNITS[unit])
    return delimited(Counter.UNIT_NAME, whole_text(unit).encode()) if unit else b""
