"""Waits that a profiler recorded."""

from __future__ import annotations

from pathlib import Path

import tracelink
from builders.kineto import Element, kernel, launch, slice_, trace
from tracelink._model.trace import Awaited, Synchronizations
from tracelink.converters.pytorch.arguments import recorded_synchronizations


def read(directory: Path, *elements: object) -> Synchronizations:
    path = directory / "rank0.json"
    path.write_bytes(trace(*elements, rank=0))
    return recorded_synchronizations(tracelink.load([path]))


def columns(waits: Synchronizations) -> list[tuple[int, ...]]:
    rows = zip(*(column.tolist() for name, column in waits.columns().items() if name != "row"), strict=True)
    return list(rows)


def wait(kind: str, ts: int, tid: int, **args: int) -> Element:
    """The record of a wait; its arguments have underscores in their names."""
    return {**slice_("cuda_sync", kind, ts, pid=args.get("device", 0), tid=tid), "args": args}


EVENT = {"wait_on_stream": 20, "wait_on_cuda_event_record_corr_id": 5, "wait_on_cuda_event_id": 9}


def test_every_kind(tmp_path: Path) -> None:
    waits = read(
        tmp_path,
        kernel(ts=0, correlation=1),
        wait("Stream Sync", 1, 1000007, stream=7, device=1, correlation=2),
        wait("Context Sync", 2, -1, stream=-1, device=0, correlation=3),
        wait("Event Sync", 3, -1, stream=-1, device=0, correlation=4, **EVENT),
        launch(4, name="cudaStreamWaitEvent", correlation=6),
        wait("Stream Wait Event", 5, 24, stream=24, device=0, correlation=6, **EVENT),
    )
    assert columns(waits) == [
        (Awaited.STREAM, 1, 7, -1, -1),
        (Awaited.DEVICE, 0, -1, -1, -1),
        (Awaited.EVENT, 0, -1, 20, 5),
        (Awaited.EVENT_BY_STREAM, 0, 24, 20, 5),
    ]
    assert columns(waits.where(Awaited.EVENT, Awaited.DEVICE)) == columns(waits)[1:3]


def test_profiles_of_2023_do_not_name_the_call_that_recorded_the_event(tmp_path: Path) -> None:
    old = wait("Stream Wait Event", 5, 24, stream=24, device=0, wait_on_stream=7, correlation=6)
    assert columns(read(tmp_path, old)) == [(Awaited.EVENT_BY_STREAM, 0, 24, 7, -1)]


def test_numbers_beyond_64_bits_wrap(tmp_path: Path) -> None:
    large = wait("Stream Sync", 1, 7, stream=2**63, device=2**64 + 3, correlation=2)
    assert columns(read(tmp_path, large)) == [(Awaited.STREAM, 3, -(2**63), -1, -1)]


def test_arguments_that_make_no_sense_say_nothing(tmp_path: Path) -> None:
    odd = slice_("cuda_sync", "Stream Sync", 5, pid=0, tid=24, stream={}, correlation=6)
    assert columns(read(tmp_path, odd)) == [(Awaited.STREAM, -1, -1, -1, -1)]


def test_other_records_and_profiles_without_any(tmp_path: Path) -> None:
    assert len(read(tmp_path, slice_("cuda_sync", "Unknown Sync", 5, pid=0, tid=24, stream=7))) == 0
    assert len(read(tmp_path, kernel(correlation=1))) == 0
