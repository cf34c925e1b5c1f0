"""Watchdog lines: what one line says, and how lines are found in logs of any size."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.monitors import Group, c10, gloo_lost, gloo_timeout, hung, passed, status, timed_out
from tracelink._io.sources import discover_inputs
from tracelink._model.witnesses import Report, Sign, WatchdogLog
from tracelink._run.processes import Processes
from tracelink.converters.monitors.watchdog import (
    AFTER,
    BLOCK,
    FROM_END,
    FROM_START,
    TOKENS,
    WatchdogLogReader,
    report_of,
)

DAY = 323 * 86_400 * 10**9
"""The 19th of November in a leap year."""
AT = DAY + 14 * 3600 * 10**9


def read(path: Path) -> WatchdogLog:
    (source,) = discover_inputs([path]).sources
    return WatchdogLogReader().read_reports(source, Processes(1))


def log(folder: Path, text: str | bytes) -> WatchdogLog:
    path = folder / "job.log"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read(path)


# What a line says.


def test_a_collective_that_timed_out() -> None:
    line = timed_out(3, 21, operation="_REDUCE_SCATTER_BASE", elements=64, out=8, second=1.5, member=1)
    assert report_of(line) == Report(
        Sign.TIMED_OUT,
        rank=3,
        at_ns=AT + 1_500_000_000,
        sequence=21,
        operation="nccl:_reduce_scatter_base",
        elements_in=64,
        elements_out=8,
        timeout_ms=600_000,
        ran_ms=600_061,
    )


def test_the_status_after_a_timeout() -> None:
    line = status(3, 23, 20, at=21, group=Group("5", "mesh_dp", 2), member=1)
    assert report_of(line) == Report(
        Sign.STATUS,
        rank=3,
        at_ns=AT,
        group="5",
        description="mesh_dp",
        member=1,
        sequence=21,
        enqueued=23,
        completed=20,
    )


def test_the_status_at_the_signal_of_another_rank() -> None:
    assert report_of(status(6, 20, 20)) == Report(
        Sign.STATUS,
        rank=6,
        at_ns=AT,
        group="0",
        description="default_pg",
        member=6,
        enqueued=20,
        completed=20,
    )


@pytest.mark.parametrize(
    ("prefix", "group", "description"),
    [
        ("[PG 0 Rank 2]", "0", "default_pg"),
        ("[PG 3 Rank 2]", "", ""),
        ("[PG ID 1 PG GUID 1 Rank 2]", "1", ""),
        ("[PG ID 1 PG GUID 8f3a(mesh_tp) Rank 2]", "8f3a", "mesh_tp"),
        ("[PG ID 0 PG GUID 0(default_pg) Rank 2]", "0", "default_pg"),
        ("[PG 3 (mesh_dp) Rank 2]", "", "mesh_dp"),
    ],
)
def test_names_of_groups_in_all_versions(prefix: str, group: str, description: str) -> None:
    """Up to torch 2.4 other numbers than 0 are local to a process."""
    text = f"{prefix} Timeout at NCCL work: 4, last enqueued NCCL work: 6, last completed NCCL work: 3."
    found = report_of(c10(2, text))
    assert found
    assert (found.group, found.description, found.member, found.sequence) == (group, description, 2, 4)
    assert (found.enqueued, found.completed) == (6, 3)


def test_lines_of_old_versions() -> None:
    first = "[E ProcessGroupNCCL.cpp:475] [Rank 3] Watchdog caught collective operation timeout: "
    work = "WorkNCCL(OpType=ALLREDUCE, TensorShape=[1, 5], Timeout(ms)=1800000) ran for 1800372 milliseconds"
    assert report_of(first + work) == Report(
        Sign.TIMED_OUT, operation="nccl:all_reduce", timeout_ms=1_800_000, ran_ms=1_800_372
    )


def test_a_number_that_was_never_initialized_is_not_believed() -> None:
    numbers = "last enqueued NCCL work: 1, last completed NCCL work: 76280750235782912."
    text = f"[PG 0 Rank 2] Timeout at NCCL work: 1, {numbers}"
    assert report_of(c10(2, text)) is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (gloo_timeout("send"), Report(Sign.GAVE_UP, operation="gloo:send", timeout_ms=14_000)),
        (gloo_lost(), Report(Sign.LOST)),
        (
            "[rank0]: RuntimeError: [Rank 0]: Ranks 6, 2 failed to pass monitoredBarrier in 10000 ms",
            Report(Sign.BARRIER, rank=0, operation="gloo:barrier", timeout_ms=10_000, members=(2, 6)),
        ),
        (
            "RuntimeError: [Rank 0]: Rank 6 failed to pass monitoredBarrier in 10000 ms\n Original",
            Report(Sign.BARRIER, operation="gloo:barrier", timeout_ms=10_000, members=(6,)),
        ),
        (passed(5), Report(Sign.PASSED, member=5, operation="gloo:barrier")),
        (
            c10(4, "[PG ID 0 PG GUID 0(default_pg) Rank 4] Heartbeat monitor timed out! Process will be"),
            Report(Sign.HEARTBEAT, rank=4, at_ns=AT, group="0", description="default_pg", member=4),
        ),
        ("loss 3.2", None),
        ("Connection closed by peer [127.0.0.1]:443", None),
    ],
)
def test_other_lines(line: str, expected: Report | None) -> None:
    assert report_of(line) == expected


@pytest.mark.parametrize(
    ("start", "label"),
    [
        ("", None),
        ("3: ", 3),
        ("[default3]:", 3),
        ("\x1b[36m(Worker pid=7)\x1b[0m ", None),
        ('{"log":"', None),
    ],
)
def test_what_launchers_put_in_front(start: str, label: int | None) -> None:
    found = report_of(start + timed_out(5, 2))
    assert found
    assert (found.rank, found.label, found.sequence) == (5, label, 2)


@given(st.text())
def test_any_text(text: str) -> None:
    report_of(text)


@given(st.sampled_from(TOKENS), st.text(max_size=80), st.text(max_size=80))
def test_any_text_around_a_mark(mark: bytes, before: str, after: str) -> None:
    report_of(before + mark.decode() + after)


# How lines are found.


def test_lines_are_found_across_blocks_and_in_their_order(tmp_path: Path) -> None:
    filler = b"x" * 99 + b"\n"
    first, second = timed_out(1, 7).encode() + b"\n", status(1, 7, 6, at=7).encode() + b"\n"
    before = filler * ((BLOCK - 120) // len(filler))
    found = log(tmp_path, before + first + filler * 50_000 + second + filler)
    assert [report.sign for report in found.reports] == [Sign.TIMED_OUT, Sign.STATUS]
    assert not found.findings


def test_equal_lines_count_once(tmp_path: Path) -> None:
    assert len(log(tmp_path, f"{timed_out(1, 7)}\n" * 5).reports) == 1


def test_a_line_of_many_megabytes(tmp_path: Path) -> None:
    """Logs as JSON on one line, or progress bars without an end of line."""
    text = b"y" * (2 * BLOCK) + timed_out(1, 7).encode() + b"z" * (BLOCK + AFTER) + timed_out(2, 8).encode()
    assert [(one.rank, one.sequence) for one in log(tmp_path, text).reports] == [(1, 7), (2, 8)]


def test_the_middle_of_a_very_large_log_is_not_searched(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    with path.open("wb") as file:
        file.write(timed_out(1, 7).encode() + b"\n")
        file.seek(FROM_START + 50)
        file.write(b"\n" + timed_out(2, 8).encode() + b"\n")
        file.seek(2 * (FROM_START + FROM_END))
        file.write(b"\n" + timed_out(3, 9).encode() + b"\n")
    found = read(path)
    assert [one.rank for one in found.reports] == [1, 3]
    assert [(one.reason, "MB of this log were not searched" in one.message) for one in found.findings] == [
        ("log_not_searched", True)
    ]


@given(st.data())
def test_interleaved_lines_say_the_same_as_files_of_ranks(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    logs = {rank: list(lines) for rank, lines in hung().items()}
    separate = [report_of(line) for lines in logs.values() for line in lines]
    order = data.draw(st.permutations([rank for rank, lines in logs.items() for _ in lines]))
    lines = [logs[rank].pop(0) for rank in order]
    end = data.draw(st.sampled_from(["\n", "\r\n", "\nstep 1\n"]))
    found = log(tmp_path_factory.mktemp("log"), end.join(lines))
    assert set(found.reports) == set(separate)
