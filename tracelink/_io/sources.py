"""Inputs: from paths, globs, directories, archives and standard input to sources."""

from __future__ import annotations

import builtins
import glob
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._io.names import SUFFIXES, RankHint, dangling, files_in, rank_in_path, similar_path
from tracelink._io.remote.addresses import folder_of, is_remote, plain_path, shown, within_store
from tracelink._io.streams import (
    GZIP_MAGIC,
    Copied,
    FileStamp,
    Inflated,
    LocalFile,
    Opener,
    Part,
    Spooled,
    Unzipped,
)
from tracelink._io.system import temporary_file
from tracelink._model import MANIFEST
from tracelink._model.errors import UnreadableError, UsageError, did_you_mean, printable
from tracelink._model.findings import Finding, Severity
from tracelink._model.text import size

if TYPE_CHECKING:
    from tracelink._io.archives import Members
    from tracelink._model.metrics import Metrics

LARGEST_RANK = 999_999
"""Larger numbers are not ranks: tables by rank need memory up to the largest."""

STDIN = "-"
HEAD = 64 << 10
STORED_HEAD = 4 << 10
"""Stored bytes of an object that show whether it is an archive."""
ZIP_MAGIC = b"PK\x03\x04"
EMPTY_ZIP_MAGIC = b"PK\x05\x06"
TAR_MAGIC = b"ustar"
TAR_MAGIC_AT = 257
MAX_UNPACKED = 64 * 10**9
"""Uncompressed bytes of an input, unless the user says otherwise: no trace that anybody can record is as large."""


class Stamp(Protocol):
    """By what changed stored bytes are recognised."""

    @property
    def modified_ns(self) -> int:
        """When they were written, in ns since 1970; 0 if unknown."""
        ...

    @property
    def is_cheap(self) -> bool:
        """True if a check costs nothing to speak of."""
        ...

    def check(self) -> None:
        """Raises ChangedError if they are not as they were."""
        ...


def archive_of(path: str) -> str:
    """The archive in the path of one of its members, or empty; a Windows drive has a colon as well."""
    if is_remote(path):
        return (
            path[: path.find(":", path.index("/", path.index("://") + 3))]
            if ":" in within_store(path)
            else ""
        )
    ends = (at for at, char in enumerate(path) if char == ":" and os.path.isfile(path[:at]))
    return path[: next(ends, 0)]


class Source(Struct, frozen=True):
    """One input: a file, a member of an archive, or standard input."""

    path: str
    """The path as the user gave it, with / on every system; a member of an archive is `archive:member`."""
    opener: Opener
    """Opens the stored bytes."""
    bytes: int = 0
    """Size as stored, compressed if it is."""
    local: Path | None = None
    """The file, if the stored bytes are a file on this machine."""
    format: str = ""
    """The format that the user gave; empty if the content decides."""
    rank: int | None = None
    """The rank that the user gave."""
    prefix_rank: int | None = None
    """The number that follows the prefix that the user gave."""
    named: bool = False
    """True if the user named this file itself, not a directory or an archive that contains it."""
    stamp: Stamp | None = None
    """The file with the stored bytes, as it was found."""
    limit: int = MAX_UNPACKED
    """Most uncompressed bytes."""
    include: frozenset[str] = frozenset()
    """What the user wants to have read of what readers leave out by default."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Other machines have other current folders."""
        values = [getattr(self, name) for name in self.__struct_fields__]
        return Source, tuple(value.absolute() if isinstance(value, Path) else value for value in values)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.replace(":", "/").rsplit("/", 1)[-1]

    @property
    def rank_hint(self) -> RankHint | None:
        """The rank in the name or in a folder, or None."""
        if self.prefix_rank is not None:
            return RankHint(self.prefix_rank, certain=True)
        return rank_in_path(self.path)

    @property
    def in_ranges(self) -> bool:
        """True if the stored bytes can be read from the middle at no more cost, in several processes."""
        return bool(getattr(self.opener, "in_ranges", False))

    @property
    def is_whole(self) -> bool:
        """True if the stored bytes are a file or an object of their own, and no member of an archive."""
        return bool(getattr(self.opener, "is_whole", False))

    @property
    def modified_ns(self) -> int:
        """When the file with the stored bytes was written, in ns since 1970; 0 if unknown."""
        return self.stamp.modified_ns if self.stamp else 0

    def open(self) -> Opened:
        """Opens the uncompressed bytes; raises ChangedError if the file was changed since it was found.

        That an object in a store was changed is found when it is closed, because each look costs a request.
        """
        if self.stamp and self.stamp.is_cheap:
            self.stamp.check()
        raw = self.opener()
        start = raw.read(len(GZIP_MAGIC))
        raw.seek(0)
        if start == GZIP_MAGIC:
            return Opened(Inflated(raw), self, plain=False)
        return Opened(raw, self, plain=True)

    def head(self, size: int = HEAD) -> builtins.bytes:
        """The first uncompressed bytes."""
        with self.open() as stream:
            return stream.read(size)


