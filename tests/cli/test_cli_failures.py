"""What a user sees when something goes wrong: words, never a traceback, and an exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Job, Run

from tracelink import samples
from tracelink.errors import RankConflictError, TraceError, UnreadableError, UsageError

CUT_OFF = UnreadableError("cut\noff", source="k.json", position="byte 12", advice="Copy it again.")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (RankConflictError("x"), 2),
        (UnreadableError("x"), 3),
        (TraceError("x"), 1),
        (RuntimeError("x"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
@pytest.mark.parametrize("how", [(), ("--json",), ("--quiet",)])
def test_the_exit_code_says_what_kind_of_error_it_was(
    tracelink: Run, job: Job, error: BaseException, code: int, how: tuple[str, ...]
) -> None:
    job.error = error
    assert tracelink("inspect", "traces/", *how).exit_code == code


class TestTraceError:
    def test_is_one_paragraph_that_says_where_what_and_what_to_do(self, tracelink: Run, job: Job) -> None:
        job.error = CUT_OFF
        result = tracelink("inspect", "k.json")
        assert result.stderr == "tracelink: k.json, byte 12: cut off. Copy it again.\n"
        assert result.stdout == ""

    def test_is_said_to_the_quiet_too(self, tracelink: Run, job: Job) -> None:
        job.error = CUT_OFF
        assert "cut off" in tracelink("inspect", "k.json", "-q").stderr

    def test_is_json_for_a_program_and_words_for_its_log(self, tracelink: Run, job: Job) -> None:
        job.error = CUT_OFF
        result = tracelink("inspect", "k.json", "--json")
        assert json.loads(result.stdout) == {
            "error": {
                "message": "cut\noff",
                "source": "k.json",
                "position": "byte 12",
                "advice": "Copy it again.",
            }
        }
        assert result.stderr.startswith("tracelink: ")


class TestUnexpectedError:
    def test_is_one_line_that_says_how_to_see_more(self, tracelink: Run, job: Job) -> None:
        job.error = RuntimeError("the impossible\nhappened")
        said = tracelink("inspect", "k.json").stderr
        assert said.count("\n") == 1
        assert "RuntimeError: the impossible happened" in said
        assert "run with -v for the traceback" in said

    def test_has_a_traceback_for_the_verbose(self, tracelink: Run, job: Job) -> None:
        job.error = RuntimeError("the impossible")
        said = tracelink("inspect", "k.json", "-v").stderr
        assert "Traceback" in said
        assert said.splitlines()[-1].startswith("tracelink: ")

    def test_is_json_for_a_program(self, tracelink: Run, job: Job) -> None:
        job.error = RuntimeError("the impossible")
        document = json.loads(tracelink("inspect", "k.json", "--json").stdout)
        assert "the impossible" in document["error"]["message"]


def test_an_interrupt_is_one_line(tracelink: Run, job: Job) -> None:
    job.error = KeyboardInterrupt()
    assert tracelink("inspect", "traces/").stderr == "tracelink: interrupted.\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect",),
        ("convert", "one"),
        ("completion", "powershell"),
        ("inspect", "x", "--no-such-option"),
        ("inspect", "x", "--jobs", "0"),
        ("inspect", "x", "--verbose", "--quiet"),
    ],
)
def test_a_wrong_use_ends_with_2_in_words_and_in_json(
    tracelink: Run, job: Job, arguments: tuple[str, ...]
) -> None:
    result = tracelink(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr
    result = tracelink(*arguments, "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["message"]


def test_an_unknown_command_ends_with_2(tracelink: Run) -> None:
    result = tracelink("mergee")
    assert result.exit_code == 2
    assert "mergee" in result.stderr


def test_a_path_that_is_not_there_ends_with_2_and_is_named(tracelink: Run) -> None:
    result = tracelink("merge", "nowhere.json")
    assert result.exit_code == 2
    assert "nowhere.json" in result.stderr


def test_a_rank_for_a_file_that_is_no_input_ends_with_2(tracelink: Run) -> None:
    result = tracelink("inspect", str(samples.path("cpu_job")), "--rank", "other.json=3")
    assert result.exit_code == 2
    assert "other.json" in result.stderr


def test_two_ranks_for_one_file_end_with_2(tracelink: Run) -> None:
    profile = samples.path("cpu_job") / "kineto_0.json.gz"
    result = tracelink("merge", str(profile), "--rank", f"{profile.name}=7")
    assert result.exit_code == 2
    assert "the content says 0, --rank says 7" in result.stderr


def test_inspect_shows_two_ranks_for_one_file_beside_the_rest(tracelink: Run) -> None:
    profile = samples.path("cpu_job") / "kineto_0.json.gz"
    result = tracelink("inspect", str(profile), "--rank", f"{profile.name}=7")
    assert result.exit_code == 1
    assert "the content says 0, --rank says 7" in " ".join(result.stdout.split())


def test_nothing_readable_ends_with_3_and_writes_nothing(tracelink: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing to see")
    result = tracelink("merge", "notes.txt")
    assert result.exit_code == 3
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_name_in_an_error_cannot_command_the_terminal(tracelink: Run, job: Job) -> None:
    job.error = UnreadableError("cut off", source="all.zip:\x1b[2J.json")
    assert "all.zip:\\x1b[2J.json: cut off." in tracelink("inspect", "all.zip").stderr
