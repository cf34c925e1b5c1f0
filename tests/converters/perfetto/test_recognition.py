"""Recognition of native traces by their first bytes."""

from __future__ import annotations

import pytest

from builders.native_packets import BASE, FACTS, HEADER, bundle, facts, head
from builders.packets import packet
from tracelink._io.framing import DELIMITED, key
from tracelink.converters.perfetto import COMMON, HEAD, MARK, is_native, is_own
from tracelink.converters.perfetto.packets.schema import PACKET, Packet

OTHERS = packet({10: 1, 8: BASE, 11: {9: 1}})


@pytest.mark.parametrize(
    "data",
    [facts(HEADER), head(FACTS), head() + bundle(b""), facts(HEADER)[:6]],
    ids=["header", "facts", "bundle", "cut"],
)
def test_what_tracelink_wrote(data: bytes) -> None:
    assert (is_own(data), is_native(data)) == (True, True)


@pytest.mark.parametrize("data", [OTHERS, OTHERS * 5, OTHERS * 3 + OTHERS[:-2], packet({2: "x"}) + OTHERS])
def test_what_others_wrote(data: bytes) -> None:
    assert (is_own(data), is_native(data)) == (False, True)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b'\n{"traceEvents": []}',
        b"{}",
        packet(b"\xff\xff"),
        packet({2: "x"}),
        packet({8: 1}) + b"more",
        b"\x0a\xff\xff\xff\xff\xff\xff",
        OTHERS[:-1],
    ],
)
def test_what_is_no_such_trace(data: bytes) -> None:
    assert (is_own(data), is_native(data)) == (False, False)


def test_recognition_knows_the_fields_of_the_schema() -> None:
    assert key(PACKET, DELIMITED) == HEAD
    assert key(Packet.TRACELINK, DELIMITED) == MARK
    assert {Packet(number).name for number in COMMON} == {
        "CLOCK_SNAPSHOT",
        "TIME",
        "SEQUENCE",
        "TRACK_EVENT",
        "TRACK",
        "BUNDLE",
    }