def again(source: Source) -> str:
    """The path by which a source can be found again; of an object its address with everything that opens it."""
    return str(getattr(source.opener, "address", "")) or source.path


def siblings_of(source: Source) -> Mapping[str, str]:
    """The files in the folder of a source that is a file or an object of its own: their paths by their names."""
    if source.local:
        return {path.name: path.as_posix() for path in source.local.parent.iterdir() if path.is_file()}
    url = again(source)
    if not source.is_whole or not is_remote(url):
        return {}
    from tracelink._io.remote.objects import objects_in

    return {address.rpartition("/")[2]: address for address in objects_in(f"{url.rpartition('/')[0]}/")}


class Opened:
    """The uncompressed bytes of an open source."""

    def __init__(self, stream: io.RawIOBase | BinaryIO, source: Source, *, plain: bool) -> None:
        self._stream = stream
        self._source = source
        self._left = source.limit if isinstance(stream, Inflated | Unzipped) else sys.maxsize
        self.plain = plain

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stream.close()
        if kind is None and self._source.stamp:
            self._source.stamp.check()

    @property
    def damage(self) -> str:
        """Why the bytes ended early; empty if they did not."""
        return self._stream.damage if isinstance(self._stream, Inflated | Unzipped) else ""

    def readinto(self, buffer: memoryview) -> int:
        """Fills `buffer`, except at the end of the source; returns the number of bytes."""
        filled = 0
        while filled < len(buffer):
            count = self._stream.readinto(buffer[filled:])  # type: ignore[union-attr]
            if not count:
                break
            filled += count
        self._left -= filled
        if self._left < 0:
            raise too_large(self._source.path, self._source.limit)
        return filled

    def read(self, size: int) -> bytes:
        """The next `size` bytes; fewer only at the end."""
        buffer = bytearray(size)
        return bytes(memoryview(buffer)[: self.readinto(memoryview(buffer))])

    def read_all(self, limit: int) -> bytes:
        """All remaining bytes; raises UnreadableError if there are more than `limit`."""
        parts, size = [], 0
        while part := self.read(min(1 << 20, limit + 1 - size)):
            parts.append(part)
            size += len(part)
            if size > limit:
                raise UnreadableError(
                    f"more than {limit >> 20} MB", advice="This is too large for its format."
                )
        return b"".join(parts)

    def skip(self, count: int) -> None:
        """Skips `count` bytes."""
        if self.plain:
            self._stream.seek(count, io.SEEK_CUR)
            return
        while count > 0 and (passed := len(self.read(min(count, 1 << 20)))):
            count -= passed


def too_large(path: str, limit: int) -> UnreadableError:
    """The error for an input with more uncompressed bytes than allowed."""
    return UnreadableError(
        f"it has more than {size(limit)} uncompressed",
        source=path,
        advice="No trace should be that large. If it is one, raise the limit with --max-unpacked.",
    )


class Request(Struct, frozen=True):
    """The inputs that the user named."""

    paths: Sequence[tuple[str, str]]
    """(path, format); the content decides if the format is empty."""
    rank_of: Mapping[str, int] = field(default_factory=dict)
    """The ranks of some files, by path or name."""
    all_named: bool = True
    """True if each of these files has to be among the inputs."""
    max_unpacked: int = MAX_UNPACKED
    """An input with more uncompressed bytes is refused."""


class Discovery(Struct):
    """The sources of a request, and findings on inputs that are not readable."""

    sources: list[Source] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    paths: Sequence[str] = ()
    """The paths of the request."""
    metrics: Metrics | None = None
    """What the user says about metrics."""


