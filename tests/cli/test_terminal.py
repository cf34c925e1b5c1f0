"""Pages, findings and the progress bar."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import click
import pytest

from builders.command_line import Job, Run
from tracelink.cli import terminal as progress
from tracelink.cli.console import Console
from tracelink.cli.terminal import Page, total_bytes, watching
from tracelink.model.findings import Finding, Severity

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


def test_a_pipe_gets_one_unstyled_line_for_each_row() -> None:
    made = Page()
    made.table(("path", "size"), [("a" * 500, "0 of 9")])
    made.line("loud", "bold red")
    assert made.text.splitlines()[1:] == [f"{'a' * 500}  0 of 9", "loud"]


def test_a_huge_name_makes_no_huge_table() -> None:
    made = Page()
    made.table(("path", "size"), [("a", "1"), ("b" * 1_000_000, "2")] * 50)
    made.beneath([("a", "1"), ("b" * 1_000_000, "2")] * 50)
    made.line("word " * 10_000)
    found = made.text.splitlines()
    assert len(found) == 202
    assert max(map(len, found[:-1])) < 5000
    assert found[2] == f"{'b' * 4095}…  2"
    assert len(found[-1]) == 49_999


def test_a_wide_terminal_gets_one_line_for_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    made = page(monkeypatch, 80)
    made.table(HEADER, [ROW], numbers=HEADER)
    assert len(lines(made)) == 2


def test_a_narrow_terminal_wraps_headings_before_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = page(monkeypatch, 30)
    made.table(HEADER, [ROW], numbers=HEADER)
    assert lines(made)[-1].split() == ["0", "1,234,567", "46", "of", "46"]
    assert len(lines(made)) == 4


def test_optional_columns_are_left_out_of_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    header, row = ("rank", "host", "events"), ("0", "node7", "1,234,567")
    for columns, left in ((24, ["rank", "host", "events"]), (18, ["rank", "events"])):
        made = page(monkeypatch, columns)
        made.table(header, [row], optional=("host",))
        assert [name for name in header if name in made.text] == left


def test_rows_that_are_too_wide_are_paragraphs(monkeypatch: pytest.MonkeyPatch) -> None:
    made = page(monkeypatch, 30)
    made.entries(("path", "format", "host"), [("traces/" + "a" * 20, "kineto", "-")])
    assert click.unstyle(made.text).split() == ["traces/" + "a" * 20, "format", "kineto"]


@pytest.mark.parametrize("columns", [1, 10, 20])
def test_only_a_word_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    made = page(monkeypatch, columns)
    made.table(HEADER, [ROW], numbers=HEADER)
    made.entries(HEADER, [ROW], numbers=HEADER)
    assert all(len(line) <= columns or len(line.split()) == 1 for line in lines(made))


PATH = "/data/jobs/2026-11-19/a folder/with blanks/kineto_trace_of_rank_0.json.gz"


@pytest.mark.parametrize("columns", [1, 20, 40, 80])
def test_no_path_is_broken_by_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    made = page(monkeypatch, columns)
    made.line(f"error: {PATH}: it is cut off at byte 12,345,678.", "red", path=PATH)
    made.entries(("path", "format"), [(PATH, "kineto"), ("b", "kineto")])
    made.beneath([(PATH.replace(" ", "_"), "step")])
    shown = [line for line in lines(made) if "kineto_trace" in line]
    assert len(shown) == 3
    assert [PATH in line for line in shown] == [True, True, False]
    assert PATH.replace(" ", "_") in shown[2]


def test_no_word_in_a_table_is_broken_by_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    header, row = (
        ("trace", "longest chain of", "share"),
        ("et/job.0.et", "1.128 ms (31 %)", "65 of 66 (98 %)"),
    )
    for columns in range(1, 60):
        made = page(monkeypatch, columns)
        made.table(header, [row])
        words = " ".join(lines(made)).replace(",", "").split()
        assert {word for text in (*header, *row) for word in text.split()} == set(words)


def test_a_table_that_cannot_fit_is_a_paragraph_for_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    made = page(monkeypatch, 24)
    made.table(
        ("rank", "group", "operation"), [("3", "default_process_group", "all_reduce"), ("", "tp", "-")]
    )
    assert lines(made) == [
        "rank 3",
        "  group",
        "  default_process_group,",
        "  operation all_reduce",
        "  group tp",
    ]


def test_no_line_of_a_terminal_ends_with_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    made = page(monkeypatch, 30)
    made.line("a sentence that is longer than thirty characters", "yellow")
    made.table(("a", "state"), [("1", "x"), ("2", "a longer text")])
    assert [line for line in lines(made) if line.endswith(" ")] == []


@pytest.mark.parametrize(("columns", "header"), [(40, ["path", "rank", "size"]), (20, ["path", "rank"])])
def test_entries_lose_optional_columns_before_they_become_paragraphs(
    monkeypatch: pytest.MonkeyPatch, columns: int, header: list[str]
) -> None:
    made = page(monkeypatch, columns)
    made.entries(("path", "rank", "size"), [("k.json.gz", "3", "12.0 MB")], optional=("size",))
    assert lines(made)[0].split() == header
    assert len(lines(made)) == 2


def test_a_gap_is_one_empty_line_and_none_at_the_top() -> None:
    made = Page()
    made.gap()
    made.line("first")
    made.gap()
    made.gap()
    made.line("second")
    made.gap()
    assert made.text == "first\n\nsecond"


def test_rows_beneath_a_line_are_indented() -> None:
    made = Page()
    made.line("stack:")
    made.beneath([("train.py:10", "step"), ("train.py:200", "main")])
    made.beneath([])
    assert made.text == "stack:\n  train.py:10   step\n  train.py:200  main"


def test_many_rows_beneath_a_line_take_memory_in_proportion_to_their_text() -> None:
    made, rows = Page(), [(f"node {number} is an operator of the host",) for number in range(1_000)]
    tracemalloc.start()
    made.beneath(rows)
    text, (_, peak) = made.text, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(text.splitlines()) == len(rows)
    assert peak < 50 << 20


# Findings in words: what did not fit, one paragraph each, the worst first.


def finding_lines(tracelink: Run, job: Job, *findings: Finding, verbose: bool = False) -> list[str]:
    job.findings = findings
    result = tracelink("inspect", "traces/", *(["-v"] if verbose else []))
    return [
        line
        for line in result.stdout.splitlines()
        if line.startswith(("error", "warning", "note")) or "-v shows" in line
    ]


def test_errors_come_before_warnings(tracelink: Run, job: Job) -> None:
    findings = Finding(Severity.WARNING, "odd", "odd."), Finding(Severity.ERROR, "empty", "empty.")
    assert finding_lines(tracelink, job, *findings) == ["error: empty.", "warning: odd."]


def test_source_count_and_example(tracelink: Run, job: Job) -> None:
    finding = Finding(Severity.WARNING, "negative", "a negative duration.", 1200, "k_0.json", "at byte 77")
    assert finding_lines(tracelink, job, finding) == [
        "warning: k_0.json: a negative duration (1,200 times). For example: at byte 77"
    ]


@pytest.mark.parametrize(
    ("message", "printed"),
    [
        ("13 nodes are cut.", "13 nodes are cut."),
        ("nodes are cut.", "nodes are cut (13 times)."),
        ("213 nodes are cut.", "213 nodes are cut (13 times)."),
        ("13,000 nodes are cut.", "13,000 nodes are cut (13 times)."),
        ("13.5 ms are cut.", "13.5 ms are cut (13 times)."),
        ("of 13, all are cut.", "of 13, all are cut."),
    ],
)
def test_a_count_is_not_repeated(tracelink: Run, job: Job, message: str, printed: str) -> None:
    finding = Finding(Severity.WARNING, "cut", message, 13)
    assert finding_lines(tracelink, job, finding) == [f"warning: {printed}"]


def test_an_example_is_not_repeated(tracelink: Run, job: Job) -> None:
    finding = Finding(Severity.WARNING, "cut", "truncated at byte 9.", example="byte 9")
    assert finding_lines(tracelink, job, finding) == ["warning: truncated at byte 9."]


def test_a_source_is_not_repeated(tracelink: Run, job: Job) -> None:
    finding = Finding(Severity.WARNING, "cut", "k_0.json: cut off at byte 9.", source="k_0.json")
    assert finding_lines(tracelink, job, finding) == ["warning: k_0.json: cut off at byte 9."]


def test_inputs_that_were_not_read_are_listed(tracelink: Run, job: Job) -> None:
    skipped = [Finding(Severity.INFO, "skipped", f"{path}: skipped, unknown format.") for path in "abcde"]
    other = Finding(Severity.INFO, "other_format", "f: skipped, its format is kineto, not chakra.")
    note = Finding(Severity.INFO, "loose_flow", "g: 3 flows without an end.")
    assert finding_lines(tracelink, job, *skipped, note, other) == [
        "note: a: skipped, unknown format.",
        "note: b: skipped, unknown format.",
        "note: c: skipped, unknown format.",
        "2 more similar notes (-v shows them).",
        "note: f: skipped, its format is kineto, not chakra.",
        "1 more note (-v shows it).",
    ]


def test_notes_are_counted_and_shown_with_verbose(tracelink: Run, job: Job) -> None:
    findings = [Finding(Severity.INFO, "loose_flow", f"{name}: skipped.") for name in "ab"]
    assert finding_lines(tracelink, job, *findings) == ["2 more notes (-v shows them)."]
    assert finding_lines(tracelink, job, *findings, verbose=True) == [
        "note: a: skipped.",
        "note: b: skipped.",
    ]


def test_similar_findings_are_counted_and_shown_with_verbose(tracelink: Run, job: Job) -> None:
    findings = [Finding(Severity.WARNING, "cut", f"k_{rank}.json: cut off.") for rank in range(64)]
    assert finding_lines(tracelink, job, *findings) == [
        "warning: k_0.json: cut off.",
        "warning: k_1.json: cut off.",
        "warning: k_2.json: cut off.",
        "61 more similar warnings (-v shows them).",
    ]
    assert len(finding_lines(tracelink, job, *findings, verbose=True)) == 64


def test_unlinked_events_are_reported_once(tracelink: Run, job: Job) -> None:
    job.findings = [Finding(Severity.WARNING, "unlinked.launches", "launches: 0 of 4 linked.")]
    assert "0 of 4 linked" not in tracelink("merge", "traces/").stdout


def test_text_of_a_trace_cannot_control_the_terminal(tracelink: Run, job: Job) -> None:
    finding = Finding(Severity.WARNING, "odd", "a host called \x1b[2Jclean\udcff.")
    assert finding_lines(tracelink, job, finding) == ["warning: a host called \\x1b[2Jclean\\udcff."]


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
        output = terminal.getvalue()
        assert "2.0 MB" in output
        assert "50%" in output
        assert "0:00:00" in output

    def test_no_share_if_more_bytes_are_read_than_the_files_have(
        self, terminal: Terminal, profile: str
    ) -> None:
        with watched(terminal, profile) as watch:
            watch(9_000_000)
        last = terminal.getvalue().rsplit("reading", 1)[-1]
        assert "9.0 MB" in last
        assert "%" not in last

    def test_counting_from_zero_starts_the_bar_of_writing(self, terminal: Terminal, profile: str) -> None:
        with redirect_stderr(terminal), watching(Console(), [profile]) as watch:
            assert watch
            watch(4_000_000)
            read = len(terminal.getvalue())
            watch(1_000_000)
        output = terminal.getvalue()[read:].rpartition("writing")[2]
        assert "1.0 MB" in output
        assert "%" not in output

    def test_disappears_for_messages_between_reading_and_writing(
        self, terminal: Terminal, profile: str
    ) -> None:
        with redirect_stderr(terminal), watching(Console(), [profile]) as bar:
            assert bar
            bar(1_000_000)
            bar.now_writing()
            read = len(terminal.getvalue())
            bar(4_000_000)
        output = terminal.getvalue()
        assert output[:read].endswith(ERASED)
        assert "reading" not in output[read:]
        assert "3.0 MB" in output[read:].rpartition("writing")[2]

    def test_has_no_thread(self, terminal: Terminal, profile: str) -> None:
        before = threading.active_count()
        with watched(terminal, profile) as watch:
            watch(1)
            assert threading.active_count() == before

    def test_standard_output_is_not_redirected(self, terminal: Terminal, profile: str) -> None:
        before = sys.stdout
        with watched(terminal, profile) as watch:
            watch(1)
            assert sys.stdout is before


class TestNotShown:
    def test_in_the_first_second(self, terminal: Terminal, profile: str) -> None:
        with watched(terminal, profile) as watch:
            watch(1_000_000)
        assert terminal.getvalue() == ""

    def test_without_a_terminal(self, profile: str) -> None:
        with watching(Console(), [profile]) as watch:
            assert watch is None

    def test_with_quiet(self, terminal: Terminal, profile: str) -> None:
        with redirect_stderr(terminal), watching(Console(quiet=True), [profile]) as watch:
            assert watch is None

    def test_with_json_on_a_terminal(self, terminal: Terminal, profile: str) -> None:
        both = redirect_stderr(terminal), redirect_stdout(Terminal())
        with both[0], both[1], watching(Console(json=True), [profile]) as watch:
            assert watch is None


class TestTotal:
    def test_is_the_size_of_files_directories_and_globs(self, tmp_path: Path) -> None:
        (tmp_path / "deep" / "er").mkdir(parents=True)
        (tmp_path / "deep" / "er" / "a.json").write_bytes(bytes(10))
        (tmp_path / "b.json").write_bytes(bytes(5))
        assert total_bytes([str(tmp_path / "deep"), str(tmp_path / "*.json")]) == 15

    def test_is_unknown_for_compressed_files(self, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_bytes(gzip.compress(b"{}"))
        assert total_bytes([str(tmp_path)]) is None

    @pytest.mark.parametrize("path", ["-", "no/such/file"])
    def test_is_unknown_for_missing_files(self, path: str) -> None:
        assert total_bytes([path]) is None

    def test_is_unknown_for_a_pipe_which_is_not_read(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        assert total_bytes([str(tmp_path / "pipe")]) is None
