"""`tracelink.adapters`, called as torch.profiler, transformers and Lightning do."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders import fake_torch
from builders.fake_torch import EXECUTION_TRACE, FakeTorch
from tracelink.adapters import LightningProfiler, TrainerCallback, attach

RECORDED = ["capture_0.json", "et_0.json.gz", "kineto_0.json.gz"]


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # what is installed is taken back after the test
    return fake_torch.installed(monkeypatch)


def written(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def troubles(folder: Path) -> list[str]:
    return [trouble["message"] for trouble in json.loads((folder / "capture_0.json").read_text())["troubles"]]


class Profile:
    """What of torch.profiler.profile others may use: it calls its observer and its handler as torch does."""

    def __init__(self, torch: FakeTorch, on_trace_ready: Callable[[Any], object] | None = None) -> None:
        self._torch = torch
        self.execution_trace_observer: Any = None
        self.on_trace_ready = on_trace_ready

    def cycle(self) -> None:
        if self.execution_trace_observer:
            self.execution_trace_observer.start()
        self._torch.does("start profile")
        if self.execution_trace_observer:
            self.execution_trace_observer.stop()
        self._torch.does("stop profile")
        if self.on_trace_ready:
            self.on_trace_ready(self)

    def export_chrome_trace(self, path: str) -> None:
        self._torch.does("export")
        Path(path).write_text('{"traceEvents": []}')

    def __enter__(self) -> Profile:
        return self

    def __exit__(self, *_: object) -> None:
        if self.execution_trace_observer:
            self.execution_trace_observer.cleanup()


def test_the_observer_follows_the_schedule_of_the_profiler(torch: FakeTorch, tmp_path: Path) -> None:
    with attach(Profile(torch), tmp_path) as profiler:
        profiler.cycle()
        profiler.cycle()
    cycle = ["start observer", "start profile", "stop observer", "stop profile", "export"]
    assert torch.calls == ["register", *cycle, *cycle, "unregister"]
    assert written(tmp_path) == [
        "capture_0.json",
        "cycle_1/kineto_0.json.gz",
        "et_0.json.gz",
        "kineto_0.json.gz",
    ]
    assert gzip.decompress((tmp_path / "et_0.json.gz").read_bytes()) == EXECUTION_TRACE
    document = json.loads((tmp_path / "capture_0.json").read_text())
    assert (document["outcome"], document["troubles"]) == ("finished", [])
    assert [file["kind"] for file in document["files"]] == ["kineto", "execution-trace", "kineto"]


def test_the_handler_of_the_user_keeps_the_profiles(torch: FakeTorch, tmp_path: Path) -> None:
    ready: list[object] = []
    with attach(Profile(torch, ready.append), tmp_path) as profiler:
        profiler.cycle()
    assert ready == [profiler]
    assert written(tmp_path) == ["capture_0.json", "et_0.json.gz"]


def test_a_profiler_that_never_starts_leaves_no_execution_trace(torch: FakeTorch, tmp_path: Path) -> None:
    with attach(Profile(torch), tmp_path):
        pass
    assert written(tmp_path) == ["capture_0.json"]


@pytest.mark.parametrize("failing", ["register", "start", "stop", "export", "unregister"])
def test_a_profiler_goes_on_whatever_fails(torch: FakeTorch, tmp_path: Path, failing: str) -> None:
    profile = Profile(torch)
    if failing in ("start", "stop"):
        # of the observer only
        profile._torch = FakeTorch()
    torch.failing.add(failing)
    with attach(profile, tmp_path) as profiler:
        profiler.cycle()
    assert profiler is profile


def test_a_profiler_with_an_observer_keeps_it(
    torch: FakeTorch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    profiler = Profile(torch)
    profiler.execution_trace_observer = own = object()
    assert attach(profiler, tmp_path).execution_trace_observer is own
    assert "has an execution-trace observer already" in caplog.text


class Trainer:
    """Calls callbacks as the Trainer of transformers does."""

    def __init__(self, callback: Any, steps: int) -> None:
        self.callback, self.steps = callback, steps

    def _call(self, event: str) -> None:
        assert getattr(self.callback, event)("args", "state", "control", model=None, optimizer=None) is None

    def train(self) -> None:
        for event in ("on_init_end", "on_train_begin", "on_epoch_begin"):
            self._call(event)
        for _ in range(self.steps):
            for event in (
                "on_step_begin",
                "on_substep_end",
                "on_pre_optimizer_step",
                "on_step_end",
                "on_log",
            ):
                self._call(event)
        for event in ("on_epoch_end", "on_train_end"):
            self._call(event)


def test_the_callback_records_steps_of_the_optimizer(torch: FakeTorch, tmp_path: Path) -> None:
    Trainer(TrainerCallback(tmp_path, "2-3", metrics=None), 6).train()
    assert [call for call in torch.calls if call.startswith("begin")] == [
        "begin ProfilerStep#2",
        "begin ProfilerStep#3",
    ]
    assert written(tmp_path) == RECORDED
    assert troubles(tmp_path) == []


def test_the_callback_has_only_events() -> None:
    with pytest.raises(AttributeError, match="no attribute 'state'"):
        _ = TrainerCallback("traces").state


class TrainingError(Exception):
    pass


def fit(profiler: Any, batches: int, failing: int = -1) -> None:
    """Calls a profiler as the Trainer of Lightning does in `fit`."""
    profiler._lightning_module = None
    profiler.setup(stage="fit", local_rank=None, log_dir="logs")
    with profiler.profile("[Callback]TQDM.on_train_start"):
        pass
    for batch in range(batches):
        profiler.start("[_TrainingEpochLoop].train_dataloader_next")
        profiler.stop("[_TrainingEpochLoop].train_dataloader_next")
        with profiler.profile("run_training_batch"), profiler.profile("optimizer_step"):
            if batch == failing:
                raise TrainingError
    profiler.describe()


def test_the_profiler_records_training_batches(torch: FakeTorch, tmp_path: Path) -> None:
    profiler = LightningProfiler(tmp_path, "1", metrics=None)
    profiler.setup(stage="validate")
    profiler.describe()
    fit(profiler, 4)
    assert [call for call in torch.calls if call.startswith("begin")] == ["begin ProfilerStep#1"]
    assert written(tmp_path) == RECORDED
    assert (troubles(tmp_path), profiler.summary()) == ([], "")


def test_a_training_that_fails_ends_its_capture_with_the_process(torch: FakeTorch, tmp_path: Path) -> None:
    profiler = LightningProfiler(tmp_path, "1-9", metrics=None)
    with pytest.raises(TrainingError):
        fit(profiler, 4, failing=2)
    assert profiler._capture.steps == 2
    profiler.teardown()  # as at the end of the process
    assert written(tmp_path) == RECORDED
