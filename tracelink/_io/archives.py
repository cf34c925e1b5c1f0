"""Members of zip and tar archives, also of damaged ones. Imported only if there is an archive."""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib
from typing import Any, BinaryIO, cast

from msgspec import Struct, field

from tracelink._io.streams import Opener, Part, Unzipped
from tracelink._model.errors import UnreadableError

MEMBERS = 100_000
"""Archives with more members are refused: no job has that many ranks."""

DAMAGED = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    ArithmeticError,
    LookupError,
    RuntimeError,
)
"""What the modules of Python raise for damaged archives; RuntimeError for encrypted and unknown methods too."""

ENCRYPTED = 1
"""A flag of a zip member."""


class Member(Struct, frozen=True):
    """A file in an archive."""

    name: str
    opener: Opener
    bytes: int
    """Size as stored."""


class Members(Struct):
    """The files in an archive, by name."""

    files: list[Member] = field(default_factory=list)
    links: int = 0
    """Number of members that are links or sparse files, which cannot be read from the archive."""
    problem: str = ""
    """What is wrong with the archive; empty if nothing is."""

    def add(self, member: Member) -> None:
        """Adds a file; raises UnreadableError if there are too many."""
        self.files.append(member)
        if len(self.files) > MEMBERS:
            raise UnreadableError(
                f"an archive of more than {MEMBERS:,} files", advice="Unpack what you need."
            )

    def sorted(self) -> Members:
        """The same, sorted by name."""
        self.files.sort(key=lambda member: member.name)
        return self


class ZipArchive:
    """A zip archive, which is opened when it is first needed: also in another process or on another machine."""

    def __init__(self, whole: Part) -> None:
        self._whole = whole
        self._archive: zipfile.ZipFile | None = None

    def opened(self) -> zipfile.ZipFile:
        """The archive; raises UnreadableError if it has no usable directory."""
        if self._archive is None:
            try:
                self._archive = zipfile.ZipFile(self._whole())
            except UnreadableError:
                raise
            except DAMAGED as error:
                raise UnreadableError(
                    f"the zip archive is damaged ({_problem(error)})",
                    advice="Copy it again, or unpack it by other means and name the files in it.",
                ) from error
        return self._archive

    def __reduce__(self) -> tuple[Any, ...]:
        return ZipArchive, (self._whole,)


class ZipMember(Struct, frozen=True):
    """Opens a member of a zip archive."""

    archive: ZipArchive
    info: zipfile.ZipInfo

    def __call__(self) -> BinaryIO:
        """The uncompressed member."""
        try:
            return cast(BinaryIO, Unzipped(self.archive.opened(), self.info))
        except DAMAGED as error:
            problem = "it is encrypted" if self.info.flag_bits & ENCRYPTED else _problem(error)
            raise UnreadableError(
                f"the zip member cannot be read ({problem})", advice="Unpack it by other means."
            ) from error


def zip_members(whole: Part) -> Members:
    """The members of a zip archive; raises UnreadableError if it has no usable directory."""
    archive, found = ZipArchive(whole), Members()
    for member in archive.opened().infolist():
        if not member.filename.endswith("/"):
            found.add(Member(member.filename, ZipMember(archive, member), member.compress_size))
    return found.sorted()


def _problem(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "a name in it is not valid UTF-8"
    return str(error) or type(error).__name__


def tar_members(whole: Opener) -> Members:
    """The members of a tar archive that have a valid header; raises UnreadableError if there are none."""
    found = Members()
    with whole() as stored:
        _add_all(found, stored, whole)
    return found.sorted()


def _add_all(found: Members, stored: BinaryIO, whole: Opener) -> None:
    try:
        with tarfile.open(fileobj=stored, mode="r:") as archive:
            _add_members(found, archive, whole)
            end = archive.offset
        stored.seek(end)
        if stored.read(tarfile.BLOCKSIZE).strip(b"\0"):  # an archive ends with zeros
            found.problem = f"there is no valid header at byte {end:,}"
            with tarfile.open(fileobj=stored, mode="r:", ignore_zeros=True) as archive:
                _add_members(found, archive, whole, end)
    except DAMAGED as error:
        found.problem = _problem(error)
        if not found.files:
            raise UnreadableError(
                f"the tar archive is damaged ({found.problem})", advice="Copy or pack it again."
            ) from error


def _add_members(found: Members, archive: tarfile.TarFile, whole: Opener, start: int = 0) -> None:
    for member in archive:
        if member.offset < start:
            continue
        if member.isfile() and not member.issparse():
            found.add(Member(member.name, Part(whole, member.offset_data, member.size), member.size))
        elif not member.isdir():
            found.links += 1
