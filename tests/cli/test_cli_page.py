"""Tables for a person: as wide as they are in a pipe, fitted to a terminal."""

from __future__ import annotations

import io
import os
import shutil
from contextlib import redirect_stdout

import click
import pytest

from tracelink.cli.terminal import Page, size

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


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (12_345_678, "12.3 MB"), (5 * 10**15, "5000.0 TB")],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


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
