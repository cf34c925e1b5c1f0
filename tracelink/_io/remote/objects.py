"""Objects as files: read in ranges with read-ahead, or from a temporary copy, and recognised when they change."""

from __future__ import annotations

import atexit
import io
import os
import re
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import translate
from functools import cache
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from msgspec import Struct, field

from tracelink._io.remote.addresses import WEB, folder_of, is_remote, scheme_of, shown
from tracelink._io.remote.stores import MOST_OBJECTS, UNKNOWN_SIZE, Entry, Folder, Store, store_of
from tracelink._model import MANIFEST, MANIFEST_START
from tracelink._model.errors import ChangedError, UnreadableError, UsageError

# What an address means: an object, the objects in a folder, or those that fit a pattern.


PATTERN = re.compile(r"[*?\[]")
ANY_DEPTH = "**"


class Found(Struct):
    """The objects at an address."""

    entries: list[Entry] = field(default_factory=list)
    named: bool = False
    """True if the address is that of one object."""
    strange: list[str] = field(default_factory=list)
    """Names of objects that were skipped, because they are not below the folder."""

    def add(self, folder: Folder, base: str) -> None:
        """Adds objects of a folder, without hidden ones below `base`."""
        self.strange += folder.strange
        self.entries += [entry for entry in folder.entries if not is_hidden(entry.url, base)]
        if len(self.entries) > MOST_OBJECTS:
            raise UnreadableError(
                f"there are more than {MOST_OBJECTS:,} objects",
                source=shown(base),
                advice="Name fewer of them.",
            )


def is_hidden(url: str, base: str) -> bool:
    """True if a name below `base` begins with a dot."""
    return any(part.startswith(".") for part in url.removeprefix(base).split("/"))


def found_at(url: str) -> Found:
    """The objects at an address; raises UsageError if there are none."""
    store, found = store_of(url), Found()
    if not url.endswith("/") and (entry := store.find(url)):
        return Found([entry], named=True)
    if _has_pattern(url):
        for one in _matches(store, url):
            if isinstance(one, Entry):
                found.add(Folder([one]), one.url)
            else:
                found.add(store.folder(one, deep=True, most=MOST_OBJECTS), one)
    else:
        found.add(store.folder(folder_of(url), deep=True, most=MOST_OBJECTS), folder_of(url))
    if not found.entries and not found.strange:
        raise UsageError(f"{shown(url)}: there is no such object or folder", advice="Check the address.")
    by_url = {entry.url: entry for entry in found.entries}
    entries = [by_url[address] for address in sorted(by_url)]
    # The links of a page have no sizes.
    known = (store.find(entry.url) if entry.bytes == UNKNOWN_SIZE else entry for entry in entries)
    found.entries = [entry for entry in known if entry]
    return found


def outside_datasets(entries: Sequence[Entry]) -> tuple[list[Entry], set[str]]:
    """The objects without those that a dataset consists of, except its manifest; and the addresses of manifests."""
    named = [entry for entry in entries if entry.url.rpartition("/")[2] == MANIFEST]
    starts = starts_of(named, len(MANIFEST_START))
    manifests = {
        entry.url for entry, start in zip(named, starts, strict=True) if start.startswith(MANIFEST_START)
    }
    folders = tuple(url.removesuffix(MANIFEST) for url in manifests)
    kept = [entry for entry in entries if entry.url in manifests or not entry.url.startswith(folders)]
    return kept, manifests


def starts_of(entries: Sequence[Entry], size: int) -> list[bytes]:
    """The first bytes of objects of one store; empty if they cannot be read."""
    return store_of(entries[0].url).starts(entries, size) if entries else []


def objects_in(folder: str) -> list[str]:
    """The addresses of the objects in a folder, without those in folders of it."""
    inside = store_of(folder).folder(folder, deep=False, most=MOST_OBJECTS)
    return sorted(entry.url for entry in inside.entries)


def _has_pattern(url: str) -> bool:
    key = url.partition("://")[2].partition("/")[2]
    return bool(PATTERN.search(key.partition("?")[0] if scheme_of(url) in WEB else key))


