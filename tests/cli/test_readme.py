"""Package."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
from contextlib import redirect_stdout
from pathlib import Path

import click
import pytest

import tracelink
from tracelink import samples
from tracelink.cli import main
from tracelink.cli.diagnosis_page import diagnosis_page

WIDTH = 118
README = Path(__file__).parents[2] / "README.md"
COMMAND = re.compile(r"(?:^|\| )(tracelink [^#|\n]*)", re.MULTILINE)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def examples() -> list[list[str]]:
    blocks = re.findall(r"^```sh\n(.*?)^```", README.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [shlex.split(line)[1:] for block in blocks for line in COMMAND.findall(block)]


@pytest.mark.parametrize("words", examples(), ids=shlex.join)
def test_an_example_is_understood(words: list[str]) -> None:
    name, *arguments = words
    command = main.get_command(click.Context(main), name)
    assert command
    command.make_context(name, arguments)


def test_every_command_but_the_demo_has_an_example() -> None:
    assert {words[0] for words in examples()} == set(main.list_commands(click.Context(main))) - {"demo"}


def test_python_examples_name_what_there_is() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", README.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    compile(code, str(README), "exec")
    names = set(re.findall(r"\bgraph\.(\w+)", code))
    fields = set(tracelink.EventGraph.__slots__)
    assert all(name in fields or hasattr(tracelink.EventGraph, name) for name in names)
    assert all(hasattr(tracelink, name) for name in re.findall(r"\btracelink\.(\w+)", code))


def test_what_it_shows_of_a_hang_is_what_the_command_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(
        r"diagnose samples/hung_job/dumps\n```\n\n```\n(.*?)\n```", README.read_text("utf-8"), re.DOTALL
    )
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((WIDTH, 50)))
    diagnosis = tracelink.diagnose(samples.path("hung_job") / "dumps")
    with redirect_stdout(Terminal()):
        page = diagnosis_page(diagnosis, verbose=False)
    assert [line.rstrip() for line in click.unstyle(page).splitlines()] == block.splitlines()
