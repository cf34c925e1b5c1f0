"""A capture without torch: what is recorded when, and what happens if it cannot be."""

from __future__ import annotations

import gzip
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import tracelink
from builders import fake_torch
from builders.fake_torch import EXECUTION_TRACE, FakeTorch
from tracelink import schemas
from tracelink._model.errors import UsageError
from tracelink._record.files import Files


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    return fake_torch.installed(monkeypatch)


def capture(folder: Path, steps: str = "2-3", **options: Any) -> tracelink.Capture:
    return tracelink.capture(folder, steps, metrics=None, **options)


def train(capture: tracelink.Capture, steps: int) -> None:
    with capture:
        for _ in range(steps):
            capture.step()


def written(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def capture_file(folder: Path, rank: int = 0) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / f"capture_{rank}.json").read_text())
    return document


def troubles(folder: Path) -> list[tuple[str, str]]:
    return [(trouble["subject"], trouble["message"]) for trouble in capture_file(folder)["troubles"]]


def test_profiler_and_observer_run_over_exactly_the_chosen_steps(torch: FakeTorch, tmp_path: Path) -> None:
    train(capture(tmp_path), 6)
    assert torch.calls == [
        *("register", "prepare", "start profile", "start observer"),
        *("begin ProfilerStep#2", "end ProfilerStep#2"),
        *("begin ProfilerStep#3", "end ProfilerStep#3"),
        *("stop observer", "stop profile", "export", "unregister"),
        "dump",
    ]
    assert written(tmp_path) == ["capture_0.json", "et_0.json.gz", "kineto_0.json.gz"]
    assert gzip.decompress((tmp_path / "et_0.json.gz").read_bytes()) == EXECUTION_TRACE
    document = capture_file(tmp_path)
    assert (document["outcome"], document["steps"], document["troubles"]) == ("finished", 6, [])
    (window,) = document["windows"]
    assert (window["first"], window["last"], window["complete"]) == (2, 3, True)


def test_step_zero_can_be_recorded(torch: FakeTorch, tmp_path: Path) -> None:
    train(capture(tmp_path, "0"), 2)
    assert torch.calls[:5] == [
        "register",
        "prepare",
        "start profile",
        "start observer",
        "begin ProfilerStep#0",
    ]


def test_each_of_several_windows_has_a_folder_and_the_execution_trace_is_one(
    torch: FakeTorch, tmp_path: Path
) -> None:
    train(capture(tmp_path, "1,2-3,6"), 9)
    assert written(tmp_path) == [
        "capture_0.json",
        "et_0.json.gz",
        "steps_1-3/kineto_0.json.gz",
        "steps_6-6/kineto_0.json.gz",
    ]
    assert [(window["first"], window["last"]) for window in capture_file(tmp_path)["windows"]] == [
        (1, 3),
        (6, 6),
    ]
    assert torch.calls.count("register") == 1


def test_a_block_that_ends_within_a_window_keeps_what_was_recorded(torch: FakeTorch, tmp_path: Path) -> None:
    train(capture(tmp_path, "2-9"), 4)
    assert written(tmp_path) == ["capture_0.json", "et_0.json.gz", "kineto_0.json.gz"]
    assert [window["complete"] for window in capture_file(tmp_path)["windows"]] == [False]


def test_a_block_that_ends_before_the_window_says_so(torch: FakeTorch, tmp_path: Path) -> None:
    train(capture(tmp_path, "5-7"), 3)
    assert written(tmp_path) == ["capture_0.json"]
    assert troubles(tmp_path) == [("steps", "not recorded: steps 5-7; the block ended after 3 steps")]


def test_an_exception_of_the_user_passes_through_and_the_recorder_is_dumped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    torch = fake_torch.installed(monkeypatch, rank=1, dump=fake_torch.dump_of_one())
    error = KeyError("of the user")

    def fail() -> None:
        with capture(tmp_path) as running:
            running.step()
            running.step()
            raise error

    with pytest.raises(KeyError) as caught:
        fail()
    assert caught.value is error
    assert error.__context__ is None
    assert written(tmp_path) == [
        "capture_1.json",
        "et_1.json.gz",
        "fr/comm_lib_trace_rank_1",
        "kineto_1.json.gz",
    ]
    document = capture_file(tmp_path, rank=1)
    assert (document["outcome"], document["rank_from"]) == ("KeyError", "torch.distributed")
    assert [dump["reason"] for dump in document["dumps"]] == ["exception"]
    assert torch.calls[-1] == "dump"


