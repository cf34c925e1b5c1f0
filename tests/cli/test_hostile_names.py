"""Names in traces cannot control the terminal, forge a line or start a formula, whatever command prints them."""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import pickle
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from builders.command_line import Run
from tracelink import samples
from tracelink._show.csv import csv_text
from tracelink.cli import console, main
from tracelink.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]

# The only module that prints.


PRINTS = "tracelink/cli/console.py"
DATA_ON_STDOUT = "tracelink/_io/targets.py"
"""Writes traces to standard output, for `-o -`."""

IN_OTHER_PROGRAMS = {
    "tracelink/_record/environment.py": {"logging"},
    "tracelink/_record/gpu_process.py": {"sys.stdout"},
    "tracelink/_record/injected/sitecustomize.py": {"sys.stderr"},
    "tracelink/_record/files.py": {"logging"},
    "tracelink/_run/dask.py": {"logging"},
}
"""Captures run in the program that is recorded, and in a process that answers it on a pipe; Dask logs nothing."""

STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
PRINTERS = {"print", "input", "echo", "secho", "echo_via_pager", "prompt", "confirm", "pause", "clear"}
MODULES = {"logging", "pprint", "rich.console", "rich.prompt", "rich.logging", "syslog", "curses"}


def product() -> Iterator[tuple[str, ast.Module]]:
    for folder in ("tracelink", "converters", "samples", "schemas"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text("utf-8"))


def printing(tree: ast.Module) -> Iterator[str]:
    """Whatever could reach a standard stream."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name("sys"), attr=name) if name in STREAMS:
                yield f"sys.{name}"
            case ast.Attribute(value=ast.Name("click"), attr=name) if name in PRINTERS:
                yield f"click.{name}"
            case ast.Call(func=ast.Name(name)) if name in PRINTERS:
                yield name
            case ast.ImportFrom(module=module, names=names):
                imported = {module or "", *(f"{module}.{alias.name}" for alias in names)}
                forbidden = {f"click.{name}" for name in PRINTERS} | {f"sys.{name}" for name in STREAMS}
                yield from imported & (MODULES | forbidden | {"rich.print", "os.write"})
            case ast.Import(names=names):
                yield from {alias.name for alias in names} & MODULES
            case ast.Call(func=ast.Attribute(value=ast.Name("os"), attr="write"), args=[ast.Constant(), *_]):
                yield "os.write"


def test_one_module_prints() -> None:
    found = {path: {*printing(tree)} for path, tree in product()}
    assert {"click.echo", "sys.stdout", "sys.stderr", "rich.console"} <= found.pop(PRINTS)
    assert found.pop(DATA_ON_STDOUT) == {"sys.stdout"}
    assert {path: names for path, names in found.items() if names} == IN_OTHER_PROGRAMS


def test_every_way_of_printing_is_found() -> None:
    code = """
import logging, sys, click, os
from rich import print
from rich.console import Console
from click import echo
from sys import stderr
def f():
    print(1); click.secho(""); sys.stdout.write(""); os.write(1, b""); echo("")
"""
    assert {*printing(ast.parse(code))} == {
        *("logging", "rich.print", "rich.console", "click.echo", "sys.stderr"),
        *("print", "click.secho", "sys.stdout", "os.write", "echo"),
    }


# Every command, on traces with hostile names.


FORGED = "Rank 9: all fine"
HOSTILE = f"\x1b]52;c;ZXZpbA==\x07\x1b]0;PWNED\x07\n{FORGED}\r{FORGED}\x9b31m\u202egnp\x1b[31m\x1b[2J\u2028{FORGED}\x85"
FREE = {"hostname", "stack", "filename", "Process Group Description", "Trace name", "profiler_version"}
"""Keys whose texts mean nothing to a reader."""

SGR = re.compile(r"\x1b\[[0-9;]*m")


def hostile(value: Any, key: str = "") -> Any:
    """The value with hostile text in names of operators, groups, hosts, functions and files."""
    if isinstance(value, dict):
        return {name: hostile(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [hostile(item, key) for item in value]
    if isinstance(value, tuple):  # a process group: its name and its description
        return (value[0], f"={value[1]}{HOSTILE}") if key == "process_group" else value
    if isinstance(value, str) and key == "desc":
        return f"={value}{HOSTILE}"
    if isinstance(value, str) and (key in FREE or (key == "name" and value.startswith("aten::"))):
        return f"{value}{HOSTILE}"
    return value


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The samples, with hostile names in the traces and of a folder and a file."""
    folder = tmp_path_factory.mktemp("hostile")
    pair, hung = folder / f"pair{HOSTILE}", folder / "hung"
    (pair / "dumps").mkdir(parents=True)
    hung.mkdir()
    for path in samples.path("gpu_pair").glob("*_?.json.gz"):
        trace = hostile(json.loads(gzip.decompress(path.read_bytes())))
        (pair / path.name.removesuffix(".gz")).write_text(json.dumps(trace))
    for source, target in ((samples.path("gpu_pair"), pair / "dumps"), (samples.path("hung_job"), hung)):
        for path in (source / "dumps").iterdir():
            (target / path.name).write_bytes(pickle.dumps(hostile(pickle.loads(path.read_bytes()))))
    (pair / f"notes{HOSTILE}.json").write_text("{")
    (folder / "logs").mkdir()
    for path in samples.path("compile_job").glob("*.log.gz"):
        text = gzip.decompress(path.read_bytes()).decode()
        name = re.compile(
            r'("(?:co_name|co_filename|filename|name|fail_reason|fail_type|reason)": ?"[^"\\]+)'
        )
        text = name.sub(lambda found: found[1] + json.dumps(HOSTILE)[1:-1], text)
        (folder / "logs" / path.name.removesuffix(".gz")).write_text(text)
    return folder


