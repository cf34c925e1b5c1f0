"""Reading native traces, also damaged ones."""

from __future__ import annotations

import gzip
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import tracelink
from builders.job import JobBuilder
from builders.native_packets import (
    BASE,
    COLOURED,
    FACTS,
    HEADER,
    OTHER_SHOWN_THREAD,
    OTHER_THREAD,
    SHOWN_THREAD,
    THREAD,
    Sequence,
    arrives,
    as_json,
    bundle,
    facts,
    head,
    leaves,
    source,
    written,
)
from builders.packets import INSTANT, message, packet
from tracelink._model.errors import UnreadableError
from tracelink._model.findings import Truncated
from tracelink._model.job import LinkedJob
from tracelink._run.processes import Processes
from tracelink.converters.perfetto.native_trace import read_native
from tracelink.converters.perfetto.packets.schema import FIRST_VIEW_TRACK

# Files that are cut off, damaged, or of somebody else.


ADVICE = "Open it at ui.perfetto.dev, or use the file that torch.profiler wrote."


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
    assert read.reasons == {"truncated": 1, "unfinished": 1}
    (cut, unfinished) = read.findings
    begin = len(data) - len(slices(3)[-1])
    why = f"the file ends within the packet at byte {begin:,}"
    assert cut == Truncated("job.pftrace", why, 3, "event", begin).finding()
    assert (
        unfinished.message == "job.pftrace: 1 events have no end; they last until the last event of the file."
    )


def test_a_cut_within_gzip() -> None:
    data = gzip.compress(head() + b"".join(slices(3)))
    read = as_json(data[:-12])
    assert names(read)[:2] == ["slice 0", "slice 1"]
    assert "truncated" in read.reasons


def test_bytes_that_are_no_packet_end_the_reading() -> None:
    read = as_json(head() + b"".join(slices(2)) + b"\xff" + b"".join(slices(1)))
    assert names(read) == ["slice 0", "slice 1"]
    assert "there is no packet at byte" in read.findings[0].message


def test_a_length_that_nothing_has() -> None:
    read = as_json(head() + b"".join(slices(1)) + b"\x0a\xff\xff\xff\xff\x0f")
    assert names(read) == ["slice 0"]
    assert "is invalid: more than 512 MiB" in read.findings[0].message


def test_a_packet_that_is_no_message_costs_itself() -> None:
    begins, *others = slices(2)
    damaged = packet({8: 0}, b"\x5a\x7f")
    read = as_json(head() + begins + damaged + b"".join(others))
    assert names(read) == ["slice 0", "slice 1"]
    assert read.reasons == {"damaged": 1}


@pytest.mark.parametrize(
    "inside", [b"no zlib", zlib.compress(b"no packets"), zlib.compress(b"".join(slices(1)))[:-5]]
)
def test_a_damaged_bundle_costs_itself(inside: bytes) -> None:
    whole, *others = slices(2)
    read = as_json(head() + bundle(whole) + bundle(inside=inside) + bundle(*others))
    assert names(read)[-2:] == ["slice 0", "slice 1"]
    assert read.reasons["damaged_bundles"] == 1


def test_what_a_bundle_holds_before_its_damage_is_used() -> None:
    data = b"".join(slices(2))
    read = as_json(head() + bundle(inside=zlib.compress(data[:-3])))
    assert names(read) == ["slice 0", "slice 1"]
    assert read.reasons == {"damaged_bundles": 1, "unfinished": 1}


def test_a_bundle_of_millions_of_packets_is_none() -> None:
    read = as_json(head() + bundle(packet({8: 0}) * 1_000_000) + bundle(*slices(1)))
    assert names(read) == ["slice 0"]
    assert read.reasons == {"damaged_bundles": 1}


def test_what_bundles_unpack_to_is_limited() -> None:
    data = head() + bundle(message({99: ["x" * 1000] * 10})) * 20
    limited = replace(source(data), limit=100_000)
    with pytest.raises(UnreadableError, match=r"it has more than 100\.0 kB uncompressed"):
        read_native(limited, Processes())
    assert len(read_native(source(data), Processes()).events) == 0


