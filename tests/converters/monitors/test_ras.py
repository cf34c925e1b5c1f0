"""Answers of NCCL's monitor: JSON and text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.monitors import TEXT, as_json, communicator
from tracelink._io.sources import discover_inputs
from tracelink._model.errors import UnreadableError
from tracelink._model.witnesses import CommunicatorStatus, Launched, MemberStatus, MonitorAnswer
from tracelink._run.processes import Processes
from tracelink.converters.monitors import is_status
from tracelink.converters.monitors.ras import NcclRasReader


def read(folder: Path, data: bytes) -> MonitorAnswer:
    path = folder / "ras"
    path.write_bytes(data)
    (source,) = discover_inputs([path]).sources
    return NcclRasReader().read_answers(source, Processes(1))[-1]


def test_json(tmp_path: Path) -> None:
    found = read(tmp_path, as_json(communicator([21, 20, None]), timeouts=2))
    assert (found.time, found.version, found.dead) == ("2026-11-19 14:00:00", "2.29.1", [])
    assert found.communicators == [
        CommunicatorStatus(
            "0xae94",
            3,
            [
                MemberStatus(0, "10.0.0.1", 100, {"Broadcast": 1, "AllReduce": 21}),
                MemberStatus(1, "10.0.0.1", 101, {"Broadcast": 1, "AllReduce": 20}),
                MemberStatus(2, "10.0.0.1", 102, {}, "unresponsive"),
            ],
        )
    ]
    assert [finding.reason for finding in found.findings] == ["ras_timeouts"]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, "running"),
        ({"init_state": 7}, "initializing"),
        ({"init_state": 3}, "error"),
        ({"async_error": 6}, "error"),
        ({"finalize_called": True}, "finalizing"),
        ({"abort_flag": True, "async_error": 6}, "aborted"),
    ],
)
def test_states_of_ranks(tmp_path: Path, status: dict[str, int], state: str) -> None:
    found = read(tmp_path, as_json(communicator([1], **status)))
    assert [member.state for member in found.communicators[0].members] == [state]


def test_dead_ranks(tmp_path: Path) -> None:
    found = read(tmp_path, as_json(communicator([1, None], dead=True)))
    assert found.dead == [MemberStatus(1, "10.0.0.1", 101, {}, "dead")]


def test_text(tmp_path: Path) -> None:
    found = read(tmp_path, TEXT.encode())
    assert (found.time, found.version) == ("", "2.27.3")
    assert found.dead == [MemberStatus(-1, "172.16.64.213", 3487984, {}, "dead")]
    assert found.communicators == [
        CommunicatorStatus(
            "cf264af53edbe986",
            None,
            [
                MemberStatus(0, "172.16.64.210", 483072, {"AllReduce": 6649}),
                MemberStatus(2, "172.16.64.210", 483074, {"AllReduce": 6649}),
                MemberStatus(21, "", None, {}, "missing"),
            ],
            [Launched("AllReduce", 29, 6650), Launched("AllReduce", 2, 6649)],
        )
    ]


def test_text_of_single_ranks_and_of_nccl_2_24(tmp_path: Path) -> None:
    text = (
        "Communicators... (0.00s)\n=============\n\n#1-0 (27a079b828ff1a75) MISMATCH\n"
        "  Communicator ranks have different collective operation counts\n"
        "  3 ranks have launched up to operation 20\n"
        "  Rank 2 has not launched any operations -- GPU 2 managed by process 7 on node a\n"
    )
    (one,) = read(tmp_path, text.encode()).communicators
    assert one.launched == [Launched("collective", 3, 20), Launched("collective", 1, 0)]
    assert one.members == [MemberStatus(2, "a", 7, {"collective": 0})]


def test_events_of_the_monitoring_mode(tmp_path: Path) -> None:
    text = (
        "RAS Monitor Mode - watching for peer changes (Ctrl+C to exit)...\n"
        "[2025-12-19 13:07:07] PEER_DEAD: Process 1524345 on node 172.16.64.245 managing GPU 1\n"
    )
    assert is_status(text.encode(), "x")
    assert read(tmp_path, text.encode()).dead == [MemberStatus(-1, "172.16.64.245", 1524345, {}, "dead")]


def test_answers_that_were_appended_to_one_file(tmp_path: Path) -> None:
    times = ["2026-11-19 14:00:00", "2026-11-19 14:01:00"]
    path = tmp_path / "ras.json"
    path.write_bytes(b"\n".join(as_json(communicator([1, 1]), time=time) for time in times))
    (source,) = discover_inputs([path]).sources
    assert [one.time for one in NcclRasReader().read_answers(source, Processes(1))] == times
    path.write_text(TEXT.replace("6649", "12") + TEXT)
    (source,) = discover_inputs([path]).sources
    (last,) = NcclRasReader().read_answers(source, Processes(1))
    assert last.communicators[0].launched == [Launched("AllReduce", 29, 6650), Launched("AllReduce", 2, 6649)]


def test_json_that_was_asked_for_without_the_client(tmp_path: Path) -> None:
    data = b"OK\nOK\n" + as_json(communicator([1, 1]))
    assert is_status(data, "x")
    assert len(read(tmp_path, data).communicators) == 1


@pytest.mark.parametrize(
    "data", [b'{"nccl_version": "2", "communicators": [{"ranks": 5}]}', b'{"nccl_version']
)
def test_damaged_json(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(UnreadableError, match="the status cannot be read"):
        read(tmp_path, data)


def test_recognition() -> None:
    assert is_status(as_json(), "x")
    assert is_status(TEXT.encode(), "x")
    assert not is_status(b'{"nccl_version": "2.29.1", "entries": []}', "x")
    assert not is_status(b"Job summary: all fine\n", "x")


@given(st.lists(st.sampled_from(TEXT.splitlines())))
def test_any_order_of_lines(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    read(tmp_path_factory.mktemp("ras"), "\n".join(lines).encode())
