"""Compile logs next to dumps: ranks that were busy compiling while others waited for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.busy_compiling import alive, compile_log, compiling, near
from builders.compile_log import log
from builders.dumps import SECOND, Entries, dumps, hang, healthy, steps
from builders.recorder import CREATED
from tracelink import Diagnosis, diagnose
from tracelink.diagnosis.model import Category, Kind, Problem
from tracelink.diagnosis.witnesses.compile_logs import _covered
from tracelink.diagnosis.witnesses.model import Compiling


def diagnosis(
    folder: Path, entries: Entries, logs: dict[int, list[str]], world: int | None = None
) -> Diagnosis:
    for rank, records in logs.items():
        compile_log(folder / "traces", rank, *records)
    return diagnose([dumps(folder / "dumps", entries, world=world), *folder.glob("traces")])


def problem(folder: Path, entries: Entries, logs: dict[int, list[str]]) -> Problem:
    (found,) = diagnosis(folder, entries, logs).problems
    return found


def at(seconds: float) -> int:
    return CREATED + round(seconds * SECOND)


def test_a_culprit_whose_log_ends_in_a_compilation(tmp_path: Path) -> None:
    found = problem(tmp_path, hang(8, culprit=5), {5: [*compiling("3/2", 2.6), alive(396.6)]})
    (shown,) = found.compiling
    assert found.message == (
        "Rank 5 never joined all_reduce #3 of group 0 (default_pg): it has been compiling train_step [3/2] "
        "(async_compile.wait) for at least 6 min 34 s; 7 ranks wait."
    )
    assert (found.kind, found.category) == (Kind.NEVER_JOINED, Category.COMPILING)
    assert near(shown.since_ns, 2.6)
    assert shown == Compiling(
        5,
        "3/2",
        "train_step",
        ("entire_frame_compile", "async_compile.wait"),
        shown.since_ns,
        shown.duration_ns,
        open=True,
        cold=False,
        sources=(str(tmp_path / "traces" / "dedicated_log_torch_trace_rank_5_abc.log"),),
    )
    assert "(warm)" in found.advice
    assert "tracelink compile" in found.advice


def test_what_a_log_does_not_show_any_more_lasts_until_the_latest_call_of_other_ranks(tmp_path: Path) -> None:
    entries = hang(4, culprit=2)
    for rank in (0, 1, 3):
        entries[rank] += steps(rank, 30, group=("1", "dp"))[29:]
    found = diagnosis(tmp_path, entries, {2: compiling("0/0", 2.5)}).problems[0]
    assert "(async_compile.wait) for at least 27.5 s" in found.message


def test_an_incomplete_log_shows_nothing_after_its_end(tmp_path: Path) -> None:
    entries = hang(4, culprit=2)
    for rank in (0, 1, 3):
        entries[rank] += steps(rank, 30, group=("1", "dp"))[29:]
    cut = [*compiling("0/0", 2.5), alive(12.5), alive(20)[:-20]]
    found = diagnosis(tmp_path, entries, {2: cut}).problems[0]
    assert "(async_compile.wait) for at least 10.0 s" in found.message


def test_the_first_compilation_of_a_function_is_cold(tmp_path: Path) -> None:
    found = problem(tmp_path, hang(4), {2: [*compiling("0/0", 0, 1, "init"), *compiling("1/0", 2.5)]})
    assert [one.cold for one in found.compiling] == [True]
    assert "for the first time (cold): use a longer timeout" in found.advice


@pytest.mark.parametrize(
    "records",
    [
        compiling("0/0", 0, 1.5),
        [*compiling("0/0", 2.5, 2.9), alive(600)],
        [*compiling("0/0", 2.9, 4), alive(600)],
        compiling("0/0", -900),
        compiling("0/0", 1.1),
    ],
    ids=[
        "long before",
        "just before",
        "a small part of the wait",
        "of an earlier run",
        "before its last call",
    ],
)
def test_a_log_that_does_not_explain_the_wait(tmp_path: Path, records: list[str]) -> None:
    found = problem(tmp_path, hang(4), {2: records})
    assert (found.compiling, found.category) == ((), Category.NOT_REACHED)
    assert found.message == "Rank 2 never joined all_reduce #3 of group 0 (default_pg); 3 ranks wait."


def test_a_compilation_that_ended_and_took_most_of_the_wait(tmp_path: Path) -> None:
    found = problem(tmp_path, hang(4), {2: [*compiling("0/0", 2.5, 500), alive(600)]})
    assert (
        "it was compiling train_step [0/0] (async_compile.wait) for 8 min 17 s meanwhile; 3" in found.message
    )
    assert [one.open for one in found.compiling] == [False]


def test_a_rank_that_joined_after_others_gave_up(tmp_path: Path) -> None:
    entries = {rank: steps(rank, 3) for rank in range(4)}
    entries[2][-1]["time_created_ns"] = at(700)
    for rank in (0, 1, 3):
        entries[rank][-1] |= {"retired": True, "time_discovered_completed_ns": None}
    found = diagnosis(tmp_path, entries, {2: [*compiling("0/0", 2.5, 699), alive(800)]}).problems[0]
    assert (found.kind, found.culprits, found.category) == (Kind.NEVER_JOINED, (2,), Category.COMPILING)
    assert found.message.endswith(
        " Rank 2 was compiling train_step [0/0] (async_compile.wait) for 11 min 36 s meanwhile."
    )


def test_a_waiting_rank_that_compiles_is_no_witness(tmp_path: Path) -> None:
    alone = problem(tmp_path / "alone", hang(4), {})
    assert problem(tmp_path / "both", hang(4), {0: compiling("0/0", 3.5)}).message == alone.message


def test_several_culprits_in_the_same_compilation(tmp_path: Path) -> None:
    entries = hang(8, culprit=5)
    del entries[6][2:]
    found = problem(tmp_path, entries, {rank: [*compiling("0/0", 2.5), alive(102.5)] for rank in (5, 6)})
    assert found.message.endswith(
        " Ranks 5 and 6 have been compiling train_step [0/0] (async_compile.wait) for at least 100.0 s."
    )
    assert (found.category, [one.rank for one in found.compiling]) == (Category.COMPILING, [5, 6])


def test_a_rank_without_a_dump_may_be_gone(tmp_path: Path) -> None:
    entries = hang(4, culprit=2)
    del entries[2]
    (found,) = diagnosis(tmp_path, entries, {2: compiling("0/0", 0.5)}, world=4).problems
    assert (found.category, found.proven) == (Category.COMPILING, False)
    assert "for the first time (cold)" in found.advice
    assert "out-of-memory" in found.advice


def test_the_log_before_a_restart_is_not_open(tmp_path: Path) -> None:
    compile_log(tmp_path / "traces", 2, *compiling("0/0", 2.5), name="a_rank_2_a.log")
    restarted = log(*compiling("0/0", 2.8, 2.9)).decode().replace(" 4711 ", " 4712 ")
    (tmp_path / "traces" / "a_rank_2_b.log").write_text(restarted + alive(600).replace(" 4711 ", " 4712 "))
    (found,) = diagnose([dumps(tmp_path / "dumps", hang(4)), tmp_path / "traces"]).problems
    assert found.compiling == ()


def test_a_log_without_a_rank_is_of_no_rank(tmp_path: Path) -> None:
    compile_log(tmp_path / "traces", 0, *compiling("0/0", 2.5), name="dedicated_log_torch_trace_xyz.log")
    paths = [dumps(tmp_path / "dumps", hang(4, culprit=0)), tmp_path / "traces"]
    (found,) = diagnose(paths).problems
    assert (found.culprits, found.compiling) == ((0,), ())
    (given_rank,) = diagnose(paths, rank_of={"dedicated_log_torch_trace_xyz.log": 0}).problems
    assert [one.id for one in given_rank.compiling] == ["0/0"]


def test_a_healthy_job_reads_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tracelink.converters.torch_trace.reader import TorchTraceReader

    monkeypatch.setattr(TorchTraceReader, "read_log", None)
    monkeypatch.setattr(TorchTraceReader, "read", None)
    assert diagnosis(tmp_path, healthy(4), {2: compiling("0/0", 2.5)}).verdict == "ok"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))))
def test_covered_time(parts: list[tuple[int, int]]) -> None:
    spans = [(min(pair), max(pair)) for pair in parts]
    assert _covered(spans) == len({second for start, end_ in spans for second in range(start, end_)})