def test_packets_without_an_event_or_a_time_take_no_memory() -> None:
    empty = packet() * 1000 + packet({8: 0}) * 3
    first, *told = Sequence().begin(1000, "a").end(500).instant(2000, "b").packets
    data = head() + empty + first + empty + b"".join(told[:2]) + bundle(empty, told[2], at=3500)
    read = as_json(data)
    assert [(event["name"], event["ts"], event.get("dur")) for event in read.events] == [
        ("a", 1, 0.5),
        ("b", 3.5, None),
    ]
    native = read_native(source(data), Processes())
    assert len(native.events) == 2
    assert native.events.packet.tolist() == sorted(native.events.packet.tolist())


def test_times_after_a_lost_bundle_are_right() -> None:
    state, *told = Sequence().instant(1000, "a").instant(2000, "lost").instant(4000, "c").packets
    lost = bundle(at=3000, inside=b"no zlib")
    read = as_json(head() + bundle(state, told[0], at=1000) + lost + bundle(told[2], at=7000))
    assert [(event["name"], event["ts"]) for event in read.events] == [("a", 1), ("c", 7)]


@pytest.mark.parametrize("time", [-1, (1 << 62) + 1])
def test_events_with_impossible_times_are_damaged(time: int) -> None:
    told = Sequence().instant(1000, "a").instant(time - 1000, "never")
    read = as_json(head() + bytes(told))
    assert (names(read), read.reasons) == (["a"], {"damaged": 1})


def test_tracks_that_only_viewers_show_are_skipped() -> None:
    told = Sequence().instant(1000, "a").begin(0, "12:00:00", on=FIRST_VIEW_TRACK).end(5, on=FIRST_VIEW_TRACK)
    read = as_json(head() + bytes(told))
    assert (names(read), read.findings) == (["a"], ())


def test_ends_of_what_never_began_and_events_of_tracks_that_nothing_is_said_of() -> None:
    told = Sequence().end(1000).begin(1000, "lost", on=999).instant(1000, "kept")
    read = as_json(head() + bytes(told))
    assert names(read) == ["kept"]
    assert read.reasons == {"without_begin": 1, "unknown_track": 1}


def test_names_that_stand_nowhere_are_empty() -> None:
    told = Sequence().event(1000, INSTANT, THREAD, {10: 7, 3: 7})
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
        packet({10: 1, 8: BASE, 11: {9: 1}}),
        packet({33: b"config"}) + b"".join(slices(2)),
        facts(FACTS)[:0] + b"".join(slices(2)) + facts(HEADER),
    ],
)
def test_the_traces_of_others_are_refused(data: bytes) -> None:
    with pytest.raises(UnreadableError) as raised:
        as_json(data)
    assert str(raised.value) == (
        f"job.pftrace: a Perfetto trace that tracelink did not write; tracelink reads only its own. {ADVICE}"
    )


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (facts(HEADER)[:-1], "the file ends within the packet at byte 0"),
        (facts({}), "its header cannot be read"),
        (packet({1999: "{"}) + b"".join(slices(1)), "its header cannot be read"),
    ],
)
def test_without_its_header_nothing_can_be_read(data: bytes, problem: str) -> None:
    with pytest.raises(UnreadableError) as raised:
        as_json(data)
    assert str(raised.value) == f"job.pftrace: {problem}. Copy or write it again."


def whole_job() -> bytes:
    built = JobBuilder()
    thread = built.track()
    for place in range(4):
        built.add(thread, f"event {place}", 10 * place, 5, args={"n": place, "list": [place]})
    return written(LinkedJob.of(built.build()))


WHOLE = whole_job()


