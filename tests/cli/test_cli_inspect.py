"""`tracelink inspect`: what is here."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from conftest import Job, Run

from tracelink import samples, schemas
from tracelink.cli.inspect import moment
from tracelink.errors import Finding, Severity
from tracelink.model.trace import SourceInfo
from tracelink.text import span

PROFILE = SourceInfo(
    "traces/k_3.json.gz",
    "kineto",
    "1",
    rank=3,
    host="node7",
    events=12_345,
    records=13_000,
    bytes=1_234_567,
    start_ns=1_763_472_750_123_456_789,
    end_ns=1_763_472_751_357_456_789,
)
NODES = SourceInfo("et.json", "execution-trace")


def test_a_source_is_described_without_linking(tracelink: Run, job: Job) -> None:
    job.sources = [PROFILE]
    header, row = tracelink("inspect", "traces/").stdout.splitlines()
    assert header.split()[:6] == ["path", "format", "version", "rank", "host", "events"]
    for text in (
        "traces/k_3.json.gz",
        "kineto",
        "node7",
        "12,345",
        "2025-11-18 13:32:30.123",
        "1.234 s",
        "1.2 MB",
    ):
        assert text in row


def test_what_a_source_does_not_say_is_a_dash(tracelink: Run, job: Job) -> None:
    job.sources = [NODES]
    row = tracelink("inspect", "et.json").stdout.splitlines()[1]
    assert row.split() == ["et.json", "execution-trace", "-", "-", "-", "0", "-", "-", "0", "B", "-"]


def test_problems_of_a_source_are_its_warnings_and_errors(tracelink: Run, job: Job) -> None:
    job.sources = [NODES]
    job.findings = [
        Finding(severity, "odd", "odd.", source=path)
        for severity, path in (
            (Severity.WARNING, "et.json"),
            (Severity.ERROR, "et.json"),
            (Severity.INFO, "et.json"),
            (Severity.WARNING, "other.json"),
        )
    ]
    assert tracelink("inspect", "et.json").stdout.splitlines()[1].split()[-1] == "2"


def test_json_fits_its_schema(tracelink: Run, job: Job) -> None:
    job.sources = [PROFILE, NODES]
    job.findings = [Finding(Severity.INFO, "passed_over", "passed over.")]
    result = tracelink("inspect", "traces/", "--json")
    document = json.loads(result.stdout)
    jsonschema.validate(document, schemas.load("inspect"))
    assert result.stderr == ""
    assert document["sources"][0] == {
        "path": "traces/k_3.json.gz",
        "format": "kineto",
        "version": "1",
        "rank": 3,
        "host": "node7",
        "world_size": None,
        "pid": None,
        "events": 12345,
        "records": 13000,
        "bytes": 1234567,
        "start_ns": 1763472750123456789,
        "end_ns": 1763472751357456789,
    }


def test_exit_code_is_1_with_an_error_and_3_without_a_source(tracelink: Run, job: Job) -> None:
    assert tracelink("inspect", "traces/").exit_code == 0
    job.findings = [Finding(Severity.ERROR, "unreadable", "empty.")]
    assert tracelink("inspect", "traces/").exit_code == 1
    job.sources = ()
    assert tracelink("inspect", "traces/").exit_code == 3


def test_the_sample_is_six_sources_of_two_ranks(tracelink: Run) -> None:
    result = tracelink("inspect", str(samples.path("cpu_job")), "--json")
    document = json.loads(result.stdout)
    jsonschema.validate(document, schemas.load("inspect"))
    assert result.exit_code == 0
    assert sorted((source["rank"], source["format"]) for source in document["sources"]) == [
        (rank, name) for rank in (0, 1) for name in ("execution-trace", "flight-recorder", "kineto")
    ]


def test_a_damaged_file_does_not_cost_the_others(tracelink: Run, tmp_path: Path) -> None:
    profile = samples.path("cpu_job") / "kineto_0.json.gz"
    (tmp_path / "empty.json").touch()
    result = tracelink("inspect", str(profile), str(tmp_path / "empty.json"))
    assert result.exit_code == 1
    assert str(profile) in result.stdout
    assert "the file is empty" in result.stdout


def test_nothing_but_unreadable_files_is_exit_code_3(tracelink: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("not a trace")
    result = tracelink("inspect", str(tmp_path / "notes.json"))
    assert result.exit_code == 3
    assert result.stderr.startswith("tracelink: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "1970-01-01 00:00:00.000"),
        (1_763_472_750_999_999_999, "2025-11-18 13:32:30.999"),
        (-1, "1969-12-31 23:59:59.999"),
    ],
)
def test_moments_are_cut_not_rounded(ns: int, text: str) -> None:
    assert moment(ns) == text


@pytest.mark.parametrize(
    ("ns", "text"), [(0, "0.000 ms"), (2_912_000, "2.912 ms"), (3_600_000_000_000, "3,600.000 s")]
)
def test_durations_are_in_seconds_or_milliseconds(ns: int, text: str) -> None:
    assert span(ns) == text
