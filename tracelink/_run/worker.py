"""What runs in a worker of a cluster: work on an item, and files that it leaves for later work on any worker.

A worker keeps what it has read in its own folder. Others map the file if they are on the same machine, else they get it
from the worker that has it, never through the scheduler; if that worker is lost, they make its content again.
"""

from __future__ import annotations

import io
import mmap
import os
import re
import shutil
import socket
import sys
import traceback
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

import cloudpickle
import distributed
from distributed.protocol import to_serialize
from msgspec import Struct

from tracelink._io.engine import Meter
from tracelink._io.spool import InMemory, LostError, Stored, laid_out, packed, taken_out, unpacked
from tracelink._model import __version__
from tracelink._model.errors import TraceError

Item = TypeVar("Item")

# Work: sent once to each worker, items one at a time.


class Work(Struct, frozen=True):
    """A function with all that it refers to, as bytes; each worker decodes it once."""

    token: str
    content: bytes

    @classmethod
    def of(cls, function: Callable[[Any], Any], shared: Sequence[object], meter: Meter) -> Work:
        """The function, and the objects that it, its items and its results have in common."""
        return cls(uuid.uuid4().hex, cloudpickle.dumps((function, list(shared), meter)))

    def __hash__(self) -> int:
        return hash(self.token)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Work) and other.token == self.token


class Answer(Struct, frozen=True):
    """The result of work on one item, or the error that it raised."""

    content: bytes
    fine: bool
    counted: int
    """Bytes that were read and written for it."""


def packed_item(item: object, shared: Sequence[object]) -> bytes:
    """An item as bytes, with the shared objects in it by their numbers."""
    if not shared:
        return cast(bytes, cloudpickle.dumps(item, protocol=5))
    numbers = {id(thing): number for number, thing in enumerate(shared)}

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def persistent_id(self, thing: object) -> int | None:
            return numbers.get(id(thing))

    stream = io.BytesIO()
    Pickler(stream, protocol=5).dump(item)
    return stream.getvalue()


def run(work: Work, item: bytes) -> Answer:
    """Works on an item; runs in a worker."""
    function, shared, meter = _decoded(work)
    before = meter.total
    try:
        content, fine = packed(function(unpacked(item, shared)), shared), True
    except Exception as error:  # noqa: BLE001  whatever happened here is raised again in the client
        error.add_note("".join(traceback.format_exception(error)))
        content, fine = _packed_error(error), False
    return Answer(content, fine, meter.total - before)


@lru_cache(maxsize=2)
def _decoded(work: Work) -> tuple[Callable[[Any], Any], list[object], Meter]:
    return cast("tuple[Callable[[Any], Any], list[object], Meter]", cloudpickle.loads(work.content))


def _packed_error(error: Exception) -> bytes:
    try:
        return packed(error)
    except Exception:  # noqa: BLE001  an error that cannot be pickled still has a text
        return packed(RuntimeError(repr(error)))


# Files that work leaves for later work.


CHUNK = 32 << 20
"""Bytes that a worker sends at once."""

PROBE = 5
"""Seconds after which a machine that does not answer is lost."""

NAME = re.compile(r"[0-9a-f]{32}/[0-9a-f]{32}", re.ASCII)
FOLDER = "tracelink"


class WorkerFile(Stored[Item], frozen=True):
    """An object in a file of a worker."""

    address: str
    """The address of the worker."""
    folder: str
    name: str
    ends: tuple[int, ...]
    again: Callable[[], Item] | None = None
    """Makes the object once more if the worker is lost."""

    @property
    def worker(self) -> str:
        """The address of the worker."""
        return self.address


