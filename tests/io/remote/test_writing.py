"""Outputs in remote stores: whole or not at all."""

from __future__ import annotations

import gzip
import pickle
import re
import subprocess
import sys
import tempfile
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import tracelink
from builders.stores import BUCKET, S3, Web, forwarded
from tracelink._io.targets import (
    Place,
    check_folder,
    check_not_read,
    common_folder,
    folder_target,
    target_of,
)
from tracelink._io.temporary import abandoned_files_removed
from tracelink._model.errors import TraceError, UsageError

SAMPLES = Path(__file__).parents[3] / "samples"
ROOT = f"s3://{BUCKET}"
PARTS = 5 << 20


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, which is empty after each test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_what_addresses_mean(s3: S3) -> None:
    s3.client().put_object(Bucket=BUCKET, Key="run/a.json", Body=b"{}")
    assert target_of(f"{ROOT}/a.json") == Place(f"{ROOT}/a.json")
    assert target_of(f"{ROOT}/run/a.json") == Place(f"{ROOT}/run/a.json")
    assert target_of(f"{ROOT}/new/") == Place(f"{ROOT}/new/", is_folder=True)
    assert target_of(f"{ROOT}/run") == Place(f"{ROOT}/run/", is_folder=True)
    assert target_of(ROOT) == Place(f"{ROOT}/", is_folder=True)


@pytest.mark.parametrize(
    ("address", "ranks", "written"),
    [
        ("et/job", 2, "et/job.0.et"),
        ("et/job.et", 2, "et/job.0.et"),
        ("et/job.0.et", 1, "et/job.0.et"),
        ("et/job.et", 1, "et/job.et"),
        ("et/", 2, "et/job.0.et"),
    ],
)
def test_prefixes_are_those_of_local_paths(address: str, ranks: int, written: str) -> None:
    target = target_of(f"memory://{address}")
    assert isinstance(target, Place)
    prefixed = target.with_prefix(".et", ranks)
    assert prefixed.path("0.et") == f"memory://{written}"
    assert pickle.loads(pickle.dumps(prefixed)) == prefixed


def test_an_object_appears_when_all_is_written(s3: S3, temporary: Path) -> None:
    target = target_of(f"{ROOT}/run/a.json.gz")
    with target.file() as stream:
        stream.write(b"whole")
        assert s3.keys() == []
        assert len(list(temporary.iterdir())) == 1
    assert gzip.decompress(s3.content("run/a.json.gz")) == b"whole"
    assert target.size() == len(s3.content("run/a.json.gz"))
    assert target.path() == f"{ROOT}/run/a.json.gz"
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_after_an_error_there_is_what_was_there_before(
    s3: S3, temporary: Path, error: type[BaseException]
) -> None:
    s3.client().put_object(Bucket=BUCKET, Key="a.json", Body=b"before")
    with pytest.raises(error):
        write(f"{ROOT}/a.json", b"half", error)
    assert s3.content("a.json") == b"before"
    assert list(temporary.iterdir()) == []


def test_files_in_a_folder(s3: S3) -> None:
    folder = folder_target(f"{ROOT}/run")
    with folder.file("events/rank=0/part-0.parquet") as stream:
        stream.write(b"part")
    assert s3.content("run/events/rank=0/part-0.parquet") == b"part"
    assert folder.path("a/b") == f"{ROOT}/run/a/b"
    assert folder.path() == f"{ROOT}/run/"
    for name in ("", "../a", "a/../b", "/a", "a//b", "."):
        with pytest.raises(UsageError, match="is not the name of an object"):
            folder.file(name)


OWN = re.compile("_done|old/part")


def test_a_whole_folder_replaces_only_one_with_its_marker(s3: S3) -> None:
    folder = folder_target(f"{ROOT}/job/")
    with folder.whole("_done", OWN) as inside:
        for name in ("old/part", "_done"):
            with inside.file(name) as stream:
                stream.write(b"")
    with folder.whole("_done", OWN) as inside:
        assert s3.keys() == []
        with inside.file("new") as stream:
            stream.write(b"")
    assert s3.keys() == ["job/new"]
    with pytest.raises(UsageError, match="is a folder with other objects"), folder.whole("_done", OWN):
        pass


def write(address: str, data: bytes, error: type[BaseException] | None = None) -> None:
    with target_of(address).file() as stream:
        stream.write(data)
        if error:
            raise error


