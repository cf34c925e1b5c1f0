"""Abridged decoding of dumps reads the same as full decoding."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders.data import foreign, traces
from builders.recorder import as_json, as_source, collective, dump, frame, pickled
from tracelink._model.columns import UNKNOWN, StringTable
from tracelink._model.records import Requests
from tracelink._run.processes import Processes
from tracelink.converters.flight_recorder import decoding as decoding_module
from tracelink.converters.flight_recorder import pickles
from tracelink.converters.flight_recorder.decoding import RecorderPayloads, decode
from tracelink.converters.flight_recorder.entries import fields_of
from tracelink.converters.flight_recorder.pickles import load
from tracelink.converters.flight_recorder.reader import FlightRecorderReader
from tracelink.converters.flight_recorder.records import records_of
from tracelink.converters.flight_recorder.scan import Entries, Markers, abridged, find_forms
from tracelink.converters.flight_recorder.schema import Dump, dump_of

STACKS = [[frame("all_reduce", line=line), frame("main")] for line in (1, 2)]


def step(number: int) -> list[dict[str, Any]]:
    """What one rank does over and over."""
    created = 1_794_983_359_603_435_457 + number * 400_000
    ended = {
        "time_discovered_started_ns": created + 30_000,
        "completed": created + 350_000,
        "duration_ms": 0.25,
    }
    return [
        collective("nccl:all_reduce", number, created=created, frames=STACKS[0], **ended),
        collective(
            "nccl:_all_gather_base", number, group=("1", "tp"), output_sizes=[[512, 16]], frames=STACKS[1]
        ),
        collective("nccl:send 0->1", number, p2p_seq_id=number, is_p2p=True, frames=STACKS[0]),
    ]


def steps(count: int) -> list[dict[str, Any]]:
    """Several of them."""
    return [entry for number in range(1, count + 1) for entry in step(number)]


JOB = pickled(dump(*steps(20)))


def said(content: Dump, entries: Entries) -> dict[str, Any] | None:
    """All that is told of the entries, codes as texts and requests in full; None if that cannot be told."""
    strings = StringTable()
    fields = fields_of(content, entries, strings)
    if fields is None:
        return None
    records = {name: column.tolist() for name, column in records_of(fields, strings).columns().items()}
    texts = [*strings.texts(), ""]
    requests = {name: column.tolist() for name, column in fields.requests.distinct.columns().items()}
    requests |= {name: [texts[code] for code in requests[name]] for name in Requests.text_columns()}
    asked = list(zip(*requests.values(), strict=True))
    return records | {
        "group": [texts[code] for code in records["group"]],
        "request": [asked[row] for row in records["request"]],
        "requests": asked,
        "sizes": fields.requests.sizes,
        "states": [texts[code] for code in fields.state.tolist()],
        "numbers": [fields.group_id.tolist(), fields.collective.tolist(), fields.p2p.tolist()],
        "groups": fields.groups,
        "rest": (
            fields.first_record,
            fields.skipped,
            fields.requests.invalid_sizes,
            content.header,
            content.version,
        ),
    }


def in_full(data: bytes) -> dict[str, Any] | None:
    """What is told of a dump of which all entries are decoded; None if it is none."""
    loaded = load(data, "dump")
    content = dump_of(loaded.content)
    return said(content, Entries.all_decoded(content.entries)) if content and not loaded.truncation else None


def briefly(data: bytes) -> dict[str, Any] | None:
    """What is told of a dump by the entries that others repeat; None if there are not enough of these."""
    brief = abridged(data, "dump", fewest=1)
    return said(*brief) if brief else None


def decoded(data: bytes) -> int:
    """How many entries were decoded."""
    brief = abridged(data, "dump", fewest=1)
    assert brief is not None
    return len(brief[1].decoded)


def text(value: str, index: int) -> bytes:
    """A new string with its PUT."""
    return b"X" + len(value).to_bytes(4, "little") + value.encode() + b"q" + bytes([index])


def similar(record: int, time: bytes) -> bytes:
    """An entry of known strings."""
    return b"}(h\1K%bh\2h\3h\4\x8a\x08%bh\5](](K\2K\4eeu" % (bytes([record]), time * 8)


def test_the_worked_example_is_abridged_as_the_module_says() -> None:
    first = b"".join((
        b"}(" + text("record_id", 1) + b"K\7",
        text("profiling_name", 2) + text("nccl:all_reduce", 3),
        text("time_created_ns", 4) + b"\x8a\x08" + b"\7" * 8,
        text("input_sizes", 5) + b"](](K\2K\4eeu",
    ))  # fmt: skip
    start = b"\x80\x02}(" + text("entries", 0) + b"](" + first
    entries = [similar(record, bytes([record])) for record in (8, 9, 10)]
    data = start + b"".join(entries) + b"eu."

    (form,) = find_forms(data)

    assert [span.tolist() for span in form.similar.spans] == [[0, 0, 0]] * 3
    assert form.similar.keys == [1, 2, 1]
    assert [column.tolist() for column in form.similar.numbers] == [
        [8, 9, 10],
        [int.from_bytes(bytes([record]) * 8, "little") for record in (8, 9, 10)],
    ]
    assert Markers.of([form]).abridgement(data) == (
        start + b"\x8a\x08\0\0\0\0mark" + entries[0] + b"\x8a\x08\1\0\0\0mark" + b"eu.",
        int.from_bytes(b"mark", "little") << 32,
    )


def test_entries_that_repeat_others_are_not_decoded_and_read_the_same() -> None:
    # Of each kind of entry the first has new texts; the second has none, and tells of all that follow.
    assert decoded(JOB) == 6
    assert briefly(JOB) == in_full(JOB)


def test_numbers_of_every_width_are_read() -> None:
    numbers = [0, 1, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, 2**62, 2**63 - 1, None]
    entries = [collective(p2p_seq_id=number, time_discovered_started_ns=number) for number in numbers * 3]
    data = pickled(dump(*entries))

    told = briefly(data)

    assert told is not None
    assert told["numbers"][2] == [UNKNOWN if number is None else number for number in numbers * 3]
    assert told == in_full(data)


def test_memo_indexes_of_four_bytes_are_followed() -> None:
    many = {f"group {number}": {"name": f"g{number}", "desc": "", "ranks": "[]"} for number in range(300)}
    data = pickled(dump(*steps(20), pg_config=many))

    assert decoded(data) == 6
    assert briefly(data) == in_full(data)


def test_spans_of_very_many_kinds_and_lengths_are_told_apart() -> None:
    kinds = [
        {"input_sizes": [[2] * length], "output_sizes": [[number]]}
        for length in range(1, 30)
        for number in (1, 300)
    ]
    data = pickled(dump(*(collective(sequence=number, **kind) for number in range(1, 9) for kind in kinds)))

    assert decoded(data) == len(kinds) + 1
    assert briefly(data) == in_full(data)


def test_an_entry_with_a_new_text_is_decoded_among_those_that_repeat() -> None:
    odd = [collective("nccl:broadcast", 40), collective("nccl:barrier", 41, input_sizes=[], output_sizes=[])]
    entries = steps(10)
    data = pickled(dump(*entries[:15], *odd, *entries[15:]))

    assert decoded(data) == 8
    assert briefly(data) == in_full(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(pickled(dump(*step(1))), id="nothing is repeated"),
        pytest.param(pickled(dump(*steps(20)))[:-1], id="cut short"),
        pytest.param(as_json(dump(*steps(20))), id="JSON"),
        pytest.param(pickled(steps(20)), id="a bare list"),
        pytest.param(pickled(dump()), id="no entries"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_what_is_no_whole_dump_of_entries_that_repeat_is_left_to_be_decoded(data: bytes) -> None:
    assert abridged(data, "dump", fewest=1) is None


@pytest.mark.parametrize(
    "fields", [{"state": None}, {"input_sizes": None}, {"profiling_name": 5}, {"retired": 7}]
)
def test_numbers_in_the_places_of_words_are_left_to_be_decoded(fields: dict[str, Any]) -> None:
    data = pickled(dump(*(entry | fields for entry in steps(20))))

    assert abridged(data, "dump", fewest=1) is not None
    assert briefly(data) is None


def spelt(text: str) -> bytes:
    """A text as it is written first, but for its PUT."""
    return b"X" + len(text).to_bytes(4, "little") + text.encode()


def index_of(text: str) -> bytes:
    """The place of a text in the memo of the job."""
    put = JOB.index(spelt(text) + b"q") + len(spelt(text)) + 1
    return JOB[put : put + 1]


def hostile() -> Iterator[Any]:
    """Dumps in which bytes that look like a repeated entry are something else, or mean something else."""
    last = JOB.rindex(b"}(h" + index_of("frames"))
    head, entry, tail = JOB[:last], JOB[last : JOB.rindex(b"eu")], JOB[JOB.rindex(b"eu") :]
    plain = b"}(h" + index_of("frames") + b"K\1u"
    sized = len(plain * 9).to_bytes(4, "little")
    yield pytest.param(head + entry[:-1] + b"X" + sized + plain * 9 + b"Nu" + tail, id="a key of such bytes")
    within = [
        collective("nccl:new", 1, frames=[step(9)[0]]),
        collective("nccl:newer", 1, frames=[step(8)[0]]),
    ]
    yield pytest.param(pickled(dump(*steps(10), *within)), id="entries within entries")
    moved = spelt("z") + b"q" + index_of("nccl:all_reduce")
    scheduled = b"h" + index_of("scheduled")
    at = JOB.index(scheduled, len(JOB) // 2)
    yield pytest.param(JOB[:at] + moved + JOB[at + 2 :], id="a reference that changes its meaning")
    yield pytest.param(
        head + entry + b"q\xff" + b"h\xff" * 3 + tail, id="an entry that is there several times"
    )
    other = spelt("pg_status") + b"q\xfeh\xff"
    yield pytest.param(
        head + entry + b"eq\xff" + other + tail[1:], id="a list of entries that is also the status"
    )
    again = JOB[JOB.index(spelt("entries")) : JOB.rindex(b"uq")]
    yield pytest.param(JOB[: JOB.rindex(b"uq")] + again + JOB[JOB.rindex(b"uq") :], id="entries twice")
    yield pytest.param(head + entry + b"\x8a\x08\0\0\0\0mark" + tail, id="something like a mark")
    state = entry.replace(b"h" + index_of("op_id"), b"h" + index_of("state"))
    yield pytest.param(head + state * 90 + tail, id="a field that is said twice")


@pytest.mark.parametrize("data", list(hostile()))
def test_nothing_is_taken_for_an_entry_that_is_none(data: bytes) -> None:
    assert abridged(data, "dump", fewest=1) is None


OPCODES = st.sampled_from([bytes([op]) for op in b"](}eu.NKMJXhjqrG\x86\x88\x89\x8a"])


@settings(max_examples=600, deadline=None)
@given(
    st.integers(2, len(JOB) - 1), st.integers(0, 12), st.lists(OPCODES | st.binary(max_size=3), max_size=5)
)
def test_a_damaged_dump_reads_the_same_or_is_left_to_be_decoded(
    at: int, removed: int, put: list[bytes]
) -> None:
    agree(JOB[:at] + b"".join(put) + JOB[at + removed :])


@settings(max_examples=300, deadline=None)
@given(st.integers(2, len(JOB) - 1), st.integers(2, len(JOB) - 1), st.integers(1, 200), st.integers(0, 200))
def test_a_dump_with_bytes_from_elsewhere_reads_the_same_or_is_left_to_be_decoded(
    at: int, source: int, size: int, removed: int
) -> None:
    agree(JOB[:at] + JOB[source : source + size] + JOB[at + removed :])


def agree(data: bytes) -> None:
    """What is told briefly is told in full; what cannot be decoded in full is not told at all."""
    brief = briefly(data)
    if brief is not None:
        assert brief == in_full(data)


VALUES = st.fixed_dictionaries(
    {
        "sequence": st.integers(0, 2**20),
        "name": st.sampled_from(["nccl:all_reduce", "nccl:recv 1<-0", "nccl:coalesced", "gloo:barrier"]),
        "group": st.sampled_from([("0", "default_pg"), ("1", "tp"), ("2", "")]),
        "created": st.integers(0, 2**62),
        "completed": st.none() | st.integers(0, 2**62),
        "input_sizes": st.sampled_from([[], [[]], [[4, 4]], [[2], [300, 70_000]]]),
        "output_dtypes": st.sampled_from([[], ["Float"], ["c10::BFloat16", "Long"]]),
        "retired": st.booleans(),
        "is_p2p": st.booleans(),
    },
    optional={"duration_ms": st.floats(), "frames": st.sampled_from(STACKS), "timeout_ms": st.none()},
)


@settings(max_examples=150, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=4), st.lists(st.integers(0, 2**40), min_size=8, max_size=40))
@example([{"sequence": 0, "timeout_ms": None}, {"sequence": 1}], [1] * 20)
def test_whatever_torch_repeats_reads_the_same(kinds: list[dict[str, Any]], numbers: list[int]) -> None:
    entries = [
        collective(**kind | {"op_id": number, "p2p_seq_id": number % 1000})
        for number in numbers
        for kind in kinds
    ]
    agree(pickled(dump(*entries)))


PLACES = ["gloo/healthy", "nccl/wrapped", "cpu_job", "hung_job", *foreign("fr", "matched8/fr")]


@pytest.mark.parametrize("place", PLACES)
def test_dumps_read_the_same(place: str) -> None:
    files = [path for path in sorted(traces(place).rglob("comm_lib_trace_rank_*")) if path.is_file()]
    agreed = [path for path in files if briefly_or_not_readable(path)]
    assert len(agreed) > len(files) / 10


def briefly_or_not_readable(path: Path) -> bool:
    """Whether a dump was told briefly, and the same as in full."""
    data = path.read_bytes()
    agree(data)
    return briefly(data) is not None


def test_many_numbers_in_one_entry_take_no_time() -> None:
    key = b"X\1\0\0\0aq\0"
    entry = b"}(" + b"h\0K\1" * 100_000 + b"u"
    data = b"\x80\2}(X\7\0\0\0entriesq\1](}(" + key + b"K\1u" + entry * 3 + b"eu."
    assert abridged(data, "dump", fewest=1) is None


def test_entries_of_a_dump_that_is_too_large_to_be_decoded_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as 100,000 entries: they are read, and single ones and parts of them are decoded when they are requested."""
    source = as_source(pickled(dump(*steps(500))))
    reader = FlightRecorderReader()
    recording = reader.read_records(source, Processes(1))
    payloads = RecorderPayloads(source)
    entries, batches = payloads.entries([3, 700, 1499, 1500]), joined(payloads)
    monkeypatch.setattr(pickles, "MEMORY", 400_000)
    monkeypatch.setattr(decoding_module, "_PART", 40)
    with pytest.raises(pickles.TooLargeError):
        decode(source)
    limited = reader.read_records(source, Processes(1))
    assert limited.records.columns().keys() == recording.records.columns().keys()
    for name, column in recording.records.columns().items():
        assert limited.records.columns()[name].tolist() == column.tolist()
    assert limited.strings == recording.strings
    assert payloads.entries([3, 700, 1499, 1500]) == entries
    assert list(entries) == [3, 700, 1499]
    assert joined(payloads) == batches
    assert len(batches) == 1500


