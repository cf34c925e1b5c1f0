"""Stores: what they list, what their errors say, and what is tried again."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from builders.inputs import content, found, read_while, zipped
from builders.stores import BUCKET, S3, Web
from tracelink._io.remote import stores
from tracelink._io.remote.attempts import failed, tried
from tracelink._io.remote.objects import found_at
from tracelink._io.remote.stores import Entry, store_of
from tracelink._io.targets import target_of
from tracelink._model import MANIFEST_START
from tracelink._model.errors import ChangedError, TraceError, UnreadableError, UsageError


@pytest.fixture
def memory() -> Iterator[Any]:
    """The file system of fsspec in memory, which has no coroutines."""
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()


def test_a_file_system_without_coroutines(memory: Any, tmp_path: Path) -> None:
    target = target_of("memory://run/rank_0/a.json")
    with target.file() as stream:
        stream.write(b"[1]" * 100_000)
    memory.pipe_file("/run/z.zip", zipped(tmp_path / "z.zip", {"rank2.json": b"two"}).read_bytes())
    memory.pipe_file("/run/.hidden", b"")
    discovery = found("memory://run")
    assert {source.path: content(source) for source in discovery.sources} == {
        "memory://run/rank_0/a.json": b"[1]" * 100_000,
        "memory://run/z.zip:rank2.json": b"two",
    }
    assert [source.named for source in discovery.sources] == [False, False]
    assert [source.named for source in found("memory://run/rank_0/a.json").sources] == [True]
    with pytest.raises(UsageError, match="memory://nothing/: there is no such object or folder"):
        found("memory://nothing/")


def test_a_dataset_in_a_store_is_one_source(memory: Any) -> None:
    manifest, own = MANIFEST_START + b"}", b"PAR1"
    for name, text in (("tracelink.json", manifest), ("events/rank=0/part-0.parquet", own)):
        memory.pipe_file(f"/run/job.parquet/{name}", text)
    memory.pipe_file("/run/trace.json", b"[1]")
    whole, inside = found("memory://run/job.parquet").sources, found("memory://run").sources
    manifest_path = "memory://run/job.parquet/tracelink.json"
    assert [(source.path, source.named) for source in whole] == [(manifest_path, True)]
    assert [source.path for source in inside] == [manifest_path, "memory://run/trace.json"]


def test_a_file_system_that_takes_no_options_but_its_own(memory: Any) -> None:
    import fsspec

    class Strict(type(memory)):  # type: ignore[misc]
        protocol = "strict"

        def __init__(self) -> None:
            super().__init__()

    fsspec.register_implementation("strict", Strict, clobber=True)
    assert store_of("strict://host/a").find("strict://host/a") is None


def test_an_object_that_is_written_again_is_another(memory: Any) -> None:
    memory.pipe_file("/a.json", b"{}")
    (source,) = found("memory://a.json").sources
    assert content(source) == b"{}"
    memory.pipe_file("/a.json", b"{ }")
    with pytest.raises(
        ChangedError, match=r"^memory://a\.json: the object was changed since it was first read"
    ):
        content(source)


def test_patterns(s3: S3) -> None:
    names = [
        "run1/k_0.json",
        "run1/k_1.json",
        "run2/k_0.json",
        "run2/t.txt",
        "other/k_9.json",
        "run3/.k.json",
        "odd[1].json",
    ]
    for name in names:
        s3.client().put_object(Bucket=BUCKET, Key=name, Body=b"{}")

    def keys(pattern: str) -> list[str]:
        return [
            entry.url.removeprefix(f"s3://{BUCKET}/")
            for entry in found_at(f"s3://{BUCKET}/{pattern}").entries
        ]

    assert keys("run*/k_?.json") == ["run1/k_0.json", "run1/k_1.json", "run2/k_0.json"]
    assert keys("run[12]/k_0.json") == ["run1/k_0.json", "run2/k_0.json"]
    assert keys("**/k_[09].json") == ["other/k_9.json", "run1/k_0.json", "run2/k_0.json"]
    assert keys("run2/**") == ["run2/k_0.json", "run2/t.txt"]
    assert keys("run2*") == ["run2/k_0.json", "run2/t.txt"]
    assert keys("run3/.k*") == ["run3/.k.json"]
    assert keys("odd[1].json") == ["odd[1].json"]
    with pytest.raises(UsageError, match="there is no such object or folder"):
        keys("none*")


def test_objects_of_folders_and_strange_names(s3: S3) -> None:
    for name in ("run/", "run/a.json", "run/sub/", "run/../up.json", "run/a\x1b[31m.json", "runner/b.json"):
        s3.client().put_object(Bucket=BUCKET, Key=name, Body=b"" if name.endswith("/") else b"{}")
    discovery = found(f"s3://{BUCKET}/run")
    assert [source.path for source in discovery.sources] == [
        f"s3://{BUCKET}/run/a\x1b[31m.json",
        f"s3://{BUCKET}/run/a.json",
    ]
    (finding,) = discovery.findings
    assert (
        finding.message == f"s3://{BUCKET}/run: 1 names lead out of the folder; these objects were skipped."
    )
    assert finding.example == f"{BUCKET}/run/../up.json"


def test_more_objects_than_the_limit_are_refused(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracelink._io.remote.objects.MOST_OBJECTS", 3)
    for number in range(5):
        s3.client().put_object(Bucket=BUCKET, Key=f"run/{number}", Body=b"{}")
    (finding,) = found(f"s3://{BUCKET}/run").findings
    assert finding.message.startswith(f"s3://{BUCKET}/run/: there are more than 3 objects.")


@pytest.mark.parametrize("text", [b"{  }", b"{}\n", b""])
def test_a_changed_object_in_s3(s3: S3, text: bytes) -> None:
    s3.client().put_object(Bucket=BUCKET, Key="a.json", Body=b"{ }" * 50_000)
    (source,) = found(f"s3://{BUCKET}/a.json").sources
    with pytest.raises(ChangedError, match="the object was changed"):
        read_while(source, lambda: s3.client().put_object(Bucket=BUCKET, Key="a.json", Body=text))


def test_a_bucket_that_does_not_exist(s3: S3) -> None:
    with pytest.raises(
        UsageError, match=r"^s3://no-such-bucket/a: there is no such bucket\. Check the address\.$"
    ):
        found("s3://no-such-bucket/a")


def test_without_credentials(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    (finding,) = found(f"s3://{BUCKET}/a").findings
    assert finding.message == (
        f"s3://{BUCKET}/a: there are no credentials for this store. Credentials come from the environment, "
        "configuration files and roles of the machine: docs/remote.md."
    )


def test_a_store_that_denies_access(web: Web, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", web.address)

    def denied(web: Web, handler: Any) -> bool:
        handler.answer(403, b"<Error><Code>AccessDenied</Code></Error>")
        return True

    web.fault = denied
    (finding,) = found(f"s3://{BUCKET}/a").findings
    assert finding.message.startswith(f"s3://{BUCKET}/a: access is denied. Credentials come from")


def test_one_store_that_fails_costs_only_its_inputs(s3: S3, web: Web, tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_bytes(b"{}")
    web.fault = lambda web, handler: handler.answer(403, b"") or True  # type: ignore[attr-defined]
    discovery = found(tmp_path / "rank0.json", web.url("rank1.json"))
    assert [source.path for source in discovery.sources] == [str(tmp_path / "rank0.json")]
    assert [finding.reason for finding in discovery.findings] == ["unreadable"]


@pytest.mark.parametrize(
    ("address", "package"),
    [("gs://b/a", "gcsfs"), ("az://c/a", "adlfs"), ("hf://datasets/a", "huggingface_hub")],
)
def test_a_missing_package_is_named(address: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=rf"needs the package {package}.* Run: pip install {package}$"):
        found(address)


def test_fsspec_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(
        UsageError,
        match=r"fsspec, which is not installed\. Run: pip install 'torch-tracelink\[remote\]' s3fs",
    ):
        found("s3://bucket/a")


def test_unknown_schemes() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(UsageError, match="fsspec cannot use nothing:// here"):
        found("nothing://bucket/a")


def test_an_address_that_pathlib_broke() -> None:
    with pytest.raises(
        UsageError, match=r"An address has two slashes, s3://bucket/a, of which pathlib removes one\."
    ):
        found(Path("s3://bucket/a"))


NOTEBOOK = """
import asyncio
from builders.inputs import content, found
from tracelink._io.targets import target_of

