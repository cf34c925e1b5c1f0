"""`tracelink diagnose` on folders of dumps: verdict, evidence, advice, exit codes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import Run

from builders.data import shared
from builders.dumps import dumps, hang, healthy, stack, steps
from builders.recorder import collective
from tracelink.cli.main import FINE, NO, UNREADABLE, USAGE

HANG = """\
Rank 2 never joined all_reduce #3 of group 0 (default_pg); 3 ranks wait.

group           ranks   last
0 (default_pg)  2       all_reduce #2  finished, not in #3
                0-1, 3  all_reduce #3  joined, not finished

What rank 2 did last:
time (UTC)    group           call           sizes     type   state      called at    in
06:29:20.603  0 (default_pg)  all_reduce #1  [64, 16]  Float  completed  train.py:10  step
06:29:21.603  0 (default_pg)  all_reduce #2  [64, 16]  Float  completed  train.py:20  step
  /home/me/train.py:20   step
  /home/me/train.py:200  main

Rank 0 (one of 3 that wait) waits in all_reduce #3 of group 0 (default_pg):
  /home/me/train.py:30   step
  /home/me/train.py:200  main

Next: See what rank 2 does now: py-spy dump --pid PID on its host, and the end of its log. Between \
train.py:20 (step), its last call, and train.py:30 (step), where the others wait, look for a branch, a loop or \
an exception that only it takes.
"""


def test_a_hang_on_one_screen(tracelink: Run) -> None:
    result = tracelink("diagnose", str(dumps(Path("dumps"), hang(4, culprit=2))))
    assert (result.exit_code, result.stdout, result.stderr) == (NO, HANG, "")


def test_whoever_wants_it_quiet_hears_the_verdict(tracelink: Run) -> None:
    result = tracelink("diagnose", str(dumps(Path("dumps"), hang(4, culprit=2))), "-q")
    assert (result.exit_code, result.stdout) == (NO, HANG.splitlines(keepends=True)[0])


def test_a_healthy_job_and_what_was_checked(tracelink: Run) -> None:
    folder = str(dumps(Path("dumps"), healthy(4)))
    said = (
        "Nothing is wrong in what 4 ranks recorded: 2 collectives of 1 group, 8 entries checked: everybody joined; "
        "operations, types and sizes agree.\n"
    )
    result = tracelink("diagnose", folder)
    assert (result.exit_code, result.stdout) == (FINE, said)
    quiet = tracelink("diagnose", folder, "-q")
    assert (quiet.exit_code, quiet.stdout) == (FINE, "")


def test_whoever_wants_everything_sees_all_groups_whole_stacks_and_who_was_late(tracelink: Run) -> None:
    entries = hang(4, culprit=2)
    for rank in (0, 1):
        entries[rank].insert(0, steps(rank, 2, group=("1", "tp"))[0])
    page = tracelink("diagnose", str(dumps(Path("dumps"), entries)), "-v").stdout
    assert "1 (tp)          0-1     all_reduce #1  finished\n" in page
    assert "  /usr/lib/python3.11/runpy.py:88  run\n" in page
    assert "Who came last, and how long the others waited for it, all together:\n" in page


def test_groups_in_which_all_are_at_the_same_place_are_counted(tracelink: Run) -> None:
    entries = hang(4, culprit=2)
    for rank in (0, 1):
        entries[rank].insert(0, steps(rank, 2, group=("1", "tp"))[0])
    page = tracelink("diagnose", str(dumps(Path("dumps"), entries))).stdout
    assert "1 other group: everybody at the same place\n" in page
    assert "1 (tp)" not in page


def test_a_missing_dump_and_what_the_others_prove_about_it(tracelink: Run) -> None:
    folder = dumps(Path("dumps"), hang(4, culprit=2))
    (folder / "comm_lib_trace_rank_3").unlink()
    page = tracelink("diagnose", str(folder)).stdout
    assert page.startswith("Rank 2 never joined all_reduce #3 of group 0 (default_pg); 2 ranks wait.\n")
    assert (
        "No dump of rank 3. The other dumps prove that it joined #2 of group 0 (default_pg); not what came after.\n"
    ) in page


def test_the_dump_of_the_culprit_is_missing(tracelink: Run) -> None:
    folder = dumps(Path("dumps"), hang(4, culprit=2))
    (folder / "comm_lib_trace_rank_2").unlink()
    page = tracelink("diagnose", str(folder)).stdout
    first, *_ = page.splitlines()
    assert "Rank 2" in first
    assert "no dump" in first
    assert "~/.cache/torch/comm_lib_trace_rank_N" in page


def test_a_dump_that_breaks_off_costs_only_itself(tracelink: Run) -> None:
    folder = dumps(Path("dumps"), hang(4, culprit=2))
    broken = folder / "comm_lib_trace_rank_3"
    broken.write_bytes(broken.read_bytes()[:-40])
    result = tracelink("diagnose", str(folder))
    assert result.exit_code == NO
    assert result.stdout.startswith("Rank 2 never joined all_reduce #3 of group 0 (default_pg); ")
    assert result.stdout.count("The dump of rank 3 is damaged: ") == 1
    assert result.stdout.count("comm_lib_trace_rank_3") == 1


def test_an_empty_dump_is_that_of_its_rank(tracelink: Run) -> None:
    folder = dumps(Path("dumps"), hang(4, culprit=2))
    (folder / "comm_lib_trace_rank_3").write_bytes(b"")
    page = tracelink("diagnose", str(folder)).stdout
    assert "The dump of rank 3 is damaged: dumps/comm_lib_trace_rank_3: the file is empty." in page
    assert "No dump of" not in page


def test_several_problems_are_numbered_and_explained_one_after_the_other(tracelink: Run) -> None:
    entries = {rank: [_sum(group, rank) for group in ("1", "2")] for rank in range(4)}
    result = tracelink("diagnose", str(dumps(Path("dumps"), entries)))
    first, second, *rest = result.stdout.splitlines()
    assert (first[:2], second[:2]) == ("1.", "2.")
    assert [line for line in rest if line in (first, second)] == [first, second]
    assert tracelink("diagnose", "dumps", "-q").stdout.splitlines() == [first, second]


def _sum(group: str, rank: int) -> dict[str, object]:
    size = [[4 if rank != int(group) else 8]]
    return collective(
        group=(group, ""), completed=1, input_sizes=size, output_sizes=size, frames=stack("step", 1)
    )


def test_a_folder_without_dumps(tracelink: Run) -> None:
    Path("empty").mkdir()
    result = tracelink("diagnose", "empty")
    assert result.exit_code == UNREADABLE
    assert result.stderr == (
        "tracelink: there is no flight-recorder dump; there is no file at all. A rank writes its dump on its own "
        "host: to the path in TORCH_FR_DUMP_TEMP_FILE with the rank behind it, by default "
        "~/.cache/torch/comm_lib_trace_rank_N.\n"
    )


def test_a_folder_of_something_else(tracelink: Run) -> None:
    Path("texts").mkdir()
    for name in ("a.txt", "b.txt"):
        Path("texts", name).write_text("hello")
    result = tracelink("diagnose", "texts")
    assert result.exit_code == UNREADABLE
    assert result.stderr.startswith(
        "tracelink: there is no flight-recorder dump; the 2 files here are something else."
    )


def test_dumps_of_which_nobody_knows_the_rank(tracelink: Run) -> None:
    folder = dumps(Path("dumps"), healthy(2))
    for rank, name in enumerate("ab"):
        (folder / f"comm_lib_trace_rank_{rank}").rename(folder / name)
    result = tracelink("diagnose", "dumps")
    assert result.exit_code == UNREADABLE
    assert "Say it with --rank dumps/a=N." in result.stderr
    named = tracelink("diagnose", "dumps", "--rank", "a=0", "--rank", "b=1")
    assert named.stdout.startswith("Nothing is wrong in what 2 ranks recorded")


def test_a_rank_that_stands_twice_and_which_folders_to_choose_from(tracelink: Run) -> None:
    for moment in ("before", "after"):
        dumps(Path("dumps", moment), hang(4, culprit=2))
    result = tracelink("diagnose", "dumps")
    assert result.exit_code == USAGE
    assert result.stderr == (
        "tracelink: rank 0 stands twice in format flight-recorder: dumps/after/comm_lib_trace_rank_0 and "
        "dumps/before/comm_lib_trace_rank_0. Take each job by itself and name one folder: dumps/after or "
        "dumps/before. Of one job, say whose each file is with --rank FILE=N.\n"
    )


def test_a_rank_that_stands_twice_in_one_folder(tracelink: Run) -> None:
    folder = dumps(Path("dumps"), healthy(2))
    shutil.copy(folder / "comm_lib_trace_rank_0", folder / "old_rank_0")
    result = tracelink("diagnose", "dumps")
    assert result.exit_code == USAGE
    assert "Take each job by itself: leave one out" in result.stderr


def test_of_two_jobs_in_one_archive_no_folder_is_named_that_cannot_be(tracelink: Run, tmp_path: Path) -> None:
    for moment in ("before", "after"):
        dumps(tmp_path / "dumps" / moment, hang(ranks=2, culprit=1))
    shutil.make_archive(str(tmp_path / "both"), "tar", tmp_path, "dumps")
    result = tracelink("diagnose", str(tmp_path / "both.tar"))
    assert result.exit_code == 2
    assert result.stderr.endswith("Take each job by itself: unpack the archive, and name one folder of it.\n")


REAL = {
    "dtype_mismatch/dumps_hang": "Rank 1 ",
    "healthy8/dumps": "Nothing is wrong in what 8 ranks recorded: 141 collectives of 8 groups, 714 entries",
    "missing_other/dumps": "Rank 3 never joined all_reduce #9 of group 0 (default_pg); 6 ranks wait",
    "op_mismatch/dumps_hang": "Rank 4 ",
    "skip_hang/dumps_hang": "Rank 3 never joined all_reduce #9 of group 0 (default_pg); 7 ranks wait",
    "skip_hang/dumps_after_timeout": "Rank 3 never joined all_reduce #9 of group 0 (default_pg); 7 ranks wait",
    "skip_next/dumps_hang": "Rank 5 skipped all_reduce #7 of group 0 (default_pg)",
    "straggler/dumps_end": "Nothing is wrong in what 8 ranks recorded",
    "straggler/dumps_hang": "Rank 6 never joined all_reduce #7 of group 0 (default_pg); 7 ranks wait",
    "subgroup_deadlock/dumps_hang": "Deadlock: ranks 0-5, 7 in all_reduce #5 of group 0 (default_pg) wait for rank 6",
    "truncated/dumps": "Nothing is wrong in what 8 ranks recorded",
    "wrapped/dumps": "Nothing is wrong in what 8 ranks recorded",
}
SCREEN = 40


@pytest.mark.parametrize(("case", "verdict"), REAL.items(), ids=REAL)
def test_what_happened_in_a_real_job_fits_on_a_screen(tracelink: Run, case: str, verdict: str) -> None:
    result = tracelink("diagnose", str(shared(f"fr/{case}")))
    assert result.stdout.startswith(verdict)
    assert len(result.stdout.splitlines()) <= SCREEN
    assert result.exit_code == (FINE if verdict.startswith("Nothing") else NO)