def joined(payloads: RecorderPayloads) -> dict[int, Any]:
    """All entries as JSON, by index."""
    return {first + at: text for first, batch in payloads.batches() for at, text in enumerate(batch)}


# Sizes, types, stacks and durations of entries as columns


def in_columns(data: bytes) -> list[dict[str, Any]]:
    """Parts of each entry as they are in columns."""
    found: list[dict[str, Any]] = []
    for run in RecorderPayloads(as_source(data)).details():
        assert run.first == len(found)
        texts = (run.input_sizes, run.input_types, run.output_sizes, run.output_types, run.stack)
        columns = [[orjson.loads(text.distinct[row]) for row in text.row.tolist()] for text in texts]
        found += [
            dict(zip(PARTS, values, strict=True)) for values in zip(*columns, run.duration_ms, strict=True)
        ]
    return found


PARTS = ("input_sizes", "input_dtypes", "output_sizes", "output_dtypes", "frames", "duration_ms")


def as_recorded(data: bytes) -> list[dict[str, Any]]:
    """The same parts as they are when each entry is decoded."""
    content = dump_of(load(data, "dump").content)
    assert content
    found = [{part: entry.get(part) for part in PARTS} for entry in content.entries]
    for entry in found:
        is_number = type(entry["duration_ms"]) in (int, float) and math.isfinite(entry["duration_ms"])
        entry["duration_ms"] = float(entry["duration_ms"]) if is_number else None
    return found


