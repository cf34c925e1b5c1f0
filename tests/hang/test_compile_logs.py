"""Compile logs next to dumps: ranks that were busy compiling while others waited for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.compile_log import log
from builders.dumps import SECOND, Entries, dumps, hang, healthy, steps
from builders.recorder import CREATED
from builders.witnesses import alive, compile_log, compiling, near, recompiled
from tracelink import Diagnosis, diagnose
from tracelink._hang.compile_logs import _covered
from tracelink._hang.facts.model import Category, Kind, Problem
from tracelink._model.records import Frame
from tracelink._model.witnesses import Compiling


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
        "Rank 5 never joined all_reduce #3 of group 0 (default_pg); 7 ranks wait. Rank 5 has been compiling "
        "train_step [3/2] (async_compile.wait) for at least 6 min 34 s."
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
        guard="",
        guard_frame=None,
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


GUARD = (
    "0/0: s.i == 0                                # if s.i == 1:  # train.py:31 in forward\n"
    'User stack trace:\n  File "/home/me/main.py", line 90, in main\n    step(x)\n'
    '  File "/home/me/train.py", line 31, in forward\n    if s.i == 1:\n'
)
MISMATCH = "0/0: tensor 'x' size mismatch at index 0. expected 4, actual 6"


@pytest.mark.parametrize(
    ("reason", "words", "frame"),
    [
        (GUARD, "s.i == 0 failed at train.py:31", Frame("forward", "/home/me/train.py", 31)),
        (
            json.dumps(["0/0: n == 1  # return n  # a.py:7 in f", GUARD]),
            "n == 1 failed at a.py:7",
            Frame("f", "a.py", 7),
        ),
        (MISMATCH, "tensor 'x' size mismatch at index 0. expected 4, actual 6", None),
        ("n == 2", "n == 2 failed", None),
    ],
    ids=["stack of the user", "newest of a list", "sentence", "without an id"],
)
def test_a_function_that_is_compiled_again_names_the_guard(
    tmp_path: Path, reason: str, words: str, frame: Frame | None
) -> None:
    again = [recompiled("0/1", reason, 2.5), *compiling("0/1", 2.5), alive(42.5)]
    found = problem(tmp_path, hang(4), {2: [*compiling("0/0", 0, 1), *again]})
    assert found.message == (
        "Rank 2 never joined all_reduce #3 of group 0 (default_pg); 3 ranks wait. Rank 2 has been compiling "
        f"train_step [0/1] (async_compile.wait) for at least 40.0 s (again, because {words})."
    )
    assert [one.guard_frame for one in found.compiling] == [frame]
    assert found.advice.startswith(f"Rank 2 had compiled train_step before (warm): {words}. Mark sizes")


@pytest.mark.parametrize("reason", ["[damaged", "[]", "", "\n\n"])
def test_a_reason_that_is_no_guard(tmp_path: Path, reason: str) -> None:
    again = [recompiled("0/1", reason, 2.5), *compiling("0/1", 2.5), alive(42.5)]
    found = problem(tmp_path, hang(4), {2: [*compiling("0/0", 0, 1), *again]})
    assert [(one.cold, one.guard) for one in found.compiling] == [(False, "")]
    assert found.message.endswith("for at least 40.0 s.")


def test_a_compilation_that_ended_and_took_most_of_the_wait_is_named_but_not_blamed(tmp_path: Path) -> None:
    found = problem(tmp_path, hang(4), {2: [*compiling("0/0", 2.5, 500), alive(600)]})
    assert found.category is Category.NOT_REACHED
    assert found.advice.startswith(
        "Rank 2 finished compiling at 06:37:39.603 UTC: if the dumps were written later, it is stuck after that. "
    )
    assert (
        "Rank 2 was compiling train_step [0/0] (async_compile.wait) for 8 min 17 s meanwhile."
        in found.message
    )
    assert [one.open for one in found.compiling] == [False]


def test_a_rank_that_hangs_after_its_compilation(tmp_path: Path) -> None:
    """The dumps show calls 11 s after the end of the compilation."""
    entries = hang(4)
    for rank in (0, 1, 3):
        entries[rank] += steps(rank, 30, group=("1", "dp"))[29:]
    found = diagnosis(tmp_path, entries, {2: compiling("0/0", 2.5, 19)}).problems[0]
    assert (found.culprits, found.compiling, found.category) == ((2,), (), Category.NOT_REACHED)


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


def test_culprits_in_different_compilations(tmp_path: Path) -> None:
    entries = hang(8, culprit=5)
    del entries[6][2:]
    logs = {
        5: [*compiling("0/0", 2.5), alive(102.5)],
        6: [recompiled("1/1", GUARD, 2.5), *compiling("1/1", 2.5, name="loss"), alive(52.5)],
    }
    found = problem(tmp_path, entries, logs)
    assert found.message.endswith(
        " Rank 5 has been compiling train_step [0/0] (async_compile.wait) for at least 100.0 s. "
        "Rank 6 has been compiling loss [1/1] (async_compile.wait) for at least 50.0 s "
        "(again, because s.i == 0 failed at train.py:31)."
    )
    assert [(one.rank, one.cold) for one in found.compiling] == [(5, True), (6, False)]


def undecided() -> Entries:
    """Ranks 0 and 2 wait for 1 and 3, of which two are missing: they may be on their way."""
    entries = {rank: steps(rank, 1) for rank in (0, 2)}
    return entries | {rank: steps(rank, 2, group=("1", "dp"))[:1] for rank in (1, 3)}


def test_ranks_that_compile_while_nothing_decides_whether_the_job_hangs(tmp_path: Path) -> None:
    open_logs = {rank: [*compiling("0/0", 1.5), alive(61.5)] for rank in (1, 3)}
    found = diagnosis(tmp_path, undecided(), open_logs)
    (shown,) = found.problems
    assert (found.verdict, shown.kind, shown.category) == (
        "in_flight",
        Kind.IN_FLIGHT,
        Category.COMPILING,
    )
    assert shown.message == (
        "Ranks 1 and 3 are behind: ranks 0 and 2 wait for them in all_reduce #1 of group 0 (default_pg). "
        "The dumps do not show whether the job hangs or still runs. "
        "Ranks 1 and 3 have been compiling train_step [0/0] (async_compile.wait) for at least 60.0 s."
    )
    assert "tracelink diagnose NEW --before OLD" in shown.advice


def test_one_of_several_culprits_compiles(tmp_path: Path) -> None:
    entries = {rank: steps(rank, 3) for rank in range(8)}
    for rows in entries.values():
        rows[2]["retired"] = True
    for rank in (5, 6, 7):
        del entries[rank][2:]
    (shown,) = diagnosis(tmp_path, entries, {5: [*compiling("0/0", 2.5), alive(62.5)]}).problems
    assert shown.category is Category.NOT_REACHED
    assert shown.advice.startswith("Rank 5 is compiling; other culprits are not. ")


def test_an_absent_rank_for_which_none_waits(tmp_path: Path) -> None:
    entries = healthy(4)
    del entries[2]
    (shown,) = diagnosis(tmp_path, entries, {2: [*compiling("0/0", 2.5), alive(32.5)]}, world=4).problems
    assert (shown.kind, shown.category, shown.proven) == (Kind.ABSENT, Category.COMPILING, False)
    assert shown.message == (
        "Rank 2 left no dump. It had joined all_reduce #2 of group 0 (default_pg), which others finished. "
        "No rank is known to wait for it. "
        "Rank 2 has been compiling train_step [0/0] (async_compile.wait) for at least 30.0 s."
    )
    assert "out-of-memory" in shown.advice


def test_an_absent_rank_whose_compilation_ended(tmp_path: Path) -> None:
    entries = healthy(4)
    del entries[2]
    (shown,) = diagnosis(tmp_path, entries, {2: compiling("0/0", 2.5, 20)}, world=4).problems
    assert (shown.category, shown.compiling) == (Category.PROCESS_GONE, ())


def test_a_log_of_an_earlier_attempt_of_a_rank_without_calls(tmp_path: Path) -> None:
    entries = {rank: steps(rank, 1) for rank in range(4)}
    entries[2] = []
    hour, minute = (
        problem(tmp_path / str(since), entries, {2: compiling("0/0", since)}) for since in (-3600, -60)
    )
    assert (hour.compiling, [one.id for one in minute.compiling]) == ((), ["0/0"])


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
