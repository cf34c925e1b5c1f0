"""Captures of programs that do not know of them, with a torch that is a package of two modules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from builders import fake_torch as torch_package
from builders.fake_torch import TRAINING
from tracelink.cli.run import environment_for


@pytest.fixture
def program(tmp_path: Path) -> Path:
    torch_package.write(tmp_path / "lib")
    return tmp_path


def environment(program: Path, **options: Any) -> dict[str, str]:
    """That of `tracelink run`, with the torch of the test on the path."""
    names = ("RANK", "WORLD_SIZE", "TORCH_TRACE")
    present = {name: value for name, value in os.environ.items() if name not in names}
    present["PYTHONPATH"] = torch_package.path(program / "lib")
    return environment_for(program / "traces", "2-3", {"metrics": None} | options, present)


def run(program: Path, code: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=60, check=False
    )


def document(program: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((program / "traces" / "capture_0.json").read_text())
    return found


def test_steps_of_the_first_optimizer_are_counted(program: Path) -> None:
    result = run(program, TRAINING, environment(program))
    assert (result.returncode, result.stdout) == (0, "")
    assert (document(program)["steps"], document(program)["outcome"]) == (5, "finished")
    assert sorted(path.name for path in (program / "traces").iterdir()) == [
        "capture_0.json",
        "et_0.json.gz",
        "kineto_0.json.gz",
    ]


def test_an_exception_that_ends_the_program_is_recorded(program: Path) -> None:
    result = run(program, TRAINING + "raise KeyError('of the user')", environment(program))
    assert result.returncode == 1
    assert "KeyError: 'of the user'" in result.stderr
    assert document(program)["outcome"] == "KeyError"


def test_a_capture_begins_with_the_process_group(program: Path) -> None:
    code = (
        "from torch.distributed.distributed_c10d import init_process_group as init\nassert init() == 'group'"
    )
    assert run(program, code, environment(program)).returncode == 0
    assert document(program)["steps"] == 0


def test_a_process_that_trains_nothing_is_not_recorded(program: Path) -> None:
    for code in ("import json", "import torch"):
        assert run(program, code, environment(program)).stderr == ""
    assert not (program / "traces").exists()


def test_options_that_make_no_sense_do_not_end_the_program(program: Path) -> None:
    result = run(program, TRAINING, environment(program, unknown=1))
    assert result.returncode == 0
    assert "TRACELINK_CAPTURE_OPTIONS" in result.stderr


def test_the_next_sitecustomize_is_imported_too(program: Path) -> None:
    (program / "lib" / "sitecustomize.py").write_text("print('site')")
    assert run(program, "print('program')", environment(program)).stdout == "site\nprogram\n"


def test_importing_tracelink_with_the_variable_records_too(program: Path) -> None:
    variables = environment(program)
    variables["PYTHONPATH"] = variables["PYTHONPATH"].partition(os.pathsep)[2]
    assert run(program, "import tracelink" + TRAINING, variables).returncode == 0
    assert document(program)["steps"] == 5


def test_a_python_without_tracelink_says_so_and_runs(program: Path) -> None:
    variables = environment(program)
    injected = variables["PYTHONPATH"].partition(os.pathsep)[0]
    result = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            f"import sys; sys.path[:] = [{injected!r}, *sys.path[1:]]\nimport sitecustomize",
        ],
        env=variables | {"PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0
    assert "cannot import tracelink" in result.stderr
