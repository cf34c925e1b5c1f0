"""Which files are dumps, by how they begin; a name alone only helps to notice damaged ones."""

from __future__ import annotations

import pickle

import pytest

from builders.recorder import as_json, collective, dump, pickled
from tracelink.converters.flight_recorder import FlightRecorderReader

OLD_ENTRY = {"pg_id": 0, "seq_id": 1, "profiling_name": "nccl:x", "time_created_us": 1}


def recognised(head: bytes, name: str) -> bool:
    return FlightRecorderReader().recognises(head, name)


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
