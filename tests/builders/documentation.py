"""Commands in documentation pages, and what they print: run again by tests, and written into the pages on request.

PYTHONPATH=tests python -m builders.documentation README.md docs/tutorial.md
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import click

from tracelink import samples
from tracelink.cli import main

ROOT = Path(__file__).parents[2]
WIDTH = 118
COMMAND = re.compile(r"(?:^|\| )(tracelink [^#|\n]*)", re.MULTILINE)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHOWN = re.compile(
    r"(^```sh\n(?P<commands>(?:tracelink [^\n]*\n)+)```\n\n```\n)(?P<output>.*?)(^```)",
    re.DOTALL | re.MULTILINE,
)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Terminal(io.StringIO):
    """A terminal of WIDTH columns."""

    def isatty(self) -> bool:
        """Tables are as wide as the terminal."""
        return True


def commands(page: Path) -> list[list[str]]:
    """The arguments of every tracelink command of a page."""
    blocks = SHELL.findall(page.read_text("utf-8"))
    found = (shlex.split(line)[1:] for block in blocks for line in COMMAND.findall(block))
    return [words[: words.index(">")] if ">" in words else words for words in found]


def shown(page: Path) -> list[tuple[list[list[str]], str]]:
    """Blocks of commands that are followed by a block of output, with that output."""
    found = SHOWN.finditer(page.read_text("utf-8"))
    return [([shlex.split(line)[1:] for line in COMMAND.findall(m["commands"])], m["output"]) for m in found]


@contextmanager
def workspace() -> Iterator[Path]:
    """A folder with the samples, as the current directory."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        for sample in samples.names():
            shutil.copytree(samples.path(sample), Path(name) / "samples" / sample)
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(before)


def run(words: list[str]) -> tuple[int, str]:
    """The exit code of a command, and what a terminal shows."""
    out, err = Terminal(), io.StringIO()
    size = os.terminal_size((WIDTH, 50))
    with (
        mock.patch.object(shutil, "get_terminal_size", return_value=size),
        mock.patch.dict(os.environ, {"TERM": "xterm"}),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            code = main.main(words, prog_name="tracelink", standalone_mode=False)
        except SystemExit as end:
            code = end.code
        except click.ClickException as error:
            error.show(err)
            code = error.exit_code
    text = click.unstyle(out.getvalue()) + err.getvalue()
    return int(code or 0), "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def rewritten(page: Path) -> str:
    """The text of a page with the present output of its commands."""

    def block(match: re.Match[str]) -> str:
        words = [shlex.split(line)[1:] for line in COMMAND.findall(match["commands"])]
        return match[1] + "".join(run(arguments)[1] for arguments in words) + match[4]

    with workspace():
        return SHOWN.sub(block, page.read_text("utf-8"))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        path = Path(argument).resolve()
        path.write_text(rewritten(path), "utf-8")
