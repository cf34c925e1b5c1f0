"""Where outputs go: files, directories, streams, objects in remote stores."""

from __future__ import annotations

import io
import itertools
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast, runtime_checkable

from msgspec import Struct

from tracelink._io.remote.addresses import folder_of, is_remote, plain_path, shown, within_store
from tracelink._io.sources import archive_of
from tracelink._io.temporary import ANOTHER_PLACE, replacing_folder, unwritable, whole_file, whole_object
from tracelink._model.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Buffer

STDOUT = "-"
USUAL_PREFIX = "job"
"""The prefix of the files of one output in a directory, if the user gave none."""


class Target(Protocol):
    """Where a writer puts its files. A file appears complete or not at all."""

    def file(self, name: str = "") -> AbstractContextManager[BinaryIO]:
        """A file to write: the target itself, or the file `name` in the target as a directory."""
        ...

    def path(self, name: str = "") -> str:
        """The path of that file."""
        ...

    def size(self, name: str = "") -> int:
        """The size in bytes of that file after it was written."""
        ...


@runtime_checkable
class FolderTarget(Target, Protocol):
    """A target that can have files in folders, and that can be made visible as a whole."""

    def whole(self, marker: str, own: re.Pattern[str]) -> AbstractContextManager[Target]:
        """A target for the files of one folder, of which `marker` is written last: a folder without it is incomplete.

        On this machine nothing is visible before the end. An earlier folder with such a marker is replaced, if
        `own` fits to the names of all of its files. Any other folder with files is refused.
        """
        ...


class FileTarget(Struct, frozen=True):
    """One file."""

    location: Path
    base: Path = Path()
    """The folder from which the location counts."""

    def __reduce__(self) -> tuple[Any, ...]:
        return FileTarget, (self.location, self.base.absolute())

    def file(self, name: str = "") -> AbstractContextManager[BinaryIO]:
        """The file itself; `name` would be its name in a directory."""
        return whole_file(self.base / self.location)

    def path(self, name: str = "") -> str:
        """The file's path."""
        return str(self.location)

    def size(self, name: str = "") -> int:
        """The file's size now."""
        return (self.base / self.location).stat().st_size

    def as_folder(self) -> DirectoryTarget:
        """A directory in place of the file."""
        return DirectoryTarget(self.location)


class DirectoryTarget(Struct, frozen=True):
    """Files in a directory, which is created if it does not exist."""

    location: Path
    base: Path = Path()
    """The folder from which the location counts."""

    def __reduce__(self) -> tuple[Any, ...]:
        return DirectoryTarget, (self.location, self.base.absolute())

    def file(self, name: str = "") -> AbstractContextManager[BinaryIO]:
        """The file `name` in the directory, or `folder/name` in a folder of it."""
        if not name or not all(part.strip(".") for part in name.split("/")) or Path(name).is_absolute():
            raise UsageError(f"{name!r} is not the name of a file in {self.location}")
        path = self.base / self.location / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(path.parent, error) from error
        return whole_file(path)

    @contextmanager
    def whole(self, marker: str, own: re.Pattern[str]) -> Iterator[Target]:
        """A temporary folder, which becomes the directory at the end."""
        with replacing_folder(self.location, marker, own) as temporary:
            yield DirectoryTarget(temporary)

    def path(self, name: str = "") -> str:
        """The path of the file `name`."""
        return str(self.location / name)

    def size(self, name: str = "") -> int:
        """The size of the file `name` now."""
        return (self.base / self.location / name).stat().st_size


class PrefixTarget(Struct, frozen=True):
    """Files with a common prefix: `job.0.et`, `job.groups.json`."""

    directory: Path
    prefix: str
    only: Path | None = None
    """The file of the only rank, if the user gave its complete name."""
    base: Path = Path()
    """The folder from which these count."""

    def __reduce__(self) -> tuple[Any, ...]:
        return PrefixTarget, (self.directory, self.prefix, self.only, self.base.absolute())

    @classmethod
    def of(cls, target: Target, suffix: str, ranks: int) -> PrefixTarget:
        """The files that a path means: `et/job`, `et/job.et`, `et/job.0.et`, or a directory."""
        if not isinstance(target, FileTarget):
            return cls(Path(target.path()), USUAL_PREFIX)
        name = target.location.name
        named = name.endswith(suffix) and ranks == 1
        return cls(target.location.parent, _prefix_in(name, suffix), target.location if named else None)

    def file(self, name: str = "") -> AbstractContextManager[BinaryIO]:
        """The file with this name after the prefix."""
        path = self.base / self._path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(path.parent, error) from error
        return whole_file(path)

    def path(self, name: str = "") -> str:
        """The path of that file."""
        return str(self._path(name))

    def size(self, name: str = "") -> int:
        """The size of that file now."""
        return (self.base / self._path(name)).stat().st_size

    def _path(self, name: str) -> Path:
        if self.only and name.endswith(self.only.suffix):
            return self.only
        return self.directory / f"{self.prefix}.{name}"


