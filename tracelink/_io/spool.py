"""Objects that wait outside memory: in the spool of a run, or in a folder with which an interrupted run goes on."""

from __future__ import annotations

import hashlib
import hmac
import io
import mmap
import os
import pickle
import re
import secrets
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Generic, Protocol, TypeVar, cast

from msgspec import Struct

from tracelink._io.remote.addresses import is_remote
from tracelink._io.system import append, exclusive_lock, locked, temporary_file
from tracelink._io.temporary import no_space
from tracelink._model import __version__
from tracelink._model.errors import TraceError, UsageError

PROTOCOL = 5

BufferTaker = Callable[[pickle.PickleBuffer], object]
Shared = Sequence[object] | Mapping[str, object]
"""Objects that both sides have: by number, or by a name that means the same in another run."""


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, shared: Shared, take: BufferTaker | None) -> None:
        super().__init__(stream, protocol=PROTOCOL, buffer_callback=take)
        named = shared.items() if isinstance(shared, Mapping) else enumerate(shared)
        self._names: dict[int, int | str] = {id(thing): name for name, thing in named}

    def persistent_id(self, thing: object) -> int | str | None:
        return self._names.get(id(thing))


class _Unpickler(pickle.Unpickler):
    """Reads what this program wrote; never an input."""

    def __init__(self, stream: io.BytesIO, shared: Shared, buffers: Iterable[Any] | None) -> None:
        super().__init__(stream, buffers=buffers)
        self._shared: Any = shared

    def persistent_load(self, name: int | str) -> object:
        return self._shared[name]


def packed(thing: object, shared: Shared = (), take: BufferTaker | None = None) -> bytes:
    """The bytes of a value; `take` gets large arrays in place of a copy of them in the bytes."""
    stream = io.BytesIO()
    _Pickler(stream, shared, take).dump(thing)
    return stream.getvalue()


def unpacked(text: bytes, shared: Shared = (), buffers: Iterable[Any] | None = None) -> Any:
    """The value of such bytes."""
    return _Unpickler(io.BytesIO(text), shared, buffers).load()


# A temporary file of pickled objects


Item = TypeVar("Item")

PAGE = 64
"""Arrays start at multiples of this."""


class Stored(Struct, Generic[Item], frozen=True):
    """Where an object is that a store keeps; small, and the same for every process of a run."""

    @property
    def worker(self) -> str:
        """The worker of a cluster that has it; empty if all processes can read it."""
        return ""


class Ticket(Stored[Item], frozen=True):
    """Where an object is in the spool: the offset of its bytes, and the end of each of its parts after that."""

    begin: int
    ends: tuple[int, ...]


def laid_out(item: object, shared: Shared) -> tuple[list[Any], tuple[int, ...]]:
    """The bytes of an object in parts, whose arrays are not copied, and the end of each part that is not padding."""
    arrays: list[pickle.PickleBuffer] = []
    head = packed(item, shared, arrays.append)
    parts: list[Any] = []
    ends, offset = [], 0
    for part in (head, *(array.raw() for array in arrays)):
        parts += [part, bytes(-len(part) % PAGE)]
        ends.append(offset + len(part))
        offset += len(part) + -len(part) % PAGE
    return parts, tuple(ends)


def taken_out(memory: memoryview, ends: Sequence[int], shared: Shared) -> Any:
    """The object in these bytes, whose arrays are views of them."""
    begins = [0, *(end + -end % PAGE for end in ends[:-1])]
    parts = [memory[begin:end] for begin, end in zip(begins, ends, strict=True)]
    return unpacked(bytes(parts[0]), shared, parts[1:])


class Spool:
    """Objects in one unnamed temporary file, to which all processes of a run can add.

    The file disappears with the last process that has it open, even if that is killed.
    """

    def __init__(self, shared: Sequence[object] = ()) -> None:
        self._file = temporary_file()  # it lives as long as this
        self._shared = shared

    def put(self, item: Item) -> Ticket[Item]:
        """Writes an object; its arrays are not copied in memory."""
        parts, ends = laid_out(item, self._shared)
        handle = self._file.fileno()
        try:
            with locked(handle):
                begin = append(handle, parts)
        except OSError as error:
            raise no_space(error) from error
        return Ticket(begin, ends)

    def get(self, ticket: Ticket[Item]) -> Item:
        """Reads an object; its arrays are read-only views of the file."""
        first = ticket.begin - ticket.begin % mmap.ALLOCATIONGRANULARITY
        last = ticket.begin + ticket.ends[-1]
        memory = memoryview(
            mmap.mmap(self._file.fileno(), last - first, access=mmap.ACCESS_READ, offset=first)
        )[ticket.begin - first :]
        return cast(Item, taken_out(memory, ticket.ends, self._shared))


