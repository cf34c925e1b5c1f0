"""Tests of `tracelink report`."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from builders.command_line import Run
from tracelink import samples

JOB = str(samples.path("run_before"))


def test_page_by_default(tracelink: Run, tmp_path: Path) -> None:
    found = tracelink("report", JOB)
    assert found.exit_code == 0
    size = (tmp_path / "report.html").stat().st_size
    assert found.stdout.splitlines()[-1] == f"Wrote report.html ({size / 1000:.1f} kB)."


def test_csv(tracelink: Run, tmp_path: Path) -> None:
    found = tracelink("report", JOB, "--csv", "tables")
    assert found.exit_code == 0
    assert not (tmp_path / "report.html").exists()
    with (tmp_path / "tables" / "breakdown.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["rank"], row["steps"]) for row in rows] == [("0", "6"), ("1", "6")]
    for row in rows:
        parts = ("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
        assert sum(int(row[part]) for part in parts) == int(row["duration_ns"])


def test_json_is_that_of_summary(tracelink: Run) -> None:
    report, summary = (tracelink(command, JOB, "--json").stdout for command in ("report", "summary"))
    assert json.loads(report) == json.loads(summary)


def test_markdown(tracelink: Run, tmp_path: Path) -> None:
    lines = tracelink("report", JOB, "--md").stdout.splitlines()
    assert lines[0].startswith("**A step takes 1.084 ms")
    assert "### Kernels" in lines
    assert not (tmp_path / "report.html").exists()


def test_markdown_and_json_exclude_each_other(tracelink: Run) -> None:
    assert tracelink("report", JOB, "--md", "--json").exit_code == 2


def test_output_in_a_missing_folder(tracelink: Run) -> None:
    found = tracelink("report", JOB, "-o", "no/such/report.html")
    assert found.exit_code == 2
    assert "no/such" in found.stderr


def test_output_that_is_no_page(tracelink: Run, tmp_path: Path) -> None:
    for name in ("report.md", "-", "folder/", "kineto_0.json.gz"):
        found = tracelink("report", JOB, "-o", name)
        assert found.exit_code == 2
        assert "Name it with .html at the end" in found.stderr
    assert list(tmp_path.iterdir()) == []


def test_output_that_is_an_input(tracelink: Run, tmp_path: Path) -> None:
    trace = tmp_path / "traces" / "trace.html"
    trace.parent.mkdir()
    trace.write_bytes(next(samples.path("run_before").iterdir()).read_bytes())
    before = trace.read_bytes()
    found = tracelink("report", str(trace), "-o", str(trace))
    assert found.exit_code == 2
    assert "is one of the inputs" in found.stderr
    assert trace.read_bytes() == before


def test_csv_folder_that_is_a_file(tracelink: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    assert tracelink("report", JOB, "--csv", "file").exit_code == 2
    assert (tmp_path / "file").read_text() == "kept"