def _prefix_in(name: str, suffix: str) -> str:
    """The prefix that the name of a file means."""
    prefix = re.sub(r"(\.\d+)?$", "", name.removesuffix(suffix)) if name.endswith(suffix) else name
    return prefix or USUAL_PREFIX


class RemoteTarget(Struct, frozen=True):
    """One object in a remote store."""

    url: str

    def file(self, name: str = "") -> AbstractContextManager[BinaryIO]:
        """The object itself; `name` would be its name in a folder."""
        return whole_object(self.url)

    def path(self, name: str = "") -> str:
        """The object's address, without secrets."""
        return shown(self.url)

    def size(self, name: str = "") -> int:
        """The object's size now."""
        return size_of(self.url)

    def as_folder(self) -> RemoteFolderTarget:
        """A folder in place of the object."""
        return RemoteFolderTarget(folder_of(self.url))

    def whole(self, marker: str, own: re.Pattern[str]) -> AbstractContextManager[RemoteFolderTarget]:
        """A folder in place of the object."""
        return self.as_folder().whole(marker, own)


class RemoteFolderTarget(Struct, frozen=True):
    """Objects in a folder of a remote store, or with a common prefix in it."""

    url: str
    """Ends with a slash."""
    prefix: str = ""
    """What names start with before a dot; empty if there is none."""
    only: str = ""
    """The address of the object of the only rank, if the user gave its complete name."""

    @classmethod
    def with_prefix(
        cls, target: RemoteTarget | RemoteFolderTarget, suffix: str, ranks: int
    ) -> RemoteFolderTarget:
        """The objects that an address means, as of a local path: `et/job`, `et/job.et`, `et/job.0.et`, or a folder."""
        if isinstance(target, RemoteFolderTarget):
            return cls(target.url, USUAL_PREFIX)
        folder, _, name = target.url.rpartition("/")
        named = name.endswith(suffix)
        only = target.url if named and ranks == 1 else ""
        return cls(folder_of(folder), _prefix_in(name, suffix), only)

    def file(self, name: str = "") -> AbstractContextManager[BinaryIO]:
        """The object `name` in the folder, or `folder/name` in a folder of it."""
        return whole_object(self._url(name))

    def path(self, name: str = "") -> str:
        """The address of that object, without secrets; that of the folder without a name."""
        return shown(self._url(name) if name else self.url)

    def size(self, name: str = "") -> int:
        """The size of that object now."""
        return size_of(self._url(name))

    @contextmanager
    def whole(self, marker: str, own: re.Pattern[str]) -> Iterator[RemoteFolderTarget]:
        """The folder itself, complete when `marker` is written; an earlier one with a marker is removed before."""
        from tracelink._io.remote.stores import MOST_OBJECTS, store_of

        store = store_of(self.url)
        former = [entry.url for entry in store.folder(self.url, deep=True, most=MOST_OBJECTS).entries]
        names = [url.removeprefix(self.url) for url in former]
        if former and (marker not in names or not all(map(own.fullmatch, names))):
            raise UsageError(
                f"{shown(self.url)} is a folder with other objects, and would be overwritten",
                advice="Name a new folder.",
            )
        for url in sorted(former, key=lambda url: url != self.url + marker):
            store.remove(url)
        yield self

    def _url(self, name: str) -> str:
        if not name or not all(part.strip(".") for part in name.split("/")):
            raise UsageError(f"{name!r} is not the name of an object in {shown(self.url)}")
        if self.only and name.endswith(PurePosixPath(self.only).suffix):
            return self.only
        return f"{self.url}{self.prefix}.{name}" if self.prefix else self.url + name


def size_of(url: str) -> int:
    """The size of an object that was written; 0 if it was removed since."""
    from tracelink._io.remote.stores import store_of

    found = store_of(url).find(url)
    return found.bytes if found else 0


