"""Temporary files and folders, which become outputs at the end: complete or not at all."""

from __future__ import annotations

import errno
import io
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, cast

from isal import isal_zlib

from tracelink._io.remote.addresses import is_remote, plain_path
from tracelink._io.system import deferred_signals, machine, process_exists
from tracelink._model.errors import TraceError, UsageError

if TYPE_CHECKING:
    from typing_extensions import Buffer

GZIP_SUFFIX = ".gz"
GZIP_LEVEL = 2
GZIP_WINDOW = 16 + 15
"""zlib's `wbits` for gzip members; they contain no time, so that equal content gives equal bytes."""

ANOTHER_PLACE = "Choose another place to write to."

LONGEST_NAME = 180
"""Bytes of the name of an output that are part of the name of its temporary file."""

NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
"""What is not part of the name of a temporary file of an upload."""

TEMPORARY = re.compile(r"\..*\.([0-9a-f]{8})-(\d+)-[0-9a-f]{8}\.part", re.ASCII | re.DOTALL)
"""The names of temporary files: machine, process, random digits."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


# Files.


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A temporary file next to `path`, which replaces it at the end."""
    if path.exists() and not path.is_file():
        try:
            with _opened(path, "wb") as device, _compressed(device, path) as stream:  # a pipe, /dev/null
                yield stream
        except OSError as error:
            if error.errno in FULL:
                raise unwritable(path, error) from error
            raise
        return
    with (
        temporary_for(path) as temporary,
        _opened(temporary, "wb", path) as raw,
        _compressed(raw, path) as stream,
    ):
        yield stream


@contextmanager
def whole_object(url: str) -> Iterator[BinaryIO]:
    """A temporary file, of which an object is made at the end."""
    with temporary_upload(url) as temporary, _opened(temporary, "wb") as raw, _compressed(raw, url) as stream:
        yield stream


@contextmanager
def temporary_for(path: Path) -> Iterator[Path]:
    """The path of an empty temporary file next to `path`, which replaces it at the end."""
    final = Path(os.path.realpath(path))  # a link stays a link to the file
    if final.exists() and not final.is_file():
        raise TraceError("cannot be written: it is not a file", source=str(path), advice=ANOTHER_PLACE)
    temporary = _temporary_name(final)
    try:
        _opened(temporary, "xb", path).close()
        yield temporary
        _replace(temporary, final, path)
    except BaseException as error:
        with deferred_signals(), suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in FULL:
            raise unwritable(path, error) from error
        raise


def temporary_at(path: str) -> AbstractContextManager[Path]:
    """The path of an empty temporary file, of which the file or the object at `path` is made at the end."""
    return temporary_upload(path) if is_remote(path) else temporary_for(Path(plain_path(path)))


@contextmanager
def temporary_upload(url: str) -> Iterator[Path]:
    """The path of an empty temporary file, of which an object is made at the end."""
    from tracelink._io.remote.stores import store_of

    name = PurePosixPath(url).name or "object"
    temporary = _temporary_name(Path(tempfile.gettempdir(), NO_NAME.sub("_", name)))
    try:
        _opened(temporary, "xb").close()
        yield temporary
        store_of(url).write(temporary, url)
    except OSError as error:
        if error.errno in FULL:
            raise no_space(error) from error
        raise
    finally:
        with deferred_signals(), suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def _compressed(raw: BinaryIO, path: Path | str) -> Iterator[BinaryIO]:
    if str(path).endswith(GZIP_SUFFIX):
        with GzipStream(raw) as stream:
            yield cast(BinaryIO, stream)
    else:
        yield raw


# Folders.


@contextmanager
def temporary_folder_for(path: Path) -> Iterator[Path]:
    """The path of an empty temporary folder next to `path`, which becomes it at the end unless that has files."""
    final = Path(os.path.realpath(path))
    temporary = _temporary_name(final)
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        yield temporary
        with suppress(FileNotFoundError):
            final.rmdir()  # an empty one is in the way on Windows
        temporary.replace(final)
    except BaseException as error:
        with deferred_signals():
            shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError):
            raise unwritable(path, error) from error
        raise


