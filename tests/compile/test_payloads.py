"""Payloads of artifacts in a folder: all of them or none, under names that stay in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.compile_log import artifact, log
from builders.compile_reading import read
from builders.data import foreign, traces
from tracelink._compile.payloads import write_artifacts
from tracelink._model.errors import TraceError, UsageError


def files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def written(folder: Path, *records: str) -> dict[str, str]:
    """The files that a log with these records becomes."""
    path = folder / "dedicated_log_torch_trace_rank_3_x.log"
    path.write_bytes(log(*records))
    write_artifacts(read([path]), str(folder / "out"))
    return files(folder / "out")


def test_payloads_by_rank_and_id(tmp_path: Path) -> None:
    assert written(
        tmp_path,
        artifact("inductor_output_code", "a\n\tb\n", "1/5"),
        artifact("inductor_output_code", "c", "1/5"),
        artifact("fx_graph_cache_hit", "{}", "!0/1/0"),
        artifact("torch_version", "2.13"),
    ) == {
        "rank_3/1_5/inductor_output_code.py": "a\n\tb\n",
        "rank_3/1_5/inductor_output_code_2.py": "c",
        "rank_3/_0_1_0/fx_graph_cache_hit.json": "{}",
        "rank_3/process/torch_version.txt": "2.13",
    }


def test_names_stay_in_the_folder(tmp_path: Path) -> None:
    found = written(tmp_path, artifact("../../../etc/x", "1"), artifact("", "2"), artifact("A" * 999, "3"))
    assert list(found) == [
        f"rank_3/process/{'A' * 120}.txt",
        "rank_3/process/_.._.._etc_x.txt",
        "rank_3/process/artifact.txt",
    ]


def test_names_are_none_of_devices_on_windows(tmp_path: Path) -> None:
    found = written(
        tmp_path,
        artifact("aux", "1"),
        artifact("COM1.x", "2"),
        artifact("console", "3"),
        artifact("x..", "4"),
    )
    assert [name.rpartition("/")[2] for name in found] == ["_COM1.x.txt", "_aux.txt", "console.txt", "x.txt"]


@pytest.mark.parametrize(("path", "files"), [("compile_faults", 88), *foreign(("torch_trace/single", 405))])
def test_every_recorded_payload_has_its_digest(path: str, files: int, tmp_path: Path) -> None:
    found = read([traces(path)])
    count, size = write_artifacts(found, str(tmp_path / "out"))
    paths = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert (len(paths), sum(path.stat().st_size for path in paths)) == (count, size) == (files, size)
    artifacts = [one for logs in found.logs.values() for log in logs for one in log.artifacts]
    assert sorted(map(_digest, paths)) == sorted(one.digest for one in artifacts)


def _digest(path: Path) -> str:
    import hashlib

    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def test_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(UsageError, match="is not empty"):
        written(tmp_path, artifact("a", "b"))
    assert files(tmp_path / "out") == {"mine": "x"}


def test_nothing_is_left_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "dedicated_log_torch_trace_rank_3_x.log"
    path.write_bytes(log(artifact("a", "b")))
    found = read([path])
    path.unlink()
    with pytest.raises(TraceError):
        write_artifacts(found, str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []
