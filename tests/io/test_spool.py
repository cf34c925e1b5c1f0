"""`tracelink._io.spool`."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracelink
import tracelink.samples as samples
from tracelink._io.spool import InMemory, KeptStore, LocalStore, Spool, kept_for
from tracelink._model.errors import TraceError, UsageError
from tracelink._run.processes import Processes

THINGS = st.lists(st.tuples(st.text(), st.integers(0, 3000)))


@given(THINGS)
def test_things_come_back_as_they_were(things: list[tuple[str, int]]) -> None:
    spool = Spool()
    tickets = [spool.put((text, np.arange(count))) for text, count in things]
    for (text, count), ticket in reversed(list(zip(things, tickets, strict=True))):
        same, array = spool.get(ticket)
        assert (same, array.tolist()) == (text, list(range(count)))


def test_processes_put_side_by_side() -> None:
    spool = Spool()

    def work(number: int) -> object:
        return spool.put(np.full(100_000 + number, number))

    tickets = Processes(4).map(work, range(12))
    assert [spool.get(ticket).sum() for ticket in tickets] == [n * (100_000 + n) for n in range(12)]


def test_what_all_processes_have_is_not_written() -> None:
    class Opener:
        """Cannot be pickled: its class has no name of its own."""

    opener = Opener()
    spool = Spool(shared=[opener])
    assert spool.get(spool.put({"source": opener}))["source"] is opener


def test_the_file_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    spool = Spool()
    spool.put(np.arange(1000))
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(
        TraceError, match=r"cannot write temporary files in .*: No space left on device\. Free .* TMPDIR"
    ):
        Spool().put(np.arange(10))


def test_a_keeper_in_memory_gives_the_very_thing_back() -> None:
    keeper, thing = LocalStore([], in_memory=True), object()
    place = keeper.put(thing)
    assert isinstance(place, InMemory)
    assert keeper.get(place) is thing


# Finished ranks in a folder: an interrupted job goes on with them, and nothing of anybody else is ever read.


SAMPLE = samples.path("cpu_job")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the secret of the user."""
    folder = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture
def kept(tmp_path: Path) -> KeptStore:
    return KeptStore.at(tmp_path / "job.resume")


KEY, OTHER = "0" * 32, "1" * 32