def test_an_argument_that_is_no_text_is_replaced() -> None:
    told = Sequence()
    damaged = message(told.arguments({"original": '{"a": "b"}'})).replace(b'b"}', b'\xff"}')
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
    told = Sequence(2).instant(0, "add", {4: inside}).add(0, {11: inside}).add(0, inside)
    as_json(head() + bytes(told) + b"".join(slices(1)))


def test_a_file_that_is_cut_off_before_any_event_says_so(tmp_path: Path) -> None:
    (tmp_path / "cut.pftrace").write_bytes(head() + bundle(*slices(1))[:-5])
    with pytest.raises(
        UnreadableError, match=r"ends within the packet at byte .* no profile was found before that"
    ):
        tracelink.load(tmp_path / "cut.pftrace")


# What packets say, in JSON.


ADD = {"ph": "X", "cat": "cpu_op", "name": "add", "pid": 0, "tid": SHOWN_THREAD, "ts": 5, "dur": 2}
SLICE = Sequence().begin(5000, "add").end(2000)


def in_bundles() -> bytes:
    first, *others = SLICE.packets
    return bundle(first) + packet({8: BASE, 69: {3: 1}}) + bundle(*others, at=5000)


def interleaved_with_another() -> bytes:
    """Each sequence has texts and steps of its own."""
    other = Sequence(2).begin(1000, "unseen", on=999).end(50, on=999)
    return b"".join(part for pair in zip(SLICE.packets, other.packets, strict=True) for part in pair)


@pytest.mark.parametrize("told", [bytes(SLICE), in_bundles(), interleaved_with_another()])
def test_a_slice(told: bytes) -> None:
    assert as_json(head() + told).events == [ADD]


def test_the_document_has_the_header_and_the_names_of_the_facts() -> None:
    document = as_json(head() + bytes(SLICE)).document
    names = [(one["name"], one["pid"], one["tid"], one["args"]) for one in document.pop("traceEvents")[:-1]]
    assert document == {
        "schemaVersion": 1,
        "baseTimeNanoseconds": BASE,
        "tracelink": {"ranks": [{"rank": 0}]},
    }
    assert names == [
        ("process_name", 0, 0, {"name": "rank"}),
        ("process_labels", 0, 0, {"labels": "CPU"}),
        ("process_sort_index", 0, 0, {"sort_index": 1}),
        ("thread_name", 0, 101, {"name": "rank 0 thread", "original tid": "101", "original pid": "100"}),
        ("thread_sort_index", 0, 101, {"sort_index": 1}),
        ("thread_name", 0, 102, {"name": "rank 0 thread", "original tid": "102", "original pid": "100"}),
        ("thread_sort_index", 0, 102, {"sort_index": 2}),
    ]


def test_what_ranks_did_together_stands_first_and_says_itself_what_it_is() -> None:
    groups = {
        "title": "9",
        "processes": [[9, "collectives", "collectives"]],
        "threads": [[9, 91, "group dp"]],
        "counters": [],
    }
    told = Sequence()
    known = told.arguments({"collective": '{"sequence": 7}'})
    told.begin(5000, "all_reduce", known, category="collective", on=91).end(2000, on=91)
    document = as_json(head(FACTS, groups) + bytes(told)).document["traceEvents"]
    assert document[-1]["args"] == {"sequence": 7}
    assert {"sort_index": 0} in [one["args"] for one in document if one["pid"] == 9]
    assert {"name": "group dp · row"} in [one["args"] for one in document if one.get("tid") == 1]


def test_samples_that_are_numbers() -> None:
    told = Sequence().sample(1000, 2.5).sample(1000, 3).sample(1000, float("nan"))
    sample = {"ph": "C", "name": "memory bytes", "pid": 0, "tid": 0}
    assert as_json(head() + bytes(told)).events == [
        sample | {"ts": 1, "args": {"value": 2.5}},
        sample | {"ts": 2, "args": {"value": 3}},
    ]


