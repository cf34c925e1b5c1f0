"""Formats, commands and options that need files, in stores: of fsspec's memory, as nothing here is about servers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import tracelink
from builders.nsys import example, parquet_folder
from tracelink._model.errors import UsageError
from tracelink._open.trace import OpenTrace
from tracelink.cli import main
from tracelink.cli.console import total_bytes

SAMPLES = Path(__file__).parents[3] / "samples"


@pytest.fixture(autouse=True)
def memory() -> Iterator[Any]:
    """The file system of fsspec in memory."""
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()


def put(memory: Any, folder: Path, place: str) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            memory.pipe_file(f"/{place}/{path.relative_to(folder).as_posix()}", path.read_bytes())


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, catch_exceptions=False, prog_name="tracelink")


def events_of(path: str | Path) -> list[tuple[str, int, int]]:
    graph = tracelink.load(path, jobs=1)
    names = [graph.strings[code] for code in graph.events.name.tolist()]
    return list(zip(names, graph.events.start.tolist(), graph.events.duration.tolist(), strict=True))


def test_exports_of_nsight_systems(memory: Any, tmp_path: Path) -> None:
    folder = parquet_folder(example(), tmp_path / "report")
    put(memory, tmp_path, "nsys")
    expected = events_of(tmp_path / "source.sqlite")
    assert events_of("memory://nsys/source.sqlite") == expected
    assert events_of("memory://nsys/report") == events_of(folder) == expected


@pytest.mark.parametrize("name", ["job.parquet", "job.duckdb"])
def test_tables_of_a_job(name: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("duckdb")
    tracelink.merge(SAMPLES / "gpu_pair", output=tmp_path / name, jobs=1)
    tracelink.merge(SAMPLES / "gpu_pair", output=f"memory://out/{name}", jobs=1)
    assert events_of(f"memory://out/{name}") == events_of(tmp_path / name)
    counted = "SELECT kind, count(*) FROM events GROUP BY kind ORDER BY kind"
    there = tracelink.query(f"memory://out/{name}", counted)
    assert there.rows() == tracelink.query(tmp_path / name, counted).rows()
    with pytest.raises(UsageError, match="there is no such object or folder"):
        tracelink.query("memory://nothing", counted)


def test_a_trace_for_the_ui(tmp_path: Path) -> None:
    tracelink.merge(SAMPLES / "gpu_pair", output="memory://out/job.pftrace", jobs=1)
    tracelink.merge(SAMPLES / "gpu_pair", output=tmp_path / "job.pftrace", jobs=1)
    with OpenTrace.of("memory://out/job.pftrace") as opened:
        assert (opened.path, opened.name) == ("memory://out/job.pftrace", "job.pftrace")
        opened.file.seek(0)
        assert opened.file.read() == (tmp_path / "job.pftrace").read_bytes()
    with pytest.raises(UsageError, match="there is no such object"):
        OpenTrace.of("memory://out/nothing.pftrace")


def test_a_clock_file(memory: Any) -> None:
    memory.pipe_file("/clocks.json", json.dumps({"0": 0, "1": 1_000_000}).encode())
    graph = tracelink.load(SAMPLES / "gpu_pair", clock="memory://clocks.json", jobs=1)
    assert [rank.clock.offset_ns for rank in graph.ranks] == [0, 1_000_000]


def test_every_command_with_inputs_takes_addresses(memory: Any) -> None:
    put(memory, SAMPLES / "gpu_pair", "run")
    put(memory, SAMPLES / "hung_job", "hung")
    put(memory, SAMPLES / "compile_job", "compiled")
    commands = {
        ("inspect", "memory://run"): 0,
        ("collectives", "memory://run"): 0,
        ("clocks", "memory://run"): 0,
        ("summary", "memory://run"): 0,
        ("diff", "memory://run", str(SAMPLES / "gpu_pair")): 0,
        ("compile", "memory://compiled"): 1,
        ("diagnose", "memory://hung/dumps"): 1,
        ("merge", "memory://run/kineto_0.json.gz", "-o", "memory://out/k.pftrace"): 0,
        ("merge", "memory://run", "-o", "memory://out/job.json.gz"): 0,
    }
    assert {words: run(*words).exit_code for words in commands} == commands


def test_reports_in_stores(memory: Any) -> None:
    put(memory, SAMPLES / "gpu_pair", "run")
    put(memory, SAMPLES / "hung_job", "hung")
    put(memory, SAMPLES / "compile_job", "compiled")
    assert "Wrote memory://out/r.html" in run("summary", "memory://run", "-o", "memory://out/r.html").output
    run("summary", "memory://run", "-o", "memory://out/r.csv")
    for name in ("d.sqlite", "d.html"):
        diagnosed = run("diagnose", "memory://hung/dumps", "-o", f"memory://out/{name}")
        assert f"Wrote memory://out/{name}" in diagnosed.output
    run("compile", "memory://compiled", "-o", "memory://out/c.html")
    names = {name.removeprefix("/out/") for name in memory.find("/out")}
    assert {"r.html", "r.steps.csv", "d.sqlite", "d.html", "c.html"} <= names
    assert memory.cat_file("/out/d.sqlite").startswith(b"SQLite format 3")


@pytest.mark.parametrize(
    "words",
    [
        ("run", "-o", "memory://trace", "--", sys.executable, "-c", "pass"),
        ("compile", str(SAMPLES / "compile_job"), "--artifacts", "memory://artifacts"),
    ],
)
def test_what_is_recorded_stays_on_this_machine(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, words, prog_name="tracelink")
    assert "is not on this machine" in f"{result.output}{result.exception}"


def test_no_error_of_a_command_has_the_secrets_of_an_address() -> None:
    address = "http://user:hidden-word@127.0.0.1:1/a.json?X-Amz-Signature=hidden-word"
    sample = str(SAMPLES / "gpu_pair" / "kineto_0.json.gz")
    for words in (
        ("inspect", address),
        ("inspect", "--rank", f"{address}=3", sample),
        ("merge", sample, "-o", address),
        ("merge", sample, "--clock", address, "-o", "memory://out/job.json"),
        ("open", address),
        ("diagnose", sample, "-o", address),
        ("summary", sample, "-o", f"{address}.html"),
        ("validate", address, "--groups", address),
    ):
        result = CliRunner().invoke(main, words, prog_name="tracelink")
        assert result.exit_code != 0, words
        assert "hidden-word" not in f"{result.output}{result.exception}", words


def test_the_size_of_inputs_for_progress(memory: Any) -> None:
    memory.pipe_file("/run/a.json", b"12345")
    memory.pipe_file("/run/b.json", b"123")
    assert total_bytes(["memory://run"]) == 8
    memory.pipe_file("/run/c.json.gz", b"123")
    assert total_bytes(["memory://run"]) is None
    assert total_bytes(["memory://nothing", "http://127.0.0.1/a.json"]) is None
