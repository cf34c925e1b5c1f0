"""Several runs in one folder, and ranks without a log."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracelink
from builders.compile_log import begin, end, log, metrics
from builders.data import traces
from tracelink._compile.model import CompileReport, RunOfJob
from tracelink._compile.runs import Run, runs_of
from tracelink._model.errors import UsageError
from tracelink._model.trace import SourceInfo
from tracelink._model.witnesses import Compilation, CompileLog


def compiled(name: str, at: float, compile_id: str = "0/0") -> bytes:
    """A function that a rank compiled for a second."""
    return log(
        begin("dynamo", compile_id, at=at),
        end("dynamo", compile_id, at=at + 1),
        metrics(compile_id, start=at, co_name=name),
    )


def write(folder: Path, rank: int, name: str, content: bytes) -> None:
    text = content.replace(b'"frame_id"', f'"rank": {rank}, "frame_id"'.encode())
    (folder / f"dedicated_log_torch_trace_rank_{rank}_{name}.log").write_bytes(text)


def findings(report: CompileReport) -> list[tuple[str, str]]:
    return [(one.reason, one.message) for one in report.findings]


def test_two_runs_are_not_compared_with_each_other(tmp_path: Path) -> None:
    for rank in range(2):
        write(tmp_path, rank, "a", compiled("old", 0))
        write(tmp_path, rank, "b", compiled("new", 100))
    found = tracelink.compile(tmp_path)
    assert [(one.number, one.ranks, one.logs) for one in found.runs] == [(1, (0, 1), 2), (2, (0, 1), 2)]
    assert found.divergences == []
    assert findings(found) == [
        (
            "several_runs",
            "The logs are of 2 runs: run 1 of ranks 0 and 1 from 2026-11-18 06:08:23.000000 UTC; run 2 of ranks 0 and "
            "1 from 2026-11-18 06:10:03.000000 UTC. Ranks are compared within each run; other tables have all of them. "
            "--run 2 shows the last one only.",
        )
    ]


def test_one_run_is_chosen(tmp_path: Path) -> None:
    for rank in range(2):
        write(tmp_path, rank, "a", compiled("old", 0))
        write(tmp_path, rank, "b", compiled("new" if rank else "other", 100))
    found = tracelink.compile(tmp_path, run=2)
    assert {one.function for one in found.compiles} == {"new", "other"}
    assert [(one.what, one.run) for one in found.divergences] == [("compile", 2)]
    assert found.findings == []
    with pytest.raises(UsageError, match=r"there is no run 3. The logs are of 2 runs, from 1 on"):
        tracelink.compile(tmp_path, run=3)


def test_a_fast_rank_of_the_next_run_that_the_first_run_does_not_have(tmp_path: Path) -> None:
    """Rank 1 of run 2 begins first: the pause before it separates the runs."""
    write(tmp_path, 0, "a", compiled("step", 0))
    write(tmp_path, 1, "b", compiled("step", 100))
    write(tmp_path, 0, "b", compiled("step", 101))
    assert [one.ranks for one in tracelink.compile(tmp_path).runs] == [(0,), (0, 1)]


def test_forked_processes_and_later_logs_are_of_the_same_run(tmp_path: Path) -> None:
    write(tmp_path, 0, "a", compiled("step", 0))
    write(tmp_path, 0, "b", compiled("other", 100, "1/0"))
    found = tracelink.compile(tmp_path)
    assert (len(found.runs), found.findings) == (1, [])
    assert len(tracelink.compile(traces("compile_faults")).runs) == 1


def test_processes_without_a_rank_that_work_at_the_same_time_are_one_run(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"dedicated_log_torch_trace_{name}.log").write_bytes(compiled("step", 0.25))
    assert len(tracelink.compile(tmp_path).runs) == 1


def test_ranks_without_a_log(tmp_path: Path) -> None:
    for rank in (0, 1, 3, 6):
        write(tmp_path, rank, "a", compiled("step", 0))
    assert findings(tracelink.compile(tmp_path)) == [
        (
            "missing_ranks",
            "Ranks 2, 4-5 have no log, other than ranks 0-1, 3, 6: they compiled nothing, or the log is missing.",
        )
    ]


def test_a_huge_rank_is_not_counted_one_by_one(tmp_path: Path) -> None:
    for rank in (0, 10**6):
        write(tmp_path, rank, "a", compiled("step", 0))
    (finding,) = tracelink.compile(tmp_path).findings
    assert finding.count == 10**6 - 1


def test_a_run_of_one_rank(tmp_path: Path) -> None:
    write(tmp_path, 3, "a", compiled("step", 0))
    found = tracelink.compile(tmp_path)
    assert (found.findings, found.runs) == ([], [RunOfJob(1, (3,), found.compiles[0].start_ns, 1)])


STARTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 100)), min_size=1, max_size=12)


@given(STARTS)
def test_every_log_is_in_one_run_and_no_rank_compiles_an_id_twice_in_a_run(
    starts: list[tuple[int, int]],
) -> None:
    logs: dict[int, list[CompileLog]] = {}
    for rank, start in starts:
        source = SourceInfo("x", "torch-trace", rank=rank, start_ns=start * 1000 + len(logs))
        compilations = [Compilation("0/0", 0, start, 1, False)]
        logs.setdefault(rank, []).append(
            CompileLog(source, "", [], compilations, [], last_ns=start * 1000 + 1)
        )
    runs: list[Run] = runs_of(logs)
    assert sum(len(of_rank) for run in runs for of_rank in run.logs.values()) == len(starts)
    distinct = {start for _, start in starts}
    if len(distinct) == len(starts):
        assert all(len(of_rank) == 1 for run in runs for of_rank in run.logs.values())