# Stores: what some work leaves for later work


class LostError(TraceError):
    """A stored object is lost, together with the machine that had it."""


class InMemory(Stored[Item], frozen=True):
    """An object in memory."""

    item: Item


class Store(Protocol):
    """Keeps objects until they are needed again; all processes of a run can use it."""

    @property
    def shared(self) -> Sequence[object]:
        """Objects that all processes have, and of which no stored object contains a copy."""
        ...

    def put(self, item: Item, again: Callable[[], Item] | None = None) -> Stored[Item]:
        """Keeps an object; `again` makes it once more if the machine that has it is lost."""
        ...

    def get(self, stored: Stored[Item]) -> Item:
        """Returns an object."""
        ...


class LocalStore:
    """Keeps objects in memory, or in a spool for the processes of this machine."""

    def __init__(self, shared: Sequence[object], *, in_memory: bool) -> None:
        self.shared = shared
        self._spool = None if in_memory else Spool(shared)

    def put(self, item: Item, again: Callable[[], Item] | None = None) -> Stored[Item]:
        """Keeps an object."""
        return self._spool.put(item) if self._spool else InMemory(item)

    def get(self, stored: Stored[Item]) -> Item:
        """Returns an object."""
        if isinstance(stored, InMemory):
            return cast(Item, stored.item)
        assert self._spool
        assert isinstance(stored, Ticket)
        return cast(Item, self._spool.get(stored))


# Finished ranks in a folder: what an interrupted job goes on with.


STDOUT = "-"

SECRET_BYTES = 32
SIGNATURE_BYTES = 32
RECORD = ".record"
LOCK = "lock"
OWN = re.compile(rf"[0-9a-f]{{32}}({re.escape(RECORD)})?(\.[0-9a-f]{{32}}\.part)?|{LOCK}", re.ASCII)
"""The names of the files in the folder."""

FOLDER_SUFFIX = ".resume"
"""The folder of an output is named after it, with this at the end."""

LAYOUT = f"1 {__version__}"
"""Records of other versions do not count."""


class KeptFile(Stored[Item], frozen=True):
    """An object in a file of the folder."""

    name: str
    ends: tuple[int, ...]
    digest: bytes


