"""Variables that torch reads early: what is set when, and what is reported as too late."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import tracelink
from builders import fake_torch
from tracelink._record import environment

NAMES = [setting.name for setting in environment.SETTINGS]
OLDER = {setting.name for setting in environment.SETTINGS if setting.older}


def present() -> set[str]:
    return {name for name in NAMES if name in os.environ}


def train(folder: Path) -> dict[str, str]:
    with tracelink.capture(folder, "0", metrics=None) as running:
        running.step()
    (file,) = folder.glob("capture_*.json")
    troubles = json.loads(file.read_text())["troubles"]
    return {trouble["subject"]: trouble["advice"] for trouble in troubles}


def test_a_capture_before_the_process_group_sets_what_torch_reads_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_torch.installed(monkeypatch)
    assert train(tmp_path) == {}
    assert present() == {*NAMES} - OLDER - {"TORCH_TRACE"}
    assert os.environ["TORCH_FR_DUMP_TEMP_FILE"] == f"{tmp_path}/fr/comm_lib_trace_rank_"


def test_older_versions_of_torch_get_the_older_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_torch.installed(monkeypatch, version="2.4.1")
    train(tmp_path)
    assert present() >= OLDER


def test_what_the_user_set_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_torch.installed(monkeypatch)
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "7")
    train(tmp_path)
    assert os.environ["TORCH_FR_BUFFER_SIZE"] == "7"


def group(backend: str) -> dict[str, object]:
    return {"pg_name": "0", "pg_desc": "default_pg", "backend_config": backend, "group_size": 2, "ranks": []}


def test_what_came_too_late_for_nccl_is_reported_with_the_lines_to_add(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dump = fake_torch.dump_of_one()
    fake_torch.installed(monkeypatch, rank=0, groups=[group("cuda:nccl")], dump=dump)
    advice = train(tmp_path)["environment"]
    assert 'os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"' in advice
    assert f'os.environ["TORCH_FR_DUMP_TEMP_FILE"] = "{tmp_path}/fr/comm_lib_trace_rank_"' in advice
    assert present() == set()


def test_gloo_needs_none_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dump = fake_torch.dump_of_one()
    fake_torch.installed(monkeypatch, rank=0, groups=[group("cpu:gloo")], dump=dump)
    assert train(tmp_path) == {}


def test_the_compile_log_is_switched_on_for_the_block(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    torch = fake_torch.installed(monkeypatch)
    with tracelink.capture(tmp_path, "0", metrics=None):
        assert torch.compile_log.root_dir == str(tmp_path / "compile")
    assert torch.compile_log.root_dir is None


def test_a_compile_log_of_the_user_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch = fake_torch.installed(monkeypatch)
    monkeypatch.setenv("TORCH_TRACE", str(tmp_path / "other"))
    with tracelink.capture(tmp_path, "0", metrics=None):
        assert torch.compile_log.root_dir is None
