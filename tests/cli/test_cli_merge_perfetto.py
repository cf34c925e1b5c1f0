"""`tracelink merge -o job.pftrace`: the options of the writer, and the files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Job, Run

from builders.kineto import cpu_op, trace, write
from builders.perfetto_native import read


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((), {}),
        (("--args", "link"), {"args": "link"}),
        (("--python",), {"python": "yes"}),
        (("--no-python",), {"python": "no"}),
        (("--compress",), {"compress": "yes"}),
    ],
)
@pytest.mark.parametrize("output", ["job.pftrace", "job.json"])
def test_options_of_perfetto_are_handed_on(
    tracelink: Run, job: Job, arguments: tuple[str, ...], options: dict[str, Any], output: str
) -> None:
    assert tracelink("merge", "traces/", "-o", output, *arguments).exit_code == 0
    assert job.asked["options"] == options


@pytest.mark.parametrize(
    ("name", "arguments", "compressed"),
    [
        ("job.pftrace", (), False),
        ("job.perfetto-trace", (), False),
        ("job.pftrace", ("--compress",), False),
        ("job.pftrace.gz", (), True),
        ("job.pftrace.gz", ("--compress",), True),
    ],
)
def test_the_name_says_the_format_and_whether_it_is_gzip(
    tracelink: Run, tmp_path: Path, name: str, arguments: tuple[str, ...], compressed: bool
) -> None:
    for rank in (0, 1):
        write(tmp_path / "in" / f"k_{rank}.json", trace(cpu_op("aten::add", 2), rank=rank))
    result = tracelink("merge", str(tmp_path / "in"), "-o", str(tmp_path / name), *arguments)
    assert result.exit_code == 0, result.stderr
    data = (tmp_path / name).read_bytes()
    native = read(gzip.decompress(data) if compressed else data)
    assert [one.name for one in native.slices] == ["aten::add", "aten::add"]


def test_json_is_gzip_where_that_is_asked_for(tracelink: Run, tmp_path: Path) -> None:
    write(tmp_path / "k_0.json", trace(cpu_op("aten::add", 2), rank=0))
    output = tmp_path / "x.json"
    assert tracelink("merge", str(tmp_path / "k_0.json"), "-o", str(output), "--compress").exit_code == 0
    assert json.loads(gzip.decompress(output.read_bytes()))["traceEvents"][-1]["name"] == "aten::add"


def test_a_terminal_is_not_filled_with_a_trace(
    tracelink: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "k_0.json", trace(cpu_op("aten::add", 2), rank=0))
    monkeypatch.setattr(
        "tracelink.cli.summary.sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True))
    )
    result = tracelink("merge", str(tmp_path / "k_0.json"), "-o", "-")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "pipe it into something, or give a file" in result.stderr