class ClusterStore:
    """Keeps objects where they are made: in files of the worker; what the client puts travels with the work."""

    def __init__(self, shared: Sequence[object], token: str, engine: Any = None) -> None:
        self.shared = shared
        self._token = token
        self._engine = engine
        """The engine, in the client: as long as there is a store, it stays connected."""
        self._lost: set[str] = set()
        """Addresses of workers that have ended."""

    def __reduce__(self) -> tuple[Any, ...]:
        return ClusterStore, (self.shared, self._token)

    def put(self, item: Item, again: Callable[[], Item] | None = None) -> Stored[Item]:
        """Keeps an object; its arrays are not copied in memory."""
        worker = _this_worker()
        if worker is None:
            return InMemory(item)
        parts, ends = laid_out(item, self.shared)
        folder, name = worker_folder(worker), f"{self._token}/{uuid.uuid4().hex}"
        path = folder / name
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with path.with_suffix(".part").open("xb") as stream:
                stream.writelines(parts)
            path.with_suffix(".part").replace(path)
        except OSError as error:
            raise TraceError(
                f"a worker cannot write temporary files in {folder}: {error.strerror}",
                advice="Free some space there, or start workers with another --local-directory.",
            ) from error
        return WorkerFile(worker.address, str(folder), name, ends, again)

    def get(self, stored: Stored[Item]) -> Item:
        """Returns an object; its arrays are read-only views of the file if that is on this machine."""
        if isinstance(stored, InMemory):
            return cast(Item, stored.item)
        assert isinstance(stored, WorkerFile)
        memory = _mapped(Path(stored.folder, stored.name), stored.ends[-1])
        if memory is None:
            memory = self._fetched(stored)
        if memory is not None:
            return cast(Item, taken_out(memory, stored.ends, self.shared))
        if stored.again is None:
            raise LostError(
                f"the worker {stored.address} is lost, and with it what it had made",
                advice="Run the command again.",
            )
        return cast(Item, stored.again())

    def _fetched(self, stored: WorkerFile[Any]) -> memoryview | None:
        """The bytes of a file, from the worker that has it; None if that is lost."""
        if stored.address in self._lost or not _listens(stored.address):
            self._lost.add(stored.address)
            return None
        node = _this_worker() or self._engine.connection.client

        async def read() -> memoryview:
            whole = bytearray(stored.ends[-1])
            for offset in range(0, len(whole), CHUNK):
                size = min(CHUNK, len(whole) - offset)
                reply = await node.rpc(stored.address).tracelink_read(
                    name=stored.name, offset=offset, size=size
                )
                data = reply["data"]
                if len(data) != size:
                    raise OSError(f"{stored.name}: {len(data)} bytes instead of {size}")
                whole[offset : offset + size] = data
            return memoryview(whole).toreadonly()

        try:
            found: memoryview = distributed.utils.sync(node.loop, read)
        except (OSError, ValueError):  # the worker has ended, or it was started again without the file
            return None
        return found


def _listens(address: str) -> bool:
    """Whether there is still a worker at an address; Dask itself would try for half a minute."""
    host, port = distributed.comm.get_address_host_port(address)
    try:
        socket.create_connection((host, port), timeout=PROBE).close()
    except OSError:
        return False
    return True


def _mapped(path: Path, size: int) -> memoryview | None:
    """The bytes of a file of this machine; None if it is not there."""
    try:
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    except (OSError, ValueError):
        return None


def _this_worker() -> Any:
    """The worker in whose thread this runs, or None."""
    try:
        return distributed.get_worker()
    except ValueError:
        return None


def worker_folder(worker: Any) -> Path:
    """The folder of a worker for these files; it disappears with the worker."""
    return Path(worker.local_directory, FOLDER)


class FileServer(distributed.WorkerPlugin):  # type: ignore[misc]
    """Lets a worker give its files to others."""

    name = "tracelink-files"
    idempotent = True

    def setup(self, worker: Any) -> None:
        """Adds the handler."""
        folder = worker_folder(worker)

        async def read(name: str, offset: int, size: int) -> dict[str, Any]:
            return _part_of_file(folder, name, offset, size)

        worker.handlers["tracelink_read"] = read

    def teardown(self, worker: Any) -> None:
        """Removes the files."""
        shutil.rmtree(worker_folder(worker), ignore_errors=True)


def _part_of_file(folder: Path, name: str, offset: int, size: int) -> dict[str, Any]:
    """A part of a file; empty if it is not there."""
    if not NAME.fullmatch(name) or not 0 <= size <= CHUNK:
        return {"data": b""}
    with suppress(OSError), (folder / name).open("rb") as file:
        return {"data": to_serialize(os.pread(file.fileno(), size, offset))}
    return {"data": b""}


def forget(token: str, dask_worker: Any) -> None:
    """Removes the files of an engine; runs in each worker."""
    shutil.rmtree(worker_folder(dask_worker) / token, ignore_errors=True)


def versions() -> tuple[str, str]:
    """The versions of tracelink and Python of a worker."""
    return __version__, f"{sys.version_info.major}.{sys.version_info.minor}"