def discover(request: Request) -> Discovery:
    """All sources of a request; raises UsageError if a path does not exist."""
    found = Discovery(paths=[shown(path) for path, _ in request.paths])
    used: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    addresses: dict[str, list[str]] = {}
    for path, format_name in request.paths:
        for source in _expand(path, format_name, request.max_unpacked, found.findings):
            source = _distinct(source, path, addresses)
            if (source.path, format_name) in seen:
                continue
            seen.add((source.path, format_name))
            named = _named_rank(source, request.rank_of)
            if named:
                _check_unambiguous(named, source, used)
                source = _with_rank(source, request.rank_of[named])
            found.sources.append(source)
    if request.all_named and (unused := set(request.rank_of) - set(used)):
        raise _unused_rank(sorted(unused), [source.path for source in found.sources])
    return found


def _distinct(source: Source, path: str, addresses: dict[str, list[str]]) -> Source:
    """The source with a number in its path if another address is shown in the same way."""
    if not is_remote(path) or path == shown(path):
        return source
    known = addresses.setdefault(shown(path), [])
    if path not in known:
        known.append(path)
    number = known.index(path)
    if not number:
        return source
    return replace(source, path=f"{shown(path)}#{number + 1}{source.path.removeprefix(shown(path))}")


def _unused_rank(unused: Sequence[str], paths: Sequence[str]) -> UsageError:
    similar = did_you_mean(unused[0], [*paths, *(path.rpartition("/")[2] for path in paths)])
    return UsageError(
        f"a rank is given for {', '.join(map(shown, unused))}, which is not among the inputs",
        advice=f"{similar} Name the file by its path or its name.".strip(),
    )


def _check_unambiguous(named: str, source: Source, used: dict[str, str]) -> None:
    other = used.setdefault(named, source.path)
    if other != source.path:
        raise UsageError(
            f"a rank is given for {shown(named)}, which fits {other} and {source.path}",
            advice="Name the file by its whole path.",
        )


def _with_rank(source: Source, rank: int) -> Source:
    return replace(source, rank=rank)


def _named_rank(source: Source, rank_of: Mapping[str, int]) -> str:
    known = (source.path, source.name)
    return next((name for name in rank_of if shown(name) in known or PurePath(name).as_posix() in known), "")


def _expand(path: str, format_name: str, limit: int, findings: list[Finding]) -> Iterator[Source]:
    if path == STDIN:
        yield from _standard_input(format_name, limit)
        return
    if is_remote(path):
        yield from _remote(path, format_name, limit, findings)
        return
    here = Path(plain_path(path))
    if here.is_dir():
        for file in files_in(here, findings):
            for source in _file(file, format_name, limit, findings):
                yield replace(source, named=True) if file == here / MANIFEST else source
    elif here.is_file():
        for source in _file(here, format_name, limit, findings):
            yield replace(source, named=source.local is not None)
    elif here.exists():
        yield from _pipe(here, format_name, limit)
    elif here.is_symlink():
        findings.append(dangling(here))
    elif matches := sorted(glob.glob(path, recursive=True)):
        for match in matches:
            yield from _expand(match, format_name, limit, findings)
    else:
        raise UsageError(f"{path}: there is no such file or directory", advice=similar_path(path))


def _standard_input(format_name: str, limit: int) -> Iterator[Source]:
    if sys.stdin is None:
        raise UsageError("standard input is closed", advice="Name files, or pipe a trace into the command.")
    yield _spooled(STDIN, sys.stdin.buffer, format_name, limit)


def _pipe(path: Path, format_name: str, limit: int) -> Iterator[Source]:
    with path.open("rb") as stream:
        yield _spooled(path.as_posix(), stream, format_name, limit)


def _spooled(name: str, stream: BinaryIO, format_name: str, limit: int) -> Source:
    """A source that can be read repeatedly, from a stream that cannot."""
    spool = temporary_file()  # lives as long as the source
    while chunk := stream.read(1 << 20):
        spool.write(chunk)
        if spool.tell() > limit:
            raise too_large(name, limit)
    size = spool.tell()
    spool.flush()
    return Source(name, Spooled(spool, size), size, None, format_name, limit=limit)


