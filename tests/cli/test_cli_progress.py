"""The progress bar: for a person at a terminal, once work lasts."""

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

from tracelink.cli import terminal as progress
from tracelink.cli.console import Console
from tracelink.cli.terminal import total_bytes, watching

ERASED = "\r\x1b[1A\x1b[2K"
"""What takes the line of a bar away."""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


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
