"""Stores of objects, which are found, listed, read in ranges and written.

The clients of most stores are coroutines. They run in an event loop of this module, in the thread that needs the
answer: fsspec would start a thread, and a process with threads cannot fork. A forked child makes clients of its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from msgspec import Struct, field

from tracelink._io.remote.addresses import WEB, folder_of, scheme_of, shown
from tracelink._io.remote.attempts import (
    ANYTHING,
    ATTEMPTS,
    ATTEMPTS_OF_CLIENTS,
    ShortReadError,
    failed,
    gone,
    missing_package,
    tried,
)
from tracelink._model.errors import TraceError, UnreadableError

Result = TypeVar("Result")

SEEN_EARLY = frozenset({"ssh", "sftp", "hdfs", "webhdfs", "smb", "ftp"})
"""Stores in which a file is visible while it is written: it is written under another name, and renamed."""

MOST_OBJECTS = 100_000
"""More objects in one request are refused: no job has that many ranks."""

LONGEST_REQUEST = 600.0
"""Seconds after which a request is tried again."""
REQUESTS_AT_ONCE = 32
LONGEST_UPLOAD = 86_400.0
AFTER_INTERRUPT = 30.0
"""Seconds for a client to undo an upload after an interrupt."""


class Entry(Struct, frozen=True):
    """An object in a store, as it was found."""

    url: str
    bytes: int
    """Its size; UNKNOWN_SIZE if the store does not say."""
    tag: str = ""
    """What changes when the object does: its entity tag, or its time in seconds."""
    modified_ns: int = 0
    """When it was written, in ns since 1970; 0 if the store does not say."""
    in_ranges: bool = True
    """True if parts of it can be read."""


UNKNOWN_SIZE = -1


class Folder(Struct):
    """The objects and the folders in a folder, by their addresses."""

    entries: list[Entry] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    """Names that are not below the folder, or that have parts like `..`."""


class Store(ABC):
    """Objects by their addresses; each method tries again what can succeed later."""

    attempts = ATTEMPTS

    def __init__(self) -> None:
        self.retries = 0
        """Number of requests that were repeated."""

    @abstractmethod
    def find(self, url: str) -> Entry | None:
        """The object; None if there is none, also if there is a folder."""

    @abstractmethod
    def folder(self, url: str, *, deep: bool, most: int) -> Folder:
        """The content of a folder, with `deep` of all below it; at least `most + 1` objects if there are more."""

    def read(self, entry: Entry, start: int, stop: int) -> bytes:
        """The bytes of a range that is within the object."""

        def ranged() -> bytes:
            data = self._range(entry, start, stop)
            if len(data) < stop - start:
                raise ShortReadError(f"it sent {len(data):,} of {stop - start:,} bytes")
            return data

        return self._tried_on(entry, ranged)

    def starts(self, entries: Sequence[Entry], size: int) -> list[bytes]:
        """The first bytes of objects, many at a time if possible; empty if they cannot be read."""
        found = []
        for entry in entries:
            start = b""
            if entry.in_ranges and entry.bytes:
                with suppress(TraceError):
                    start = self.read(entry, 0, min(size, entry.bytes))
            found.append(start)
        return found

    def copy(
        self, entry: Entry, write: Callable[[bytes], object], begin: Callable[[], object], limit: int
    ) -> None:
        """Writes a whole object of which no parts can be read; calls `begin` before each attempt."""

        def whole() -> None:
            begin()
            count = 0
            for piece in self._pieces(entry):
                count += len(piece)
                if count > limit:
                    raise UnreadableError(
                        f"it has more than {limit:,} bytes", source=shown(entry.url), advice=ANYTHING
                    )
                write(piece)
            if entry.bytes not in (count, UNKNOWN_SIZE):
                raise ShortReadError(f"it sent {count:,} of {entry.bytes:,} bytes")

        self._tried_on(entry, whole)

    @abstractmethod
    def write(self, file: Path, url: str) -> None:
        """Makes an object of a file; it appears whole or not at all."""

    @abstractmethod
    def remove(self, url: str) -> None:
        """Removes an object; there may be none."""

    @abstractmethod
    def check_writable(self, url: str) -> None:
        """Raises TraceError if an object cannot be written, as far as that is known before."""

    @abstractmethod
    def _range(self, entry: Entry, start: int, stop: int) -> bytes:
        """The bytes of a range, as far as the store sends them."""

    @abstractmethod
    def _pieces(self, entry: Entry) -> Iterator[bytes]:
        """The bytes of a whole object."""

    def _tried(self, url: str, work: Callable[[], Result]) -> Result:
        return tried(work, url, self._count, self.attempts)

    def _tried_on(self, entry: Entry, work: Callable[[], Result]) -> Result:
        """The same for an object that exists."""
        try:
            return self._tried(entry.url, work)
        except FileNotFoundError:
            raise gone(entry.url) from None

    def _count(self) -> None:
        self.retries += 1


def store_of(url: str) -> Store:
    """The store of an address, one for each thread of each process; raises UsageError if its package is missing."""
    scheme = scheme_of(url)
    host = url.partition("://")[2].partition("/")[0]
    return _store(f"{scheme}://{host}", os.getpid(), threading.get_ident(), _in_loop())


def _in_loop() -> bool:
    """True within a running event loop, such as that of a notebook: no other can run in this thread."""
    return asyncio._get_running_loop() is not None


@cache  # clients of parents stay: to close them in a child would close connections of the parent
def _store(root: str, process: int, thread: int, in_loop: bool) -> Store:
    if scheme_of(root) in WEB:
        from tracelink._io.remote.web import WebStore

        return WebStore()
    return FileSystemStore(root, in_loop=in_loop)


# Every store for which fsspec has a file system.


class _Inline(ThreadPoolExecutor):
    """Looks up hosts in this thread: a thread that waits for more work would keep this process from forking."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*args, **options))
        except Exception as error:  # noqa: BLE001  raised where the result is awaited
            done.set_exception(error)
        return done