def _matches(store: Store, url: str) -> Iterator[Entry | str]:
    """The objects and folders that fit a pattern, of which each part is looked up in the folders that fit so far."""
    root, _, key = url.partition("://")
    host, _, key = key.partition("/")
    parts = [part for part in key.split("/") if part]
    plain = next(number for number, part in enumerate(parts) if PATTERN.search(part))
    start = "/".join([f"{root}://{host}", *parts[:plain]])
    yield from _below(store, folder_of(start), parts[plain:])


def _below(store: Store, folder: str, parts: list[str]) -> Iterator[Entry | str]:
    part, rest = parts[0], parts[1:]
    if part == ANY_DEPTH:
        whole = re.compile(_any_depth(parts))
        inside = store.folder(folder, deep=True, most=MOST_OBJECTS)
        yield from (entry for entry in inside.entries if whole.fullmatch(entry.url.removeprefix(folder)))
        return
    if rest and not PATTERN.search(part):
        yield from _below(store, folder_of(folder + part), rest)
        return
    inside = store.folder(folder, deep=False, most=MOST_OBJECTS)
    matcher = re.compile(translate(part))
    hidden = part.startswith(".")

    def fits(url: str) -> bool:
        name = url.removeprefix(folder).rstrip("/")
        return matcher.match(name) is not None and (hidden or not name.startswith("."))

    for found in filter(fits, inside.folders):
        if rest:
            yield from _below(store, found, rest)
        else:
            yield found
    if not rest:
        yield from (entry for entry in inside.entries if fits(entry.url))


def _any_depth(parts: list[str]) -> str:
    """The expression for parts of which the first is `**`: any number of folders that are not hidden."""
    texts = []
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == ANY_DEPTH:
            texts.append(r"(?:[^/.][^/]*/)*" + (r"[^/.][^/]*" if last else ""))
        else:
            names = (
                translate(part)
                .replace("(?s:", "(?:")
                .removesuffix(r"\Z")
                .removesuffix(r"\z")
                .replace(".*", "[^/]*")
            )
            texts.append(names + ("" if last else "/"))
    return "".join(texts)


FIRST_BLOCK, LARGEST_BLOCK = 64 << 10, 8 << 20
"""Bytes of a range after a seek, and at most."""
MOST_COPIED = 64 << 30
"""Bytes of an object that is copied for a program that needs a file."""
GROWTH = 4
"""By how much a range is longer than the one that it follows."""
BLOCKS = 4
"""Ranges that are kept of each open object."""


class RemoteObject(Struct, frozen=True):
    """Opens an object: a value that can be sent to other processes and machines, which have their own credentials."""

    entry: Entry

    in_ranges = True
    is_whole = True

    @property
    def address(self) -> str:
        """The address, with everything that opens the object."""
        return self.entry.url

    def __call__(self) -> BinaryIO:
        """The object as a file."""
        return cast(BinaryIO, io.BufferedReader(_Ranges(self.entry), 64 << 10))

    def __repr__(self) -> str:
        return f"RemoteObject({shown(self.entry.url)})"


def copied(entry: Entry, limit: int) -> BinaryIO:
    """An unnamed temporary copy of an object that cannot be read in ranges, of at most `limit` bytes."""
    spool = cast(BinaryIO, tempfile.TemporaryFile(prefix="tracelink-"))  # noqa: SIM115  it lives as long as its readers

    def begin() -> None:
        spool.seek(0)
        spool.truncate()

    try:
        store_of(entry.url).copy(entry, spool.write, begin, limit)
    except BaseException:
        spool.close()
        raise
    return spool