class KeptStore:
    """Keeps objects in files of a folder that outlives the process, and records of what they belong to."""

    def __init__(self, folder: Path, secret: bytes, shared: Sequence[object] = ()) -> None:
        self.folder = folder
        self.shared = shared
        self._secret = secret
        self._named = {_name_of(thing): thing for thing in shared}
        self._written: list[KeptFile[Any]] = []
        self._lock: BinaryIO | None = None
        self.reused = 0
        """The number of ranks that were not read again."""

    @classmethod
    def at(cls, folder: Path) -> KeptStore:
        """The store in a folder, which is made if it does not exist; only this user can read it."""
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise UsageError(f"{folder} is not a folder", advice="Remove it, or leave out --resume.")
        secret = _secret_of_user()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            store = cls(folder.absolute(), secret)
            store._lock = exclusive_lock(folder / LOCK)
        except OSError as error:
            raise _unwritable(folder, error) from error
        if store._lock is None:
            raise UsageError(f"another run uses {folder}", advice="Wait for it, or choose another output.")
        return store

    def of(self, shared: Sequence[object]) -> KeptStore:
        """The same store for objects that contain these."""
        store = KeptStore(self.folder, self._secret, shared)
        store._lock = self._lock
        return store

    def __reduce__(self) -> tuple[Any, ...]:
        return KeptStore, (self.folder, self._secret, self.shared)

    def once(self, key: str, make: Callable[[], Item]) -> tuple[Item, bool]:
        """Returns what is kept under a key, and True; else it is made and kept, with all objects that it stores."""
        kept = self._recorded(key)
        if kept is not None:
            return cast(Item, kept[0]), True
        self._written.clear()
        item = make()
        text = packed((item, self._written), self._named)
        self._write(f"{key}{RECORD}", [self._signed(key, text), text])
        return item, False

    def put(self, item: Item, again: Callable[[], Item] | None = None) -> Stored[Item]:
        """Writes an object to a file of its own; its arrays are not copied in memory."""
        parts, ends = laid_out(item, self._named)
        digest = hashlib.blake2b(digest_size=SIGNATURE_BYTES)
        for part in parts:
            digest.update(part)
        stored: KeptFile[Item] = KeptFile(uuid.uuid4().hex, ends, digest.digest())
        self._write(stored.name, parts)
        self._written.append(stored)
        return stored

    def get(self, stored: Stored[Item]) -> Item:
        """Reads an object; its arrays are read-only views of the file."""
        assert isinstance(stored, KeptFile)
        memory = self._content(stored)
        if memory is None:
            raise TraceError(
                f"{self.folder / stored.name} was changed or removed while the job was read",
                advice=f"Remove the folder {self.folder}, and run the command again.",
            )
        return cast(Item, taken_out(memory, stored.ends, self._named))

    def close(self) -> None:
        """Lets other runs use the folder."""
        if self._lock:
            self._lock.close()

    def remove(self) -> None:
        """Removes all that is kept, and the folder if nothing else is in it."""
        for path in self.folder.iterdir():
            if OWN.fullmatch(path.name):
                path.unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()

    def _recorded(self, key: str) -> tuple[object] | None:
        """Returns what is kept under a key; None if that is nothing, damaged, of other inputs, or not by this user."""
        try:
            content = (self.folder / f"{key}{RECORD}").read_bytes()
        except OSError:
            return None
        signature, text = content[:SIGNATURE_BYTES], content[SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._signed(key, text)):
            return None
        try:
            item, files = unpacked(text, self._named)
        except KeyError:  # a source that is not among the inputs any more
            return None
        return (item,) if all(self._content(file) is not None for file in files) else None

    def _content(self, stored: KeptFile[Any]) -> memoryview | None:
        """The bytes of a file; None if they are not those that were written."""
        try:
            with (self.folder / stored.name).open("rb") as file:
                memory = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError):
            return None
        found = hashlib.blake2b(memory, digest_size=SIGNATURE_BYTES).digest()
        return memory if hmac.compare_digest(found, stored.digest) else None

    def _signed(self, key: str, text: bytes) -> bytes:
        signed = hashlib.blake2b(f"{LAYOUT} {key} ".encode(), key=self._secret, digest_size=SIGNATURE_BYTES)
        signed.update(text)
        return signed.digest()

    def _write(self, name: str, parts: Iterable[Any]) -> None:
        unfinished = self.folder / f"{name}.{uuid.uuid4().hex}.part"
        try:
            with unfinished.open("xb") as stream:
                stream.writelines(parts)
            unfinished.replace(self.folder / name)
        except OSError as error:
            with suppress(OSError):
                unfinished.unlink()
            raise _unwritable(self.folder, error) from error


def kept_for(output: str) -> KeptStore:
    """The store for an output: next to it, but in the current folder for an output in a remote store."""
    if output == STDOUT:
        raise UsageError("standard output cannot be resumed", advice="Name an output: -o FILE")
    name = output.rstrip("/").rpartition("/")[2] if is_remote(output) else output.rstrip(os.sep)
    return KeptStore.at(Path(f"{name}{FOLDER_SUFFIX}"))


def _name_of(thing: Any) -> str:
    """A name that is the same in another run: the path of a source, the format of a reader."""
    return f"{type(thing).__name__} {getattr(thing, 'path', '') or getattr(thing, 'name', '')}"


def _secret_of_user() -> bytes:
    """The secret of this user; made when it is needed for the first time."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state", "tracelink")
    path = folder / "resume.secret"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(made, "wb") as stream:
                stream.write(secrets.token_bytes(SECRET_BYTES))
        secret = path.read_bytes()
    except OSError as error:
        raise _unwritable(folder, error) from error
    if len(secret) != SECRET_BYTES:
        raise TraceError("it is damaged", source=str(path), advice="Remove it, and run the command again.")
    return secret


def _unwritable(folder: Path, error: OSError) -> TraceError:
    return TraceError(
        f"cannot keep finished ranks in {folder}: {(error.strerror or str(error)).lower()}",
        advice="Free some space there, or leave out --resume.",
    )