RUNS = (
    ("inspect", "PAIR"),
    ("inspect", "PAIR", "-v"),
    ("inspect", "PAIR", "-q"),
    ("merge", "PAIR", "-o", "out.json"),
    ("merge", "PAIR", "-o", "out.pftrace", "-v"),
    ("merge", "PAIR", "-o", "out.json", "-q"),
    ("merge", "PAIR", "--to", "chakra", "-o", "chakra/job", "-v"),
    ("merge", "PAIR", "-o", f"no/such/folder/{HOSTILE}"),
    ("merge", f"missing{HOSTILE}"),
    ("merge", "PAIR", "-o", "out.json", "--rank", f"{HOSTILE}=1"),
    ("merge", "PAIR", f"--{HOSTILE}"),
    ("summary", "PAIR", "-v"),
    ("summary", "PAIR", "--json"),
    ("summary", "PAIR", "-o", f"page{HOSTILE}.html"),
    ("summary", "PAIR", "-o", f"tables{HOSTILE}.csv"),
    ("diff", "PAIR", "PAIR", "-v"),
    ("diff", "PAIR", "PAIR", "-o", f"comment{HOSTILE}.md", "--gate", HOSTILE),
    ("diff", "PAIR", "PAIR", "--gate", f"{HOSTILE} > 5%"),
    ("collectives", "PAIR", "-v"),
    ("collectives", "PAIR", "--messages", "-n", "0"),
    ("collectives", "PAIR", "-q"),
    ("collectives", "HUNG", "-o", f"rows{HOSTILE}.csv"),
    ("collectives", "HUNG"),
    ("collectives", "PAIR", "--group", HOSTILE),
    ("clocks", "PAIR", "-v"),
    ("query", "PAIR", "select name, kind from events order by name desc"),
    ("query", "PAIR", "select name from events", "--format", "csv"),
    ("query", "PAIR", "--name", "top-kernels", "--json"),
    ("query", "PAIR", f"select '{HOSTILE}' as \"{HOSTILE}\""),
    ("query", "PAIR", f'select "{HOSTILE}" from events'),
    ("query", "PAIR", "--name", HOSTILE),
    ("diagnose", "HUNG"),
    ("diagnose", "HUNG", "-v"),
    ("diagnose", "HUNG", "-q"),
    ("diagnose", "HUNG", "--entries"),
    ("diagnose", "HUNG", "--entries", "--stacks", "-v"),
    ("diagnose", "HUNG", "--entries", "-o", f"rows{HOSTILE}.csv", "--stacks"),
    ("diagnose", "HUNG", "--json"),
    ("diagnose", "HUNG", "-o", f"page{HOSTILE}.html"),
    ("diagnose", "HUNG", "-o", f"flight{HOSTILE}.sqlite"),
    ("diagnose", "HUNG", "PAIR", "-v"),
    ("compile", "LOGS"),
    ("compile", "LOGS", "-v"),
    ("compile", "LOGS", "-q"),
    ("diff", "LOGS", "LOGS"),
    ("compile", "LOGS", "-o", f"page{HOSTILE}.html", "--artifacts", f"folder{HOSTILE}"),
    ("merge", "ONE", "-o", "one.pftrace"),
    ("merge", "ONE", "-o", f"one{HOSTILE}.json"),
    ("validate", "PAIR", "-v"),
    ("open", f"missing{HOSTILE}"),
    ("open", "ONE", "--origin", HOSTILE),
    ("open", "BROKEN"),
    ("formats", HOSTILE),
    ("completion", HOSTILE),
    ("completion", "zsh"),
    ("demo", "-o", f"demo{HOSTILE}.json"),
    ("run", "--dry-run", "-o", f"traces{HOSTILE}/", "--", f"python{HOSTILE}", HOSTILE),
    ("run", "-o", "traces/", "--", f"missing{HOSTILE}"),
    (f"{HOSTILE}",),
    (f"--{HOSTILE}",),
)