def through(web: Web, s3: S3, monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    """Lets a web server with faults stand between clients and the server of S3."""

    def answer(web: Web, handler: BaseHTTPRequestHandler) -> bool:
        if not fault(handler):
            forwarded(s3, handler)
        return True

    web.fault = answer
    monkeypatch.setenv("AWS_ENDPOINT_URL", web.address)


def failing(handler: BaseHTTPRequestHandler) -> bool:
    size = int(handler.headers.get("Content-Length") or 0)
    handler.rfile.read(size)
    handler.answer(500, b"")  # type: ignore[attr-defined]
    return True


def test_a_store_that_fails_at_first_gets_the_whole_object(
    web: Web, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [3]

    def fault(handler: BaseHTTPRequestHandler) -> bool:
        left[0] -= handler.command == "PUT"
        return handler.command == "PUT" and left[0] >= 0 and failing(handler)

    through(web, s3, monkeypatch, fault)
    with target_of(f"{ROOT}/a.json").file() as stream:
        stream.write(b"whole")
    assert s3.content("a.json") == b"whole"


def test_a_store_that_always_fails_is_one_error(
    web: Web, s3: S3, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    through(web, s3, monkeypatch, lambda handler: handler.command == "PUT" and failing(handler))
    with (
        pytest.raises(
            TraceError, match=rf"^{ROOT}/a\.json: cannot be written: the store .* after 2 attempts"
        ),
        target_of(f"{ROOT}/a.json").file() as stream,
    ):
        stream.write(b"whole")
    assert s3.keys() == []
    assert list(temporary.iterdir()) == []


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch, s3: S3) -> None:
    """Uploads in parts as small as the store takes them."""
    monkeypatch.setattr("s3fs.core.calculate_chunksize", lambda *_, **__: PARTS)


@pytest.mark.usefixtures("small_parts")
def test_a_large_object_is_uploaded_in_parts(s3: S3) -> None:
    data = bytes(range(256)) * (3 * PARTS // 256)
    with target_of(f"{ROOT}/a.bin").file() as stream:
        stream.write(data)
    assert s3.content("a.bin") == data


@pytest.mark.usefixtures("small_parts")
def test_parts_of_a_failed_upload_are_removed(
    web: Web, s3: S3, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    through(web, s3, monkeypatch, lambda handler: "partNumber=3" in handler.path and failing(handler))
    with pytest.raises(TraceError, match="cannot be written"), target_of(f"{ROOT}/a.bin").file() as stream:
        stream.write(bytes(3 * PARTS))
    assert s3.keys() == []
    assert s3.client().list_multipart_uploads(Bucket=BUCKET).get("Uploads", []) == []
    assert list(temporary.iterdir()) == []


INTERRUPTED = """
import os, signal, sys, tempfile
import s3fs.core
from tracelink._io.targets import target_of

s3fs.core.calculate_chunksize = lambda *_, **__: 5 << 20
once = s3fs.S3FileSystem._call_s3

async def call(self, method, *args, **options):
    if method == "upload_part" and options["PartNumber"] == 2:
        os.kill(os.getpid(), signal.SIGINT)
    return await once(self, method, *args, **options)

s3fs.S3FileSystem._call_s3 = call
try:
    with target_of("s3://bucket/a.bin").file() as stream:
        stream.write(bytes(60 << 20))
except KeyboardInterrupt:
    print("interrupted", os.listdir(tempfile.gettempdir()))
"""


@pytest.mark.usefixtures("heeded_signals")
def test_parts_of_an_interrupted_upload_are_removed(s3: S3, temporary: Path) -> None:
    import os

    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        env=os.environ | s3.environment | {"TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted []\n", "", 0)
    assert s3.keys() == []
    assert s3.client().list_multipart_uploads(Bucket=BUCKET).get("Uploads", []) == []


def test_temporary_files_of_killed_processes_are_removed(temporary: Path) -> None:
    from tracelink._io.system import machine

    left = temporary / f".a.json.{machine()}-999999999-01234567.part"
    left.write_bytes(b"half")
    with abandoned_files_removed("memory://a.json"):
        pass
    assert list(temporary.iterdir()) == []


def test_a_bucket_that_does_not_exist_is_an_error_before_anything_is_read(s3: S3) -> None:
    with pytest.raises(TraceError, match="cannot be written: there is no such bucket"):
        check_folder("s3://no-such-bucket/a.json")
    check_folder(f"{ROOT}/new/a.json")


def test_an_output_that_is_an_input_is_refused(s3: S3) -> None:
    check_not_read(f"{ROOT}/a.json", [f"{ROOT}/b.json"])
    for read in (f"{ROOT}/a.zip", f"{ROOT}/a.zip:member.json"):
        with pytest.raises(UsageError, match="is one of the inputs, and would be overwritten"):
            check_not_read(f"{ROOT}/a.zip", [read])


def test_the_folder_of_addresses() -> None:
    assert common_folder([f"{ROOT}/et/0.et", f"{ROOT}/et/1.et"]) == f"{ROOT}/et"
    assert common_folder([f"{ROOT}/et/0.et", f"{ROOT}/tables/1.et"]) == ROOT


@pytest.mark.parametrize("name", ["job.json", "job.json.gz", "job.pftrace"])
def test_a_job_from_and_to_a_store_has_the_bytes_of_a_local_one(s3: S3, tmp_path: Path, name: str) -> None:
    for sample in ("gpu_pair", "cpu_job"):
        s3.put(SAMPLES / sample, f"{sample}/")
        tracelink.merge(SAMPLES / sample, output=tmp_path / name, jobs=1)
        merged = tracelink.merge(f"{ROOT}/{sample}", output=f"{ROOT}/out/{name}", jobs=1)
        assert s3.content(f"out/{name}") == (tmp_path / name).read_bytes()
        assert [(output.path, output.bytes) for output in merged.outputs] == [
            (f"{ROOT}/out/{name}", (tmp_path / name).stat().st_size)
        ]


def test_chakra_traces_of_a_store_are_those_of_local_files(s3: S3, tmp_path: Path) -> None:
    s3.put(SAMPLES / "gpu_pair", "run/")
    tracelink.merge(SAMPLES / "gpu_pair", output=tmp_path / "et" / "job", to="chakra", jobs=1)
    tracelink.merge(f"{ROOT}/run", output=f"{ROOT}/et/job", to="chakra", jobs=1)
    local = {path.name: path.read_bytes() for path in (tmp_path / "et").iterdir()}
    assert {key.removeprefix("et/"): s3.content(key) for key in s3.keys("et/")} == local
    here, there = tracelink.validate(tmp_path / "et"), tracelink.validate(f"{ROOT}/et")
    assert there.counts == here.counts
    assert there.warning_counts == here.warning_counts
