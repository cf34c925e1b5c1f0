"""Package."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import click
import pytest

from builders.command_line import Job, Run
from tracelink.cli import terminal as progress
from tracelink.cli.console import Console
from tracelink.cli.terminal import Page, total_bytes, watching
from tracelink.errors import Finding, Severity

# Tables for a person: as wide as they are in a pipe, fitted to a terminal.


HEADER = ("rank", "events", "same recorder kineto")
ROW = ("0", "1,234,567", "46 of 46")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def page(monkeypatch: pytest.MonkeyPatch, columns: int) -> Page:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((columns, 24)))
    with redirect_stdout(Terminal()):
        return Page()


def lines(made: Page) -> list[str]:
    return click.unstyle(made.text).splitlines()


def test_a_pipe_gets_one_line_for_each_row_and_nothing_for_eyes() -> None:
    made = Page()
    made.table(("path", "size"), [("a" * 500, "0 of 9")])
    made.line("loud", "bold red")
    assert made.text.splitlines()[1:] == [f"{'a' * 500}  0 of 9", "loud"]


def test_a_terminal_that_is_wide_enough_gets_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    made = page(monkeypatch, 80)
    made.table(HEADER, [ROW], numbers=HEADER)
    assert len(lines(made)) == 2


def test_a_narrow_terminal_wraps_names_of_columns_before_it_wraps_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = page(monkeypatch, 30)
    made.table(HEADER, [ROW], numbers=HEADER)
    assert lines(made)[-1].split() == ["0", "1,234,567", "46", "of", "46"]
    assert len(lines(made)) == 4


def test_columns_that_can_be_spared_go_before_a_table_is_too_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    header, row = ("rank", "host", "events"), ("0", "node7", "1,234,567")
    for columns, left in ((24, ["rank", "host", "events"]), (18, ["rank", "events"])):
        made = page(monkeypatch, columns)
        made.table(header, [row], optional=("host",))
        assert [name for name in header if name in made.text] == left


def test_entries_that_no_table_could_hold_are_paragraphs(monkeypatch: pytest.MonkeyPatch) -> None:
    made = page(monkeypatch, 30)
    made.entries(("path", "format", "host"), [("traces/" + "a" * 20, "kineto", "-")])
    assert click.unstyle(made.text).split() == ["traces/" + "a" * 20, "format", "kineto"]


@pytest.mark.parametrize("columns", [1, 10, 20])
def test_nothing_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    made = page(monkeypatch, columns)
    made.table(HEADER, [ROW], numbers=HEADER)
    made.entries(HEADER, [ROW], numbers=HEADER)
    assert all(len(line) <= columns for line in lines(made))


def test_a_gap_is_one_empty_line_and_none_at_the_top() -> None:
    made = Page()
    made.gap()
    made.line("first")
    made.gap()
    made.gap()
    made.line("second")
    made.gap()
    assert made.text == "first\n\nsecond"


def test_rows_beneath_a_line_are_set_in_and_need_no_header() -> None:
    made = Page()
    made.line("stack:")
    made.beneath([("train.py:10", "step"), ("train.py:200", "main")])
    made.beneath([])
    assert made.text == "stack:\n  train.py:10   step\n  train.py:200  main"


# Findings in words: what did not fit, one paragraph each, the worst first.


def said(tracelink: Run, job: Job, *findings: Finding, verbose: bool = False) -> list[str]:
    job.findings = findings
    result = tracelink("inspect", "traces/", *(["-v"] if verbose else []))
    return [
        line
        for line in result.stdout.splitlines()
        if line.startswith(("error", "warning", "note")) or "-v shows" in line
    ]


def test_errors_come_before_warnings(tracelink: Run, job: Job) -> None:
    findings = Finding(Severity.WARNING, "odd", "odd."), Finding(Severity.ERROR, "empty", "empty.")
    assert said(tracelink, job, *findings) == ["error: empty.", "warning: odd."]


def test_where_how_often_and_an_example(tracelink: Run, job: Job) -> None:
    finding = Finding(Severity.WARNING, "negative", "a negative duration.", 1200, "k_0.json", "at byte 77")
    assert said(tracelink, job, finding) == [
        "warning: k_0.json: a negative duration. (1,200 times) For example: at byte 77"
    ]


@pytest.mark.parametrize(
    ("message", "times"),
    [
        ("13 nodes are cut.", ""),
        ("nodes are cut.", " (13 times)"),
        ("213 nodes are cut.", " (13 times)"),
        ("13,000 nodes are cut.", " (13 times)"),
        ("13.5 ms are cut.", " (13 times)"),
        ("of 13, all are cut.", ""),
    ],
)
def test_a_count_is_not_repeated(tracelink: Run, job: Job, message: str, times: str) -> None:
    finding = Finding(Severity.WARNING, "cut", message, 13)
    assert said(tracelink, job, finding) == [f"warning: {message}{times}"]


def test_an_example_is_not_repeated(tracelink: Run, job: Job) -> None:
    finding = Finding(Severity.WARNING, "cut", "truncated at byte 9.", example="byte 9")
    assert said(tracelink, job, finding) == ["warning: truncated at byte 9."]


def test_a_message_that_names_its_source_is_not_given_it_twice(tracelink: Run, job: Job) -> None:
    finding = Finding(Severity.WARNING, "cut", "k_0.json: cut off at byte 9.", source="k_0.json")
    assert said(tracelink, job, finding) == ["warning: k_0.json: cut off at byte 9."]


def test_infos_are_counted_and_shown_to_the_verbose(tracelink: Run, job: Job) -> None:
    findings = [Finding(Severity.INFO, "skipped", f"{name}: passed over.") for name in "ab"]
    assert said(tracelink, job, *findings) == ["2 more notes (-v shows them)."]
    assert said(tracelink, job, *findings, verbose=True) == ["note: a: passed over.", "note: b: passed over."]


def test_many_of_one_sort_are_counted_and_shown_to_the_verbose(tracelink: Run, job: Job) -> None:
    findings = [Finding(Severity.WARNING, "cut", f"k_{rank}.json: cut off.") for rank in range(64)]
    assert said(tracelink, job, *findings) == [
        "warning: k_0.json: cut off.",
        "warning: k_1.json: cut off.",
        "warning: k_2.json: cut off.",
        "61 more similar warnings (-v shows them).",
    ]
    assert len(said(tracelink, job, *findings, verbose=True)) == 64


def test_links_that_were_not_made_are_said_once(tracelink: Run, job: Job) -> None:
    job.findings = [Finding(Severity.WARNING, "unlinked.launches", "launches: 0 of 4 linked.")]
    assert "0 of 4 linked" not in tracelink("merge", "traces/").stdout


def test_text_out_of_a_trace_cannot_command_the_terminal(tracelink: Run, job: Job) -> None:
    finding = Finding(Severity.WARNING, "odd", "a host called \x1b[2Jclean\udcff.")
    assert said(tracelink, job, finding) == ["warning: a host called \\x1b[2Jclean\\udcff."]


# The progress bar: for a person at a terminal, once work lasts.


ERASED = "\r\x1b[1A\x1b[2K"
"""What takes the line of a bar away."""


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "INTERVAL", 0)
    return Terminal()


@contextmanager
def watched(terminal: Terminal, path: str) -> Iterator[Callable[[int], None]]:
    """Work whose standard error is a terminal, and that is watched."""
    with redirect_stderr(terminal), watching(Console(), [path]) as watch:
        assert watch
        yield watch


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0)


@pytest.fixture
def profile(tmp_path: Path) -> str:
    path = tmp_path / "k_0.json"
    path.write_bytes(bytes(4_000_000))
    return str(path)


@pytest.mark.usefixtures("impatient")
class TestShown:
    def test_bytes_share_and_elapsed_time(self, terminal: Terminal, profile: str) -> None:
        with watched(terminal, profile) as watch:
            watch(1_000_000)
            watch(2_000_000)
        said = terminal.getvalue()
        assert "2.0 MB" in said
        assert "50%" in said
        assert "0:00:00" in said

    def test_no_share_once_more_is_done_than_the_files_hold(self, terminal: Terminal, profile: str) -> None:
        with watched(terminal, profile) as watch:
            watch(9_000_000)
        last = terminal.getvalue().rsplit("reading", 1)[-1]
        assert "9.0 MB" in last
        assert "%" not in last

    def test_what_is_counted_anew_is_written_and_nobody_knows_how_much(
        self, terminal: Terminal, profile: str
    ) -> None:
        with redirect_stderr(terminal), watching(Console(), [profile]) as watch:
            assert watch
            watch(4_000_000)
            read = len(terminal.getvalue())
            watch(1_000_000)
        said = terminal.getvalue()[read:].rpartition("writing")[2]
        assert "1.0 MB" in said
        assert "%" not in said

    def test_goes_for_what_is_said_between_reading_and_writing(
        self, terminal: Terminal, profile: str
    ) -> None:
        with redirect_stderr(terminal), watching(Console(), [profile]) as bar:
            assert bar
            bar(1_000_000)
            bar.now_writing()
            read = len(terminal.getvalue())
            bar(4_000_000)
        said = terminal.getvalue()
        assert said[:read].endswith(ERASED)
        assert "reading" not in said[read:]
        assert "3.0 MB" in said[read:].rpartition("writing")[2]

    def test_no_thread_that_would_keep_the_engine_from_forking(
        self, terminal: Terminal, profile: str
    ) -> None:
        before = threading.active_count()
        with watched(terminal, profile) as watch:
            watch(1)
            assert threading.active_count() == before

    def test_standard_output_stays_what_it_is(self, terminal: Terminal, profile: str) -> None:
        before = sys.stdout
        with watched(terminal, profile) as watch:
            watch(1)
            assert sys.stdout is before


class TestNotShown:
    def test_in_the_first_second(self, terminal: Terminal, profile: str) -> None:
        with watched(terminal, profile) as watch:
            watch(1_000_000)
        assert terminal.getvalue() == ""

    def test_to_who_is_not_at_a_terminal(self, profile: str) -> None:
        with watching(Console(), [profile]) as watch:
            assert watch is None

    def test_to_who_wants_it_quiet(self, terminal: Terminal, profile: str) -> None:
        with redirect_stderr(terminal), watching(Console(quiet=True), [profile]) as watch:
            assert watch is None

    def test_to_who_reads_json_at_the_terminal(self, terminal: Terminal, profile: str) -> None:
        both = redirect_stderr(terminal), redirect_stdout(Terminal())
        with both[0], both[1], watching(Console(json=True), [profile]) as watch:
            assert watch is None


class TestTotal:
    def test_is_that_of_files_directories_and_globs(self, tmp_path: Path) -> None:
        (tmp_path / "deep" / "er").mkdir(parents=True)
        (tmp_path / "deep" / "er" / "a.json").write_bytes(bytes(10))
        (tmp_path / "b.json").write_bytes(bytes(5))
        assert total_bytes([str(tmp_path / "deep"), str(tmp_path / "*.json")]) == 15

    def test_is_unknown_of_compressed_files(self, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_bytes(gzip.compress(b"{}"))
        assert total_bytes([str(tmp_path)]) is None

    @pytest.mark.parametrize("path", ["-", "no/such/file"])
    def test_is_unknown_of_what_is_no_file(self, path: str) -> None:
        assert total_bytes([path]) is None

    def test_is_unknown_of_a_pipe_which_is_left_alone(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        assert total_bytes([str(tmp_path / "pipe")]) is None
