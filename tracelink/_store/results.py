"""A result as a file: its suffix says the form."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING

from tracelink._io.targets import check_folder, check_not_read, file_target
from tracelink._io.temporary import abandoned_files_removed
from tracelink._model.errors import UsageError, choices
from tracelink._model.results import Result, ResultTable
from tracelink._store.schema import stored

if TYPE_CHECKING:
    from tracelink._show.document import Report


def check_output(path: str, read: Sequence[str] = ()) -> None:
    """Raises `UsageError` unless a result can be written there without overwriting one of the files that are read."""
    suffix = _suffix(path)
    if suffix not in SUFFIXES:
        raise UsageError(f"{path}: unknown suffix {suffix!r}", advice=choices(suffix, SUFFIXES))
    if suffix in _NEEDING:
        import_module(_NEEDING[suffix]).check_installed()
    check_folder(path)
    check_not_read(path, read)


def save(result: Result, path: str | os.PathLike[str], report: Report | None = None) -> list[str]:
    """Writes a result as a file that appears when it is complete.

    Args:
        result: What a function of the library returned.
        path: The file. Its suffix says the form: .html and .md as people see it, .json all of it; .csv, .parquet,
            .sqlite and .duckdb its tables. Databases have them all; of .csv and .parquet each table with rows is a
            file: `out.kernels.csv`.
        report: What people see, if it is more than `result.report()`.

    Returns:
        The files.

    Raises:
        UsageError: The suffix is unknown, what its form needs is not installed, or the folder does not exist.
        TraceError: The file cannot be written.
    """
    name = os.fspath(path)
    check_output(name)
    with abandoned_files_removed(name):
        return _FORMS[_suffix(name)](result, name, report)


def _suffix(path: str) -> str:
    return PurePath(path).suffix.lower()


def _write(path: str, parts: Iterable[str]) -> list[str]:
    target = file_target(path)
    with target.file() as stream:
        for part in parts:
            stream.write(part.encode("utf-8", "backslashreplace"))
    return [target.path()]


def _html(result: Result, path: str, report: Report | None) -> list[str]:
    from tracelink._show import html

    return _write(path, html.parts(report or result.report()))


def _markdown(result: Result, path: str, report: Report | None) -> list[str]:
    from tracelink._show import markdown

    return _write(path, [markdown.draw(report or result.report())])


def _json(result: Result, path: str, report: Report | None) -> list[str]:
    from tracelink._show.json import document_text

    return _write(path, [document_text(result)])


def _csv(result: Result, path: str, report: Report | None) -> list[str]:
    from tracelink._show import csv

    return [name for file, table in _files(result, path).items() for name in _write(file, [csv.draw(table)])]


def _parquet(result: Result, path: str, report: Report | None) -> list[str]:
    from tracelink._store import parquet

    files = _files(result, path)
    for name, table in files.items():
        columns, rows = stored(name, table)
        parquet.write(file_target(name), "", columns, parquet.arrow_table(columns, rows))
    return [file_target(name).path() for name in files]


def _database(module: str, result: Result, path: str, report: Report | None) -> list[str]:
    tables = dict(stored(name, table) for name, table in result.tables().items() if table.flat)
    import_module(module).write(tables, tables.values(), path)
    return [file_target(path).path()]


def _files(result: Result, path: str) -> Mapping[str, ResultTable[object]]:
    """The file of each table that has rows; findings are on the terminal."""
    every = {name: table for name, table in result.tables().items() if name != "findings"}
    tables = {name: table for name, table in every.items() if len(table)} or every
    if len(tables) == 1:
        return dict.fromkeys([path], *tables.values())
    stem, suffix = os.path.splitext(path)
    return {f"{stem}.{name}{suffix}": table for name, table in tables.items()}


_FORMS: Mapping[str, Callable[[Result, str, Report | None], list[str]]] = {
    ".html": _html,
    ".md": _markdown,
    ".csv": _csv,
    ".json": _json,
    ".parquet": _parquet,
    ".sqlite": partial(_database, "tracelink._store.sqlite"),
    ".duckdb": partial(_database, "tracelink._store.duckdb"),
}
_NEEDING = {".parquet": "tracelink._store.parquet", ".duckdb": "tracelink._store.duckdb"}
"""The forms that need packages of an extra, and the modules that write them."""
SUFFIXES = tuple(_FORMS)
"""The forms that a result can be written in."""
