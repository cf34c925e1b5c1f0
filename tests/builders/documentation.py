"""Commands in documentation pages, and cells of notebooks, with what they print: run again, and written on request.

PYTHONPATH=tests python -m builders.documentation README.md docs/tutorial.md docs/notebook.ipynb
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import click

from tracelink import samples
from tracelink._hang.report import schema
from tracelink._run.reading import ReadOptions, flags_of, text_of
from tracelink._show import frames
from tracelink._store.schema import Column, Table
from tracelink.cli import main

ROOT = Path(__file__).parents[2]
WIDTH, NOTEBOOK_WIDTH = 118, 160
COMMAND = re.compile(r"(?:^|\| )(tracelink [^#|\n]*)", re.MULTILINE)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHOWN = re.compile(
    r"(^```sh\n(?P<commands>(?:tracelink [^\n]*\n)+)```\n\n```\n)(?P<output>.*?)(^```)",
    re.DOTALL | re.MULTILINE,
)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


TABLES = "## The tables\n\n"
"""Of the page on the database of a diagnosis: what follows is made of its schema."""


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
    """The text of a page, or of a notebook, with the present output of its commands or cells, and lists of columns."""
    with workspace():
        text = _notebook(page) if page.suffix == ".ipynb" else SHOWN.sub(_block, page.read_text("utf-8"))
    return f"{text.partition(TABLES)[0]}{TABLES}{columns_of_tables()}\n" if TABLES in text else text


def _block(match: re.Match[str]) -> str:
    words = [shlex.split(line)[1:] for line in COMMAND.findall(match["commands"])]
    return match[1] + "".join(run(arguments)[1] for arguments in words) + match[4]


# Columns of the database of a diagnosis.


def columns_of_tables() -> str:
    """A section for each table, with its columns."""
    return "\n\n".join(map(_described, schema.TABLES.values()))


def options_of_reading() -> str:
    """A table of the options of reading: keyword, flag, meaning."""
    rows = [
        (f"`{name}`", ", ".join(f"`{flag.names[-1]}`" for flag in flags_of(name)), text_of(name))
        for name in ReadOptions.__annotations__
    ]
    return "\n".join(
        ["| keyword | flag | meaning |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    )


def _described(table: Table) -> str:
    lines = [f"### {table.name}", "", table.text, "", "| column | type | meaning |", "|---|---|---|"]
    lines += [f"| `{column.name}` | {_kind(table, column)} | {column.text} |" for column in table.columns]
    return "\n".join(lines)


def _kind(table: Table, column: Column) -> str:
    key = ", key" if table.key == (column.name,) else ", part of the key" if column.name in table.key else ""
    reference = f", references `{column.references}`" if column.references else ""
    return f"{column.type.name.lower()}{key}{reference}"


# Notebooks without Jupyter: the cells in one namespace, and what a notebook would show of each.


SHOWN_AS = {"text/html": "_repr_html_", "image/svg+xml": "_repr_svg_"}
"""Types of what is shown, and the methods that make it."""


def _notebook(path: Path) -> str:
    notebook = json.loads(path.read_text("utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    namespace: dict[str, Any] = {"__name__": "__main__"}
    wide = os.terminal_size((NOTEBOOK_WIDTH, 50))
    with mock.patch.object(frames, "get_terminal_size", return_value=wide):
        for number, cell in enumerate(cells, 1):
            source, name = "".join(cell["source"]), f"{path.name}, cell {number}"
            cell |= {"execution_count": number, "outputs": _outputs(source, namespace, name, number)}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _outputs(source: str, namespace: dict[str, Any], name: str, number: int) -> list[dict[str, Any]]:
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(tree, name, "exec"), namespace)
        value = eval(compile(ast.Expression(last.value), name, "eval"), namespace) if last else None
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        methods = {kind: getattr(value, name) for kind, name in SHOWN_AS.items() if hasattr(value, name)}
        data = {kind: _lines(method()) for kind, method in methods.items()}
        data["text/plain"] = _lines(repr(value))
        result = {"data": data, "execution_count": number, "metadata": {}}
        outputs.append(result | {"output_type": "execute_result"})
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        path = Path(argument).resolve()
        path.write_text(rewritten(path), "utf-8")
