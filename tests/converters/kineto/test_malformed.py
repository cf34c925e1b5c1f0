"""Malformed profiles."""

from __future__ import annotations

import gzip
import io
import json
import re
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.inputs import reasons
from builders.kineto import as_source, cpu_op, metadata, read, seen, slice_, trace, with_texts
from tracelink._io.sources import Request, discover
from tracelink._model.errors import UnreadableError
from tracelink._run.processes import Processes
from tracelink.converters.kineto.reader import KinetoReader
from tracelink.converters.kineto.schema import DISTRIBUTED

SMALL = [cpu_op(f"op {number}", number, External_id=number + 1, text="a ] } , { b") for number in range(6)]
PROFILE = trace(*SMALL, rank=0, pretty=True)
RANK_LAST = trace(*SMALL, after={"distributedInfo": {"rank": 0}}, pretty=True)
FULL = "6 events of rank 0"
NO_RANK = "6 events of rank None"


def named(name: bytes) -> bytes:
    """A profile whose second event has this name, byte for byte."""
    return PROFILE.replace(b'"op 1"', b'"' + name + b'"')


def lasting(duration: str) -> bytes:
    """A profile of which one event has this duration."""
    return PROFILE.replace(b'"dur": 1', f'"dur": {duration}'.encode(), 1)


def zipped(data: bytes) -> bytes:
    """An archive that holds a profile."""
    with zipfile.ZipFile(content := io.BytesIO(), "w") as archive:
        archive.writestr("trace.json", data)
    return content.getvalue()


LAST = PROFILE.rindex(b"{", 0, PROFILE.index(b"op 5"))
COMMS_ID = slice_("kernel", "nccl", 7, 1, Comms_Id=2**64 - 1)
FAULTS = {
    "bare_list.json": (trace(*SMALL, bare=True), NO_RANK),
    "compact_rank.json": (trace(*SMALL, rank=0), FULL),
    "control_char.json": (named(b"bad\x01name"), FULL),
    "distinfo_last.json": (RANK_LAST, FULL),
    "empty_events.json": (trace(rank=0), "0 events of rank 0: no_events"),
    "empty_file.json": (b"", "error: the file is empty. Record it again."),
    "empty_stream.json": (PROFILE.replace(b'"text": "a ] } , { b"', b'"stream": ""'), FULL),
    "gz_named_json.json": (gzip.compress(PROFILE), FULL),
    "gz_truncated.json.gz": (gzip.compress(PROFILE, 0)[:-60], "5 events of rank 0: truncated"),
    "huge_dur.json": (lasting("9223372036854775807"), f"{FULL}: unusable_duration"),
    "inf_nan.json": (lasting("Infinity"), f"{FULL}: unusable_duration"),
    "invalid_escape.json": (named(rb"torch\cuda\__init__.py(219): _lazy_init"), f"{FULL}: repaired"),
    "invalid_utf8.json": (named(b"bad\xff\xfename"), f"{FULL}: repaired"),
    "metadata_only.json": (trace(metadata("process_name"), rank=0), "0 events of rank 0: no_events"),
    "missing_args.json": (trace(*({**one, "args": {}} for one in SMALL), rank=0), FULL),
    "multi_member.json.gz": (gzip.compress(PROFILE[:300]) + gzip.compress(PROFILE[300:]), FULL),
    "negative_dur.json": (lasting("-5"), f"{FULL}: unusable_duration"),
    "no_rank.json": (trace(*SMALL), NO_RANK),
    "no_traceEvents.json": (
        b'{"schemaVersion": 1, "distributedInfo": {"rank": 0}}',
        "error: it has no 'traceEvents'. Is this the file that the profiler wrote?",
    ),
    "null_event.json": (trace(*SMALL, None, rank=0), "6 events of rank 0: not_an_event"),
    "plain_json_named_gz.json.gz": (PROFILE, FULL),
    "string_ts.json": (trace(*({**one, "ts": str(one["ts"])} for one in SMALL), rank=0), FULL),
    "trailing_comma.json": (re.sub(rb"\}\s*\]\s*\}\s*$", b"},]}", PROFILE), FULL),
    "trunc_after_comma.json": (PROFILE[:LAST], "5 events of rank 0: truncated"),
    "trunc_mid_event.json": (RANK_LAST[: RANK_LAST.index(b"op 5")], "5 events of rank None: truncated"),
    "uint64_comms_id.json": (trace(*SMALL[1:], COMMS_ID, rank=0), FULL),
    "unescaped_quote.json": (named(b'{"device": "cpu"}(12): run'), f"{FULL}: repaired"),
    "utf8_bom.json": (b"\xef\xbb\xbf" + PROFILE, FULL),
    "zipped.zip": (zipped(PROFILE), FULL),
}


