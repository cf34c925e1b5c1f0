"""Native traces: packets, times, arguments, flows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from builders import perfetto
from builders.job import START, JobBuilder
from builders.perfetto_native import Slice, write
from tracelink._model.columns import UNKNOWN
from tracelink._model.events import EventKind, Key, Relation, TrackKind
from tracelink._model.job import LinkedJob
from tracelink.converters.perfetto.native_writer import MOST_READINGS, PerfettoWriter
from tracelink.converters.perfetto.timeline.job import ArgumentChoice, TimelineOptions
from tracelink.converters.perfetto.timeline.schema import SUMMARY_CATEGORY

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.integers(-9, 999),
        st.floats(allow_nan=False, allow_infinity=False),
        TEXTS,
        st.sampled_from(["[1, 2]", "null", "{}"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=4)


def job_of(*arguments: dict[str, Any] | bytes | None, kind: EventKind = EventKind.OPERATOR) -> JobBuilder:
    built = JobBuilder()
    thread = built.track()
    for number, args in enumerate(arguments):
        built.add(thread, f"event {number}", 10 * number, 5, kind, args)
    return built


def test_a_slice_is_all_that_is_known_of_it() -> None:
    built = JobBuilder(host="node-1")
    thread = built.track(label="thread 101 (python3)")
    built.add(thread, "cudaLaunchKernel", 1001, 2502, EventKind.RUNTIME, {"cbid": 211})
    native = write(built.build())
    (track,) = (number for number, track in native.tracks.items() if track.parent_uuid)
    assert native.slices == [
        Slice(
            track, START + 1001, START + 3503, "cudaLaunchKernel", "cuda_runtime", {"original": {"cbid": 211}}
        )
    ]
    assert native.outline() == ["rank 0 · node-1", "  rank 0 thread 101 python3"]


def test_times_are_counted_from_the_job_and_real_time_is_a_track() -> None:
    """A clock snapshot would put a group of the viewer above all tracks."""
    built = JobBuilder()
    built.add(built.track(), "step", 1_500_000_000, 7_000_000_000)
    native = write(built.build())
    assert native.facts[0]["baseTimeNanoseconds"] == START + 1_000_000_000
    assert {packet.timestamp for packet in native.packets if packet.HasField("track_event")} >= {
        500_000_000,
        7_500_000_000,
    }
    (first, *_, last) = readings = native.view["time (UTC)"]
    assert (first.name, first.start - START) == ("2023-11-14 22:13:21.500", 1_500_000_000)
    assert (last.name, (last.end or 0) - START) == ("22:13:28", 8_500_000_000)
    assert all(one.args == {"link": {"unix_ns": one.start}} for one in readings)
    seconds = native.view["seconds since 1970"]
    assert [(one.start, one.end) for one in seconds] == [(one.start, one.end) for one in readings]
    assert [float(one.name) for one in seconds] == [round(one.start / 1e9, 3) for one in readings]


@pytest.mark.parametrize(
    ("length", "names"),
    [
        (30, ["22:13:20.000000000", "22:13:20.000000005", "22:13:20.000000010"]),
        (40_000_000, ["22:13:20.000", "22:13:20.005", "22:13:20.010"]),
        (4000 * 10**9, ["22:13:20.000", "22:20:00", "22:30:00"]),
        (90 * 86400 * 10**9, ["22:13:20.000", "00:00:00", "00:00:00"]),
    ],
)
def test_real_time_has_round_readings_with_as_many_digits_as_they_need(length: int, names: list[str]) -> None:
    built = JobBuilder()
    built.add(built.track(), "step", 0, length)
    readings = write(built.build()).view["time (UTC)"]
    assert [reading.name for reading in readings][:3] == ["2023-11-14 " + names[0], *names[1:]]
    assert len(readings) <= MOST_READINGS + 1


def test_what_was_before_the_epoch_is_drawn() -> None:
    built = JobBuilder()
    built.add(built.track(), "early", -START - 500, 5)
    built.sample(built.track(TrackKind.COUNTER, label="memory"), -START, 1.0)
    native = write(built.build())
    assert [one.start for one in native.slices] == [-500]
    assert [time for _, time, _ in native.samples] == [0]


def test_without_any_time_there_is_no_clock() -> None:
    built = JobBuilder()
    built.add(built.track(TrackKind.NODES), "node", None, 0, EventKind.NODE, keys={Key.NODE_ID: 1})
    native = write(built.build())
    assert native.view == {}
    assert [(one.start, one.end) for one in native.slices] == [(0, 1000)]


def test_the_overview_has_the_summary_of_each_rank_again() -> None:
    native = write(together())
    summaries = [one for one in native.slices if one.category == SUMMARY_CATEGORY]
    assert [(one.name, one.start, one.end) for one in native.view["rank 0"]] == [
        (one.name, one.start, one.end) for one in summaries if native.tracks[one.track].name == "rank 0"
    ]
    assert "rank 1" not in native.view


def test_what_touches_or_is_nested_stays_so() -> None:
    """At one instant ends come first, outer slices begin first, and a slice without length is inside itself."""
    built = JobBuilder()
    thread = built.track()
    for name, start, duration in [
        ("outer", 0, 100),
        ("first", 0, 50),
        ("second", 50, 50),
        ("within", 50, 20),
        ("no length", 50, 0),
        ("after", 100, 0),
    ]:
        built.add(thread, name, start, duration)
    built.add(thread, "mark", 60, 0, EventKind.INSTANT)
    native = write(built.build())
    assert {one.name: one.parent for one in native.slices} == {
        "outer": "",
        "first": "outer",
        "second": "outer",
        "within": "second",
        "no length": "within",
        "mark": "within",
        "after": "",
    }
    assert {one.name: (one.end or 0) - one.start for one in native.slices}["no length"] == 0


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=14))
def test_every_slice_keeps_its_length(spans: list[tuple[int, int]]) -> None:
    built = JobBuilder()
    thread = built.track()
    for number, (start, duration) in enumerate(spans):
        built.add(thread, str(number), start, duration)
    native = write(built.build())
    seen = {one.name: (one.start - START, one.end and one.end - START) for one in native.slices}
    assert seen == {str(number): (start, start + length) for number, (start, length) in enumerate(spans)}


@given(st.lists(OBJECTS, max_size=5), st.integers(1, 12))
@example([{"a": 1}, {"a": 1.0}, {"a": True}, {"a": "1"}, {"a": [1]}, {"a": None}, {"a": {"b": {}}}], 1)
@example([{"a": 10, "b": -10, "c": 0.10, "d": "x10", "e": [[1, 0]], "f": False, "g": "", "10": 1}], 9)
@example([{"big": 10**18, "bigger": 2**63, "low": -(2**63), 'name\\"1': 1}], 9)
def test_arguments_come_back_as_they_were(objects: list[dict[str, Any]], times: int) -> None:
    """However many have the same form."""
    objects *= times
    native = write(job_of(*objects).build())
    seen = [one.args.get("original", {}) for one in native.slices]
    assert json.dumps(seen) == json.dumps(objects)


def test_objects_of_one_form_have_values_of_their_own() -> None:
    objects = [
        {"id": number, "size": -number, "share": number / 8, "name": f"s{number}", "dims": [[number], []]}
        for number in range(100, 300)
    ]
    assert [one.args["original"] for one in write(job_of(*objects).build()).slices] == objects


@pytest.mark.parametrize(
    "text", [b'{"a": "\\ud83d\\ude00"}', '{"a": "\U0001f600"}'.encode(), b' { "a" : 1 } ']
)
def test_odd_texts_are_read(text: bytes) -> None:
    native = write(job_of(*[text] * 20).build())
    assert all(one.args["original"]["a"] in ("\U0001f600", 1) for one in native.slices)


def test_arguments_that_are_null_are_none() -> None:
    assert write(job_of(b"null").build()).slice("event 0").args == {}


def test_what_a_recorder_said_stands_apart() -> None:
    native = write(job_of({"state": "completed"}, kind=EventKind.RECORD).build())
    assert native.slices[0].args == {"recorder": {"state": "completed"}}


def test_what_links_say_stands_apart() -> None:
    built = JobBuilder()
    thread = built.track()
    timed = built.add(thread, "aten::mm", 0, 10, args={"a": 1})
    built.edge(
        timed,
        Relation.SAME,
        built.add(built.track(TrackKind.NODES), "aten::mm", None, kind=EventKind.NODE, keys={Key.NODE_ID: 7}),
    )
    built.add(thread, "hung", 20, UNKNOWN)
    native = write(built.build())
    assert native.slice("aten::mm").args == {"link": {"execution trace node": 7}, "original": {"a": 1}}
    assert native.slice("hung").args == {"link": {"duration known": False}}


def linked() -> JobBuilder:
    built = JobBuilder()
    thread, stream = built.track(), built.track(TrackKind.STREAM, 0, "0", "7")
    launch = built.add(thread, "launch", 0, 5, EventKind.RUNTIME)
    for number in range(3):
        kernel = built.add(stream, f"kernel {number}", 10 * number, 8, EventKind.KERNEL)
        built.edge(launch, Relation.LAUNCHES, kernel)
    return built


def test_every_arrow_has_a_number_of_its_own() -> None:
    native = write(linked().build())
    assert sorted(native.arrows()) == [("launch", f"kernel {number}") for number in range(3)]
    assert len(set(native.slice("launch").leaves)) == 3


def test_an_arrow_between_slices_of_one_instant_leads_from_the_one_that_is_met_first() -> None:
    built = JobBuilder()
    thread = built.track()
    inner = built.add(thread, "inner", 0, 5)
    outer = built.add(thread, "outer", 0, 9)
    built.edge(inner, Relation.SAME, outer)
    assert write(built.build()).arrows() == [("outer", "inner")]


def together() -> LinkedJob:
    """Rank 1 enters a collective last, and receives a message from rank 0."""
    built = JobBuilder()
    group = built.group(0, 1, description="dp")
    streams = [built.track(TrackKind.STREAM, rank, "0", "7") for rank in (0, 1)]
    early = built.add(streams[0], "early", 0, 100, EventKind.KERNEL)
    send = built.add(streams[0], "send", 200, 10, EventKind.KERNEL)
    late = built.add(streams[1], "late", 40, 60, EventKind.KERNEL)
    receive = built.add(streams[1], "receive", 190, 50, EventKind.KERNEL)
    built.together(group, early, late, bytes=1 << 20)
    built.message(group, send, receive)
    return LinkedJob.of(built.build())


def test_arrows_between_ranks_end_within_who_waited_or_received() -> None:
    native = write(together())
    assert native.arrows() == [("late", "waited"), ("send", "received")]
    assert native.slice("waited").args == {"link": {"for rank": 1}}
    assert [native.slice(name).start - START for name in ("waited", "received")] == [99, 239]


def test_collectives_stand_on_a_track_of_their_group_and_before_all_ranks() -> None:
    native = write(together())
    assert native.outline()[:2] == ["collectives", "  group dp [0, 1]"]
    facts = native.slice("all_reduce 1.0 MB").args["collective"]
    assert (facts["last rank"], facts["ranks"], facts["skew_us"]) == (1, "0-1", 0.04)
    assert native.slice("early").args["collective"] == {
        "group": "dp #0",
        "wait_us": 0.04,
        "waits_for_rank": 1,
    }


@pytest.mark.parametrize(
    ("wanted", "names"), [(ArgumentChoice.LINK, {"link", "collective"}), (ArgumentChoice.NONE, set())]
)
def test_arguments_can_be_left_out(wanted: ArgumentChoice, names: set[str]) -> None:
    native = write(together(), PerfettoWriter(TimelineOptions(wanted)))
    assert {name for one in native.slices for name in one.args} == names
    assert len(native.arrows()) == 2
    whole = write(job_of({"a": 1}).build(), PerfettoWriter(TimelineOptions(wanted)))
    assert whole.slices[0].args == {}


def test_samples_stand_on_tracks_of_their_process() -> None:
    built = JobBuilder()
    built.add(built.track(), "step", 0, 10)
    counter = built.track(TrackKind.COUNTER, 0, "100", "memory")
    for time, value in [(5, 1.5), (3, 2.0), (4, float("nan"))]:
        built.sample(counter, time, value)
    native = write(built.build())
    (number,) = (number for number, track in native.tracks.items() if track.HasField("counter"))
    assert native.samples == [("memory", START + 3, 2.0), ("memory", START + 5, 1.5)]
    assert native.tracks[number].name == "memory"
    assert native.outline() == ["rank 0", "  rank 0 thread 101", "  memory"]
    assert [finding.reason for finding in native.findings] == ["counter_not_finite"]


def test_a_large_rank_is_written_in_pieces_that_make_the_same_picture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = linked().build()
    whole = write(graph)
    monkeypatch.setattr("tracelink.converters.perfetto.native_rank.SECTION_PACKETS", 1)
    pieces = write(graph)
    assert pieces.slices == whole.slices
    assert len({packet.trusted_packet_sequence_id for packet in pieces.packets}) > 2


def test_a_piece_asks_only_for_the_arguments_near_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments are right wherever they stand in their source."""
    monkeypatch.setattr("tracelink.converters.perfetto.native_rank.SECTION_PACKETS", 2)
    monkeypatch.setattr("tracelink.converters.perfetto.native_rank.GAP", 1)
    built = JobBuilder()
    thread = built.track()
    for number in range(12):
        built.add(thread, str(number), 10 * (number * 5 % 12), 5, args={"number": number})
    native = write(built.build())
    assert {one.name: one.args["original"]["number"] for one in native.slices} == {
        str(number): number for number in range(12)
    }


def test_names_that_nobody_can_write_are_mended() -> None:
    built = JobBuilder()
    built.add(built.track(), "a\ud800b\0c", 0, 10)
    assert [one.name for one in write(built.build()).slices] == ["a�b\N{SYMBOL FOR NULL}c"]


def test_both_formats_draw_the_same() -> None:
    native, document = write(together()), perfetto.write(together())
    assert sorted((one.name, one.category) for one in native.slices) == sorted(
        (event["name"], event["cat"]) for event in document.slices()
    )
    assert sorted(native.samples) == sorted(document.samples())
    summaries = {"rank 0 steps and waits", "waits of any rank"}  # in the headings of the native tree
    assert summaries < {*document.threads().values()}
    assert {*document.processes().values()} == {"collectives · world size 2", "rank 0", "rank 1"}
    assert set(map(str.strip, native.outline())) == {
        *("collectives", "rank 0", "rank 1", "rank 0 · GPU 0", "rank 1 · GPU 0"),
        *({*document.threads().values()} - summaries),
        *(counter for counter, *_ in document.samples()),
    }
