"""`tracelink run`: a training is recorded without a line in it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jsonschema
import pytest

from builders import torch_package
from builders.command_line import Run
from builders.torch_package import TRAINING
from tracelink import schemas


def test_run_has_the_exit_code_of_the_program(tracelink: Run) -> None:
    result = tracelink("run", "-o", "traces", "--", sys.executable, "-c", "import sys; sys.exit(7)")
    assert result.exit_code == 7
    assert "nothing was recorded in traces" in result.stderr


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch_package.write(tmp_path / "lib")
    monkeypatch.setenv("PYTHONPATH", torch_package.path(tmp_path / "lib"))
    monkeypatch.delenv("RANK", raising=False)


@pytest.mark.usefixtures("torch")
def test_run_names_what_to_do_next(tracelink: Run) -> None:
    result = tracelink("run", "-o", "traces", "--steps", "1", "--", sys.executable, "-c", TRAINING)
    assert result.exit_code == 0
    assert result.stderr.startswith("Recorded rank 0 in traces: ")
    assert result.stderr.endswith("Next: tracelink merge traces\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--steps", "7-5", "--", "x"), "runs backwards"),
        (("--", "no-such-program"), "no-such-program: no such file"),
        (("--nsys", "--", "x"), "no nsys on the PATH"),
    ],
)
def test_run_refuses_what_cannot_be_run(tracelink: Run, arguments: tuple[str, ...], message: str) -> None:
    result = tracelink("run", "-o", "traces", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.usefixtures("torch")
def test_run_prints_what_was_recorded_as_json(tracelink: Run) -> None:
    result = tracelink("run", "-o", "traces", "--steps", "9", "--json", "--", sys.executable, "-c", TRAINING)
    document = json.loads(result.stdout)
    jsonschema.validate(document, schemas.load("run"))
    (rank,) = document.pop("ranks")
    assert document == {"output": "traces", "exit_code": 0}
    assert (rank["rank"], rank["outcome"], rank["steps"], rank["files"]) == (0, "finished", 5, [])
    assert rank["problems"] == ["steps: not recorded: step 9; the block ended after 5 steps"]
