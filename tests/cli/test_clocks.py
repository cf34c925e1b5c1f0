"""`tracelink clocks`."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from msgspec.structs import replace

from builders.command_line import Job, Run
from builders.job import START, JobBuilder
from tracelink import schemas
from tracelink._model.clock import Clock
from tracelink._store.results import SUFFIXES
from tracelink.cli.answer import FORMS

MS = 10**6
FIRST = Clock(0, "a", low_ns=0, high_ns=0, constraints=12, reference_ns=START)
SECOND = Clock(1, "b", 3 * MS, -12.5, 2 * MS, 5 * MS, 12, START)
LOOSE = Clock(2, reference_ns=START)


@pytest.fixture
def clocks(job: Job) -> None:
    job.result = JobBuilder(clocks=[FIRST, SECOND]).job()


def test_options_are_passed_to_the_library(tracelink: Run, job: Job, clocks: None) -> None:
    tracelink("clocks", "traces/", "--clock", "collectives", "-j", "3")
    assert (job.arguments["paths"], job.arguments["clock"], job.arguments["engine"].jobs) == (
        ("traces/",),
        "collectives",
        3,
    )


def test_a_row_for_each_clock_and_how_it_was_estimated(tracelink: Run, clocks: None) -> None:
    assert tracelink("clocks", "traces/").stdout.splitlines() == [
        "The clocks of 2 ranks have offsets from 0.000 ms to 3.000 ms.",
        "",
        "rank  host  offset (ms)  drift (ppm)  at least (ms)  at most (ms)  constraints",
        "0     a           0.000         0.00          0.000         0.000           12",
        "1     b          +3.000       -12.50         +2.000        +5.000           12",
        "",
        "Offsets are relative to the clock of rank 0, at 2023-11-14 22:13:20.000 UTC.",
        "Estimated from causality: no rank leaves a collective before the last one enters; "
        "no message arrives before it is sent.",
    ]


def test_offsets_within_their_uncertainty_are_not_significant(tracelink: Run, job: Job) -> None:
    line = "No offset is significant: the range of every rank contains 0."
    for offset, low, high, shown in ((0, -MS, MS, True), (MS, -MS, 2 * MS, True), (2 * MS, 1, 3 * MS, False)):
        second = Clock(1, "b", offset_ns=offset, low_ns=low, high_ns=high, constraints=2)
        job.result = JobBuilder(clocks=[FIRST, second]).job()
        assert (line in tracelink("clocks", "traces/").stdout.splitlines()) == shown


def test_ranks_that_share_a_clock_share_a_row(tracelink: Run, job: Job) -> None:
    ranks = [Clock(rank, "ab"[rank // 3], low_ns=0, high_ns=0) for rank in range(6)]
    job.result = JobBuilder(clocks=ranks).job()
    rows = tracelink("clocks", "traces/").stdout.splitlines()[3:5]
    assert [row.split()[:2] for row in rows] == [["0-2", "a"], ["3-5", "b"]]


def test_ranks_of_one_host_share_a_clock(tracelink: Run, job: Job) -> None:
    job.result = JobBuilder(clocks=[Clock(rank, "a", low_ns=0, high_ns=0) for rank in range(4)]).job()
    assert tracelink("clocks", "traces/").stdout.splitlines()[-1:] == [
        "All ranks share one clock, so there are no offsets. To estimate a clock for each rank, use "
        "--clock collectives."
    ]


def test_one_rank_has_nothing_to_compare(tracelink: Run, job: Job) -> None:
    job.result = JobBuilder(clocks=[Clock(0, "a", low_ns=0, high_ns=0)]).job()
    assert tracelink("clocks", "traces/").stdout.splitlines()[-1:] == [
        "Only one rank was read: name the traces of all ranks to compare their clocks."
    ]


def test_offsets_at_no_known_time(tracelink: Run, job: Job) -> None:
    job.result = JobBuilder(clocks=[Clock(0, low_ns=0, high_ns=0), Clock(1)]).job()
    assert "Offsets are relative to the clock of rank 0.\n" in tracelink("clocks", "traces/").stdout


@pytest.mark.parametrize(
    ("low", "high", "bounds"), [(None, None, []), (-2 * MS, None, ["-2.000", "-"]), (None, 0, ["-", "0.0"])]
)
def test_unbounded_offsets_are_reported(
    tracelink: Run, job: Job, low: int | None, high: int | None, bounds: list[str]
) -> None:
    job.result = JobBuilder(
        clocks=[replace(FIRST, low_ns=None, high_ns=None), Clock(1, low_ns=low, high_ns=high)]
    ).job()
    output = tracelink("clocks", "traces/").stdout
    cells = output.splitlines()[4].split()
    assert cells[4:-1] == [bound for bound in bounds if bound != "-"]
    assert "The clock offset of ranks 0-1 is unbounded: " in output
    assert "--clock FILE" in output


def test_without_correction_the_page_says_so(tracelink: Run, clocks: None) -> None:
    output = tracelink("clocks", "traces/", "--clock", "none").stdout
    assert output.splitlines()[-1] == (
        "Clocks are not corrected (--clock none). To correct them, use --clock host or --clock collectives."
    )
    assert (
        tracelink("clocks", "t/", "--clock", "c.json").stdout.splitlines()[-1]
        == "Offsets are taken from c.json."
    )


def test_json_fits_its_schema(tracelink: Run, job: Job) -> None:
    job.result = JobBuilder(clocks=[FIRST, SECOND, LOOSE]).job()
    result = tracelink("clocks", "traces/", "--json")
    document = json.loads(result.stdout)
    jsonschema.validate(document, schemas.load("clocks"))
    assert result.stderr == ""
    assert document["reference_rank"] == 0
    assert document["reference_ns"] == START
    assert document["ranks"][1:] == [
        {
            "rank": 1,
            "host": "b",
            "offset_ns": 3 * MS,
            "drift_ppm": -12.5,
            "low_ns": 2 * MS,
            "high_ns": 5 * MS,
            "constraints": 12,
            "reference_ns": START,
        },
        {
            "rank": 2,
            "host": "",
            "offset_ns": 0,
            "drift_ppm": 0.0,
            "low_ns": None,
            "high_ns": None,
            "constraints": 0,
            "reference_ns": START,
        },
    ]


def test_hosts_cannot_control_the_terminal(tracelink: Run, job: Job) -> None:
    job.result = JobBuilder(clocks=[Clock(0, "\x1b[31mred")]).job()
    assert "\x1b" not in tracelink("clocks", "traces/").stdout


def test_quiet_prints_nothing(tracelink: Run, clocks: None) -> None:
    result = tracelink("clocks", "traces/", "-q")
    assert (result.stdout, result.stderr, result.exit_code) == ("", "", 0)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_form_that_the_option_lists_is_written(
    tracelink: Run, clocks: None, tmp_path: Path, suffix: str
) -> None:
    if suffix in (".parquet", ".duckdb"):
        pytest.importorskip("duckdb")
        pytest.importorskip("pyarrow")
    path = tmp_path / f"out{suffix}"
    result = tracelink("clocks", "traces/", "-o", str(path))
    assert suffix in FORMS
    assert (result.exit_code, result.stdout.splitlines()[-1].split(" (")[0]) == (0, f"Wrote {path}")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
