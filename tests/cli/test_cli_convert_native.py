"""`tracelink convert job.pftrace job.json`, and other commands on such a file."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from conftest import Run

from builders.native_packets import Sequence
from tracelink import api, samples, schemas


@pytest.fixture
def native(tmp_path: Path) -> str:
    """The sample of two ranks as a native timeline."""
    path = tmp_path / "job.pftrace"
    api.merge([samples.path("gpu_pair")], output=path)
    return str(path)


def test_says_what_it_wrote(tracelink: Run, native: str, tmp_path: Path) -> None:
    result = tracelink("convert", native, str(tmp_path / "job.json"))
    assert result.exit_code == 0
    assert "job.json (444.0 kB, 1,018 events)" in result.stdout
    document = json.loads((tmp_path / "job.json").read_bytes())
    jsonschema.validate(document, schemas.load("perfetto-json"))


def test_to_standard_output(tracelink: Run, native: str) -> None:
    result = tracelink("convert", native, "-", "--to", "perfetto-json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["traceEvents"]


def test_inspect_shows_its_ranks(tracelink: Run, native: str) -> None:
    result = tracelink("inspect", native)
    assert result.exit_code == 0
    assert [line.split()[1] for line in result.stdout.splitlines() if ":rank-" in line] == ["perfetto"] * 2


@pytest.mark.parametrize("command", [("inspect",), ("merge", "-o", "a.json"), ("convert", "a.json")])
def test_the_trace_of_somebody_else_is_refused(
    tracelink: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    path = tmp_path / "other.pftrace"
    path.write_bytes(bytes(Sequence().instant(0, "another")))
    name, *rest = command
    arguments = [str(path), str(tmp_path / "a.json")] if name == "convert" else [str(path), *rest]
    result = tracelink(name, *arguments)
    assert result.exit_code == 3
    assert result.stderr.strip() == (
        f"tracelink: {path}: a Perfetto trace that tracelink did not write: it reads only its own. "
        "Open it at ui.perfetto.dev, or give tracelink what torch.profiler wrote."
    )