@contextmanager
def replacing_folder(path: Path, marker: str, own: re.Pattern[str]) -> Iterator[Path]:
    """The path of an empty temporary folder, which replaces `path` at the end if that is such a folder or empty."""
    final = Path(os.path.realpath(path))
    if final.is_dir() and any(final.iterdir()) and not _has_only(final, marker, own):
        raise UsageError(
            f"{path} is a folder with other files, and would be overwritten", advice="Name a new folder."
        )
    if final.exists() and not final.is_dir():
        raise UsageError(f"{path} is a file, and would be overwritten", advice="Name a folder.")
    former = _temporary_name(final)
    try:
        with temporary_folder_for(path) as temporary:
            yield temporary
            if final.is_dir():
                with deferred_signals():
                    final.replace(former)
    except BaseException:
        with deferred_signals():
            if former.exists() and not final.exists():
                former.replace(final)
        raise
    finally:
        with deferred_signals():
            shutil.rmtree(former, ignore_errors=True)


def _has_only(folder: Path, marker: str, own: re.Pattern[str]) -> bool:
    """True if a folder has the marker, and no files but those whose names fit."""
    files = (path for path in folder.rglob("*") if not path.is_dir())
    return (folder / marker).is_file() and all(
        own.fullmatch(path.relative_to(folder).as_posix()) for path in files
    )


@contextmanager
def scratch_folder_for(path: Path | None) -> Iterator[Path]:
    """An empty folder next to an output, or among temporary files, which is removed at the end."""
    place = Path(os.path.realpath(path)) if path else Path(tempfile.gettempdir(), "tracelink")
    scratch = _temporary_name(place)
    if path is None:
        _remove_abandoned(str(place))
    try:
        scratch.mkdir()
    except OSError as error:
        raise unwritable(path or scratch, error) from error
    try:
        yield scratch
    finally:
        with deferred_signals():
            shutil.rmtree(scratch, ignore_errors=True)


# Names, and what can fail.


def _temporary_name(final: Path) -> Path:
    name = os.fsencode(final.name)[:LONGEST_NAME].decode(errors="ignore")
    return final.with_name(f".{name}.{machine()}-{os.getpid()}-{os.urandom(4).hex()}.part")


def _replace(temporary: Path, final: Path, called: Path) -> None:
    try:
        temporary.replace(final)
    except OSError as error:  # on Windows, another program has the file open
        raise unwritable(called, error) from error


def _opened(place: Path, mode: str, called: Path | None = None) -> BinaryIO:
    try:
        return cast(BinaryIO, place.open(mode))
    except OSError as error:
        raise unwritable(called or place, error) from error


def unwritable(path: Path, error: OSError) -> TraceError:
    """The error that a file or a folder cannot be written."""
    return TraceError(
        f"cannot be written: {(error.strerror or str(error)).lower()}",
        source=str(path),
        advice=ANOTHER_PLACE,
    )


def no_space(error: OSError) -> TraceError:
    """The error that a temporary file cannot be written."""
    return TraceError(
        f"cannot write temporary files in {tempfile.gettempdir()}: {error.strerror}",
        advice="Free some space there, or set the environment variable TMPDIR to another directory.",
    )


# What killed processes leave.


@contextmanager
def abandoned_files_removed(output: str) -> Iterator[None]:
    """Removes temporary files of killed processes next to an output: of earlier runs, and of workers after an error."""
    _remove_abandoned(output)
    try:
        yield
    except BaseException:
        with deferred_signals():
            _remove_abandoned(output)
        raise


def _remove_abandoned(output: str) -> None:
    path = os.path.realpath(output)
    folders = (tempfile.gettempdir(),) if is_remote(output) else (path, os.path.dirname(path))
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in filter(_is_abandoned, entries):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)


def _is_abandoned(entry: os.DirEntry[str]) -> bool:
    match = TEMPORARY.fullmatch(entry.name)
    return match is not None and match[1] == machine() and not process_exists(int(match[2]))


# Compression.


class GzipStream(io.BufferedIOBase):
    """Compresses what is written into `raw`, as one or more gzip members."""

    def __init__(self, raw: BinaryIO) -> None:
        self.raw = raw
        self._member = isal_zlib.compressobj(GZIP_LEVEL, wbits=GZIP_WINDOW)
        self._open = True

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, data: Buffer, /) -> int:
        """Compresses `data`; starts a member if none is open."""
        if not self._open:
            self._member = isal_zlib.compressobj(GZIP_LEVEL, wbits=GZIP_WINDOW)
            self._open = True
        self.raw.write(self._member.compress(data))
        return memoryview(data).nbytes

    def end_member(self) -> None:
        """Ends the open member, so that other members can be written to `raw` after it."""
        if self._open:
            self.raw.write(self._member.flush())
            self._open = False

    def close(self) -> None:
        """Ends the open member; `raw` stays open."""
        if not self.closed:
            self.end_member()
            super().close()
