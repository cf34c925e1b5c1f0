"""Reports and Parquet folders: they become databases, or an error says what to do."""

from __future__ import annotations

import gzip
import sys
import tempfile
from pathlib import Path

import pytest

import tracelink
from builders.nsys import example, parquet_folder
from tracelink._model.errors import UnreadableError
from tracelink.converters.nsys import collected, is_nsys

REPORT = b"\x00\x01NVIDIA report"


def events_of(path: Path) -> list[tuple[str, int, int]]:
    graph = tracelink.load(path, jobs=1)
    names = [graph.strings[code] for code in graph.events.name.tolist()]
    return list(zip(names, graph.events.start.tolist(), graph.events.duration.tolist(), strict=True))


def test_a_parquet_folder_has_the_events_of_the_database(tmp_path: Path) -> None:
    folder = parquet_folder(example(), tmp_path / "report")
    assert events_of(folder) == events_of(tmp_path / "source.sqlite")
    assert [source.path for source in tracelink.inspect(folder).sources] == [
        f"{folder}/CUPTI_ACTIVITY_KIND_GRAPH_TRACE.parquet:rank-{rank}" for rank in range(2)
    ]


def test_one_file_of_a_parquet_folder_names_the_folder(tmp_path: Path) -> None:
    folder = parquet_folder(example(), tmp_path / "report")
    with pytest.raises(UnreadableError, match=r"one table of a Parquet export\. Name its folder"):
        tracelink.load(folder / "NVTX_EVENTS.parquet")


def test_a_damaged_parquet_file_costs_its_table_only(tmp_path: Path) -> None:
    folder = parquet_folder(example(), tmp_path / "report")
    path = folder / "NVTX_EVENTS.parquet"
    path.write_bytes(path.read_bytes()[:-40])
    inspection = tracelink.inspect(folder)
    assert [source.events for source in inspection.sources] == [7, 7]
    assert [finding.reason for finding in inspection.findings if finding.severity == "warning"] == [
        "truncated"
    ]


def test_parquet_without_pyarrow_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = parquet_folder(example(), tmp_path / "report")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UnreadableError, match=r"pip install 'torch-tracelink\[arrow\]'"):
        tracelink.load(folder)


def program(folder: Path, script: str) -> str:
    """A folder with a program `nsys`."""
    folder.mkdir()
    path = folder / "nsys"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(folder)


def report(tmp_path: Path) -> Path:
    path = tmp_path / "report.nsys-rep"
    path.write_bytes(REPORT)
    return path


def test_a_report_is_exported_where_nsys_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = example().write(tmp_path / "made.sqlite")
    commands = program(
        tmp_path / "bin", f'test "$1 $2 $3 $4" = "export --type sqlite --output" && cp {database} "$5"'
    )
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    assert events_of(report(tmp_path)) == events_of(database)


def test_a_report_without_nsys_names_the_export_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnreadableError, match=r"nsys is not on the PATH.*nsys export --type sqlite"):
        tracelink.load(report(tmp_path))


def test_the_error_of_nsys_is_shown_without_control_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = program(tmp_path / "bin", r"printf 'unsupported \033[31mversion' >&2; exit 3")
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    with pytest.raises(UnreadableError, match=r"could not export it: unsupported \\x1b\[31mversion"):
        tracelink.load(report(tmp_path))


def test_text_with_the_name_of_a_report_is_no_report() -> None:
    assert is_nsys(REPORT, "a.nsys-rep")
    assert not is_nsys(b"notes on the report", "a.nsys-rep")


def test_temporary_copies_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    packed = tmp_path / "report.sqlite.gz"
    packed.write_bytes(gzip.compress(example().data()))
    graph = tracelink.load(packed, jobs=1)
    assert graph.arguments(0)["correlation"] == 7
    del graph
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_compressed_database_that_is_cut_is_reported(tmp_path: Path) -> None:
    packed = tmp_path / "report.sqlite.gz"
    packed.write_bytes(gzip.compress(example().data())[:-3000])
    with pytest.raises(UnreadableError, match=r"report\.sqlite\.gz"):
        tracelink.load(packed, jobs=1)


def test_a_full_disk_is_an_error_that_names_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(collected, "write_at", full)
    with pytest.raises(UnreadableError, match=r"temporary files in .*: No space left on device. .*TMPDIR"):
        tracelink.load(example().write(tmp_path / "report.sqlite"), jobs=1)