def of_spool(path: str, spool: BinaryIO, whole: Source) -> Source:
    """A part of a source that was copied to a temporary file."""
    size = spool.tell()
    spool.flush()
    return replace(
        whole,
        path=path,
        opener=Spooled(spool, size),
        bytes=size,
        local=None,
        format="",
        stamp=None,
    )


def _file(path: Path, format_name: str, limit: int, findings: list[Finding]) -> Iterator[Source]:
    name = path.as_posix()
    with _unreadable_found(name, findings):
        stamp = FileStamp.of(path)
        source = Source(name, LocalFile(path), stamp.size, path, format_name, stamp=stamp, limit=limit)
        yield from _contained(source, source.head(1 << 10), findings)


def _remote(url: str, format_name: str, limit: int, findings: list[Finding]) -> Iterator[Source]:
    """The sources at the address of an object, a folder or a pattern."""
    from tracelink._io.remote.objects import (
        Found,
        RemoteObject,
        RemoteStamp,
        copied,
        found_at,
        outside_datasets,
        starts_of,
    )

    found = Found()
    with _unreadable_found(shown(url), findings):
        found = found_at(url)
    if found.strange:
        message = (
            f"{shown(url)}: {len(found.strange)} names lead out of the folder; these objects were skipped."
        )
        example = printable(shown(min(found.strange)))
        findings.append(
            Finding(Severity.WARNING, "skipped", message, len(found.strange), shown(url), example)
        )
    entries, manifests = outside_datasets(found.entries)
    for entry, start in zip(entries, starts_of(entries, STORED_HEAD), strict=True):
        name = shown(entry.url)
        with _unreadable_found(name, findings):
            opener = RemoteObject(entry) if entry.in_ranges else Copied(partial(copied, entry, limit))
            if isinstance(opener, Copied):
                entry = replace(entry, bytes=opener.size)
            source = Source(
                name, opener, entry.bytes, None, format_name, stamp=RemoteStamp(entry), limit=limit
            )
            head = _head_of(start) if start else replace(source, stamp=None).head(1 << 10)
            for contained in _contained(source, head, findings):
                is_dataset = entry.url in manifests and entry.url == folder_of(url) + MANIFEST
                yield replace(contained, named=is_dataset or (found.named and contained.path == name))


def _head_of(stored: bytes) -> bytes:
    """The first uncompressed bytes, of the first stored bytes."""
    return Inflated(io.BytesIO(stored)).read(1 << 10) or b"" if stored.startswith(GZIP_MAGIC) else stored


@contextmanager
def _unreadable_found(name: str, findings: list[Finding]) -> Iterator[None]:
    """Makes a finding of an input that cannot be read."""
    try:
        yield
    except UnreadableError as error:
        error.source = error.source or name
        findings.append(Finding(Severity.ERROR, "unreadable", str(error), source=name))
    except OSError as error:
        message = f"{name}: {error.strerror or error}. Check that the file can be read."
        findings.append(Finding(Severity.ERROR, "unreadable", message, source=name))


def _contained(source: Source, head: bytes, findings: list[Finding]) -> Iterator[Source]:
    """The source itself, or those of the members if it is an archive."""
    if head.startswith((ZIP_MAGIC, EMPTY_ZIP_MAGIC)):
        from tracelink._io.archives import zip_members

        members = zip_members(Part(source.opener, 0, source.bytes))
        if _is_checkpoint(members):
            yield source
        else:
            yield from _members(source, members, findings)
    elif head[TAR_MAGIC_AT : TAR_MAGIC_AT + len(TAR_MAGIC)] == TAR_MAGIC:
        from tracelink._io.archives import tar_members

        yield from _members(source, tar_members(_packed(source)), findings)
    else:
        yield source


def _is_checkpoint(members: Members) -> bool:
    """True for what torch.save and numpy.savez write: thousands of tensors, of which none is a trace."""
    names = [member.name for member in members.files]
    saved = {name.rpartition("/")[2] for name in names if name.count("/") == 1}
    return {"data.pkl", "version"} <= saved or (bool(names) and all(name.endswith(".npy") for name in names))


