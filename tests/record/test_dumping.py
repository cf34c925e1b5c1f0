"""Dumps of recorder and stacks, and that diagnose understands the stacks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tracelink
from builders import fake_torch
from builders.fake_torch import FakeTorch
from tracelink._hang.facts.bundle import main_thread
from tracelink._record.dumping import stacks_text


def capture_file(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "capture_1.json").read_text())
    return document


def hanging(torch: FakeTorch, folder: Path, reason: str) -> None:
    """A block of which the guard says that it hangs, and which then fails."""
    with tracelink.capture(folder, "0", metrics=None) as running:
        running.step()
        running._dump_hang(reason)
        torch.dump = b"\x80\x02 profiling_name: what gloo left"
        raise RuntimeError("timeout")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    return fake_torch.installed(monkeypatch, rank=1, dump=fake_torch.dump_of_one())


def test_the_dump_of_a_hang_is_kept_when_the_block_then_fails(torch: FakeTorch, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="timeout"):
        hanging(torch, tmp_path, "watchdog")
    assert (tmp_path / "fr" / "comm_lib_trace_rank_1").read_bytes() == fake_torch.dump_of_one()
    document = capture_file(tmp_path)
    assert [(dump["reason"], dump["step"]) for dump in document["dumps"]] == [("watchdog", 1)]
    assert document["dumps"][0]["files"] == ["fr/stacks_rank_1.txt", "fr/comm_lib_trace_rank_1"]
    assert document["outcome"] == "RuntimeError"


def test_what_ends_a_rank_is_in_its_capture_file(torch: FakeTorch, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        hanging(torch, tmp_path, "SIGTERM")
    assert [dump["reason"] for dump in capture_file(tmp_path)["dumps"]] == ["SIGTERM"]


def test_an_empty_recorder_of_a_job_is_reported_with_what_to_set(torch: FakeTorch, tmp_path: Path) -> None:
    torch.dump = b"\x80\x02}."
    with tracelink.capture(tmp_path, "0", metrics=None) as running:
        running.step()
    (trouble,) = capture_file(tmp_path)["troubles"]
    assert trouble["message"] == "it recorded nothing"
    assert "TORCH_FR_BUFFER_SIZE=2000" in trouble["advice"]


def test_diagnose_reads_the_stacks_of_the_main_thread() -> None:
    thread = main_thread(stacks_text())
    assert thread
    assert thread.name == "MainThread"
    assert [frame.name for frame in thread.frames][:2] == [
        "stacks_text",
        "test_diagnose_reads_the_stacks_of_the_main_thread",
    ]
