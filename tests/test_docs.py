"""Documentation shows what the program does: its commands run, their output is current, its links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import tracelink
from builders import documentation
from builders.documentation import PYTHON, ROOT, commands, run, shown, workspace
from tracelink.cli import main

LIBRARY, NOTEBOOK = ROOT / "docs" / "library.md", ROOT / "docs" / "notebook.ipynb"
HARNESS = ROOT / "docs" / "harness.py"
README, TUTORIAL = ROOT / "README.md", ROOT / "docs" / "tutorial.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
EXIT_CODES = {0, 1}


@pytest.fixture
def folder() -> Iterator[Path]:
    with workspace() as path:
        yield path


@pytest.mark.parametrize(
    ("page", "words"), [(page, words) for page in PAGES for words in commands(page)], ids=str
)
def test_a_command_is_valid(page: Path, words: list[str]) -> None:
    name, *arguments = words
    command = main.get_command(click.Context(main), name)
    assert command, f"{page.name} has an unknown command: {shlex.join(words)}"
    command.make_context(name, arguments)


@pytest.mark.parametrize("page", [README, TUTORIAL], ids=["README", "tutorial"])
def test_every_command_runs(page: Path, folder: Path) -> None:
    results = {shlex.join(words): run(words) for words in commands(page) if words[0] not in ("open", "demo")}
    assert {words: result for words, result in results.items() if result[0] not in EXIT_CODES} == {}


@pytest.mark.parametrize("page", [README, TUTORIAL], ids=["README", "tutorial"])
def test_the_output_shown_is_current(page: Path) -> None:
    assert len(shown(page)) >= 1
    assert documentation.rewritten(page) == page.read_text("utf-8"), (
        f"run: PYTHONPATH=tests python -m builders.documentation {page.name}"
    )


@pytest.mark.parametrize("page", [README, TUTORIAL], ids=["README", "tutorial"])
def test_the_python_example_runs(page: Path, folder: Path) -> None:
    pytest.importorskip("pandas")
    (code,) = PYTHON.findall(page.read_text("utf-8"))
    exec(compile(code, str(page), "exec"), {})


def test_the_examples_of_the_library_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    namespace: dict[str, object] = {}
    for code in PYTHON.findall(LIBRARY.read_text("utf-8")):
        exec(compile(code, str(LIBRARY), "exec"), namespace)
    assert capsys.readouterr().out.startswith("no-such-folder")


def test_the_options_of_reading_are_those_of_the_library() -> None:
    expected = documentation.options_of_reading()
    assert expected in LIBRARY.read_text("utf-8"), f"replace the table in docs/library.md by:\n\n{expected}"


def test_the_tasks_of_a_harness_run(folder: Path) -> None:
    arguments = [f"samples/{name}" for name in ("gpu_pair", "hung_job", "run_before", "run_after")]
    subprocess.run([sys.executable, str(HARNESS), *arguments, str(folder)], check=True)
    assert (folder / "step.json").stat().st_size > 10_000


def test_the_notebook_is_current() -> None:
    pytest.importorskip("pandas")
    assert documentation.rewritten(NOTEBOOK) == NOTEBOOK.read_text("utf-8"), (
        "run: PYTHONPATH=tests python -m builders.documentation docs/notebook.ipynb"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    targets = [target for target in LINK.findall(page.read_text("utf-8")) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_index_lists_every_page() -> None:
    listed = set(LINK.findall((ROOT / "docs" / "README.md").read_text("utf-8")))
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert pages - {"README.md"} <= listed


def test_the_readme_names_every_public_function_it_uses() -> None:
    (code,) = PYTHON.findall(README.read_text("utf-8"))
    assert all(hasattr(tracelink, name) for name in re.findall(r"\btracelink\.(\w+)", code))
