"""Snapshots as rank traces: levels, peaks, the largest blocks, failures, and what does not fit."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracelink
from builders.memory_snapshots import (
    START_US,
    alloc,
    as_python,
    as_torch,
    block,
    entry,
    free,
    out_of_memory,
    read,
    segment,
    snapshot,
    stack,
)
from tracelink._model.errors import UnreadableError
from tracelink._model.events import EventKind
from tracelink._model.trace import RankTrace
from tracelink.converters.flight_recorder import is_dump
from tracelink.converters.memory_snapshot import is_snapshot

START = START_US * 1000
MM = stack("x.cpp:1 at::_ops::empty::call()", "x.cpp:2 at::_ops::mm::call()", "/home/me/model.py:52 forward")
INIT = stack("/x/site-packages/torch/nn/linear.py:9 __init__", "/home/me/model.py:41 __init__")
GB = 10**9


def levels(trace: RankTrace) -> dict[str, list[tuple[int, int]]]:
    """Time after the start in microseconds and bytes, by the name of the counter."""
    found: dict[str, list[tuple[int, int]]] = {}
    counters = trace.counters
    for track, time, value in zip(
        counters.track.tolist(), counters.time.tolist(), counters.value.tolist(), strict=True
    ):
        name = trace.tracks[track].label.removesuffix(", memory snapshot")
        found.setdefault(name, []).append(((time - START) // 1000, int(value)))
    return found


def events(trace: RankTrace) -> list[tuple[str, str, int, int]]:
    """Kind, name, start after the start of the trace and duration in microseconds."""
    names, table = trace.strings.texts(), trace.events
    return [
        (EventKind(kind).name, names[name], (start - START) // 1000, duration // 1000)
        for kind, name, start, duration in zip(
            table.kind.tolist(),
            table.name.tolist(),
            table.start.tolist(),
            table.duration.tolist(),
            strict=True,
        )
    ]


def reasons(trace: RankTrace) -> list[str]:
    return [finding.reason for finding in trace.findings]


def whole() -> dict[str, Any]:
    """2 GB before the recording, 3 GB within it, and a failure."""
    trace = [
        alloc(0x2000, 1 * GB, 10, MM),
        entry("segment_alloc", 0x9000, 4 * GB, 15),
        alloc(0x3000, 2 * GB, 20, MM),
        out_of_memory(9 * GB, 25, 1 * GB),
        free(0x2000, 1 * GB, 30),
        free(0x3000, 2 * GB, 40),
        alloc(0x2000, GB // 2, 50, MM),
    ]
    blocks = [block(2 * GB, address=0x1000, frames=INIT), block(GB // 2, address=0x2000, frames=MM)]
    return snapshot(trace, segments=[segment(*blocks, block(1, "inactive"), size=12 * GB)])


@pytest.mark.parametrize("write", [as_python, as_torch])
def test_levels_end_at_what_the_snapshot_has(write: Any) -> None:
    trace = read(write(whole()))
    assert levels(trace) == {
        "GPU 0 allocated": [(10, 3 * GB), (20, 5 * GB), (30, 4 * GB), (40, 2 * GB), (50, 2 * GB + GB // 2)],
        "GPU 0 reserved": [(10, 8 * GB), (15, 12 * GB), (50, 12 * GB)],
    }
    assert {track.unit for track in trace.tracks if track.kind == "counter"} == {"bytes"}
    assert (trace.source.records, trace.source.start_ns) == (12, START + 10_000)


def test_the_largest_blocks_are_slices_with_their_origin() -> None:
    trace = read(as_python(whole()))
    assert events(trace) == [
        ("MEMORY", "1.0 GB aten::mm, model.py:52 forward", 10, 20),
        ("MEMORY", "2.0 GB model.py:41 __init__", 10, 40),
        ("MEMORY", "2.0 GB aten::mm, model.py:52 forward", 20, 20),
        ("INSTANT", "out of memory: 9.0 GB requested", 25, 0),
        ("MEMORY", "500.0 MB aten::mm, model.py:52 forward", 50, 0),
    ]
    payloads = next(iter(trace.payloads[0].batches()))[1]
    assert json.loads(bytes(payloads[1])) == {
        "bytes": 2 * GB,
        "address": "0x1000",
        "allocated": "before the recording",
        "released": "not yet",
        "in use at the peak": True,
        "in use at the end": True,
        "stack": ["/x/site-packages/torch/nn/linear.py:9 __init__", "/home/me/model.py:41 __init__"],
    }


def test_findings_say_where_the_memory_comes_from() -> None:
    trace = read(as_python(whole()))
    usage = (
        "3.0 GB in 2 blocks from aten::mm, model.py:52 forward; 2.0 GB in 1 block from model.py:41 __init__."
    )
    start, failed = (
        "snapshot_rank3.pickle: GPU 0",
        "was out of memory 1 time, first at 2026-11-19 14:38:50.000025 UTC",
    )
    assert [finding.message for finding in trace.findings] == [
        f"{start} {failed}: 9.0 GB requested, 1.0 GB free on the device, 5.0 GB allocated: {usage}",
        f"{start} had 5.0 GB allocated at the peak, at 2026-11-19 14:38:50.000020 UTC: {usage}",
    ]


def test_a_trace_keeps_the_last_entries_only() -> None:
    """What is freed without an allocation in the trace was in use before it."""
    trace = read(as_python(snapshot([free(0x5000, 7, 10), alloc(0x6000, 3, 20), free(0x6000, 3, 30)])))
    assert levels(trace)["GPU 0 allocated"] == [(10, 0), (20, 3), (30, 0)]
    assert events(trace) == [("MEMORY", "3 B an unknown stack", 20, 10)]


def test_without_requests_completions_free_memory() -> None:
    done = [entry("free_completed", 0x2000, 5, 20)]
    assert levels(read(as_python(snapshot([alloc(0x2000, 5, 10), done])))) == {
        "GPU 0 allocated": [(10, 5), (20, 0)],
        "GPU 0 reserved": [(10, 0), (20, 0)],
    }


def test_each_device_has_counters_of_its_own() -> None:
    content = snapshot(
        [], [alloc(1, 5, 10)], segments=[segment(block(5, address=1), device=1), segment(block(9))]
    )
    trace = read(as_python(content))
    assert sorted(levels(trace)) == ["GPU 1 allocated", "GPU 1 reserved"]
    assert [one["device"] for one in trace.source.header["devices"]] == [0, 1]


def test_without_a_history_there_are_only_blocks() -> None:
    trace = read(as_python(snapshot(segments=[segment(block(5 * GB, frames=INIT))])))
    assert len(trace.events) == 0
    assert [finding.message.split(": ", 1)[1] for finding in trace.findings] == [
        "GPU 0 has 5.0 GB allocated: 5.0 GB in 1 block from model.py:41 __init__.",
        "it has no trace, only the blocks of one moment. Call torch.cuda.memory._record_memory_history() before the "
        "program runs.",
    ]


def test_blocks_of_torch_2_0_have_their_stack_in_a_history() -> None:
    old = {
        "size": 512,
        "state": "active_allocated",
        "history": [{"addr": 1, "real_size": 500, "frames": INIT}],
    }
    trace = read(as_python([segment(old)]))
    usage = trace.source.header["devices"][0]["in_use_at_end"]
    assert usage == [{"origin": "model.py:41 __init__", "bytes": 500, "blocks": 1}]


def test_without_times_the_order_shows_the_peak() -> None:
    """As torch 2.0 records it, and as `_profile_to_snapshot` makes it of a profile."""
    frames = stack("none:0 <built-in method mm of type object at 0x7f>", "none:0 forward")
    frames[1]["name"] = "model.py(41): forward"
    trace = [alloc(1, 5 * GB, 1, frames), alloc(2, GB, 2), *free(1, 5 * GB, 3)]
    for one in trace:
        del one["time_us"]
    found = read(as_python(snapshot(trace, segments=[segment(block(GB, address=2))])))
    assert (len(found.events), len(found.counters), found.source.start_ns) == (0, 0, None)
    assert [finding.message.split(": ", 1)[1] for finding in found.findings] == [
        "GPU 0 had 6.0 GB allocated at the peak: 5.0 GB in 1 block from model.py:41 forward; 1.0 GB in 1 block from an "
        "unknown stack.",
        "4 entries have no times, and are not on the timeline: old versions of torch record none.",
    ]


def test_blocks_without_an_address_are_allocations_of_their_size() -> None:
    blocks = [block(5), block(5), block(7)]
    for one in blocks:
        del one["address"]
    found = read(as_python(snapshot([alloc(1, 5, 1, INIT)], segments=[segment(*blocks)])))
    assert found.source.header["devices"][0]["in_use_at_end"] == [
        {"origin": "an unknown stack", "bytes": 12, "blocks": 2},
        {"origin": "model.py:41 __init__", "bytes": 5, "blocks": 1},
    ]


def test_invalid_entries_are_counted() -> None:
    odd = [alloc(1, -5, 10), alloc(1, 5, 10) | {"time_us": "soon"}, alloc(2, 6, 20), alloc(3, 2**70, 30)]
    trace = read(as_python(snapshot(odd)))
    assert levels(trace)["GPU 0 allocated"] == [(20, 6)]
    assert [(f.reason, f.count) for f in trace.findings if f.reason == "unusable"] == [("unusable", 3)]


def test_a_truncated_file_says_so() -> None:
    data = as_python(snapshot([alloc(64 * n, n, n, MM) for n in range(1, 500)]))
    trace = read(data[: len(data) // 2])
    assert "truncated" in reasons(trace)
    assert 100 < trace.source.records < 400


def test_a_damaged_gzip_file_is_used_up_to_the_cut() -> None:
    data = gzip.compress(as_python(snapshot([alloc(64 * n, n * n % 977, n, MM) for n in range(1, 20_000)])))
    trace = read(data[: len(data) // 2])
    (finding,) = (one for one in trace.findings if one.reason == "truncated")
    assert (1000 < trace.source.records < 19_000, "(the gzip" in finding.message) == (True, True)


@pytest.mark.parametrize("content", [{}, {"segments": 5}, {"device_traces": {}}, 5, "x", None])
def test_other_contents_are_errors(content: Any) -> None:
    with pytest.raises(UnreadableError, match="it is not a snapshot"):
        read(as_python(content))


@pytest.mark.parametrize("content", [[], {"segments": [1, None, {}]}, {"device_traces": [None, 5, {}, [1]]}])
def test_items_that_are_no_entries_are_skipped(content: Any) -> None:
    trace = read(as_python(content))
    assert (len(trace.events), reasons(trace)) == (0, ["no_trace"])


ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "oom",
    "snapshot",
    "?",
)
ENTRIES = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3), st.integers(0, 100), st.integers(0, 50)),
    max_size=30,
)


@given(ENTRIES, st.lists(st.tuples(st.integers(0, 3), st.integers(0, 100)), max_size=4))
def test_levels_are_never_negative_and_blocks_never_outlast_the_trace(drawn: Any, blocks: Any) -> None:
    trace = read(
        as_python(
            snapshot(
                [entry(action, address, size, at) for action, address, size, at in drawn],
                segments=[segment(*(block(size, address=address) for address, size in blocks))],
            )
        )
    )
    assert (trace.counters.value >= 0).all()
    first, last = trace.source.start_ns or 0, trace.source.end_ns or 0
    assert (trace.events.start >= first).all()
    assert (trace.events.start <= last).all()


# The whole way.


@pytest.mark.parametrize("name", ["job.json", "job.pftrace"])
def test_a_timeline_has_the_blocks_and_the_counters(tmp_path: Path, name: str) -> None:
    (tmp_path / "snapshot_rank3.pickle").write_bytes(as_python(whole()))
    merged = tracelink.merge(tmp_path / "snapshot_rank3.pickle", output=tmp_path / name, jobs=1)
    assert [(output.rank, output.events) for output in merged.outputs] == [(3, 5)]
    graph = tracelink.load(tmp_path / "snapshot_rank3.pickle")
    assert [rank.rank for rank in graph.ranks] == [3]
    assert len(graph.table("counters")["time"]) == 8


def test_snapshots_are_recognised_by_their_content() -> None:
    for data in (as_python(whole()), as_torch(whole()), as_python(whole()["segments"], 2)):
        assert is_snapshot(data[: 64 << 10], "x")
        assert not is_dump(data[: 64 << 10], "x")
    assert not is_snapshot(as_python({"entries": [], "version": "2.1"}), "snapshot.pickle")
