"""`tracelink run`: a training is recorded without a line in it."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import jsonschema
import pytest

from builders import fake_torch as torch_package
from builders.command_line import Run
from builders.fake_torch import TRAINING
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
    assert (rank["rank"], rank["outcome"], rank["steps"], rank["files"]) == (
        0,
        "finished",
        5,
        ["metrics_0.csv"],
    )
    assert rank["problems"] == ["steps: not recorded: step 9; the block ended after 5 steps"]


OPTIONS = ["--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--trace-fork-before-exec=true"]


@pytest.mark.parametrize(
    ("variables", "program", "report"),
    [
        ({}, ["torchrun", "--nproc-per-node", "2", "train.py"], "nsys_%h"),
        ({}, ["python", "train.py"], "nsys_%h"),
        ({"RANK": "3"}, ["python", "train.py"], "nsys_rank3"),
        ({"SLURM_PROCID": "12"}, ["python", "train.py"], "nsys_rank12"),
        ({"SLURM_PROCID": "1"}, ["/opt/bin/torchrun", "train.py"], "nsys_%h"),
        ({"SLURM_PROCID": "1"}, ["python", "-m", "torch.distributed.run", "train.py"], "nsys_%h"),
    ],
)
def test_nsys_is_composed_with_a_report_for_each_rank_or_host(
    tracelink: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    program: list[str],
    report: str,
) -> None:
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    result = tracelink("run", "-o", "traces/100%", "--nsys", "--dry-run", "--json", "--", *program)
    document = json.loads(result.stdout)
    jsonschema.validate(document, schemas.load("run"))
    output = str(Path("traces/100%%").absolute() / report)
    assert document["command"] == [
        *("nsys", "profile", *OPTIONS, "--force-overwrite=true", "--output", output),
        *program,
    ]
    assert json.loads(document["variables"]["TRACELINK_CAPTURE_OPTIONS"])["profile"] is False
    assert not Path("traces").exists()


def test_a_dry_run_prints_what_a_shell_takes(tracelink: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "TORCH_FR_BUFFER_SIZE"):
        monkeypatch.delenv(name, raising=False)
    result = tracelink(
        "run", "-o", "my traces", "--steps", "1", "--dry-run", "--", "python", "-c", "print('a b')"
    )
    assert (result.exit_code, result.stderr) == (0, "")
    first, *variables, program = result.stdout.split(" \\\n")
    assert (first, shlex.split(program)) == ("env", ["python", "-c", "print('a b')"])
    names = [shlex.split(line)[0].partition("=")[0] for line in variables]
    assert {"PYTHONPATH", "TORCH_FR_BUFFER_SIZE", "TRACELINK_CAPTURE", "TRACELINK_CAPTURE_STEPS"} <= set(
        names
    )
    assert names == sorted(names)


def test_a_dry_run_escapes_control_characters_as_bash_does(tracelink: Run) -> None:
    result = tracelink("run", "-o", "traces", "--dry-run", "--", "echo", "it's\x1b[31m\\\u202e")
    assert (
        result.stdout.rpartition("  ")[2] == r"echo $'it\U00000027s\U0000001b[31m\U0000005c\U0000202e'" + "\n"
    )


@pytest.mark.usefixtures("torch")
def test_the_program_runs_under_nsys(tracelink: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nsys = tmp_path / "bin" / "nsys"
    nsys.parent.mkdir()
    nsys.write_text(
        '#!/bin/sh\necho "$@" > asked\nwhile [ "$1" != --output ]; do shift; done\nshift 2\nexec "$@"\n'
    )
    nsys.chmod(0o755)
    monkeypatch.setenv("PATH", f"{nsys.parent}:/usr/bin:/bin")
    result = tracelink("run", "-o", "traces", "--steps", "1", "--nsys", "--", sys.executable, "-c", TRAINING)
    assert result.exit_code == 0, result.stderr
    assert Path("asked").read_text().startswith(f"profile {' '.join(OPTIONS)} ")
    assert sorted(path.name for path in Path("traces").iterdir() if path.suffix != ".csv") == [
        "capture_0.json",
        "et_0.json.gz",
    ]
