"""Bundles, order of time, arguments for viewers."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.perfetto_native import unpacked
from builders.perfetto_pb2 import Trace
from tracelink._io.framing import varint_at
from tracelink._io.targets import StreamTarget, file_target
from tracelink.converters.perfetto.facts import NUL_SIGN
from tracelink.converters.perfetto.native_arguments import as_recorded, for_viewers
from tracelink.converters.perfetto.native_packets import Packing, bundle, bundle_time, repacked
from tracelink.converters.perfetto.native_writer import BUNDLES_PER_FLUSH, TimeOrderedTarget

STATE: bytes = Trace(packet=[{"track_descriptor": {"uuid": 1}}]).SerializeToString()


def event(time: int) -> bytes:
    """An instant at a time."""
    made: bytes = Trace(packet=[{"timestamp": time, "track_event": {"type": 3}}]).SerializeToString()
    return made


def kinds(data: bytes) -> list[str]:
    """What each packet of a file is."""
    return [_kind(packet) for packet in Trace.FromString(data).packet]


def bundles(data: bytes) -> list[list[int]]:
    """The times of the events of each bundle."""
    return [_times(packet) for packet in Trace.FromString(data).packet if _kind(packet) == "bundle"]


def before_marks(data: bytes) -> list[tuple[int, int]]:
    """For each reading of a file the last time that is drawn at it, and the first that stands behind it."""
    parts: list[list[int]] = [[]]
    for packet in Trace.FromString(data).packet:
        if packet.service_event.read_tracing_buffers_completed:
            parts.append([])
        parts[-1] += _times(packet) if _kind(packet) == "bundle" else []
    found = []
    waiting: list[int] = []
    for place in range(len(parts) - 1):
        recent = parts[place]
        behind = [time for part in parts[place + 1 :] for time in part]
        reached = [time for time in waiting if not recent or time <= min(recent)]
        if reached and behind:
            found.append((max(reached), min(behind)))
        waiting = [time for time in waiting if time not in reached] + recent
    return found


def _kind(packet: Any) -> str:
    if packet.HasField("compressed_packets"):
        return "bundle"
    if packet.HasField("service_event"):
        return "mark"
    return "event" if packet.HasField("track_event") else "state"


def _times(packet: Any) -> list[int]:
    return [inner.timestamp for inner in unpacked(Trace(packet=[packet]).SerializeToString())]


# Bundles of packets, and traces in the order of their times.


def body_of(packet: bytes) -> bytes:
    _, begin = varint_at(packet, 1)
    return packet[begin:]


def interleaved(*packets: bytes, packing: Packing = Packing.BUNDLED) -> bytes:
    stream = io.BytesIO()
    with TimeOrderedTarget(StreamTarget(stream), packing).file() as file:
        for packet in packets:
            file.write(packet)
    return stream.getvalue()


def test_a_bundle_says_when_its_first_packet_is() -> None:
    made = bundle(10**18, event(1) + event(2))
    assert bundle_time(body_of(made)) == 10**18
    assert [packet.timestamp for packet in unpacked(made)] == [1, 2]


def test_a_packet_with_a_time_is_no_bundle() -> None:
    assert bundle_time(body_of(event(7))) is None
    assert bundle_time(body_of(STATE)) is None


def test_a_bundle_can_be_packed_in_other_ways() -> None:
    packets = b"".join(event(number) for number in range(1000))
    made = body_of(bundle(5, packets))
    assert repacked(made, Packing.PLAIN) == packets
    dense = repacked(made, Packing.DENSE)
    assert list(unpacked(dense)) == list(unpacked(packets))
    assert (len(dense) < len(made), bundle_time(body_of(dense))) == (True, 5)


def test_bundles_of_two_ranks_stand_by_time_and_all_else_before_them() -> None:
    written = interleaved(
        STATE,
        bundle(10, event(10)),
        bundle(30, event(30)),
        STATE,
        bundle(20, event(20)),
        bundle(30, event(31)),
    )
    assert kinds(written)[:2] == ["state", "state"]
    assert bundles(written) == [[10], [20], [30], [31]]


@given(st.lists(st.lists(st.integers(1, 1000), min_size=1, max_size=6).map(sorted), max_size=30))
def test_nothing_is_earlier_than_what_an_engine_has_drawn(ranks: list[list[int]]) -> None:
    """An engine draws, at a mark, up to the first event behind the mark before."""
    written = interleaved(*(bundle(rank[0], b"".join(map(event, rank))) for rank in ranks))
    assert sorted(time for each in bundles(written) for time in each) == sorted(
        time for each in ranks for time in each
    )
    drawn = before_marks(written)
    assert [behind >= reached for reached, behind in drawn] == [True] * len(drawn)


def test_there_are_marks_all_along() -> None:
    written = interleaved(*(bundle(number, event(number)) for number in range(1, 3 * BUNDLES_PER_FLUSH + 1)))
    assert kinds(written) == 3 * (3 * ["mark"] + BUNDLES_PER_FLUSH * ["bundle"])


@pytest.mark.parametrize("packing", [Packing.BUNDLED, Packing.DENSE])
def test_a_file_that_is_gzip_holds_the_packets_themselves(packing: Packing, tmp_path: Path) -> None:
    target = TimeOrderedTarget(file_target(tmp_path / "job.pftrace.gz"), packing)
    with target.file() as file:
        file.write(bundle(1, event(1) + event(2)))
    data = (tmp_path / "job.pftrace.gz").read_bytes()
    assert kinds(gzip.decompress(data)) == ["mark", "mark", "mark", "event", "event"]
    assert target.size() == len(data)
    assert target.path() == str(tmp_path / "job.pftrace.gz")


def test_an_empty_trace_is_an_empty_file() -> None:
    assert interleaved() == b""


# Arguments as viewers show them well, and back.


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        (b'{"a": 1, "b": "x"}', b'{"a": 1, "b": "x"}'),
        (b'{"Input Dims": [[8, 3], []]}', b'{"Input Dims": "[[8, 3], []] "}'),
        (b'{"grid":[1,2,3],"block":[4]}', b'{"grid":"[1,2,3] ","block":"[4] "}'),
        (b'{"types": ["float", "a \\"b\\" ]"]}', rb'{"types": "[\"float\", \"a \\\"b\\\" ]\"] "}'),
        (b'{"seq": null, "none": {}}', b'{"seq": "null ", "none": "{} "}'),
        (b'{"in": {"dims": [1]}}', b'{"in": {"dims": "[1] "}}'),
        (b'{"objects": [{"a": 1}]}', b'{"objects": [{"a": 1}]}'),
        (rb'{"said": "\": [1]"}', rb'{"said": "\": [1]"}'),
        (b'{"ranks": "[0, 1]"}', b'{"ranks": "[0, 1]"}'),
        (b'{"ranks": "[0, 1]  "}', b'{"ranks": "[0, 1]   "}'),
        (b'{"none": null, "text": "null  "}', b'{"none": "null ", "text": "null   "}'),
        (
            b'{"[": 1, "in": [1, "]"], "out": [[2], [3]], "]": [4]}',
            b'{"[": 1, "in": "[1, \\"]\\"] ", "out": "[[2], [3]] ", "]": "[4] "}',
        ),
        (b'{"ranks": "[0, 1] ", "none": "null  "}', b'{"ranks": "[0, 1]  ", "none": "null   "}'),
        (rb'{"name": "\u00e9"}', '{"name": "é"}'.encode()),
        (rb'{"name": "\u00e9", "most": Infinity}', '{"name": "é", "most": Infinity}'.encode()),
        (b"", b""),
    ],
)
def test_lists_are_texts_that_end_in_a_blank(recorded: bytes, shown: bytes) -> None:
    assert for_viewers([recorded]) == [shown]
    assert as_recorded([shown]) == [recorded.replace(rb"\u00e9", "é".encode())]


@given(
    st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=4),
    st.sampled_from([(", ", ": "), (",", ":")]),
)
def test_what_was_recorded_comes_back(objects: list[dict[str, Any]], separators: tuple[str, str]) -> None:
    """Byte for byte, but for characters that were written as numbers."""
    texts = [json.dumps(each, ensure_ascii=False, separators=separators).encode() for each in objects]
    back = as_recorded(for_viewers(texts))
    assert [b"\\u" in text or back == text for text, back in zip(texts, back, strict=True)] == [True] * len(
        texts
    )


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=4))
def test_everything_that_is_shown_is_json(objects: list[dict[str, Any]]) -> None:
    shown = for_viewers([json.dumps(each).encode() for each in objects])
    assert [set(json.loads(text)) for text in shown] == [
        {name.replace("\0", NUL_SIGN) for name in each} for each in objects
    ]


def test_a_text_that_holds_what_stands_between_texts_costs_nobody_else() -> None:
    texts = [b'{"a": "\0"}', b'{"b": [1]}']
    assert for_viewers(texts) == [b'{"a": "\0"}', b'{"b": "[1] "}']
    assert as_recorded(for_viewers(texts)) == texts


def test_lists_that_are_very_deep_stay_lists() -> None:
    deep = b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}"
    assert for_viewers([deep]) == [deep]


def test_an_endless_list_is_given_up_at_once() -> None:
    endless = b'{"a": [' + b'"x", ' * 100_000
    assert for_viewers([endless]) == [endless]
