"""Traces of PyTorch and of rocprofv3 as rank traces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracelink
from builders.native_packets import head
from builders.packets import COUNTED, INSTANT, compressed, message, packet
from builders.track_events import (
    BASE,
    BOOTTIME,
    DEVICE,
    LOCAL,
    PID,
    REALTIME,
    THREAD,
    Rocprof,
    Slice,
    Stage,
    Torch,
    annotations,
    event,
    plain_track,
    snapshot,
    source,
    step_of_rocprof,
    step_of_torch,
)
from tracelink import plugins
from tracelink._model.errors import UnreadableError
from tracelink._model.events import EventKind, Key
from tracelink._model.trace import RankTrace
from tracelink._run.processes import Processes
from tracelink.converters.perfetto.track_events.reader import TrackEventReader

GATHER = {
    "Collective name": "allgather",
    "In msg nelems": 8,
    "Out msg nelems": 32,
    "dtype": "Float",
    "Group size": 4,
    "Process Group Name": "0",
    "Process Group Description": "default_pg",
    "Process Group Ranks": "[0, 1, 2, 3]",
    "Seq": 3,
    "Rank": 2,
}


def read(trace: Any, name: str = "rank0.pftrace") -> RankTrace:
    return TrackEventReader().read(source(bytes(trace), name), Processes())


def rows(trace: RankTrace) -> list[tuple[str, str, str, int, int]]:
    """Kind, name, process and track, start after the base, and duration of each event."""
    texts = trace.strings.texts()
    events = trace.events
    return [
        (
            EventKind(int(events.kind[row])).name.lower(),
            texts[events.name[row]],
            f"{trace.tracks[events.track[row]].process}/{trace.tracks[events.track[row]].identity}",
            int(events.start[row]) - BASE,
            int(events.duration[row]),
        )
        for row in range(len(events))
    ]


def arguments(trace: RankTrace) -> list[Any]:
    """The arguments of each event."""
    texts = {first + at: one for first, run in trace.payloads[0].batches() for at, one in enumerate(run)}
    return [json.loads(bytes(texts[number]) or b"{}") for number in trace.events.payload.tolist()]


def reasons(trace: RankTrace) -> list[tuple[str, int]]:
    return [(finding.reason, finding.count) for finding in trace.findings]


STEP = [
    ("annotation", "ProfilerStep#3", "4321/4322", 0, 1000),
    ("operator", "aten::mm", "4321/4322", 100, 300),
    ("python", "f.py(1): f", "4321/4322", 90, 320),
    ("operator", "aten::copy_", "4321/4322", 500, 200),
    ("runtime", "cudaLaunchKernel", "4321/4322", 200, 50),
    ("runtime", "cudaMemcpyAsync", "4321/4322", 550, 50),
    ("overhead", "Activity Buffer Request", "-1/0", 10, 20),
    ("synchronization", "Stream Sync", "0/7", 800, 100),
    ("kernel", "gemm_kernel", "0/7", 300, 120),
    ("memcpy", "Memcpy", "0/7", 650, 40),
]


# PyTorch


@pytest.mark.parametrize("with_clock", [True, False], ids=["newest", "without clock"])
@pytest.mark.parametrize("pack", [bytes, compressed, gzip.compress], ids=["plain", "compressed", "gzip"])
def test_a_trace_of_pytorch(with_clock: bool, pack: Any) -> None:
    whole = step_of_torch()
    whole.with_clock = with_clock
    trace = read(pack(bytes(whole)))
    assert rows(trace) == STEP
    assert reasons(trace) == []
    assert (trace.source.pid, trace.source.rank) == (PID, None)


def test_without_categories_kinds_follow_from_arguments_and_names() -> None:
    whole = step_of_torch()
    whole.with_categories = False
    assert rows(read(whole)) == STEP


def test_arguments_are_those_of_json() -> None:
    found = arguments(read(step_of_torch()))
    assert found[1] == {
        "External id": 2,
        "Ev Idx": 1,
        "Record function id": 9,
        "Sequence number": 5,
        "Input Dims": [[2, 3], [3, 4]],
        "Concrete Inputs": ["", ""],
    }
    assert found[8] == {
        "grid": [8, 2, 1],
        "block": [8, 2, 1],
        "registers per thread": 32,
        "device": 0,
        "context": 1,
        "stream": 7,
        "correlation": 70,
    }


def test_launches_and_calls_are_linked(tmp_path: Path) -> None:
    (tmp_path / "rank3.pftrace").write_bytes(bytes(step_of_torch()))
    graph = tracelink.load(tmp_path, jobs=1)
    assert [rank.rank for rank in graph.ranks] == [3]
    names = graph.table("events")["name"]
    launches = graph.edges.where("launches")
    assert [(names[a], names[b]) for a, b in zip(launches.source, launches.target, strict=True)] == [
        ("cudaLaunchKernel", "gemm_kernel"),
        ("cudaMemcpyAsync", "Memcpy"),
    ]


def test_a_call_is_linked_to_stages_by_their_numbers_if_they_have_no_correlation() -> None:
    calls = [Slice("cudaGraphLaunch", 0, 10, "cuda_runtime", {"cbid": 1, "correlation": 9}, submitted=[1, 2])]
    trace = read(Torch([calls], [Stage("a_kernel", 20, 5), Stage("b_kernel", 30, 5, waits_for=[1])]))
    correlation = trace.key(Key.CORRELATION)
    assert [*zip(correlation.rows.tolist(), correlation.values.tolist(), strict=True)] == [
        (0, 9),
        (1, 9),
        (2, 9),
    ]
    assert (trace.key(Key.FLOW_OUT).rows.tolist(), trace.key(Key.FLOW_IN).rows.tolist()) == ([1], [2])


def test_stages_are_named_by_themselves_their_kernel_or_their_kind() -> None:
    stages = [
        Stage("gemm", 10, 5, named=False),
        Stage("phase", 10, 20, "Annotation", extra={"External id": 4}),
        Stage("x", 50, 1, "EventRecord", named=False),
        Stage("x", 60, 1, "Memset", named=False, stream=26674),
    ]
    trace = read(Torch([], stages))
    assert rows(trace) == [
        ("kernel", "gemm", "0/7", 10, 5),
        ("gpu_annotation", "phase", "0/7", 10, 20),
        ("other", "EventRecord", "0/7", 50, 1),
        ("memset", "Memset", "0/26674", 60, 1),
    ]
    category = trace.key(Key.CATEGORY)
    assert [
        (row, trace.strings.texts()[code]) for row, code in zip(category.rows, category.values, strict=True)
    ] == [(2, "graph_event_node")]


def test_collectives_are_described_by_operators_and_stages() -> None:
    calls = [Slice("record_param_comms", 0, 100, arguments={"External id": 5} | GATHER)]
    stages = [
        Stage("ncclDevKernel_AllGather_RING", 50, 500, extra=GATHER),
        Stage("other_kernel", 600, 5, extra=GATHER),
        Stage("plain", 700, 5),
    ]
    trace = read(Torch([calls], stages))
    table, texts = trace.communications, trace.strings.texts()
    assert [
        (int(table.row[at]), texts[table.operation[at]], texts[table.group[at]], int(table.sequence[at]))
        for at in range(len(table))
    ] == [(0, "allgather", "0", 3), (1, "allgather", "0", 3), (2, "allgather", "0", 3)]
    assert trace.source.rank == 2


def test_slices_of_a_group_are_paired_in_order_even_at_equal_times() -> None:
    calls = [Slice(f"aten::op{place}", 10 * place, 10) for place in range(5)] + [Slice("aten::outer", 0, 50)]
    assert [row[3:] for row in rows(read(Torch([calls])))] == [*((10 * at, 10) for at in range(5)), (0, 50)]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=12))
def test_any_slices_of_a_group_in_any_order_are_read_as_they_are(times: list[tuple[int, int]]) -> None:
    tracks = [
        Slice(f"aten::op{at}", start, duration, track=THREAD) for at, (start, duration) in enumerate(times)
    ]
    found = [row[3:] for row in rows(read(Torch([tracks])))]
    ordered = [one for pair in ([s for s, _ in times], [s + d for s, d in times]) for one in pair]
    if ordered != sorted(ordered):
        assert found == times
    assert sorted(start for start, _ in found) == sorted(start for start, _ in times)


def test_samples_of_gpus_are_counters() -> None:
    trace = read(step_of_torch())
    (counter,) = [track for track in trace.tracks if track.kind == "counter"]
    assert (counter.process, counter.identity) == ("0", "Power (W)")
    assert [*zip((trace.counters.time - BASE).tolist(), trace.counters.value.tolist(), strict=True)] == [
        (0, 61.5),
        (500, 300.0),
    ]


# rocprofv3


def test_a_trace_of_rocprof() -> None:
    trace = read(step_of_rocprof())
    assert rows(trace) == [
        ("annotation", "step", "4321/4321", 0, 900),
        ("runtime", "hipLaunchKernel", "4321/4321", 100, 50),
        ("runtime", "hipMemcpyAsync", "4321/4321", 200, 80),
        ("kernel", "gemm(float*)", "4/1", 300, 90),
        ("memcpy", "MEMORY_COPY_HOST_TO_DEVICE", "4/1", 250, 40),
    ]
    assert reasons(trace) == []
    assert trace.launch_flows.tolist() == [2, 3]
    assert len(trace.key(Key.FLOW_OUT)) == 0
    assert trace.counters.value.tolist() == [4096.0]
    assert arguments(trace)[3] == {"begin_ns": 9_000_000_300, "corr_id": 2, "agent": "4"}


def test_numbers_of_texts_begin_again_when_the_state_is_cleared() -> None:
    trace = Rocprof().call("hip_api", "a", 0, 1, 1).clear().call("hsa_api", "b", 2, 1, 2).clear()
    trace.call("hip_api", "c", 4, 1, 3, note="x")
    assert [row[:2] for row in rows(read(trace))] == [("runtime", "a"), ("runtime", "b"), ("runtime", "c")]
    assert [sorted(found) for found in arguments(read(trace))] == [
        ["begin_ns", "corr_id"],
        ["begin_ns", "corr_id"],
        ["begin_ns", "corr_id", "note"],
    ]


def test_packets_that_need_a_state_before_the_file_are_counted() -> None:
    whole = Rocprof().call("hip_api", "a", 0, 1, 1)
    lost = event(5, 1, THREAD, {10: 7}, sequence=77) + event(6, INSTANT, THREAD, sequence=77)
    trace = read(bytes(whole) + lost)
    assert (len(trace.events), reasons(trace)) == (1, [("without_state", 2)])


# Clocks


def instants(*packets: bytes) -> RankTrace:
    """A trace with these packets, after tracks and a name that makes it one of PyTorch."""
    return read(b"".join([*packets, bytes(Torch([[Slice("aten::x", 0, 1)]], with_clock=False))]))


def starts(trace: RankTrace) -> list[int]:
    kind = trace.events.kind
    return (trace.events.start[kind == EventKind.INSTANT] - BASE).tolist()


def instant(time: int, clock: int = 0, sequence: int = 5) -> bytes:
    return event(time, INSTANT, THREAD, {23: "i"}, sequence=sequence, needs_state=False, clock=clock)


def test_times_are_by_the_nearest_snapshot_before() -> None:
    early = snapshot((BOOTTIME, 1000), (REALTIME, BASE), sequence=9)
    late = snapshot((BOOTTIME, 2000), (REALTIME, BASE + 1007), sequence=9)
    assert starts(instants(early, late, instant(900), instant(1999), instant(2000))) == [-100, 999, 1007]


def test_differences_count_from_the_last_packet_of_the_sequence() -> None:
    local = snapshot((LOCAL, 50), (REALTIME, BASE), sequence=5, incremental=[LOCAL], unit=1000)
    other = snapshot((LOCAL, 0), (REALTIME, BASE + 7), sequence=6, incremental=[LOCAL])
    steps = [instant(2, LOCAL), instant(9, LOCAL, 6), instant(3, LOCAL), instant(1, LOCAL, 6)]
    assert starts(instants(local, other, *steps)) == [2000, 16, 5000, 17]


def test_a_new_snapshot_begins_the_differences_again() -> None:
    one, two = (
        snapshot((LOCAL, 0), (REALTIME, BASE + offset), sequence=5, incremental=[LOCAL])
        for offset in (0, 500)
    )
    assert starts(instants(one, instant(2, LOCAL), instant(3, LOCAL), two, instant(1, LOCAL))) == [2, 5, 501]


def test_a_clock_without_a_snapshot_has_no_times() -> None:
    trace = instants(instant(5, LOCAL))
    assert (starts(trace), reasons(trace)) == ([], [("without_time", 1)])


def test_times_since_boot_alone_are_kept_with_a_warning() -> None:
    trace = read(packet({60: {1: THREAD}}) + event(10, 1, THREAD, {22: "kernel"}, needs_state=False))
    assert (trace.events.start.tolist(), reasons(trace)) == ([10], [("no_base_time", 1)])


# Damage and other programs


def test_a_truncated_trace_keeps_what_comes_before_the_cut() -> None:
    whole = bytes(step_of_torch())
    for cut in (10, len(whole) // 2, len(whole) - 3):
        if cut == 10:
            with pytest.raises(UnreadableError, match="another program"):
                read(whole[:cut])
            continue
        trace = read(whole[:cut])
        assert "truncated" in [reason for reason, _ in reasons(trace)]
        assert set(rows(trace)) <= {*STEP, *((*row[:4], -1) for row in STEP)}


def test_slices_without_an_end_are_unfinished_and_ends_without_a_begin_are_counted() -> None:
    calls = Torch([[Slice("aten::x", 5, 7)]])
    trace = read(bytes(calls) + event(BASE + 50, 2, THREAD) + event(BASE + 60, 1, THREAD, {10: 1}))
    assert [row[3:] for row in rows(trace)] == [(5, 7), (60, -1)]
    assert reasons(trace) == [("end_without_begin", 1)]


def test_values_of_all_kinds_are_arguments() -> None:
    given = {"a": 1.5, "b": True, "c": {"d": [1, {"e": "f"}]}, "g": -3, "h": [], "nan": float("nan")}
    del given["h"]
    trace = read(Torch([[Slice("aten::x", 0, 1, arguments=given)]]))
    assert arguments(trace) == [given | {"nan": "nan"}]


def test_values_that_are_nested_too_deeply_are_left_out() -> None:
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    assert list(arguments(read(Torch([[Slice("aten::x", 0, 1, arguments={"a": deep})]])))[0]) == [
        "tracelink_omitted"
    ]


def test_counters_of_differences_are_summed() -> None:
    def sample(time: int, given: int) -> bytes:
        return event(BASE + time, COUNTED, 50, {30: given}, needs_state=False)

    described = plain_track(50, "bytes", {8: {3: 2, 4: 10, 5: 1}}, parent=DEVICE)
    trace = read(bytes(step_of_torch()) + described + sample(1, 5) + sample(2, 3))
    own = trace.counters.value[trace.counters.track == np.max(trace.counters.track[:2])]
    assert own.tolist() == [50.0, 80.0]


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (bytes(step_of_torch()), ["track-events"]),
        (bytes(step_of_rocprof()), ["track-events"]),
        (head(), ["perfetto"]),
    ],
)
def test_traces_are_recognised_beside_those_of_tracelink(data: bytes, names: list[str]) -> None:
    assert [known.name for known in plugins.recognised(data, "x.pftrace")] == names


def test_the_trace_of_another_program_is_refused() -> None:
    other = packet({10: 1}) + event(5, INSTANT, 1, {23: "input"}, needs_state=False)
    (known,) = plugins.recognised(other, "x")
    assert known.reader
    assert known.reader.refuses(other).startswith(
        "a Perfetto trace that neither tracelink nor PyTorch nor rocprof"
    )
    with pytest.raises(UnreadableError, match="none of its 1 events is of PyTorch or rocprof"):
        read(other)


def test_beside_the_profile_of_the_rank_it_is_not_read_twice(tmp_path: Path) -> None:
    (tmp_path / "rank0.pftrace").write_bytes(bytes(step_of_torch()))
    profile = {"traceEvents": [], "baseTimeNanoseconds": BASE}
    event_of_profile = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 0, "dur": 1}
    profile["traceEvents"] = [event_of_profile]
    (tmp_path / "rank0.json").write_text(json.dumps(profile))
    graph = tracelink.load(tmp_path, jobs=1)
    assert [known.format for known in graph.sources] == ["kineto"]


@given(st.binary(max_size=60), st.integers(0, 10_000))
def test_any_damage_costs_only_what_it_hits(garbage: bytes, place: int) -> None:
    whole = bytes(step_of_torch())
    place %= len(whole)
    data = whole[:place] + garbage + whole[place + len(garbage) :]
    try:
        trace = read(data)
    except UnreadableError:
        return
    assert len(arguments(trace)) == len(trace.events)


def test_annotations_are_written_as_expected() -> None:
    assert message(annotations({"a": 1})) == message({4: {10: "a", 4: 1}})


def test_many_sequences_with_clocks_of_their_own_are_read_in_linear_time() -> None:
    packets = []
    for sequence in range(1000, 6000):
        packets.append(snapshot((LOCAL, 0), (REALTIME, BASE), sequence=sequence, incremental=[LOCAL]))
        packets.append(instant(sequence, LOCAL, sequence))
    assert starts(instants(*packets)) == list(range(1000, 6000))