def test_an_instant_and_a_slice_that_hangs() -> None:
    told = Sequence().instant(1000, "mul").begin(0, "add", COLOURED).end(3000)
    instant, slice_ = as_json(head() + bytes(told)).events
    assert instant == {
        "ph": "i",
        "s": "t",
        "cat": "cpu_op",
        "name": "mul",
        "pid": 0,
        "tid": SHOWN_THREAD,
        "ts": 1,
    }
    assert (slice_["cname"], slice_["dur"]) == ("terrible", 3)


def test_arrows_of_a_rank_the_last_of_which_are_turned() -> None:
    """Both begin at the event that is met first; the second leads from the other."""
    told = Sequence().instant(1000, "add", leaves(1)).instant(1000, "mul", arrives(1))
    told.instant(1000, "add", leaves(2), on=OTHER_THREAD).instant(0, "mul", arrives(2))
    arrows = [one for one in as_json(head() + bytes(told)).events if one["ph"] in "sf"]
    assert [(one["ph"], one["cat"], one["tid"], one["ts"]) for one in arrows] == [
        ("s", "ac2g", SHOWN_THREAD, 1),
        ("s", "ac2g", SHOWN_THREAD, 3),
        ("f", "ac2g", SHOWN_THREAD, 2),
        ("f", "ac2g", OTHER_SHOWN_THREAD, 3),
    ]


@pytest.mark.parametrize(
    ("later", "phases"), [(1000, ["i", "i", "f", "s"]), (0, ["i", "s", "i", "f"])], ids=["later", "at once"]
)
def test_an_arrow_between_ranks_ends_right_behind_its_own_instant(later: int, phases: list[str]) -> None:
    """Where it ends as it begins, both stand behind its beginning: engines go by time, then by place."""
    told = Sequence().instant(1000, "waited", leaves(99), category="waits")
    told.instant(later, "waited", arrives(99), category="waits", on=OTHER_THREAD)
    events = as_json(head() + bytes(told)).events
    assert [one["ph"] for one in events] == phases
    ends = {one["ph"]: (one["tid"], one["ts"], one["name"]) for one in events if one["ph"] in "sf"}
    assert ends == {
        "s": (SHOWN_THREAD, 1, "waits"),
        "f": (OTHER_SHOWN_THREAD, (1000 + later) / 1000, "waits"),
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"original": '{"a": 1, "b": [2]}'}, {"a": 1, "b": [2]}),
        ({"original": "{ }"}, None),
        ({"original": "[1]"}, {"original": [1]}),
        ({"original": '{"a": '}, {"original": '{"a": '}),
        ({"original": '{"a": "[2] "}'}, {"a": [2]}),
        ({"link": '{"a": 1}'}, {"link": {"a": 1}}),
        ({"collective": '{"a": 1}'}, {"collective": {"a": 1}}),
        ({"original": "{ }", "link": '{"b": 2}'}, {"link": {"b": 2}}),
        (
            {"original": '{"a": 1}', "link": '{"b": 2}', "recorder": '{"c": 3}'},
            {"a": 1, "link": {"b": 2}, "recorder": {"c": 3}},
        ),
    ],
)
def test_arguments(arguments: dict[str, str], said: dict[str, object] | None) -> None:
    """Between two events with others, so that none takes what is a neighbour's."""
    told = Sequence()
    plain = told.arguments({"original": '{"n": 1}'})
    for fields in (plain, told.arguments(arguments), b"", plain):
        told.instant(1000, "add", fields)
    assert [one.get("args") for one in as_json(head() + bytes(told)).events] == [
        {"n": 1},
        said,
        None,
        {"n": 1},
    ]


def test_times_without_a_base() -> None:
    """A trace in which nothing has a time counts from 0."""
    header = facts({"schemaVersion": 1, "baseTimeNanoseconds": 0})
    told = Sequence().instant(1000, "n", category="node")
    (one,) = as_json(header + facts(FACTS) + bytes(told)).events
    assert (one["name"], one["ts"]) == ("n", 1)
