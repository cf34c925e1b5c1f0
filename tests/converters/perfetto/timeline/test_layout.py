"""Numbers of processes and threads; roles of streams."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.job import JobBuilder
from tracelink._model.events import EventKind, TrackKind
from tracelink.converters.perfetto.timeline.layout import (
    FIRST_SLICE_FLOW,
    IDS_PER_BLOCK,
    Numbering,
    Role,
    lay_out,
    roles_of,
)

# Numbers: small, and no two ranks share one though neither knows how many the other takes.


NUMBERS = st.integers(1, IDS_PER_BLOCK - 1) | st.integers(IDS_PER_BLOCK, 40 * IDS_PER_BLOCK)
SEATS = st.sets(st.tuples(st.integers(0, 7), NUMBERS), max_size=30)


@given(SEATS)
def test_numbers_of_different_blocks_never_meet(seats: set[tuple[int, int]]) -> None:
    assert len({Numbering(block, 8).id_of(number) for block, number in seats}) == len(seats)


@given(st.integers(0, 4095), NUMBERS)
def test_numbers_fit_what_the_engine_takes(block: int, number: int) -> None:
    assert 0 < Numbering(block, 4096).id_of(number) < 1 << 31


def test_the_first_block_counts_from_one() -> None:
    assert [Numbering(0, 9).id_of(number) for number in (1, 2, IDS_PER_BLOCK - 1)] == [
        1,
        2,
        IDS_PER_BLOCK - 1,
    ]


def test_what_does_not_fit_a_block_stands_behind_all_blocks() -> None:
    assert [
        Numbering(1, 3).id_of(number) for number in (IDS_PER_BLOCK - 1, IDS_PER_BLOCK, IDS_PER_BLOCK + 1)
    ] == [
        2 * IDS_PER_BLOCK - 1,
        3 * IDS_PER_BLOCK + 1,
        3 * IDS_PER_BLOCK + 4,
    ]


def test_arrows_have_blocks_too() -> None:
    first, second = Numbering(0, 2), Numbering(1, 2)
    assert (first.first_flow, first.first_slice_flow) == (1, FIRST_SLICE_FLOW)
    assert second.first_flow - first.first_flow == second.first_slice_flow - first.first_slice_flow == 1 << 28


# What each stream is for.


NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
WORKS = {
    "gemm": ("gemm", EventKind.KERNEL),
    "nccl": (NCCL, EventKind.KERNEL),
    "copy": ("Memcpy HtoD", EventKind.MEMCPY),
    "set": ("Memset", EventKind.MEMSET),
    "sync": ("Context Sync", EventKind.SYNCHRONIZATION),
}


def roles(streams: dict[str, list[tuple[str, int]]], device: str = "0") -> dict[str, Role]:
    built = JobBuilder()
    tracks = {}
    for stream, works in streams.items():
        tracks[stream] = built.track(TrackKind.STREAM, 0, device, stream)
        for number, (work, duration) in enumerate(works):
            name, kind = WORKS[work]
            built.add(tracks[stream], name, 1000 * number, duration, kind)
    found = roles_of(built.build(), list(tracks.values()))
    return {stream: found[track] for stream, track in tracks.items()}


def test_a_stream_is_for_what_it_spends_most_time_on() -> None:
    assert roles(
        {
            "7": [("gemm", 90), ("copy", 5)],
            "20": [("nccl", 50), ("gemm", 3)],
            "22": [("copy", 9), ("set", 9), ("gemm", 10)],
            "-1": [("sync", 99)],
        }
    ) == {"7": Role.COMPUTE, "20": Role.COMMUNICATION, "22": Role.COPY, "-1": Role.UNKNOWN}


def test_what_computes_most_computes_however_long_its_collectives_wait() -> None:
    assert roles({"7": [("gemm", 10), ("nccl", 900)], "20": [("nccl", 900), ("gemm", 9)]}) == {
        "7": Role.COMPUTE,
        "20": Role.COMMUNICATION,
    }


def test_a_device_that_only_copies_has_no_stream_that_computes() -> None:
    assert roles({"7": [("copy", 0)]}) == {"7": Role.COPY}


def test_tracks_that_are_no_streams_have_no_role() -> None:
    built = JobBuilder()
    thread = built.track()
    built.add(thread, "step", 0, 10)
    assert roles_of(built.build(), [thread]) == {}


# Counters of a device are shown with its streams.


@pytest.mark.parametrize(
    ("process", "name"),
    [("", "GPU 0 allocated"), ("GPU 0 Counters", "sm__active"), ("0", "HBM read_bw")],
)
def test_counters_of_a_device_are_in_its_process(process: str, name: str) -> None:
    built = JobBuilder()
    stream = built.track(TrackKind.STREAM, 0, "0", "7")
    counter = built.track(TrackKind.COUNTER, 0, process, name, name)
    built.add(stream, "gemm", 0, 10, EventKind.KERNEL)
    layout = lay_out(built.build(), [stream], [counter], Numbering())
    assert layout.process_of_counter[counter].label == "GPU 0"
