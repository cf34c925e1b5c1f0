"""Metrics in what commands print."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from builders.command_line import Run
from tracelink import samples

SLOW = "Rank 1's GPU runs at 1,410 MHz, the other at 1,980 MHz (medians)."
INPUTS = [str(samples.path("gpu_pair")), str(samples.path("gpu_metrics")), "--tz", "UTC"]


def test_collectives_shows_the_lowest_clock_and_the_slow_gpu(tracelink: Run) -> None:
    result = tracelink("collectives", *INPUTS)
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    (header,) = (line for line in lines if "sequence" in line)
    assert header[-6:] == ["lowest", "SM", "clock", "(MHz)", "of", "rank"]
    assert sum(line[-2:] == ["1,410", "1"] for line in lines) == 14
    assert f"warning: {SLOW}" in result.stdout


def test_collectives_has_averages_of_each_participation_only_with_metrics(tracelink: Run) -> None:
    document = json.loads(tracelink("collectives", *INPUTS, "--json").stdout)
    parts = document["collectives"][0]["participations"]
    keys = ("sm_clock_mhz", "memory_clock_mhz", "temperature_c")
    assert [[part[key] for key in keys] for part in parts] == [[1980.0, 2619.0, 61.0], [1410.0, 2619.0, 87.0]]
    assert all(part["power_w"] > 400 and part["utilization_percent"] > 90 for part in parts)
    without = json.loads(tracelink("collectives", INPUTS[0], "--json").stdout)
    assert "sm_clock_mhz" not in without["collectives"][0]["participations"][0]


def test_diagnose_notes_a_gpu_that_runs_slower(tracelink: Run, tmp_path: Path) -> None:
    first = datetime(2026, 11, 18, 6, 16, 56, tzinfo=UTC)
    rows = [
        f"{first + timedelta(milliseconds=100 * number):%Y/%m/%d %H:%M:%S.%f}, {gpu}, {1100 if gpu == 3 else 1980} MHz"
        for number in range(20)
        for gpu in range(8)
    ]
    (tmp_path / "smi.csv").write_text("\n".join(["timestamp, index, clocks.sm [MHz]", *rows]))
    dumps = str(samples.path("hung_job") / "dumps")
    result = tracelink("diagnose", dumps, str(tmp_path / "smi.csv"), "--tz", "UTC", "-v")
    assert result.exit_code == 1
    assert "note: Rank 3's GPU runs at 1,100 MHz, the others at 1,980 MHz (medians)." in result.stdout
    assert json.loads(tracelink("diagnose", dumps, str(tmp_path / "smi.csv"), "--json").stdout)["verdict"]


def test_inspect_counts_samples_and_names_what_is_unknown(tracelink: Run) -> None:
    result = tracelink("inspect", str(samples.path("gpu_metrics")))
    header, row = (line.split() for line in result.stdout.splitlines()[2:4])
    assert (header[4], row[4]) == ("samples", "144")
    assert "Give the time zone, such as --tz +02:00" in result.stdout
    assert "Say which rank each is, such as --map 0-1=0-1" in result.stdout


def test_counters_of_a_json_timeline_have_units_and_hosts(tracelink: Run, tmp_path: Path) -> None:
    (tmp_path / "cpu.csv").write_text("timestamp,host,cpu_pct\n2025-03-01T08:06:00Z,node7,50\n")
    output = tmp_path / "merged.json"
    result = tracelink("merge", *INPUTS, str(tmp_path / "cpu.csv"), "-o", str(output))
    assert result.exit_code == 0
    events = json.loads(output.read_text())["traceEvents"]
    names = {(event["pid"], event["name"]) for event in events if event["ph"] == "C"}
    clocks = {name for name in names if "clocks.current.sm" in name[1] or "host" in name[1]}
    assert clocks == {
        (0, "clocks.current.sm (MHz)"),
        (1, "clocks.current.sm (MHz)"),
        (0, "host node7 · cpu_pct (%)"),
    }


def test_malformed_options_are_errors_of_usage(tracelink: Run) -> None:
    for option, value in (("--map", "0"), ("--tz", "Mars"), ("--metrics-start", "soon"), ("--interval", "x")):
        result = tracelink("merge", *INPUTS[:2], option, value)
        assert (result.exit_code, option in result.stderr) == (2, True)