class RemoteStamp(Struct, frozen=True):
    """By what a changed object is recognised."""

    entry: Entry

    @property
    def is_cheap(self) -> bool:
        """False: it is a request."""
        return False

    @property
    def modified_ns(self) -> int:
        """When it was written; 0 if unknown."""
        return self.entry.modified_ns

    def check(self) -> None:
        """Raises ChangedError if the object is not as it was."""
        known = self.entry
        found = store_of(known.url).find(known.url)
        if found and found.bytes == known.bytes and same_tag(found.tag, known.tag):
            return
        raise ChangedError(
            f"the object was {'changed' if found else 'removed'} since it was first read",
            source=shown(known.url),
            advice="Run the command again when no program writes to it.",
        )

    def __repr__(self) -> str:
        return f"RemoteStamp({shown(self.entry.url)}, {self.entry.bytes}, {self.entry.tag})"


def same_tag(one: str, other: str) -> bool:
    """False if two tags of one kind differ; a list of objects can have other kinds than an object."""
    return one == other or one.partition(" ")[0] != other.partition(" ")[0]


class _Ranges(io.RawIOBase):
    """An object as a file; it keeps the last ranges, and reads ahead as long as it is read on."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._at = 0
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        """Ranges by their starts, the one that was used last at the end."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._entry.bytes}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer)
        if self._at >= self._entry.bytes or not len(view):
            return 0
        start, block = self._block(len(view))
        piece = memoryview(block)[self._at - start :][: len(view)]
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def close(self) -> None:
        self._blocks.clear()
        super().close()

    def _block(self, wanted: int) -> tuple[int, bytes]:
        """The range with the next byte, and its start."""
        for start, block in reversed(self._blocks.items()):
            if start <= self._at < start + len(block):
                self._blocks.move_to_end(start)
                return start, block
        before = max(
            (len(block) for start, block in self._blocks.items() if start + len(block) == self._at), default=0
        )
        size = min(max(GROWTH * before, FIRST_BLOCK, wanted), LARGEST_BLOCK)
        stop = min(self._at + size, self._entry.bytes)
        while len(self._blocks) >= BLOCKS:
            self._blocks.popitem(last=False)
        try:
            block = store_of(self._entry.url).read(self._entry, self._at, stop)
        except UnreadableError:
            RemoteStamp(self._entry).check()  # of a changed object, there can be no such range
            raise
        self._blocks[self._at] = block
        return self._at, block


@contextmanager
def as_file(path: str) -> Iterator[Path]:
    """The path of a file of this machine: the file itself, or a temporary copy of an object."""
    if not is_remote(path):
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="tracelink-") as folder:
        yield copy_into(path, Path(folder))


@cache
def lasting_copy(url: str) -> Path:
    """A temporary copy of an object, which is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="tracelink-"))
    atexit.register(_remove, folder, os.getpid())
    return copy_into(url, folder)


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def copy_into(url: str, folder: Path) -> Path:
    """Copies an object to a file `copy` with its suffix; returns the path."""
    file = folder / f"copy{PurePosixPath(shown(url)).suffix}"
    with temporary_copy(url) as whole, file.open("wb") as copy:
        shutil.copyfileobj(whole, copy, LARGEST_BLOCK)
    return file


def copy_folder(url: str, folder: Path) -> None:
    """Copies the objects in a folder, and in folders of it, to a new local one."""
    base = folder_of(url)
    for entry in found_at(base).entries:
        file = folder / entry.url.removeprefix(base)
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary_copy(entry.url) as whole, file.open("wb") as copy:
            shutil.copyfileobj(whole, copy, LARGEST_BLOCK)


def temporary_copy(url: str) -> BinaryIO:
    """An unnamed temporary file with the bytes of one object; raises UsageError if there is none."""
    entry = store_of(url).find(url)
    if entry is None:
        raise UsageError(f"{shown(url)}: there is no such object", advice="Check the address.")
    if not entry.in_ranges:
        return copied(entry, MOST_COPIED)
    if entry.bytes > MOST_COPIED:
        raise UnreadableError(
            f"it has more than {MOST_COPIED >> 30} GiB", source=shown(url), advice="Copy it yourself."
        )
    spool = cast(BinaryIO, tempfile.TemporaryFile(prefix="tracelink-"))  # noqa: SIM115  it is the result
    with RemoteObject(entry)() as stream:
        shutil.copyfileobj(stream, spool, LARGEST_BLOCK)
    spool.seek(0)
    return spool
