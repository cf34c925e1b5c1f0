"""Flight-recorder dumps as rank traces, and the recognition of dumps."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.data import foreign, traces
from builders.recorder import CREATED, as_json, as_source, collective, dump, frame, pickled, process_group
from tracelink._io.sources import Request, Source, discover
from tracelink._model.columns import NO_TIME, UNKNOWN
from tracelink._model.errors import UnreadableError
from tracelink._model.events import EventKind, Key, Track, TrackKind
from tracelink._model.findings import Finding, NewerVersion, Severity, Truncated
from tracelink._model.trace import ProcessGroup, RankTrace, SourceInfo
from tracelink._run.processes import Processes
from tracelink.converters.flight_recorder import TOP_LEVEL, TYPICAL_KEYS, is_dump, schema
from tracelink.converters.flight_recorder.reader import FlightRecorderReader

# One event for each entry, on the track of its process group


PATH = "comm_lib_trace_rank_0"


def read(data: bytes) -> RankTrace:
    return read_source(as_source(data))


def read_source(source: Source) -> RankTrace:
    return FlightRecorderReader().read(source, Processes())


def rows(trace: RankTrace) -> list[tuple[Any, ...]]:
    """kind, name, track, start, duration, source, payload of each event, codes as text."""
    texts = trace.strings.texts()
    return [
        (
            EventKind(event.kind[0]),
            texts[event.name[0]],
            trace.tracks[event.track[0]].identity,
            int(event.start[0]),
            int(event.duration[0]),
            int(event.source[0]),
            int(event.payload[0]),
        )
        for event in (trace.events.take(np.array([row])) for row in range(len(trace.events)))
    ]


def keys(trace: RankTrace) -> dict[Key, list[tuple[int, Any]]]:
    """(row, value) of every link key, codes as text."""
    texts = trace.strings.texts()
    return {
        key: [
            (row, texts[value] if key in (Key.GROUP, Key.STATE) else value)
            for row, value in zip(column.rows.tolist(), column.values.tolist(), strict=True)
        ]
        for key, column in trace.keys.items()
    }


def payloads(trace: RankTrace, first: int = 0, last: int | None = None) -> list[Any]:
    return [orjson.loads(text) for _, run in trace.payloads[0].batches(first, last) for text in run]


def test_each_entry_is_a_record_on_the_track_of_its_group() -> None:
    data = pickled(
        dump(
            collective("nccl:all_reduce", 1, created=CREATED, completed=CREATED + 350_000),
            collective("nccl:broadcast", 7, created=CREATED + 500, group=("5", "dp"), p2p_seq_id=3),
            pg_config=process_group("0", [0, 1, 2, 3]) | process_group("5", [0, 2]),
            pg_status={"0": {"last_completed_collective": 1}},
        )
    )

    trace = read(data)

    assert rows(trace) == [
        (EventKind.RECORD, "nccl:all_reduce", "0", CREATED, 350_000, 0, 0),
        (EventKind.RECORD, "nccl:broadcast", "5", CREATED + 500, UNKNOWN, 0, 1),
    ]
    assert keys(trace) == {
        Key.GROUP: [(0, "0"), (1, "5")],
        Key.COLLECTIVE_SEQUENCE: [(0, 1), (1, 7)],
        Key.P2P_SEQUENCE: [(0, 0), (1, 3)],
        Key.STATE: [(0, "completed"), (1, "scheduled")],
    }
    assert trace.tracks == [
        Track(TrackKind.COMMUNICATOR, process="", identity="0", label="0 (default_pg)"),
        Track(TrackKind.COMMUNICATOR, process="", identity="5", label="5 (dp)"),
    ]
    assert trace.groups == [
        ProcessGroup("0", "default_pg", (0, 1, 2, 3), size=4),
        ProcessGroup("5", "dp", (0, 2), size=2),
    ]
    assert trace.sources == [
        SourceInfo(
            path=PATH,
            format="flight-recorder",
            version="2.10",
            events=2,
            bytes=len(data),
            start_ns=CREATED,
            end_ns=CREATED + 350_000,
            header={
                "version": "2.10",
                "pg_config": {
                    "0": {"name": "0", "desc": "", "ranks": "[0, 1, 2, 3]"},
                    "5": {"name": "5", "desc": "", "ranks": "[0, 2]"},
                },
                "comm_lib_version": "",
                "pg_status": {"0": {"last_completed_collective": 1}},
            },
            recorder=("nccl:0", "nccl:5"),
        )
    ]
    assert trace.findings == []


def test_retired_on_gloo_is_no_end() -> None:
    assert rows(read(pickled(dump(collective(retired=True))))) == [
        (EventKind.RECORD, "gloo:all_reduce", "0", CREATED, UNKNOWN, 0, 0)
    ]


def test_the_bare_list_of_torch_2_2_counts_microseconds_and_numbers_its_groups() -> None:
    entry = {
        "pg_id": 3,
        "seq_id": 9,
        "profiling_name": "nccl:all_reduce",
        "time_created_us": CREATED // 1000,
        "input_sizes": [[2]],
        "output_sizes": [[2]],
        "state": "scheduled",
        "retired": False,
        "frames": [],
    }

    trace = read(pickled([entry]))

    assert rows(trace) == [(EventKind.RECORD, "nccl:all_reduce", "3", CREATED // 1000 * 1000, UNKNOWN, 0, 0)]
    assert keys(trace) == {
        Key.GROUP: [(0, "3")],
        Key.COLLECTIVE_SEQUENCE: [(0, 9)],
        Key.STATE: [(0, "scheduled")],
    }
    assert trace.tracks == [Track(TrackKind.COMMUNICATOR, process="", identity="3", label="3")]
    assert trace.groups == [ProcessGroup("3")]
    assert trace.source.version == "none (bare list of torch 2.2)"
    assert trace.findings == []


def test_version_1_4_lists_the_ranks_of_a_group_by_its_number() -> None:
    entry = {
        "record_id": 0,
        "pg_id": 1,
        "seq_id": 4,
        "op_id": 4,
        "profiling_name": "nccl:all_gather",
        "time_created_ns": CREATED,
        "input_sizes": [[2]],
        "output_sizes": [[4]],
        "state": "completed",
        "time_discovered_started_ns": CREATED + 1,
        "time_discovered_completed_ns": CREATED + 9,
        "retired": True,
        "frames": [],
    }

    trace = read(pickled({"entries": [entry], "version": "1.4", "pg_config": {0: [0, 1, 2], 1: [0, 2]}}))

    assert rows(trace) == [(EventKind.RECORD, "nccl:all_gather", "1", CREATED, 9, 0, 0)]
    assert keys(trace) == {
        Key.GROUP: [(0, "1")],
        Key.COLLECTIVE_SEQUENCE: [(0, 4)],
        Key.STATE: [(0, "completed")],
    }
    assert trace.groups == [ProcessGroup("0", "", (0, 1, 2), size=3), ProcessGroup("1", "", (0, 2), size=2)]
    assert trace.findings == []


@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3", "2.4", "2.7", "2.9", "2.10"])
def test_every_version_since_2_1_reads_the_same(version: str) -> None:
    trace = read(pickled(dump(collective(completed=CREATED + 1), version=version)))

    assert (trace.source.version, len(trace.events), trace.findings) == (version, 1, [])


def test_the_json_variant_says_the_same() -> None:
    content = dump(
        collective(completed=CREATED + 70), collective("gloo:barrier", 2), pg_status={"0": {"last": 2}}
    )

    as_pickle, as_text = read(pickled(content)), read(as_json(content))

    assert rows(as_text) == rows(as_pickle)
    assert keys(as_text) == keys(as_pickle)
    assert (as_text.tracks, as_text.groups) == (as_pickle.tracks, as_pickle.groups)
    assert as_text.source.header == {
        **as_pickle.source.header,
        "pg_status": {"0": {"last": "2"}},
        "nccl_comm_state": {},
    }


@pytest.mark.parametrize("write", [pickled, as_json])
def test_an_empty_dump_says_that_it_is_empty(write: Any) -> None:
    trace = read(write(dump()))

    assert len(trace.events) == 0
    assert trace.groups == [ProcessGroup("0", "", (0, 1), size=2)]
    assert (trace.source.start_ns, trace.source.end_ns) == (None, None)
    assert trace.findings == [
        Finding(Severity.INFO, "empty", "the dump recorded no collectives", source=PATH)
    ]


def test_the_nameless_group_of_raw_gloo_is_no_group() -> None:
    trace = read(pickled(dump(collective(), pg_config={"": {"name": "", "desc": "", "ranks": "[]"}})))

    assert (trace.groups, trace.findings) == ([ProcessGroup("0", "default_pg")], [])


def test_ranks_are_parsed_never_evaluated() -> None:
    config = {"0": {"name": "0", "desc": "", "ranks": "__import__('os').abort()"}}

    trace = read(pickled(dump(collective(), pg_config=config)))

    assert trace.groups == [ProcessGroup("0", "default_pg")]
    assert trace.findings == [
        Finding(
            Severity.WARNING,
            "group-members",
            "pg_config has invalid lists of ranks for 1 groups, whose members are treated as unknown",
            source=PATH,
            example="0",
        )
    ]


def test_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    trace = read(pickled(dump(collective(color="red"), version="2.11", shape={"a": [1]})))

    assert len(trace.events) == 1
    assert payloads(trace)[0]["color"] == "red"
    assert trace.findings == [NewerVersion(PATH, "2.11", "2.10").finding()]


def test_a_wrapped_buffer_says_how_much_is_lost() -> None:
    trace = read(pickled(dump(collective(sequence=25), collective(sequence=26))))

    assert trace.findings == [
        Finding(
            Severity.INFO,
            "wrapped",
            "the ring buffer wrapped: the first 24 entries were overwritten before the dump",
            24,
            PATH,
        )
    ]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"profiling_name": 5}, "profiling_name is of type int"),
        ({"time_created_ns": None}, "time_created_ns is of type NoneType"),
        ({"time_created_ns": -4}, "time_created_ns is -4"),
        ({"time_created_ns": 2**63 - 1}, "time_created_ns is 9223372036854775807"),
        ({"time_discovered_completed_ns": "late"}, "time_discovered_completed_ns is of type str"),
        ({"process_group": ["0"]}, "process_group is not a name and a description"),
        ({"collective_seq_id": True}, "collective_seq_id is of type bool"),
        ({"state": []}, "state is of type list"),
    ],
)
def test_an_entry_with_unusable_fields_is_left_out_and_counted(broken: dict[str, Any], why: str) -> None:
    entries = [collective(sequence=1), collective(sequence=2, **broken), collective(sequence=3)]

    trace = read(pickled(dump(*entries)))

    assert [row[-1] for row in rows(trace)] == [0, 2]
    assert trace.findings == [
        Finding(
            Severity.WARNING,
            "unusable",
            "1 entry has invalid fields: skipped",
            1,
            PATH,
            why,
        )
    ]


def test_what_is_no_entry_is_left_out_and_counted() -> None:
    trace = read(pickled(dump(collective(), 5, [1], None)))

    assert [row[-1] for row in rows(trace)] == [0]
    assert [(finding.reason, finding.count) for finding in trace.findings] == [("unusable", 3)]


def test_an_entry_without_a_time_has_none() -> None:
    trace = read(as_json(dump(collective(created=0, completed=CREATED))))

    assert rows(trace) == [(EventKind.RECORD, "gloo:all_reduce", "0", NO_TIME, UNKNOWN, 0, 0)]


def test_names_of_groups_can_be_encoded() -> None:
    group = ("5\ud800", "\udfffdp")
    content = dump(collective(group=group), pg_config=process_group(group[0], [0, 1], group[1]))

    trace = read(pickle.dumps(content, protocol=2))

    assert [(one.name, one.description) for one in trace.groups] == [("5?", "?dp")]
    assert [track.label for track in trace.tracks] == ["5? (?dp)"]


def test_an_end_that_is_no_time_is_unknown() -> None:
    trace = read(pickled(dump(collective(completed=2**63 - 1))))

    assert rows(trace) == [(EventKind.RECORD, "gloo:all_reduce", "0", CREATED, UNKNOWN, 0, 0)]


def test_numbers_of_more_than_64_bits_are_strings_in_a_payload() -> None:
    numbers = [2**63, 2**64 - 1, -(2**63) - 1]

    trace = read(pickle.dumps(dump(collective(thread_name=numbers)), protocol=2))

    (payload,) = payloads(trace)
    assert payload["thread_name"] == [
        2**63,
        2**64 - 1,
        "-9223372036854775809",
    ]


def test_a_payload_is_all_that_the_entry_recorded() -> None:
    stack = [frame("all_reduce", line=4), frame("main", line=9)]
    entries = [
        collective(frames=stack, duration_ms=0.25, created=2**61 + 1),
        collective(sequence=2, frames=stack, duration_ms=float("nan")),
    ]

    trace = read(pickled(dump(*entries)))

    assert payloads(trace) == [
        entries[0] | {"process_group": ["0", "default_pg"]},
        entries[1] | {"process_group": ["0", "default_pg"], "duration_ms": None},
    ]


def test_payloads_come_in_runs_of_what_was_asked_for() -> None:
    trace = read(pickled(dump(*(collective(sequence=number) for number in range(1, 1201)))))

    runs = [(first, len(run)) for first, run in trace.payloads[0].batches(100, 1100)]

    assert runs == [(100, 512), (612, 488)]
    assert [payload["collective_seq_id"] for payload in payloads(trace, 1198)] == [1199, 1200]


def test_a_compressed_dump_reads_like_a_plain_one(tmp_path: Path) -> None:
    data = pickled(dump(collective()))
    path = tmp_path / "comm_lib_trace_rank_0.gz"
    path.write_bytes(gzip.compress(data))

    (source,) = discover(Request([(str(path), "")])).sources

    assert rows(read_source(source)) == rows(read(data))


def test_a_dump_that_was_cut_short_keeps_its_complete_entries() -> None:
    data = pickled(dump(collective(sequence=1), collective(sequence=2), collective(sequence=3)))

    trace = read(data[:-40])

    assert [row[-1] for row in rows(trace)] == [0, 1]
    assert trace.groups == [ProcessGroup("0", "default_pg", (0, 1), size=2)]
    end = len(data) - 40
    why = f"it ends after {end} bytes in the middle of the dump; STOP was expected"
    truncated = Truncated(PATH, why, 2, "entry", end)
    assert trace.findings == [truncated.finding(severity=Severity.ERROR)]


def test_a_dump_that_was_cut_before_its_first_entry_cannot_be_read() -> None:
    data = pickled(dump(collective()))[:200]

    with pytest.raises(UnreadableError) as caught:
        read(data)

    assert caught.value.source == PATH
    assert caught.value.position.startswith("byte ")
    assert (
        caught.value.advice == "The file is truncated, or is still being written: copy it or take it again."
    )


def test_broken_json_says_where_it_breaks() -> None:
    with pytest.raises(UnreadableError, match=r"rank_0, line 1, column \d+: it is not valid JSON"):
        read(as_json(dump(collective()))[:-1])


@pytest.mark.parametrize(
    "data", [b"{}", b'{"traceEvents": []}', b"[1, 2]", pickled({"a": 1}), pickled("text")]
)
def test_what_is_no_dump_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableError, match=PATH):
        read(data)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
TIMES = st.integers(1, 4 * 10**18)
ENTRIES = st.lists(
    st.builds(
        collective,
        NAMES,
        st.integers(1, 2**40),
        group=st.tuples(NAMES, NAMES),
        created=TIMES,
        completed=st.none() | TIMES,
        frames=st.lists(st.builds(frame, NAMES, NAMES, st.integers(0, 70_000)), max_size=3),
        duration_ms=st.floats(0, 1e9),
        input_sizes=st.lists(st.lists(st.integers(0, 2**40))),
    ),
    max_size=6,
)


@given(ENTRIES)
def test_whatever_torch_writes_is_read_whole(entries: Sequence[dict[str, Any]]) -> None:
    trace = read(pickled(dump(*entries)))

    assert [row[1:] for row in rows(trace)] == [
        (
            entry["profiling_name"],
            entry["process_group"][0],
            entry["time_created_ns"],
            UNKNOWN
            if entry["time_discovered_completed_ns"] is None
            else max(0, entry["time_discovered_completed_ns"] - entry["time_created_ns"]),
            0,
            number,
        )
        for number, entry in enumerate(entries)
    ]
    assert payloads(trace) == [entry | {"process_group": list(entry["process_group"])} for entry in entries]


OWN = ["gloo/healthy", "gloo/unconfigured", "gloo/truncated", "nccl/wrapped", "cpu_job/fr"]
RECORDED = [f"fr/{case}" for case in ("healthy8", "skip_hang", "wrapped", "healthy8_rawpg", "truncated")]


def sources(path: str) -> list[Source]:
    return discover(Request([(str(traces(path)), "")])).sources


@pytest.mark.parametrize("path", [*OWN, *foreign(*RECORDED)])
def test_dumps_are_recognised_and_read(path: str) -> None:
    for source in sources(path):
        assert is_dump(source.head(), source.name)
        trace = read_source(source)
        assert len(payloads(trace)) == len(trace.events) > 0
        assert {finding.reason for finding in trace.findings} <= {"wrapped", "truncated"}


@pytest.mark.parametrize(("path", "entries"), [("gloo/truncated", 16), *foreign(("fr/truncated", 32))])
def test_a_truncated_dump_keeps_the_entries_before_the_cut(path: str, entries: int) -> None:
    damaged = min(sources(path), key=lambda source: source.bytes)
    assert len(read_source(damaged).events) == entries


@pytest.mark.parametrize(("path", "entries"), [("cpu_job/fr", [25] * 2), *foreign(("matched8/fr", [59] * 8))])
def test_dumps_beside_profiles_hold_all_entries(path: str, entries: list[int]) -> None:
    assert [len(read_source(source).events) for source in sources(path)] == entries


# Recognition by the first bytes; the file name only helps with damaged dumps


OLD_ENTRY = {"pg_id": 0, "seq_id": 1, "profiling_name": "nccl:x", "time_created_us": 1}


def recognised(head: bytes, name: str) -> bool:
    return is_dump(head, name)


@pytest.mark.parametrize(
    "head",
    [
        pickled(dump(collective())),
        pickled(dump()),
        pickled([OLD_ENTRY]),
        pickled({"entries": [OLD_ENTRY], "version": "1.4", "pg_config": {}}),
        as_json(dump(collective())),
        as_json(dump()),
        b'\n { "entries" : [{"profiling_name": "nccl:x"',
    ],
)
def test_a_dump_is_recognised_by_its_keys(head: bytes) -> None:
    assert recognised(head, "rank_0")


@pytest.mark.parametrize(
    "head",
    [
        pickled([]),
        pickled(dump(collective()))[:30],
        b"\x80\x02}r\x00\x00\x00\x08.",
        b"\x80\x04\x95\x00",
        b"cos\nsystem\n(S'true'\ntR.",
    ],
)
@pytest.mark.parametrize("name", ["comm_lib_trace_rank_3", "nccl_trace_rank_host_7.pkl"])
def test_a_damaged_or_hostile_pickle_is_recognised_by_its_name(head: bytes, name: str) -> None:
    assert recognised(head, name)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"Just a text.",
        b'{"schemaVersion": 1, "distributedInfo": {"pg_config": []}, "traceEvents": [',
        b'{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [{"name": "", "pg_config": ""',
        b'{"version": "1.2", "entries": []}',
        pickle.dumps({"segments": [], "device_traces": []}, protocol=2),
        pickle.dumps([1, 2, 3]),
    ],
)
def test_other_files_are_left_to_others(head: bytes) -> None:
    assert not recognised(head, "rank_0.json")


def test_text_that_is_named_like_a_dump_is_no_dump() -> None:
    assert not recognised(b"rank 0 wrote its dump", "nccl_trace_rank_0.log")


def test_recognition_knows_the_keys_of_the_schema() -> None:
    assert {key.decode() for key in TOP_LEVEL} == set(schema.TOP_LEVEL)
    assert {key.decode() for key in TYPICAL_KEYS} == {
        schema.GROUP_CONFIG,
        schema.GROUP_STATUS,
        schema.LIBRARY_VERSION,
        schema.COMMUNICATORS,
        schema.CURRENT.name,
        schema.CURRENT.collective_sequence,
    }


# Call sites


def sites(data: bytes) -> list[int]:
    found: list[int] = FlightRecorderReader().read_records(as_source(data), Processes()).records.site.tolist()
    return found


def of_lines(folder: str, lines: Sequence[int]) -> dict[str, Any]:
    frames = {line: frame("step", f"{folder}/train.py", line) for line in lines}
    start = frame("main", f"{folder}/main.py", 3)
    return dump(
        *(collective(sequence=number, frames=[frames[line], start]) for number, line in enumerate(lines, 1))
    )


@pytest.mark.parametrize("repeated", [1, 40], ids=["all decoded", "most repeat others"])
def test_call_sites_are_equal_for_equal_lines_in_any_folder_and_form(repeated: int) -> None:
    lines = [5, 6, 5] * repeated
    own, other = of_lines("/home/a", lines), of_lines("/srv/b", lines)
    (five, six, again), *_ = np.array(sites(pickled(own))).reshape(-1, 3).tolist()
    assert five == again != six
    assert sites(pickled(own)) == sites(as_json(other)) == [five, six, five] * repeated


def test_entries_without_frames_have_no_call_site() -> None:
    assert sites(pickled(dump(collective(), collective(sequence=2, frames=[])))) == [UNKNOWN, UNKNOWN]
