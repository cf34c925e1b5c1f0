"""Pairs of starts and ends."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracelink.converters.perfetto.packets import reading
from tracelink.converters.perfetto.packets.reading import FRAMING, pair_ends

EVENTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.booleans()), max_size=30)


def played(events: list[tuple[int, int, bool]]) -> tuple[dict[int, int], int]:
    """One after the other, as an engine does."""
    open_rows: dict[int, list[int]] = {}
    ends: dict[int, int] = {}
    lost = 0
    for row in sorted(range(len(events)), key=lambda row: events[row][1]):
        track, _, begins = events[row]
        stack = open_rows.setdefault(track, [])
        if begins:
            stack.append(row)
            ends[row] = -1
        elif stack:
            ends[stack.pop()] = row
        else:
            lost += 1
    return ends, lost


@given(EVENTS)
def test_pairs(events: list[tuple[int, int, bool]]) -> None:
    """In the order of time, and of the file where times are equal; some never end, and some never began."""
    track = np.array([track for track, _, _ in events], np.int32)
    time = np.array([time for _, time, _ in events], np.int64)
    begins = np.array([begins for _, _, begins in events], np.bool_)
    pairs = pair_ends(track, time, np.arange(len(events)), begins)
    found = dict(zip(pairs.begin.tolist(), pairs.end.tolist(), strict=True))
    assert (found, pairs.unmatched_ends) == played(events)


LENGTHS = st.integers(0, 40) | st.sampled_from([127, 128, 300, 16_383, 16_384, 70_000])
PACKETS = st.tuples(LENGTHS, st.sampled_from([b"@", b"\n", b"P", b"\n\2@", b"@\1\n\1"]))
"""The length of a packet, and the bytes of which it consists: its first one is the time of most packets."""


@given(st.lists(PACKETS, max_size=40), st.lists(st.tuples(st.integers(0), st.binary(max_size=3)), max_size=3))
def test_packets_of_a_bundle_are_those_of_its_framing(
    packets: list[tuple[int, bytes]], damage: list[tuple[int, bytes]]
) -> None:
    bundle = b"".join(b"\n" + varint(length) + (text * length)[:length] for length, text in packets)
    for at, text in damage:
        at %= len(bundle) + 1
        bundle = bundle[:at] + text + bundle[at + 1 :]
    batch, problem = FRAMING.split(0, bundle, reading.MAX_BUNDLE_PACKETS)
    begins, ends, framed = reading._packets_in(bundle)
    assert (begins.tolist(), ends.tolist()) == (batch.begins, batch.ends)
    assert framed == (not problem and (batch.ends[-1:] or [0]) == [len(bundle)])


def test_bundle_of_too_many_packets() -> None:
    bundle = b"\n\1@" * (reading.MAX_BUNDLE_PACKETS + 1)
    begins, ends, framed = reading._packets_in(bundle)
    assert (len(begins), len(ends), framed) == (reading.MAX_BUNDLE_PACKETS, reading.MAX_BUNDLE_PACKETS, False)


def varint(value: int) -> bytes:
    """A length as it is before a packet."""
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])