def _members(source: Source, members: Members, findings: list[Finding]) -> Iterator[Source]:
    """A source for each member, and findings on those that cannot be read."""
    if members.problem:
        message = (
            f"{source.path}: the archive is damaged ({members.problem}); {len(members.files)} files in it are used. "
            "Copy or pack it again."
        )
        findings.append(Finding(Severity.ERROR, "unreadable", message, source=source.path))
    if members.links:
        message = f"{source.path}: {members.links} links and sparse files were skipped. Unpack the archive."
        findings.append(Finding(Severity.INFO, "skipped", message, members.links, source.path))
    for member in members.files:
        path = f"{source.path}:{member.name}"
        yield replace(source, path=path, opener=member.opener, bytes=member.bytes, local=None)


def _packed(source: Source) -> Opener:
    """Opens the uncompressed bytes of a tar archive."""
    with source.open() as opened:
        return source.opener if opened.plain else Copied(partial(_inflated, source))


def _inflated(source: Source) -> BinaryIO:
    spool = temporary_file()  # lives as long as the sources in it
    with source.open() as opened:
        while chunk := opened.read(1 << 20):
            spool.write(chunk)
    return spool


# Dumps of one job among those of several, by the prefix of their names


RANK = re.compile(r"\d{1,6}", re.ASCII)
SHOWN = 3
RECORDER_FORMAT = "flight-recorder"
MAYBE_DUMPS = frozenset({"", RECORDER_FORMAT})
"""The formats that users give to sources that can be dumps."""


def only_with_prefix(discovery: Discovery, prefix: str) -> Discovery:
    """The sources whose names start with `prefix`; if only a number follows, it is the rank.

    Sources that the user declared to be of another format are kept whatever their names are.
    """
    dumps = [source for source in discovery.sources if source.format in MAYBE_DUMPS]
    kept = [_ranked(source, prefix) for source in dumps if source.name.startswith(prefix)]
    others = [source.path for source in dumps if not source.name.startswith(prefix)]
    if not kept:
        seen = ", ".join(others[:SHOWN]) + (", …" if len(others) > SHOWN else "")
        raise UsageError(
            f"--prefix: no file's name begins with {prefix!r}",
            advice=f"There are: {seen}." if seen else "There is no file at all.",
        )
    kept += [source for source in discovery.sources if source.format not in MAYBE_DUMPS]
    if not others:
        return Discovery(kept, discovery.findings)
    message = f"{len(others)} files were skipped: their names do not start with {prefix!r}."
    passed = Finding(Severity.INFO, "other_prefix", message, len(others), example=others[0])
    return Discovery(kept, [*discovery.findings, passed])


def _ranked(source: Source, prefix: str) -> Source:
    rest = SUFFIXES.sub("", source.name.removeprefix(prefix))
    return replace(source, prefix_rank=int(rest)) if RANK.fullmatch(rest) else source


# Inputs of the functions of the library


Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def discover_inputs(
    paths: Paths = (),
    *,
    et: Paths = (),
    kineto: Paths = (),
    fr: Paths = (),
    rank_of: Mapping[str, int] | None = None,
    all_named: bool = True,
    max_unpacked: int | None = None,
    metrics: Metrics | None = None,
    include: Sequence[str] = (),
) -> Discovery:
    """The sources of the inputs that `load` accepts; `rank_of` names only these, unless `all_named` is false.

    Raises UsageError if a path does not exist.
    """
    named = ((paths, ""), (et, "execution-trace"), (kineto, "kineto"), (fr, RECORDER_FORMAT))
    requested = [(path, format_name) for given, format_name in named for path in _listed(given)]
    if not requested:
        raise UsageError("no inputs", advice="Name at least one file or directory.")
    limit = MAX_UNPACKED if max_unpacked is None else max_unpacked
    found = discover(Request(requested, rank_of or {}, all_named=all_named, max_unpacked=limit))
    found.metrics = metrics
    if include:
        found.sources = [replace(source, include=frozenset(include)) for source in found.sources]
    return found


def _listed(paths: Paths) -> list[str]:
    if isinstance(paths, str | os.PathLike):
        return [os.fspath(paths)]
    try:
        return [os.fspath(path) for path in paths]
    except TypeError as error:
        raise UsageError(
            f"{paths!r:.80} is no path and no list of paths", advice="Name files or directories."
        ) from error