def arguments(run: tuple[str, ...], inputs: Path) -> list[str]:
    pair = inputs / f"pair{HOSTILE}"
    names = {
        "PAIR": pair,
        "HUNG": inputs / "hung",
        "LOGS": inputs / "logs",
        "ONE": pair / "kineto_0.json",
        "BROKEN": pair / f"notes{HOSTILE}.json",
    }
    return [str(names.get(argument, argument)) for argument in run]


@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
@pytest.mark.parametrize("run", RUNS, ids=lambda run: " ".join(run)[:40].encode("unicode_escape").decode())
def test_no_control_character_is_printed(
    run: tuple[str, ...], terminal: bool, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "is_terminal", lambda *, stderr=False: terminal and not stderr)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, arguments(run, inputs), prog_name="tracelink", color=True)
    assert "tracelink: unexpected" not in result.output
    for text in (result.stdout, result.stderr):
        lines = SGR.sub("", text).removesuffix("\n").split("\n")
        assert [line for line in lines if not line.isprintable()] == []
        if not terminal:  # which wraps lines, at blanks in names too
            assert [line for line in lines if line.strip().startswith((FORGED, "gnp"))] == []


def test_every_command_is_run() -> None:
    assert {run[0] for run in RUNS} >= {*COMMANDS}


@pytest.mark.parametrize("run", [run for run in RUNS if {"HUNG", "LOGS"} & {*run}])
def test_hostile_names_are_in_these_outputs(run: tuple[str, ...], inputs: Path, tracelink: Run) -> None:
    """Else the test of control characters would not test anything."""
    if "diff" not in run:
        assert "\\x1b]52;" in tracelink(*arguments(run, inputs)).output.replace("\\u001b", "\\x1b")


def test_warnings_of_libraries_are_printable(tracelink: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        console.Console, "info", lambda *_, **__: warnings.warn(HOSTILE, RuntimeWarning, stacklevel=1)
    )
    (line,) = tracelink("formats").stderr.splitlines()
    assert line.startswith("tracelink: RuntimeWarning: \\x1b]52;")
    assert line.isprintable()


def test_styles_of_a_page_are_printed_only_to_a_terminal(
    inputs: Path, tracelink: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    page = console.PageText("\x1b[1;31mbad\x1b[0m \x1b[2Jname")
    made: list[str] = []
    monkeypatch.setattr("click.echo", lambda text, err: made.append(text))
    console.Console().info(page)
    assert made == ["\x1b[1;31mbad\x1b[0m \\x1b[2Jname"]


# Cells of CSV.


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("+1+2", "'+1+2"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\\t=1"),
        ("\r=1", "'\\r=1"),
        ("\uff1d1", "'\uff1d1"),
        ("-1", "-1"),
        ("+1.5e-3", "+1.5e-3"),
        ("a=b", "a=b"),
        (-7, "-7"),
        (-1.5, "-1.5"),
        (None, ""),
        ("", ""),
        ([0, 1, 2], "0-2"),
        (["a", "=b"], "a; =b"),
    ],
)
def test_no_cell_is_a_formula(cell: Any, written: str) -> None:
    header, line = csv_text([["first", "second"], [cell, "x"]]).splitlines()
    assert header == "first,second"
    assert next(csv.reader(io.StringIO(line))) == [written, "x"]


def test_no_cell_of_a_command_is_a_formula(inputs: Path, tracelink: Run) -> None:
    tracelink("diagnose", str(inputs / "hung"), "--entries", "-o", "rows.csv")
    written = Path("rows.entries.csv").read_text()
    rows = list(csv.reader(io.StringIO(written)))
    cells = [cell for row in rows for cell in row]
    assert any(cell.startswith("'=") for cell in cells)
    assert [cell for cell in cells if cell[:1] in {"=", "+", "@"}] == []