@pytest.mark.parametrize(
    "failing", ["prepare", "start", "stop", "export", "register", "unregister", "begin", "dump"]
)
def test_nothing_that_fails_in_torch_reaches_the_training(
    torch: FakeTorch, tmp_path: Path, failing: str, caplog: pytest.LogCaptureFixture
) -> None:
    torch.failing = {failing}
    train(capture(tmp_path), 6)
    assert troubles(tmp_path)
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert capture_file(tmp_path)["outcome"] == "finished"


def test_a_folder_that_cannot_be_made_is_a_warning(
    torch: FakeTorch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    train(capture(tmp_path / "file"), 6)
    assert "capture: " in caplog.text
    assert torch.calls == []


def test_without_torch_the_block_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    running = capture(tmp_path)
    train(running, 6)
    assert running.steps == 6
    assert "torch" in caplog.text


def test_a_capture_within_a_capture_records_nothing(
    torch: FakeTorch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outer, inner = capture(tmp_path / "outer"), capture(tmp_path / "inner")
    with outer:
        train(inner, 6)
        for _ in range(6):
            outer.step()
    assert written(tmp_path) == ["outer/capture_0.json", "outer/et_0.json.gz", "outer/kineto_0.json.gz"]
    assert "only the outer one records" in caplog.text


def test_a_capture_records_once(torch: FakeTorch, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    running = capture(tmp_path)
    train(running, 6)
    before = list(torch.calls)
    train(running, 6)
    assert torch.calls == before
    assert "a capture records once" in caplog.text


def test_two_captures_one_after_the_other_both_record(torch: FakeTorch, tmp_path: Path) -> None:
    train(capture(tmp_path / "a"), 6)
    train(capture(tmp_path / "b"), 6)
    assert written(tmp_path / "a") == written(tmp_path / "b")


def test_a_step_outside_of_the_block_is_a_warning(
    torch: FakeTorch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = capture(tmp_path)
    running.step()
    running.step()
    assert torch.calls == []
    assert caplog.text.count("outside of the block") == 1


def test_annotations_appear_only_in_recorded_steps_and_with_names_that_the_observer_can_write(
    torch: FakeTorch, tmp_path: Path
) -> None:
    with capture(tmp_path, "1") as running:
        for _ in range(3):
            with running.annotate('eval "a\\b"'):
                pass
            running.step()
    assert [call for call in torch.calls if "eval" in call] == ["begin eval _a_b_", "end eval _a_b_"]


def test_a_rank_that_was_restarted_writes_to_a_folder_of_its_own(
    torch: FakeTorch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    train(capture(tmp_path, "0"), 1)
    assert written(tmp_path) == [
        f"restart_2/{name}" for name in ("capture_3.json", "et_3.json.gz", "kineto_3.json.gz")
    ]


def test_a_limit_of_bytes_leaves_out_windows(torch: FakeTorch, tmp_path: Path) -> None:
    train(capture(tmp_path, "0,2", max_bytes=10), 4)
    assert len(capture_file(tmp_path)["windows"]) == 1
    assert [subject for subject, _ in troubles(tmp_path)] == ["limit"]


@pytest.mark.parametrize(
    ("steps", "options"),
    [
        ("7-5", {}),
        ("x", {}),
        (True, {}),
        ("1", {"watchdog": -1}),
        ("1", {"metrics": 0}),
        ("1", {"max_bytes": 0}),
    ],
)
def test_an_argument_without_sense_is_an_error_at_once(
    tmp_path: Path, steps: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        tracelink.capture(tmp_path, steps, **options)


def test_a_folder_of_an_earlier_capture_is_reported(torch: FakeTorch, tmp_path: Path) -> None:
    train(capture(tmp_path), 6)
    assert troubles(tmp_path) == []
    train(capture(tmp_path), 6)
    assert [subject for subject, _ in troubles(tmp_path)] == ["folder"]


def test_what_killed_processes_left_unfinished_is_removed(torch: FakeTorch, tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    name = Files(tmp_path, 1).scratch("et_0.json.gz").name.replace(f"-{os.getpid()}-", f"-{ended.pid}-")
    left = [tmp_path / name, tmp_path / "steps_1-2" / name]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_text("{")
    train(capture(tmp_path), 6)
    assert [path.exists() for path in left] == [False, False]


def test_a_capture_file_fits_its_schema(torch: FakeTorch, tmp_path: Path) -> None:
    train(capture(tmp_path), 6)
    jsonschema.validate(capture_file(tmp_path), schemas.load("capture"))
