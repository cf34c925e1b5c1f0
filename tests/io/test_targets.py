"""`tracelink._io.targets`."""

from __future__ import annotations

import gzip
import io
import pickle
import re
from pathlib import Path

import pytest

from tracelink._io.targets import Place, StreamTarget, file_target, folder_target, target_of
from tracelink._model.errors import TraceError, UsageError


def test_a_file_appears_when_all_is_written(tmp_path: Path) -> None:
    target, path = file_target(tmp_path / "out.json"), tmp_path / "out.json"
    with target.file() as stream:
        stream.write(b"whole")
        assert not path.exists()
    assert path.read_bytes() == b"whole"
    assert target.local == path
    assert target.size() == 5
    assert target.path() == str(tmp_path / "out.json")
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def place_of(path: str) -> Place:
    target = target_of(path)
    assert isinstance(target, Place)
    return target


def write_half(target: Place, error: type[BaseException]) -> None:
    with target.file() as stream:
        stream.write(b"half" * 100_000)
        raise error


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, MemoryError])
@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_what_was_there_stays_when_writing_ends_early(
    error: type[BaseException], suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"out.{suffix}"
    path.write_bytes(b"before")
    with pytest.raises(error):
        write_half(file_target(path), error)
    assert path.read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == [f"out.{suffix}"]


def test_nothing_appears_when_writing_ends_early(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_half(file_target(tmp_path / "out.json"), KeyboardInterrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_gz_suffix_compresses_the_same_content_to_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one.gz", "two.gz"):
        with file_target(tmp_path / name).file() as stream:
            stream.write(b"text " * 1000)
    first, second = (tmp_path / name for name in ("one.gz", "two.gz"))
    assert first.read_bytes() == second.read_bytes()
    assert gzip.decompress(first.read_bytes()) == b"text " * 1000


def test_a_link_goes_on_leading_to_the_file(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_bytes(b"before")
    link.symlink_to(real)
    with file_target(link).file() as stream:
        stream.write(b"after")
    assert link.is_symlink()
    assert real.read_bytes() == b"after"


def test_a_device_is_written_to_and_not_replaced() -> None:
    with file_target(Path("/dev/null")).file() as stream:
        stream.write(b"gone")
    assert Path("/dev/null").is_char_device()


def test_a_place_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"missing/out\.json: cannot be written: .*Choose another place"):
        file_target(tmp_path / "missing" / "out.json").file().__enter__()


def test_a_directory_is_made_and_takes_only_names(tmp_path: Path) -> None:
    target = folder_target(tmp_path / "deep" / "er")
    with target.file("a.json") as stream:
        stream.write(b"{}")
    assert target.size("a.json") == 2
    assert target.path("a.json") == str(tmp_path / "deep" / "er" / "a.json")
    for name in ("", "../a.json", "/a.json"):
        with pytest.raises(UsageError):
            target.file(name)


@pytest.mark.parametrize(
    "place", [file_target("a.0.et"), folder_target("."), place_of("a").with_prefix(".et", 1)]
)
def test_another_process_writes_to_the_same_place(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    sent = pickle.dumps(place)
    monkeypatch.chdir(tmp_path / "other")
    there = pickle.loads(sent)
    with there.file("0.et") as stream:
        stream.write(b"")
    assert there.path("0.et") == place.path("0.et") == str(Path(there.path("0.et")))
    assert (tmp_path / there.path("0.et")).is_file()


def test_a_stream_stays_open_and_is_counted() -> None:
    stream = io.BytesIO()
    target = StreamTarget(stream)
    with target.file() as out:
        out.write(b"12345")
    assert not stream.closed
    assert (stream.getvalue(), target.size(), target.path()) == (b"12345", 5, "-")


def test_what_a_path_means(tmp_path: Path) -> None:
    assert isinstance(target_of("-"), StreamTarget)
    assert target_of(str(tmp_path)) == folder_target(tmp_path)
    assert target_of(f"{tmp_path}/new/") == folder_target(tmp_path / "new")
    assert target_of(f"{tmp_path}/new.json") == file_target(tmp_path / "new.json")


@pytest.mark.parametrize(
    ("path", "ranks", "first", "groups"),
    [
        ("et/job", 1, "et/job.0.et", "et/job.groups.json"),
        ("et/job", 2, "et/job.0.et", "et/job.groups.json"),
        ("et/", 2, "et/job.0.et", "et/job.groups.json"),
        ("et/job.et", 2, "et/job.0.et", "et/job.groups.json"),
        ("et/job.0.et", 2, "et/job.0.et", "et/job.groups.json"),
        ("et/job.12.et", 2, "et/job.0.et", "et/job.groups.json"),
        ("et/job.et", 1, "et/job.et", "et/job.groups.json"),
        ("et/job.7.et", 1, "et/job.7.et", "et/job.groups.json"),
        ("et/a.b", 2, "et/a.b.0.et", "et/a.b.groups.json"),
        ("et/.et", 2, "et/job.0.et", "et/job.groups.json"),
    ],
)
def test_files_whose_names_begin_alike(
    path: str, ranks: int, first: str, groups: str, tmp_path: Path
) -> None:
    target = place_of(f"{tmp_path}/{path}").with_prefix(".et", ranks)
    assert target.path("0.et") == f"{tmp_path}/{first}"
    assert target.path("groups.json") == f"{tmp_path}/{groups}"
    with target.file("0.et") as stream:
        stream.write(b"12345")
        assert not (tmp_path / first).exists()
    assert (tmp_path / first).read_bytes() == b"12345"
    assert target.size("0.et") == 5


def test_a_directory_that_exists_holds_files_of_the_usual_name(tmp_path: Path) -> None:
    assert place_of(str(tmp_path)).with_prefix(".et", 2).path("3.et") == f"{tmp_path}/job.3.et"


def test_a_place_for_files_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    target = place_of(f"{tmp_path}/file/job").with_prefix(".et", 2)
    with pytest.raises(TraceError, match=r"cannot be written.*Choose another place"), target.file("0.et"):
        pass


def test_a_closed_standard_output_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(UsageError, match="standard output is closed"):
        target_of("-")


# Folders of files that appear as a whole.


MARKER = "marker.json"
OWN = re.compile(r"(?!mine).*")


def write_folder(path: Path, *names: str) -> None:
    with folder_target(path).whole(MARKER, OWN) as files:
        for name in (*names, MARKER):
            with files.file(name) as stream:
                stream.write(name.encode())
            assert files.size(name) == len(name)
        assert not (path / names[0]).exists()


def files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_folder_appears_when_all_of_its_files_are_written(tmp_path: Path) -> None:
    write_folder(tmp_path / "out" / "job", "events/rank=0/part-0.parquet", "ranks.parquet")
    assert files_in(tmp_path) == [
        "out/job/events/rank=0/part-0.parquet",
        "out/job/marker.json",
        "out/job/ranks.parquet",
    ]


def test_an_empty_folder_and_one_with_the_marker_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    for name in ("a", "b"):
        write_folder(tmp_path / "job", name)
        assert files_in(tmp_path) == [f"job/{name}", "job/marker.json"]


def test_a_folder_with_the_marker_and_other_files_is_not_replaced(tmp_path: Path) -> None:
    write_folder(tmp_path / "job", "a")
    (tmp_path / "job" / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="is a folder with other files, and would be overwritten"):
        write_folder(tmp_path / "job", "b")
    assert files_in(tmp_path) == ["job/a", "job/marker.json", "job/mine.txt"]


def test_another_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is a folder with other files, and would be overwritten"):
        write_folder(tmp_path, "a")
    with pytest.raises(UsageError, match="is a file, and would be overwritten"):
        write_folder(tmp_path / "notes.txt", "a")
    assert files_in(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_folder_stays_as_it_was_when_writing_ends_early(tmp_path: Path, error: type[BaseException]) -> None:
    write_folder(tmp_path / "job", "a")

    def fails() -> None:
        with folder_target(tmp_path / "job").whole(MARKER, OWN) as files, files.file("b") as stream:
            stream.write(b"b")
            raise error

    with pytest.raises(error):
        fails()
    assert files_in(tmp_path) == ["job/a", "job/marker.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["job"]


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/../b", "/a", "a//b"])
def test_a_file_is_in_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a file"):
        folder_target(tmp_path / "job").file(name)
