"""Collectives that waited for a rank while it compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracelink
from builders.data import foreign, traces
from builders.dumps import SECOND, Entries, dumps, steps
from builders.recorder import CREATED, collective
from builders.witnesses import alive, compile_log, compiling, near


def late(rank: int, seconds: float, ranks: int = 4) -> Entries:
    """All finish three all-reduces; this rank enters the third one later than the others."""
    entries = {each: steps(each, 3)[:2] for each in range(ranks)}
    for each, rows in entries.items():
        created = round(CREATED + (3 + (seconds if each == rank else 0)) * SECOND) + each * 1000
        done = round(CREATED + (3.5 + seconds) * SECOND)
        rows.append(
            collective("nccl:all_reduce", 3, group=("0", "default_pg"), created=created, completed=done)
        )
    return entries


def test_a_collective_waits_for_the_rank_that_compiles(tmp_path: Path) -> None:
    dumps(tmp_path, late(2, 5))
    compile_log(
        tmp_path, 2, *compiling("0/0", 3.5, 6.5, name="step"), *compiling("0/1", 6.75, 7.5), alive(20)
    )
    (delay,) = tracelink.compile(tmp_path).delays
    assert (delay.group, delay.sequence, delay.operation) == ("0", 3, "all_reduce")
    assert (delay.rank, delay.ids, delay.function) == (2, ("0/0", "0/1"), "step")
    assert (delay.waiting, near(delay.start_ns, 3)) == ((0, 1, 3), True)
    assert abs(delay.delay_ns - 3.75 * SECOND) < 10_000


def test_work_that_is_open_when_the_log_ends_counts_until_then(tmp_path: Path) -> None:
    dumps(tmp_path, late(1, 4))
    compile_log(tmp_path, 1, *compiling("0/0", 3.5), alive(6))
    (delay,) = tracelink.compile(tmp_path).delays
    assert abs(delay.delay_ns - 2.5 * SECOND) < 10_000


def test_a_rank_that_is_late_for_another_reason_delays_nothing(tmp_path: Path) -> None:
    dumps(tmp_path, late(2, 5))
    compile_log(tmp_path, 2, *compiling("0/0", 1, 3.25), alive(20))
    compile_log(tmp_path, 1, *compiling("0/0", 3.5, 8), alive(20))
    assert tracelink.compile(tmp_path).delays == []


def test_without_recordings_nothing_is_known(tmp_path: Path) -> None:
    path = compile_log(tmp_path, 2, *compiling("0/0", 3.5, 6.5), alive(20))
    assert not tracelink.compile(path).delays


def test_a_damaged_dump_costs_only_itself(tmp_path: Path) -> None:
    dumps(tmp_path, late(2, 5))
    content = (tmp_path / "comm_lib_trace_rank_0").read_bytes()
    (tmp_path / "comm_lib_trace_rank_0").write_bytes(content[: len(content) // 2])
    compile_log(tmp_path, 2, *compiling("0/0", 3.5, 6.5), alive(20))
    found = tracelink.compile(tmp_path)
    assert [one.waiting for one in found.delays] == [(1, 3)]
    assert [one.source.rpartition("/")[2] for one in found.findings] == ["comm_lib_trace_rank_0"]


SAMPLE = [
    ("barrier", 3, 1, ("2/0",), (0,)),
    ("all_reduce", 2, 1, ("0/0",), (0,)),
    ("all_reduce", 7, 0, ("0/1",), (1,)),
    ("all_reduce", 1, 0, ("0/0",), (1,)),
]
SHARED = [
    ("all_reduce", 1, 1, ("0/0",), (0, 2, 3)),
    ("all_reduce", 9, 2, ("2/2", "3/0"), (0, 1, 3)),
    ("all_reduce", 3, 0, ("0/0",), (1, 2, 3)),
    ("all_gather", 2, 0, ("1/0",), (1, 2, 3)),
    ("all_reduce", 6, 2, ("2/1",), (0, 1, 3)),
]


@pytest.mark.parametrize(
    ("path", "delays"), [("compile_job", SAMPLE), *foreign(("torch_trace/multirank_matched", SHARED))]
)
def test_recorded_delays(path: str, delays: list[tuple[object, ...]]) -> None:
    found = tracelink.compile(traces(path)).delays
    assert [(one.operation, one.sequence, one.rank, one.ids, one.waiting) for one in found] == delays