@cache
def _session() -> Any:
    """The session of clients of S3: descriptions of the service, read once for a process and its children."""
    from aiobotocore.session import AioSession

    return AioSession()


class FileSystemStore(Store):
    """A store by its file system in fsspec."""

    def __init__(self, root: str, *, in_loop: bool) -> None:
        super().__init__()
        self._root = root
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            self._system = self._connected(in_loop)
        except (ImportError, ValueError) as error:
            if isinstance(error, ValueError) and "rotocol" not in str(error):
                raise failed(root, error, 1) from None
            raise missing_package(root) from None
        except Exception as error:  # noqa: BLE001  libraries raise errors of many kinds
            raise failed(root, error, 1) from None

    def _connected(self, in_loop: bool) -> Any:
        import fsspec

        kind = fsspec.get_filesystem_class(scheme_of(self._root))
        self.attempts = ATTEMPTS_OF_CLIENTS if kind.async_impl else ATTEMPTS
        options: dict[str, Any] = kind._get_kwargs_from_urls(f"{self._root}/")
        if kind.async_impl and not in_loop:
            self._loop = asyncio.new_event_loop()
            self._loop.set_default_executor(_Inline(1))
            self._loop.set_exception_handler(lambda *_: None)  # clients that end with the process
            options |= {"asynchronous": True, "loop": self._loop}
        if scheme_of(self._root) in ("s3", "s3a"):
            options["session"] = _session()
        if kind.async_impl or scheme_of(self._root) == "hf":
            options["use_listings_cache"] = False  # others give every option to their clients
        return kind(skip_instance_cache=True, **options)

    def find(self, url: str) -> Entry | None:
        """The object, unless there is none."""
        info = self._info(url)
        return _entry(url, info) if info and info.get("type") != "directory" else None

    def _info(self, url: str) -> Mapping[str, Any] | None:
        try:
            return cast(Mapping[str, Any], self._tried(url, lambda: self._call("info", self._path(url))))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def folder(self, url: str, *, deep: bool, most: int) -> Folder:
        """The objects and folders in a folder; none in one that does not exist."""
        path = self._path(folder_of(url)).rstrip("/")
        try:
            if deep and self._loop and hasattr(self._system, "_iterdir"):
                infos = self._tried(url, lambda: self._run(self._some_below(path, most), LONGEST_REQUEST))
            elif deep:
                found = self._tried(url, lambda: self._call("find", path, detail=True))
                infos = list(found.values())
            else:
                infos = self._tried(url, lambda: self._call("ls", path, detail=True))
        except (FileNotFoundError, NotADirectoryError):
            return Folder()
        return _folder(folder_of(url), path, infos)

    async def _some_below(self, path: str, most: int) -> list[Mapping[str, Any]]:
        """The objects below a folder of S3, page by page, until there are too many."""
        bucket, key, _ = self._system.split_path(path)
        prefix = f"{key}/" if key else ""
        found: list[Mapping[str, Any]] = []
        async for info in self._system._iterdir(bucket, delimiter="", prefix=prefix):
            found.append(info)
            if len(found) > most:
                break
        return found

    def _range(self, entry: Entry, start: int, stop: int) -> bytes:
        data = bytes(self._call("cat_file", self._path(entry.url), start=start, end=stop))
        if len(data) > stop - start:
            raise UnreadableError("the store does not send ranges", source=shown(entry.url), advice=ANYTHING)
        return data

    def _pieces(self, entry: Entry) -> Iterator[bytes]:
        yield bytes(self._call("cat_file", self._path(entry.url)))

    def starts(self, entries: Sequence[Entry], size: int) -> list[bytes]:
        """The first bytes of objects, many at a time; empty if they cannot be read."""
        if self._loop is None:
            return super().starts(entries, size)
        free = asyncio.Semaphore(REQUESTS_AT_ONCE)

        async def start(entry: Entry) -> bytes:
            path, stop = self._path(entry.url), min(size, entry.bytes)
            async with free:
                with suppress(Exception):  # reading the object will fail too, and is reported
                    return bytes(await self._system._cat_file(path, start=0, end=stop)) if stop > 0 else b""
            return b""

        async def all_starts() -> list[bytes]:
            return await asyncio.gather(*map(start, entries))

        return self._run(all_starts(), LONGEST_REQUEST)

    def write(self, file: Path, url: str) -> None:
        """Uploads a file: in one piece, or in parts that become an object when all are there."""
        path = self._path(url)
        temporary = _temporary_name(path) if scheme_of(url) in SEEN_EARLY else ""
        try:
            self._tried(url, lambda: self._upload(file, temporary or path))
            if temporary:
                self._tried(url, lambda: self._call("mv", temporary, path))
        except BaseException as error:
            if temporary:
                with suppress(Exception):
                    self._call("rm_file", temporary)
            if isinstance(error, FileNotFoundError):
                raise _no_place(url) from None
            if isinstance(error, TraceError):
                problem = f"cannot be written: {error.problem}"
                raise TraceError(problem, source=shown(url), advice=error.advice) from None
            raise

    def _upload(self, file: Path, path: str) -> None:
        if self._loop is None:
            with suppress(NotImplementedError, FileExistsError):
                self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
        try:
            self._call("put_file", str(file), path)
        except BaseException:
            if self._loop and hasattr(self._system, "_call_s3"):
                with suppress(Exception):
                    self._loop.run_until_complete(self._without_parts(path))
            raise

    async def _without_parts(self, path: str) -> None:
        """Removes the parts of an upload that failed, also those that arrived after its client had done so."""
        bucket, key, _ = self._system.split_path(path)
        async with asyncio.timeout(AFTER_INTERRUPT):
            answer = await self._system._call_s3("list_multipart_uploads", Bucket=bucket, Prefix=key)
            for upload in answer.get("Uploads", []):
                if upload["Key"] == key:
                    await self._system._call_s3(
                        "abort_multipart_upload", Bucket=bucket, Key=key, UploadId=upload["UploadId"]
                    )

    def remove(self, url: str) -> None:
        """Removes an object; there may be none."""
        with suppress(FileNotFoundError):
            self._tried(url, lambda: self._call("rm_file", self._path(url)))

    def check_writable(self, url: str) -> None:
        """Raises TraceError if the bucket does not exist."""
        bucket = self._path(url).strip("/").partition("/")[0]
        if self._loop and bucket and self._info(f"{scheme_of(url)}://{bucket}") is None:
            raise _no_place(url)

    def _path(self, url: str) -> str:
        return str(self._system._strip_protocol(url))

    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        """The result of a method of the file system, which is a coroutine in most of them."""
        if self._loop is None:
            return getattr(self._system, name)(*args, **options)
        limit = LONGEST_UPLOAD if name == "put_file" else LONGEST_REQUEST
        return self._run(getattr(self._system, f"_{name}")(*args, **options), limit)

    def _run(self, work: Coroutine[Any, Any, Result], limit: float) -> Result:
        """The result of a coroutine within so many seconds."""
        assert self._loop, "coroutines have a loop"
        try:
            return self._loop.run_until_complete(asyncio.wait_for(work, limit))
        except BaseException:
            self._end_tasks(self._loop)
            raise

    def _end_tasks(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ends what an error or an interrupt left unfinished: the other parts of an upload."""
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=AFTER_INTERRUPT))


def _no_place(url: str) -> TraceError:
    return TraceError(
        "cannot be written: there is no such bucket or folder",
        source=shown(url),
        advice="Make it, or check the address.",
    )


def _temporary_name(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name[:180]}.{os.urandom(8).hex()}.part"


# What file systems say about objects; each has names of its own.


TAGS = ("ETag", "etag", "e_tag", "md5Hash", "content_md5", "checksum", "blob_id")
TIMES = ("LastModified", "last_modified", "mtime", "modified", "updated", "created")


def _folder(url: str, path: str, infos: list[Mapping[str, Any]]) -> Folder:
    found = Folder()
    for info in infos:
        name = str(info["name"])
        below = name.removeprefix(f"{path}/") if path else name.lstrip("/")
        if below == path and info.get("type") != "directory":
            continue  # an object with the name of the folder
        if name.rstrip("/") == path.rstrip("/") or not below.strip("/"):
            continue  # the folder itself, for which consoles make an object
        if (path and below == name) or {".", ".."} & set(below.split("/")):
            found.strange.append(name)
        elif info.get("type") == "directory":
            found.folders.append(folder_of(url + below))
        elif not below.endswith("/"):
            found.entries.append(_entry(url + below, info))
    return found


def _entry(url: str, info: Mapping[str, Any]) -> Entry:
    size: Any = info.get("size")
    known = isinstance(size, int) and size >= 0
    modified = next((ns for name in TIMES if (ns := _time(info.get(name)))), 0)
    tag = next((str(info[name]) for name in TAGS if info.get(name)), "")
    tag = f"etag {tag}" if tag else f"time {modified // 10**9}" if modified else ""
    return Entry(url, int(size) if known else UNKNOWN_SIZE, tag, modified, in_ranges=known)


def _time(value: Any) -> int:
    """A time in ns since 1970; 0 if it is none."""
    with suppress(ValueError, OverflowError, OSError):
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            value = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
        if isinstance(value, int | float) and not isinstance(value, bool):
            return int(value * 10**9)
    return 0