DURATIONS = st.none() | st.floats() | st.integers(0, 2**40)


@settings(max_examples=150, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=4), st.lists(DURATIONS, min_size=8, max_size=80))
@example([{"sequence": 1, "duration_ms": 0.5}], [None, 1, 2.5, float("inf"), 2**40, 0.1] * 20)
def test_parts_in_columns_are_those_of_each_entry(
    kinds: list[dict[str, Any]], durations: list[float | None]
) -> None:
    entries = [collective(**kind | {"duration_ms": number}) for number in durations for kind in kinds]
    data = pickled(dump(*entries))
    assert in_columns(data) == as_recorded(data)


def test_parts_of_entries_that_are_not_abridged() -> None:
    data = pickled(dump(*(entry | {"input_sizes": None} for entry in steps(100)), "no entry"))
    assert in_columns(pickled(dump(*steps(100)))) == as_recorded(pickled(dump(*steps(100))))
    assert in_columns(data)[:300] == as_recorded(data[: data.rindex(b"X\x08\0\0\0no entry")] + b"eu.")
    assert in_columns(data)[300:] == [dict.fromkeys(PARTS)]


@pytest.mark.parametrize("place", PLACES)
def test_parts_of_entries_of_dumps(place: str) -> None:
    for path in sorted(traces(place).rglob("comm_lib_trace_rank_*")):
        if path.is_file() and briefly(data := path.read_bytes()):
            assert in_columns(data) == as_recorded(data)