class StreamTarget(Struct):
    """An open stream, such as standard output; it stays open."""

    stream: BinaryIO
    written: int = 0

    @contextmanager
    def file(self, name: str = "") -> Iterator[BinaryIO]:
        """The stream, counted."""
        counted = _Counted(self.stream)
        yield cast(BinaryIO, counted)
        self.stream.flush()
        self.written = counted.count

    def path(self, name: str = "") -> str:
        """The symbol of standard output."""
        return STDOUT

    def size(self, name: str = "") -> int:
        """The size of the last file."""
        return self.written


class _Counted(io.BufferedIOBase):
    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.count = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        self.stream.write(data)
        size = memoryview(data).nbytes
        self.count += size
        return size


def names_folder(path: str) -> bool:
    """True if a path ends as only those of folders do."""
    return path.endswith((os.sep, os.altsep or os.sep))


def target_of(path: str) -> Target:
    """The target that the user means by `path`: `-` is standard output; `dir/` or an existing directory is a folder."""
    if path == STDOUT:
        if sys.stdout is None:
            raise UsageError("standard output is closed", advice=ANOTHER_PLACE)
        return StreamTarget(sys.stdout.buffer)
    if names_folder(path) or is_folder(path):
        return folder_target(path)
    return file_target(path)


def file_target(path: str) -> FileTarget | RemoteTarget:
    """The target of one file."""
    return RemoteTarget(path) if is_remote(path) else FileTarget(Path(plain_path(path)))


def folder_target(path: str) -> DirectoryTarget | RemoteFolderTarget:
    """The target of files in a folder."""
    return RemoteFolderTarget(folder_of(path)) if is_remote(path) else DirectoryTarget(Path(plain_path(path)))


def is_folder(path: str) -> bool:
    """True if a path is that of a folder that exists; a bucket always does."""
    if not is_remote(path):
        return Path(plain_path(path)).is_dir()
    if not within_store(path).strip("/"):
        return True
    from tracelink._io.remote.stores import store_of

    store = store_of(path)
    if store.find(path):
        return False
    inside = store.folder(path, deep=False, most=1)
    return bool(inside.entries or inside.folders)


def is_file(path: str) -> bool:
    """True if a path is that of a file or an object that exists."""
    if not is_remote(path):
        return Path(plain_path(path)).is_file()
    from tracelink._io.remote.stores import store_of

    return store_of(path).find(path) is not None


def spool_folder(path: str) -> str | None:
    """The folder for temporary files of an output: its own, or None for that of the system if it is not local."""
    return None if is_remote(path) else os.path.dirname(path) or None


def common_folder(paths: Sequence[str]) -> str:
    """The folder that contains all of these files."""
    if any(map(is_remote, paths)):
        folders = [path.rpartition("/")[0].split("/") for path in paths]
        same = itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*folders, strict=False))
        return "/".join(parts[0] for parts in same)
    return os.path.commonpath([os.path.dirname(path) for path in paths]) or os.curdir


def check_local(path: str) -> None:
    """Raises UsageError if a path is not on this machine."""
    if is_remote(path):
        raise UsageError(
            f"{shown(path)} is not on this machine",
            advice="Name a local folder, and copy it when it is complete.",
        )


# Checks before anything is read


def check_folder(path: str) -> None:
    """Raises UsageError if the folder of an output does not exist, or TraceError if its store cannot be written to."""
    if is_remote(path):
        from tracelink._io.remote.stores import store_of

        store_of(path).check_writable(path)
        return
    path = plain_path(path)
    folder = Path(path).parent
    if path != STDOUT and not names_folder(path) and not folder.is_dir():
        raise UsageError(
            f"cannot be written: there is no folder {folder}",
            source=path,
            advice=f"Make it: mkdir -p {shlex.quote(str(folder))}",
        )


def check_not_read(path: str, read: Iterable[str]) -> None:
    """Raises UsageError if an output would overwrite an input, or an archive that contains one."""
    if is_remote(path):
        if any(source == shown(path) or archive_of(source) == shown(path) for source in read):
            raise _overwritten(path)
        return
    path = plain_path(path)
    if path == STDOUT or not Path(path).is_file():
        return
    for source in read:
        for place in (source, archive_of(source)):
            if place and Path(place).is_file() and os.path.samefile(place, path):
                raise _overwritten(path)


def _overwritten(path: str) -> UsageError:
    return UsageError(f"{shown(path)} is one of the inputs, and would be overwritten", advice=ANOTHER_PLACE)
