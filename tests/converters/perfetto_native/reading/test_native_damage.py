"""Files that are cut off, damaged, or of somebody else."""

from __future__ import annotations

import gzip
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracelink
from builders.graph import GraphBuilder
from builders.native_packets import (
    BASE,
    FACTS,
    HEADER,
    INSTANT,
    THREAD,
    Sequence,
    as_json,
    bundle,
    delimited,
    facts,
    head,
    number,
    packet,
    text,
    written,
)
from tracelink.errors import UnreadableError
from tracelink.model.job import Job

ADVICE = "Open it at ui.perfetto.dev, or give tracelink what torch.profiler wrote."


def slices(count: int) -> list[bytes]:
    told = Sequence()
    for place in range(count):
        told.begin(1000, f"slice {place}").end(500)
    return told.packets


def names(read: Any) -> list[str]:
    return [one["name"] for one in read.events]


def test_what_stands_before_a_cut_is_used() -> None:
    data = head() + b"".join(slices(3))
    read = as_json(data[:-2])
    assert names(read) == ["slice 0", "slice 1", "slice 2"]
    assert read.reasons == {"cut_off": 1, "unfinished": 1}
    (cut, unfinished) = read.findings
    begin = len(data) - len(slices(3)[-1])
    assert cut.message == (
        f"job.pftrace: the file ends within the packet at byte {begin:,}; the 3 events before that are used. "
        "Copy or write it again."
    )
    assert cut.example == f"byte {begin}"
    assert unfinished.message == "job.pftrace: 1 events have no end: they last to the last one of the file."


def test_a_cut_within_gzip() -> None:
    data = gzip.compress(head() + b"".join(slices(3)))
    read = as_json(data[:-12])
    assert names(read)[:2] == ["slice 0", "slice 1"]
    assert "cut_off" in read.reasons


def test_bytes_that_are_no_packet_end_the_reading() -> None:
    read = as_json(head() + b"".join(slices(2)) + b"\xff" + b"".join(slices(1)))
    assert names(read) == ["slice 0", "slice 1"]
    assert "there is no packet at byte" in read.findings[0].message


def test_a_length_that_nothing_has() -> None:
    read = as_json(head() + b"".join(slices(1)) + b"\x0a\xff\xff\xff\xff\x0f")
    assert names(read) == ["slice 0"]
    assert "none is as long" in read.findings[0].message


def test_a_packet_that_is_no_message_costs_itself() -> None:
    begins, *others = slices(2)
    damaged = packet(number(8, 0), b"\x5a\x7f")
    read = as_json(head() + begins + damaged + b"".join(others))
    assert names(read) == ["slice 0", "slice 1"]
    assert read.reasons == {"damaged": 1}


@pytest.mark.parametrize(
    "inside", [b"no zlib", zlib.compress(b"no packets"), zlib.compress(b"".join(slices(1)))[:-5]]
)
def test_a_damaged_bundle_costs_itself(inside: bytes) -> None:
    whole, *others = slices(2)
    read = as_json(head() + bundle(whole) + bundle(compressed=inside) + bundle(*others))
    assert names(read)[-2:] == ["slice 0", "slice 1"]
    assert read.reasons["damaged_bundles"] == 1


def test_what_a_bundle_holds_before_its_damage_is_used() -> None:
    data = b"".join(slices(2))
    read = as_json(head() + bundle(compressed=zlib.compress(data[:-3])))
    assert names(read) == ["slice 0", "slice 1"]
    assert read.reasons == {"damaged_bundles": 1, "unfinished": 1}


def test_a_bundle_of_millions_of_packets_is_none() -> None:
    read = as_json(head() + bundle(packet() * 1_000_000) + bundle(*slices(1)))
    assert names(read) == ["slice 0"]
    assert read.reasons == {"damaged_bundles": 1}


def test_times_behind_a_lost_bundle_are_right() -> None:
    """Each packet says how long it is behind the one before; a bundle says when it begins."""
    state, *told = (
        Sequence().instant(1000, "a").instant(2000, "lost").instant(4000, "c").instant(5000, "d").packets
    )
    first = bundle(state) + bundle(told[0], at=1000)
    rest = bundle(told[2], at=7000) + bundle(told[3], at=12_000)
    read = as_json(head() + first + bundle(at=3000, compressed=b"no zlib") + rest)
    assert [(event["name"], event["ts"]) for event in read.events] == [("a", 1), ("c", 7), ("d", 12)]


def test_times_of_a_sequence_that_lost_its_beginning_are_right() -> None:
    state, *told = Sequence(2).instant(1000, "x").instant(2000, "y").packets
    known = bytes(Sequence(1).instant(500, "a"))
    lost = bundle(compressed=b"no zlib") + bundle(*told, at=1000)
    read = as_json(head() + known + lost)
    assert [(event["name"], event["ts"]) for event in read.events] == [("a", 0.5), ("", 1), ("", 3)]
    assert state


