"""Findings and the progress bar."""

from __future__ import annotations

import gzip
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from builders.command_line import Job, Run
from tracelink._model.findings import Finding, Severity
from tracelink.cli import console as progress
from tracelink.cli.console import Console, total_bytes, watching


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


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
    assert finding_lines(tracelink, job, *findings) == ["2 notes (-v shows them)."]
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