async def cell():
    with target_of("s3://bucket/b.json").file() as stream:
        stream.write(b"[]")
    return b"".join(content(source) for source in found("s3://bucket/").sources)

print(asyncio.run(cell()))
"""


def test_within_an_event_loop_as_that_of_a_notebook(s3: S3) -> None:
    s3.client().put_object(Bucket=BUCKET, Key="a.json", Body=b"{}")
    environment = os.environ | s3.environment | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("b'{}[]'\n", "")


def test_in_several_threads_as_those_of_a_cluster(s3: S3) -> None:
    s3.client().put_object(Bucket=BUCKET, Key="a.json", Body=b"{ }" * 100_000)
    (source,) = found(f"s3://{BUCKET}/a.json").sources
    read: list[bytes] = []
    threads = [threading.Thread(target=lambda: read.append(content(source))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read == [b"{ }" * 100_000] * 4


# Attempts


class ServerError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class FakeConnectionError(Exception):
    """As aiohttp and botocore have: no OSError, but named like one."""


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (ServerError(503), 5),
        (ServerError(429), 5),
        (ServerError(400), 1),
        (TimeoutError(), 5),
        (ConnectionResetError(), 5),
        (FakeConnectionError(), 5),
        (PermissionError("no"), 1),
        (ValueError("no"), 1),
        (socket.gaierror(socket.EAI_NONAME, "unknown"), 1),
        (FileNotFoundError(), 1),
        (UnreadableError("no"), 1),
    ],
)
def test_what_is_tried_again(error: Exception, attempts: int) -> None:
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        raise error

    repeated: list[int] = []
    with pytest.raises((TraceError, FileNotFoundError)):
        tried(work, "s3://b/a", lambda: repeated.append(1))
    assert (len(calls), len(repeated)) == (attempts, attempts - 1)


def test_errors_of_libraries_have_no_secrets_wherever_they_are() -> None:
    def work() -> None:
        try:
            raise ValueError("https://user:hidden-word@host/a?X-Amz-Signature=hidden-word")
        except ValueError as error:
            raise RuntimeError("Authorization: Bearer hidden-word\x1b[31m") from error

    import pickle
    import traceback

    with pytest.raises(UnreadableError) as caught:
        tried(work, "https://user:hidden-word@host/a?token=hidden-word", lambda: None)
    error = caught.value
    assert str(error).startswith("https://host/a: the store cannot be used (Authorization: ***")
    assert "\x1b" not in str(error)
    assert "hidden-word" not in "".join(traceback.format_exception_only(error))
    assert error.__suppress_context__
    assert "hidden-word" not in repr(pickle.loads(pickle.dumps(error)))


def test_the_reason_of_an_error_is_short() -> None:
    assert len(str(failed("s3://b/a", ValueError("x" * 10_000), 1))) < 500


@pytest.mark.parametrize(
    ("info", "entry"),
    [
        (
            {"size": 3, "ETag": '"ab"', "LastModified": datetime(2026, 1, 1, tzinfo=UTC)},
            ('etag "ab"', 1767225600),
        ),
        ({"size": 3, "mtime": 1767225600.5}, ("time 1767225600", 1767225600.5)),
        ({"size": 3, "updated": "2026-01-01T00:00:00Z"}, ("time 1767225600", 1767225600)),
        ({"size": 3, "modified": datetime(2026, 1, 1)}, ("time 1767225600", 1767225600)),
        ({"size": 3, "created": "yesterday"}, ("", 0)),
        ({"size": 3}, ("", 0)),
    ],
)
def test_what_file_systems_say_about_objects(info: Mapping[str, Any], entry: tuple[str, float]) -> None:
    assert stores._entry("s3://b/a", info) == Entry("s3://b/a", 3, entry[0], int(entry[1] * 10**9))


def test_an_object_of_unknown_size_is_copied() -> None:
    assert stores._entry("x://b/a", {"size": None}) == Entry("x://b/a", -1, in_ranges=False)


def test_clients_are_not_shared_with_threads() -> None:
    pytest.importorskip("fsspec")
    here = store_of("memory://b/1")
    there: list[Any] = []
    thread = threading.Thread(target=lambda: there.append(store_of("memory://b/1")))
    thread.start()
    thread.join()
    assert here is store_of("memory://b/2") is not there[0]