def test_ends_of_what_never_began_and_events_of_tracks_that_nothing_is_said_of() -> None:
    told = Sequence().end(1000).begin(1000, "lost", on=999).instant(1000, "kept")
    read = as_json(head() + bytes(told))
    assert names(read) == ["kept"]
    assert read.reasons == {"without_begin": 1, "unknown_track": 1}


def test_names_that_stand_nowhere_are_empty() -> None:
    told = Sequence().event(1000, INSTANT, THREAD, number(10, 7), number(3, 7))
    read = as_json(head() + bytes(told))
    assert [(one["name"], one["cat"]) for one in read.events] == [("", "")]
    assert read.reasons == {"without_name": 1}


@pytest.mark.parametrize(
    "said",
    [
        {"processes": 1},
        FACTS | {"threads": [[1, 2]]},
        FACTS | {"threads": [[-1, 2, "a", "b"]]},
        FACTS | {"arrows": [["ac2g", -1, 0]]},
    ],
)
def test_facts_that_are_none_cost_themselves(said: dict[str, Any]) -> None:
    read = as_json(head(said, FACTS) + b"".join(slices(1)))
    assert names(read) == ["slice 0"]
    assert read.reasons == {"unreadable_facts": 1}


def test_arrows_of_no_known_name_and_more_than_there_are() -> None:
    said = FACTS | {"arrows": [["nobody knows", 5, 9], ["ac2g", 1 << 40, 1 << 41]]}
    assert names(as_json(head(said) + b"".join(slices(1)))) == ["slice 0"]


@pytest.mark.parametrize(
    "data",
    [
        packet(number(10, 1), number(8, BASE), delimited(11, number(9, 1))),
        packet(delimited(33, b"config")) + b"".join(slices(2)),
        facts(FACTS)[:0] + b"".join(slices(2)) + facts(HEADER),
    ],
)
def test_the_traces_of_others_are_refused(data: bytes) -> None:
    with pytest.raises(UnreadableError) as raised:
        as_json(data)
    assert str(raised.value) == (
        f"job.pftrace: a Perfetto trace that tracelink did not write: it reads only its own. {ADVICE}"
    )


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (facts(HEADER)[:-1], "the file ends within the packet at byte 0"),
        (facts({}), "what it says of itself cannot be read"),
        (packet(text(1999, "{")) + b"".join(slices(1)), "what it says of itself cannot be read"),
    ],
)
def test_without_its_header_nothing_can_be_read(data: bytes, problem: str) -> None:
    with pytest.raises(UnreadableError) as raised:
        as_json(data)
    assert str(raised.value) == f"job.pftrace: {problem}. Copy or write it again."


def whole_job() -> bytes:
    built = GraphBuilder()
    thread = built.track()
    for place in range(4):
        built.add(thread, f"event {place}", 10 * place, 5, args={"n": place, "list": [place]})
    return written(Job.of(built.build()))


WHOLE = whole_job()


def test_an_argument_that_is_no_text_is_replaced() -> None:
    told = Sequence()
    damaged = told.arguments({"original": '{"a": "b"}'}).replace(b'b"}', b'\xff"}')
    (one,) = as_json(head() + bytes(told.instant(1000, "add", damaged))).events
    assert one["args"] == {"original": '{"a": "\N{REPLACEMENT CHARACTER}"}'}


@given(st.integers(0, len(WHOLE)))
def test_however_much_is_there(length: int) -> None:
    """Every event that is read is one that was written."""
    try:
        read = as_json(WHOLE[:length])
    except UnreadableError:
        return
    assert set(names(read)) <= {f"event {place}" for place in range(4)}


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))
def test_whatever_byte_is_damaged(place: int, byte: int) -> None:
    """Something is read, or it is said why not."""
    data = bytearray(WHOLE)
    data[place] = byte
    with suppress(UnreadableError):
        as_json(bytes(data))


@given(st.binary(max_size=200))
def test_whatever_packets_hold(inside: bytes) -> None:
    told = Sequence(2).instant(0, "add", delimited(4, inside)).add(0, delimited(11, inside)).add(0, inside)
    as_json(head() + bytes(told) + b"".join(slices(1)))


def test_a_file_that_is_cut_off_before_any_event_says_so(tmp_path: Path) -> None:
    (tmp_path / "cut.pftrace").write_bytes(head() + bundle(*slices(1))[:-5])
    with pytest.raises(UnreadableError, match=r"ends within the packet at byte .* nothing before that"):
        tracelink.load(tmp_path / "cut.pftrace")
