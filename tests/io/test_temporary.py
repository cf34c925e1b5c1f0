"""`tracelink._io.temporary`."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tracelink._io.system import machine
from tracelink._io.targets import file_target
from tracelink._io.temporary import abandoned_files_removed, scratch_folder_for, temporary_folder_for
from tracelink._model.errors import TraceError

# Temporary files of processes that were killed.


def ended_process() -> int:
    process = os.fork()
    if not process:
        os._exit(0)
    os.waitpid(process, 0)
    return process


@pytest.mark.parametrize("output", ["out.json", "new/", ""])
def test_temporary_files_of_ended_processes_are_removed_and_no_others(tmp_path: Path, output: str) -> None:
    ended, own = ended_process(), os.getpid()
    kept = [
        f".out.json.{machine()}-{own}-0123abcd.part",
        f".out.json.00000000-{ended}-0123abcd.part",  # of another machine
        f"out.json.{machine()}-{ended}-0123abcd.part",
        f".out.json.{machine()}-{ended}-0123abcd.part.json",
        "data.part",
    ]
    for name in [
        *kept,
        f".out.json.{machine()}-{ended}-0123abcd.part",
        f".a\nb.{machine()}-{ended}-0123abcd.part",
    ]:
        (tmp_path / name).touch()
    with abandoned_files_removed(f"{tmp_path}/{output}"):
        assert {path.name for path in tmp_path.iterdir()} == {*kept}


def test_a_killed_process_leaves_a_file_that_the_next_one_removes(tmp_path: Path) -> None:
    target = file_target(tmp_path / "out.json")
    process = os.fork()
    if not process:
        with target.file() as stream:
            stream.write(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(process, 0)
    (left,) = tmp_path.iterdir()
    assert re.fullmatch(rf"\.out\.json\.{machine()}-{process}-[0-9a-f]{{8}}\.part", left.name)
    with abandoned_files_removed(target.path()), target.file() as stream:
        stream.write(b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


@pytest.mark.parametrize("name", ["a" * 255, "\u00e4" * 127, "\u6f22" * 85])
def test_the_longest_names_can_be_written(tmp_path: Path, name: str) -> None:
    with file_target(tmp_path / name).file() as stream:
        stream.write(b"whole")
    assert [path.name for path in tmp_path.iterdir()] == [name]


# Folders that appear whole.


@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_appears_when_all_is_written(tmp_path: Path, exists: bool) -> None:
    final = tmp_path / "deep" / "out"
    if exists:
        final.mkdir(parents=True)
    with temporary_folder_for(final) as folder:
        (folder / "a.txt").write_bytes(b"whole")
        assert not (final / "a.txt").exists()
    assert [path.name for path in final.parent.iterdir()] == ["out"]
    assert (final / "a.txt").read_bytes() == b"whole"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_no_folder_appears_when_writing_ends_early(tmp_path: Path, error: type[BaseException]) -> None:
    def work() -> None:
        with temporary_folder_for(tmp_path / "out") as folder:
            (folder / "a.txt").write_bytes(b"half")
            raise error

    with pytest.raises(error):
        work()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_has_files_by_then_is_kept(tmp_path: Path) -> None:
    def work() -> None:
        with temporary_folder_for(tmp_path / "out") as folder:
            (folder / "a.txt").write_bytes(b"new")
            (tmp_path / "out").mkdir()
            (tmp_path / "out" / "b.txt").write_bytes(b"other")

    with pytest.raises(TraceError, match="out: cannot be written: directory not empty"):
        work()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "b.txt"]


def test_a_temporary_folder_of_an_ended_process_is_removed(tmp_path: Path) -> None:
    left = tmp_path / f".out.{machine()}-{ended_process()}-0123abcd.part"
    (left / "rank_0").mkdir(parents=True)
    with abandoned_files_removed(str(tmp_path / "out")):
        assert list(tmp_path.iterdir()) == []


def test_a_scratch_folder_is_next_to_its_output_until_the_end(tmp_path: Path) -> None:
    with scratch_folder_for(tmp_path / "job.duckdb") as scratch:
        (scratch / "file").write_text("text")
        assert scratch.parent == tmp_path
    assert list(tmp_path.iterdir()) == []
    with (
        pytest.raises(TraceError, match="cannot be written"),
        scratch_folder_for(tmp_path / "missing" / "job"),
    ):
        pass


def test_a_scratch_folder_of_a_killed_process_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    abandoned = tmp_path / f".tracelink.{machine()}-{child}-0123abcd.part"
    (abandoned / "spill").mkdir(parents=True)
    with scratch_folder_for(None) as scratch:
        assert [path.name for path in tmp_path.iterdir()] == [scratch.name]
    assert list(tmp_path.iterdir()) == []