def outcome(path: Path) -> str:
    """What becomes of a file, in one line."""
    (source,) = discover(Request([(str(path), "")])).sources
    try:
        result = KinetoReader().read(source, Processes())
    except UnreadableError as error:
        return f"error: {str(error).removeprefix(f'{source.path}: ')}"
    found = ", ".join(finding.reason for finding in result.findings)
    text = f"{len(result.events)} events of rank {result.source.rank}"
    return f"{text}: {found}" if found else text


@pytest.mark.parametrize("name", FAULTS)
def test_faults_that_users_reported(name: str, tmp_path: Path) -> None:
    data, expected = FAULTS[name]
    (tmp_path / name).write_bytes(data)
    assert outcome(tmp_path / name) == expected


@pytest.mark.parametrize("pretty", [False, True])
@pytest.mark.parametrize("after", [{}, {"distributedInfo": {"rank": 3}, "traceName": "x"}])
def test_a_file_cut_at_any_byte_keeps_every_event_before_the_cut(
    pretty: bool, after: dict[str, object]
) -> None:
    events = SMALL[:3]
    whole = trace(*events, pretty=pretty, after=after)
    opening = whole.index(b"[") + 1
    ends = [match.end(1) for match in re.finditer(rb"(\}\s*\})\s*[,\]]", whole)]
    assert len(ends) == len(events)
    for cut in range(opening):
        with pytest.raises(UnreadableError):
            read(whole[:cut])
    for cut in range(opening, len(whole)):
        result = read(whole[:cut])
        before = [element["name"] for element, end in zip(events, ends, strict=True) if end <= cut]
        assert [one.name for one in seen(result)] == before
        assert reasons(result) == {"truncated": 1} | ({} if before else {"no_events": 1})


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_a_long_compressed_file_cut_at_any_byte(data: st.DataObject) -> None:
    compressed = long_compressed()
    cut = data.draw(st.integers(500, len(compressed) - 1))
    result = read(compressed[:cut])
    names = [one.name for one in seen(result)]
    assert names == [element["name"] for element in long()[: len(names)]]
    (finding,) = result.findings
    assert finding.reason == "truncated"
    assert "the gzip stream is cut off at byte" in finding.message


@pytest.mark.parametrize("cut", [2, 10, 18, 30])
def test_a_compressed_file_cut_before_its_first_event(cut: int) -> None:
    with pytest.raises(UnreadableError, match="the gzip stream is cut off"):
        read(long_compressed()[:cut])


@cache
def long() -> Sequence[dict[str, Any]]:
    return [cpu_op(f"op {number * 7919}", number, External_id=number) for number in range(12_000)]


@cache
def long_compressed() -> bytes:
    return gzip.compress(trace(*long()))


@pytest.mark.parametrize("place", [0, 1, 6000, 11_998, 11_999])
@pytest.mark.parametrize("damage", ["nonsense", '"', "[", "}", "\x00\\"])
def test_a_damaged_event_costs_only_itself(place: int, damage: str) -> None:
    texts = [json.dumps(element) for element in long()]
    texts[place] = texts[place].replace('"cat"', f'{damage} "cat"')
    result = read(with_texts(*texts))
    expected = [element["name"] for number, element in enumerate(long()) if number != place]
    assert [one.name for one in seen(result)] == expected
    assert set(reasons(result)) <= {"damaged", "repaired", "not_an_event", "truncated"}
    assert reasons(result)


def test_damage_in_many_places_is_one_finding_with_the_first_place() -> None:
    texts = [json.dumps(element) for element in SMALL]
    damaged = [
        text.replace('"cat"', '"cat" "cat"') if number % 2 else text for number, text in enumerate(texts)
    ]
    data = with_texts(*damaged)
    (finding,) = read(data).findings
    first = data.index(damaged[1].encode())
    assert (finding.reason, finding.count, finding.example) == ("damaged", 3, f"byte {first}")


@pytest.mark.parametrize(
    "name",
    ['say "hello"', r"C:\data\Kernels", 'both "a\\q" and ]', "two\nlines", 'ends with a quote"', "tab\there"],
)
def test_names_that_the_producer_did_not_escape(name: str) -> None:
    texts = [json.dumps(element).replace('"op 2"', f'"{name}"') for element in SMALL]
    result = read(with_texts(*texts))
    assert [one.name for one in seen(result)] == [
        name if element["name"] == "op 2" else element["name"] for element in SMALL
    ]
    assert set(reasons(result)) <= {"repaired"}


@pytest.mark.parametrize("element", ["null", "5", '"text"', "[]", "{}", '{"ph": ""}', "true", '{"ph": null}'])
def test_elements_that_are_no_events(element: str) -> None:
    texts = [json.dumps(one) for one in SMALL]
    result = read(with_texts(*texts[:3], element, *texts[3:]))
    assert [one.name for one in seen(result)] == [one["name"] for one in SMALL]
    assert set(reasons(result)) <= {"not_an_event"}


@pytest.mark.parametrize("depth", [100, 2000, 200_000])
def test_nesting_without_end_harms_nothing(depth: int) -> None:
    lists = "[" * depth + "]" * depth
    deep = f'{{"ph": "X", "name": "deep", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": {{"a": {lists}}}}}'
    texts = [json.dumps(one) for one in SMALL]
    result = read(with_texts(*texts[:3], deep, *texts[3:]))
    names = [one.name for one in seen(result)]
    assert [name for name in names if name != "deep"] == [one["name"] for one in SMALL]
    assert "deep" in names or reasons(result)


def test_objects_inside_an_event_that_look_like_events() -> None:
    inner = {"list": [{"name": "a"}, {"name": "b"}, {"cat": "c"}]}
    elements = [
        {"name": f"op {n}", "ph": "X", "pid": 1, "tid": 1, "ts": n, "dur": 1, "args": inner} for n in range(9)
    ]
    result = read(trace(*elements))
    assert [one.name for one in seen(result)] == [f"op {number}" for number in range(9)]
    assert reasons(result) == {}


@pytest.mark.parametrize("rank", ["three", "²", True, -1.5, None, [1], 2**70])
def test_a_rank_that_is_none_is_not_believed(rank: object) -> None:
    data = trace(cpu_op(), distributedInfo={"rank": rank, "pg_config": "none"})
    result = KinetoReader().read(as_source(data), Processes())
    assert result.source.rank in (None, 2**70)
    assert len(result.events) == 1


@pytest.mark.parametrize("value", [4294967296, True, "rank 0", [1], 1.5])
def test_distributed_info_that_is_no_object_is_reported_and_left_out(value: object) -> None:
    result = read(trace(cpu_op(), distributedInfo=value))
    assert (len(result.events), result.source.rank) == (1, None)
    assert DISTRIBUTED not in result.source.header
    assert reasons(result) == {"unusable_rank": 1}


@pytest.mark.parametrize("time", [True, False])
def test_a_truth_value_is_no_time(time: bool) -> None:
    result = read(trace(cpu_op("valid"), cpu_op("invalid", time)))
    assert [one.name for one in seen(result)] == ["valid"]
    assert reasons(result) == {"not_an_event": 1}
    result = read(trace(cpu_op("valid"), cpu_op("endless", 1, time), baseTimeNanoseconds=time))
    assert [one.name for one in seen(result)] == ["valid", "endless"]
    assert reasons(result) == {"unusable_base_time": 1, "unusable_duration": 1}


@pytest.mark.parametrize("phase", ["X", "i", "I", "R"])
def test_an_event_may_have_the_category_of_launch_flows(phase: str) -> None:
    event = slice_("ac2g", "Record Window End", 5) | {"ph": phase}
    assert [one.name for one in seen(read(trace(cpu_op("before"), event)))] == ["before", "Record Window End"]


def test_a_damaged_header_is_told_and_the_events_are_used() -> None:
    result = read(
        b'{"schemaVersion": oops, "distributedInfo": {"rank": 1}, ' + trace(cpu_op(), metadata("x"))[19:]
    )
    assert len(result.events) == 1
    assert result.source.rank is None
    assert reasons(result) == {"damaged": 1}


@pytest.mark.parametrize("tail", [" ", "\n", "}\n\n"])
def test_blanks_behind_the_end(tail: str) -> None:
    whole = trace(*SMALL)
    data = (whole[:-1] if tail.startswith("}") else whole) + tail.encode()
    assert reasons(read(data)) == {}


def test_a_second_document_behind_the_end_is_told() -> None:
    assert reasons(read(trace(*SMALL) + trace(*SMALL))) == {"truncated": 1}
