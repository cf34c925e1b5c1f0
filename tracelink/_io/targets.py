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
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

from msgspec import Struct
from msgspec.structs import replace

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


class Place(Struct, frozen=True):
    """A file or a folder of files, on this machine or in a remote store; the target of most writers."""

    address: str
    """A path, or the address of an object; that of a folder in a store ends with a slash."""
    is_folder: bool = False
    """A folder is made when its first file is written."""
    prefix: str = ""
    """What names in the folder start with before a dot, as in `job.0.et` and `job.groups.json`; empty if nothing."""
    only: str = ""
    """The name of the file of the only rank, if the user gave the complete one."""
    base: str = ""
    """The folder from which a path counts: another process may work in another one."""

    def __reduce__(self) -> tuple[Any, ...]:
        base = self.base if self.is_remote else os.path.abspath(self.base)
        return Place, (self.address, self.is_folder, self.prefix, self.only, base)

    def file(self, name: str = "") -> AbstractContextManager[BinaryIO]:
        """The file to write: the place itself, or `name` or `folder/name` in it as a folder."""
        address = self._address(name)
        if self.is_remote:
            return whole_object(address)
        path = Path(self.base, address)
        if self.is_folder:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise unwritable(path.parent, error) from error
        return whole_file(path)

    def path(self, name: str = "") -> str:
        """The path of that file, without secrets; that of the folder without a name."""
        return shown(self._address(name) if name else self.address)

    def size(self, name: str = "") -> int:
        """The size of that file now; 0 of an object that was removed since."""
        address = self._address(name)
        if not self.is_remote:
            return Path(self.base, address).stat().st_size
        from tracelink._io.remote.stores import store_of

        found = store_of(address).find(address)
        return found.bytes if found else 0

    @property
    def is_remote(self) -> bool:
        """True in a store."""
        return is_remote(self.address)

    @property
    def local(self) -> Path | None:
        """The path if it is on this machine."""
        return None if self.is_remote else Path(self.base, self.address)

    def as_folder(self) -> Place:
        """A folder in place of the file."""
        return folder_target(self.address)

    def with_prefix(self, suffix: str, ranks: int) -> Place:
        """The files that a path means: `et/job`, `et/job.et`, `et/job.0.et`, or a folder."""
        if self.is_folder:
            return replace(self, prefix=USUAL_PREFIX)
        folder, name = os.path.split(self.address)
        if self.is_remote:
            folder, _, name = self.address.rpartition("/")
        prefix = re.sub(r"(\.\d+)?$", "", name.removesuffix(suffix)) if name.endswith(suffix) else name
        only = name if name.endswith(suffix) and ranks == 1 else ""
        return replace(folder_target(folder), prefix=prefix or USUAL_PREFIX, only=only)

    @contextmanager
    def whole(self, marker: str, own: re.Pattern[str]) -> Iterator[Place]:
        """A place for the files of one folder, of which `marker` is written last: without it a folder is incomplete.

        On this machine nothing is visible before the end. An earlier folder with such a marker is replaced, if
        `own` fits to the names of all of its files. Any other folder with files is refused.
        """
        folder = self.as_folder()
        if self.is_remote:
            _remove_former(folder.address, marker, own)
            yield folder
            return
        with replacing_folder(Path(self.address), marker, own) as temporary:
            yield folder_target(temporary)

    def _address(self, name: str) -> str:
        """The address of the place itself, or of a file in it."""
        if not self.is_folder:
            return self.address
        if not name or not all(part.strip(".") for part in name.split("/")) or Path(name).is_absolute():
            kind = "an object" if self.is_remote else "a file"
            raise UsageError(f"{name!r} is not the name of {kind} in {shown(self.address)}")
        if self.only and name.endswith(PurePosixPath(self.only).suffix):
            name = self.only
        elif self.prefix:
            name = f"{self.prefix}.{name}"
        return self.address + name if self.is_remote else str(Path(self.address, name))


def _remove_former(folder: str, marker: str, own: re.Pattern[str]) -> None:
    """Removes the objects of an earlier folder with a marker; the marker is the first."""
    from tracelink._io.remote.stores import MOST_OBJECTS, store_of

    store = store_of(folder)
    former = [entry.url for entry in store.folder(folder, deep=True, most=MOST_OBJECTS).entries]
    names = [url.removeprefix(folder) for url in former]
    if former and (marker not in names or not all(map(own.fullmatch, names))):
        raise UsageError(
            f"{shown(folder)} is a folder with other objects, and would be overwritten",
            advice="Name a new folder.",
        )
    for url in sorted(former, key=lambda url: url != folder + marker):
        store.remove(url)


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


def file_target(path: str | os.PathLike[str]) -> Place:
    """The place of one file."""
    return Place(_address_of(path))


def folder_target(path: str | os.PathLike[str]) -> Place:
    """The place of files in a folder."""
    address = _address_of(path)
    return Place(folder_of(address) if is_remote(address) else address, is_folder=True)


def _address_of(path: str | os.PathLike[str]) -> str:
    address = os.fspath(path)
    return address if is_remote(address) else str(Path(plain_path(address)))


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