class Named:
    """Something that both runs have."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        raise TypeError("it stays where it is")


def never() -> Any:
    raise AssertionError("it was made again")


def made(store: KeptStore) -> Any:
    """What a rank leaves: a small value, and an object in the store."""
    return store.put({"column": np.arange(10_000), "source": store.shared[0]}), "small"


def test_what_was_made_once_is_not_made_again(kept: KeptStore) -> None:
    first = kept.of([Named("a"), Named("b")])
    first.once(KEY, lambda: made(first))
    kept.close()
    again = KeptStore.at(kept.folder).of([Named("b"), Named("a")])
    (stored, small), reused = again.once(KEY, never)
    content = again.get(stored)
    assert (small, content["column"].sum(), content["source"]) == ("small", 49_995_000, again.shared[1])
    assert reused


def test_other_keys_are_made(kept: KeptStore) -> None:
    store = kept.of([Named("a")])
    store.once(KEY, lambda: made(store))
    assert store.once(OTHER, lambda: "made") == ("made", False)


def test_a_source_that_is_gone_makes_a_record_void(kept: KeptStore) -> None:
    store = kept.of([Named("a")])
    store.once(KEY, lambda: store.shared[0])
    assert kept.of([Named("b")]).once(KEY, lambda: "made") == ("made", False)


def files(folder: Path) -> tuple[Path, Path]:
    """The record and the object."""
    (record,) = folder.glob("*.record")
    (content,) = (path for path in folder.iterdir() if path not in (record, folder / "lock"))
    return record, content


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data[:40] + b"\0" + data[41:], lambda _: b""]
)
def test_damage_makes_a_record_void(kept: KeptStore, which: int, damage: Any) -> None:
    store = kept.of([Named("a")])
    store.once(KEY, lambda: made(store))
    path = files(kept.folder)[which]
    path.write_bytes(damage(path.read_bytes().replace(b"\0", b"\1", 1)))
    assert store.once(KEY, lambda: "made") == ("made", False)


class Hostile:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("touch hacked",)


def test_a_record_of_another_user_is_never_unpickled(
    kept: KeptStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps((Hostile(), []))
    (kept.folder / f"{KEY}.record").write_bytes(bytes(32) + content)
    assert kept.once(KEY, lambda: "made") == ("made", False)
    theirs = KeptStore(kept.folder, b"their secret".ljust(32), ())
    theirs.once(OTHER, lambda: "theirs")
    assert kept.once(OTHER, lambda: "ours") == ("ours", False)
    assert not (tmp_path / "hacked").exists()


def test_an_object_that_was_exchanged_is_never_unpickled(kept: KeptStore, tmp_path: Path) -> None:
    store = kept.of([Named("a")])
    (stored, _), _ = store.once(KEY, lambda: made(store))
    files(kept.folder)[1].write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(TraceError, match="was changed or removed while the job was read"):
        store.get(stored)


def test_only_the_user_can_read_secret_and_folder(kept: KeptStore, state: Path) -> None:
    secret = state / "tracelink" / "resume.secret"
    assert [path.stat().st_mode & 0o777 for path in (secret, kept.folder)] == [0o600, 0o700]
    assert len(secret.read_bytes()) == 32


def test_a_damaged_secret_is_an_error(kept: KeptStore, state: Path) -> None:
    (state / "tracelink" / "resume.secret").write_bytes(b"short")
    with pytest.raises(TraceError, match=r"resume\.secret: it is damaged\. Remove it"):
        KeptStore.at(kept.folder)


def test_another_run_is_refused(kept: KeptStore) -> None:
    with pytest.raises(UsageError, match=r"another run uses .*job\.resume\. Wait for it"):
        KeptStore.at(kept.folder)
    kept.close()
    KeptStore.at(kept.folder)


def test_only_own_files_are_removed(kept: KeptStore) -> None:
    store = kept.of([Named("a")])
    store.once(KEY, lambda: made(store))
    (kept.folder / "mine.txt").write_text("keep")
    kept.remove()
    assert [path.name for path in kept.folder.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("make", [lambda path, to: path.symlink_to(to), lambda path, _: path.write_text("")])
def test_what_is_no_folder_is_refused(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "other.resume", tmp_path)
    with pytest.raises(UsageError, match=r"other\.resume is not a folder"):
        kept_for(str(tmp_path / "other"))


def test_standard_output_cannot_be_resumed() -> None:
    with pytest.raises(UsageError, match="standard output cannot be resumed"):
        kept_for("-")


def test_an_output_in_a_remote_store_is_resumed_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert kept_for("s3://bucket/run/job.parquet/").folder == tmp_path / "job.parquet.resume"


# Merges.


class InterruptionError(Exception):
    """In place of a signal."""


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("name", ["job.json", "job.pftrace"])
def test_an_interrupted_merge_goes_on(
    tmp_path: Path, name: str, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, resumed = tmp_path / f"whole-{name}", tmp_path / name
    tracelink.merge(SAMPLE, output=whole, jobs=1)
    monkeypatch.setattr("tracelink._join.ranks.BATCH_BYTES", 1)

    def interrupt(*_: Any) -> None:
        raise InterruptionError

    with monkeypatch.context() as patch:
        patch.setattr("tracelink._join.job_reader._job", interrupt)
        with pytest.raises(InterruptionError):
            tracelink.merge(SAMPLE, output=resumed, jobs=jobs, resume=True)
    folder = tmp_path / f"{name}.resume"
    assert len(list(folder.glob("*.record"))) == 2
    with monkeypatch.context() as patch:
        patch.setattr("tracelink._join.ranks._RankReader._read_group", interrupt)
        merged = tracelink.merge(SAMPLE, output=resumed, jobs=jobs, resume=True)
    assert merged.resumed == 2
    assert resumed.read_bytes() == whole.read_bytes()
    assert not folder.exists()


def test_a_changed_input_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "traces"
    shutil.copytree(SAMPLE, source)
    monkeypatch.setattr("tracelink._join.ranks.BATCH_BYTES", 1)
    reads: list[int] = []
    kept = KeptStore.at(tmp_path / "kept")

    def count(_: int) -> None:
        reads.append(1)

    from tracelink._io.sources import discover_inputs
    from tracelink._join.job_reader import Reading, read_job
    from tracelink._run import engine_for

    def read() -> int:
        reads.clear()
        read_job(Reading(discover_inputs(source), engine_for(1, count)), kept=kept)
        return len(reads)

    first, second = read(), read()
    os.utime(source / "kineto_1.json.gz", ns=(1, 1))
    third = read()
    assert second == 0
    assert 0 < third < first
