"""Dumps of torchcomms: one count of operations for all communicators."""

from __future__ import annotations

from typing import Any

import pytest

from builders.recorder import CREATED, as_json, as_source, collective, dump, pickled, process_group
from tracelink._model.columns import UNKNOWN
from tracelink._model.records import Recording
from tracelink._run.processes import Processes
from tracelink.converters.flight_recorder import is_dump
from tracelink.converters.flight_recorder.reader import FlightRecorderReader

WORLD, PAIR = ("world", "nccl"), ("pair", "nccl")


def entry(number: int, operation: str, group: tuple[str, str] = WORLD, **fields: Any) -> dict[str, Any]:
    """As torchcomms writes it: numbers from 0, retired as soon as the call has returned."""
    return collective(
        f"{group[1]}:{operation}",
        number,
        group=group,
        record_id=number,
        op_id=3 * number,
        created=CREATED + number,
        retired=True,
        **fields,
    )


def content(*entries: dict[str, Any], groups: tuple[tuple[str, str], ...] = (WORLD, PAIR)) -> dict[str, Any]:
    described = {name: {"name": name, "desc": text, "ranks": "[0,1]"} for name, text in groups}
    return dump(*entries, pg_config=described, comm_lib_version="2.27.3")


def recorded(written: dict[str, Any], *, as_text: bool = False) -> Recording:
    data = as_json(written) if as_text else pickled(written)
    return FlightRecorderReader().read_records(as_source(data, "torchcomm_fr_trace_0"), Processes())


def numbers(recording: Recording) -> list[tuple[str, int, bool]]:
    records = recording.records
    return [
        (recording.strings[group], number, message)
        for group, number, message in zip(
            records.group.tolist(), records.sequence.tolist(), records.point_to_point.tolist(), strict=True
        )
    ]


ENTRIES = (
    entry(0, "all_reduce"),
    entry(1, "all_gather_single", PAIR),
    entry(2, "send", PAIR),
    entry(3, "batch_op_issue"),
    entry(4, "all_reduce", PAIR),
    entry(5, "barrier"),
)


@pytest.mark.parametrize("as_text", [False, True], ids=["pickle", "json"])
def test_collectives_are_numbered_within_their_group_and_messages_are_not(as_text: bool) -> None:
    recording = recorded(content(*ENTRIES), as_text=as_text)
    assert numbers(recording) == [
        ("world", 1, False),
        ("pair", 1, False),
        ("pair", UNKNOWN, True),
        ("world", UNKNOWN, True),
        ("pair", 2, False),
        ("world", 2, False),
    ]
    assert recording.retires_early
    assert recording.source.recorder == ("nccl:pair", "nccl:world")
    assert [finding.reason for finding in recording.findings] == []


def test_after_a_wrap_numbers_are_unknown_if_there_are_several_groups() -> None:
    recording = recorded(content(*ENTRIES[4:]))
    assert [number for _, number, _ in numbers(recording)] == [UNKNOWN, UNKNOWN]
    assert [(finding.reason, finding.count) for finding in recording.findings] == [
        ("wrapped", 4),
        ("unnumbered", 2),
    ]


def test_after_a_wrap_the_only_group_keeps_its_numbers() -> None:
    recording = recorded(content(entry(7, "all_reduce"), entry(8, "barrier"), groups=(WORLD,)))
    assert numbers(recording) == [("world", 8, False), ("world", 9, False)]


def test_after_a_reset_of_the_recorder_numbers_are_unknown() -> None:
    written = [entry(number, "all_reduce", group) for number, group in ((5, WORLD), (6, PAIR))]
    recording = recorded(content(*(one | {"record_id": place} for place, one in enumerate(written))))
    assert [number for _, number, _ in numbers(recording)] == [UNKNOWN, UNKNOWN]


@pytest.mark.parametrize("backend", ["nccl", "nccl2", "nccl-lazy", "ncclx", "xccl", "gloo"])
def test_dumps_of_c10d_are_read_as_they_are(backend: str) -> None:
    entries = [
        collective(f"{backend}:all_reduce", number, group=group)
        for number, group in ((1, ("0", "default_pg")), (1, ("3", "tp")), (2, ("0", "default_pg")))
    ]
    facts = process_group("0", [0, 1], "default_pg") | process_group("3", [0, 1], "tp")
    recording = recorded(dump(*entries, pg_config=facts))
    assert [number for _, number, _ in numbers(recording)] == [1, 1, 2]
    assert not recording.retires_early
    assert recording.source.recorder == (f"{backend}:0", f"{backend}:3")


def test_a_group_that_is_described_by_its_backend_is_not_enough() -> None:
    recording = recorded(
        dump(*(collective("nccl:all_reduce", number, group=("0", "nccl")) for number in (1, 2)))
    )
    assert [number for _, number, _ in numbers(recording)] == [1, 2]


@pytest.mark.parametrize(
    "text",
    [
        b'=== Rank 0: http://host:29500 ===\n{"entries": [], "pg_config": {}}\n',
        b"c10d\n",
        b"Rank 0 | Rank 1\n",
    ],
)
def test_the_text_beside_the_folder_of_dumps_is_no_dump(text: bytes) -> None:
    assert not is_dump(text, "torchcomms_fr_trace_20261119_120000.txt")
