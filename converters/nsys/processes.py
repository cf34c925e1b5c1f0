"""The processes of an export: names, ranks, devices."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from tracelink._io.sources import LARGEST_RANK
from tracelink.converters.nsys.database import Database
from tracelink.converters.nsys.nccl import Payloads, communicators_in
from tracelink.converters.nsys.schema import CAPTURE, HOST, MPI_RANKS, PID_BITS, PID_MASK, PROCESSES

ENVIRONMENT = "WHERE name LIKE 'PROCESS%:ENVIRONMENT_VARIABLE%' AND value GLOB '{}=[0-9]*'"
"""The only values of environment variables that are read are numbers."""


class Process(Struct, frozen=True):
    """What is known of a process."""

    pid: int
    name: str = ""
    rank: int | None = None
    world_size: int | None = None
    device: int | None = None
    """Its only device."""


def processes_of(
    database: Database,
    pids: list[int],
    devices: Mapping[int, Collection[int]],
    inits: Mapping[int, Sequence[int]],
) -> dict[int, Process]:
    """The processes with these numbers; `devices` are those that each of them used.

    `inits` are the rows of NVTX events in which each of them joined communicators of NCCL.
    """
    names = {pid: name for pid, name in database.rows(PROCESSES, "pid", "name") if isinstance(name, str)}
    ranks = _mpi_ranks(database)
    size = None  # the table has the ranks of this host only
    ranks = ranks or _communicator_ranks(database, inits)
    if not ranks and len(pids) == 1:
        rank = _environment(database, "RANK")
        ranks = {} if rank is None else {pids[0]: rank}
        size = _environment(database, "WORLD_SIZE") if ranks else None
    found = {}
    for pid in pids:
        device = _only(devices.get(pid, ()))
        found[pid] = Process(pid, names.get(pid, ""), ranks.get(pid), size, device)
    return found


def _only(devices: Collection[int]) -> int | None:
    """The only device; None if there are several, or none, or its number cannot be a rank."""
    number = next(iter(devices), -1)
    return number if len(devices) == 1 and 0 <= number <= LARGEST_RANK else None


def host_of(database: Database) -> str:
    """The name of the machine that was recorded."""
    rows = database.rows(CAPTURE, "value", where=f"WHERE name = '{HOST}'")
    return next((value for (value,) in rows if isinstance(value, str)), "")


def _mpi_ranks(database: Database) -> dict[int, int]:
    rows = database.rows(MPI_RANKS, "globalTid", "rank")
    return {
        thread >> PID_BITS & PID_MASK: rank
        for thread, rank in rows
        if isinstance(thread, int) and isinstance(rank, int) and 0 <= rank <= LARGEST_RANK
    }


def _communicator_ranks(database: Database, inits: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """The ranks within the largest communicator of each process, unless two processes have the same one."""
    payloads = Payloads.of(database)
    found = {}
    for pid, rows in inits.items():
        joined = communicators_in(list(payloads.of_rows(rows).values())).values()
        if joined:
            found[pid] = max(joined, key=lambda communicator: communicator.size).rank
    return found if len(set(found.values())) == len(found) else {}


def _environment(database: Database, name: str) -> int | None:
    """The number in an environment variable of the only process."""
    rows = database.rows(CAPTURE, "value", where=ENVIRONMENT.format(name))
    numbers = {match[1] for (value,) in rows if (match := re.fullmatch(rf"{name}=(\d{{1,6}})", str(value)))}
    return int(numbers.pop()) if len(numbers) == 1 else None
