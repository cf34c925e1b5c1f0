"""Large Nsight Systems exports: operators of torch, the calls that they make and the kernels that these launch.

PYTHONPATH=tests python -m generators nsys_export OUTPUT.sqlite [--kernels 1000000] [--ranges 10000000] [--ranks 8]
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SESSION_NS = 1_700_000_000_000_000_000
TABLES = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT, systemClockNs INTEGER",
    "PROCESSES": "globalPid INTEGER, pid INTEGER, name TEXT",
    "MPI_RANKS": "globalTid INTEGER, rank INTEGER",
    "NVTX_EVENTS": "start INTEGER, end INTEGER, eventType INTEGER, rangeId INTEGER, category INTEGER, color INTEGER, "
    "text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value INTEGER, "
    "int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, floatValue REAL, "
    "jsonTextId INTEGER, jsonText TEXT, binaryData TEXT",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, "
    "correlationId INTEGER, nameId INTEGER, returnValue INTEGER, callchainId INTEGER",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, "
    "greenContextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, "
    "shortName INTEGER, mangledName INTEGER, launchType INTEGER, registersPerThread INTEGER, gridX INTEGER, "
    "gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER, "
    "dynamicSharedMemory INTEGER, graphNodeId INTEGER, graphId INTEGER",
}
"""The tables in schema 3.25, with the columns that are read and some more."""

OPERATORS = (
    "aten::mul",
    "aten::add_",
    "aten::linear",
    "aten::t",
    "aten::transpose",
    "aten::as_strided",
    "aten::addmm",
)
KERNELS = [
    f"void at::native::vectorized_elementwise_kernel<{width}, at::native::Functor{width}>"
    for width in range(40)
]
LAUNCH = "cudaLaunchKernel_v7000"
GAP_NS = 4000
"""Between two operators of a rank."""


def write_export(path: Path, kernels: int = 1_000_000, ranges: int = 10_000_000, ranks: int = 8) -> None:
    """Writes an export with as many calls as kernels; rows of ranks alternate, as they were recorded."""
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    texts = [LAUNCH, *KERNELS]
    _insert(
        connection, "StringIds", ("id", "value"), ((100 + number, text) for number, text in enumerate(texts))
    )
    _insert(connection, "TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",), [(SESSION_NS,)])
    _insert(connection, "META_DATA_EXPORT", ("name", "value"), [("EXPORT_SCHEMA_VERSION", "3.25.0")])
    processes = [(_global_thread(_pid(rank)), _pid(rank), "python3") for rank in range(ranks)]
    _insert(connection, "PROCESSES", ("globalPid", "pid", "name"), processes)
    _insert(connection, "MPI_RANKS", ("globalTid", "rank"), ((_thread(rank), rank) for rank in range(ranks)))
    every = max(ranges // max(kernels, 1), 1)
    _insert(connection, "NVTX_EVENTS", ("start", "end", "eventType", "text", "globalTid", "domainId"),
        _ranges(ranges, ranks))  # fmt: skip
    _insert(connection, "CUPTI_ACTIVITY_KIND_RUNTIME",
        ("start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue"),
        _calls(kernels, ranks, every))  # fmt: skip
    _insert(connection, "CUPTI_ACTIVITY_KIND_KERNEL",
        ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "demangledName",
         "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"), _work(kernels, ranks, every))  # fmt: skip
    connection.execute("COMMIT")
    connection.close()


def _global_thread(pid: int, tid: int = 0) -> int:
    return 1 << 48 | pid << 24 | tid


def _pid(rank: int) -> int:
    return 4000 + rank


def _thread(rank: int) -> int:
    return _global_thread(_pid(rank), _pid(rank))


def _insert(connection: sqlite3.Connection, table: str, columns: tuple[str, ...], rows: Any) -> None:
    connection.execute(f"CREATE TABLE {table} ({TABLES[table]})")
    marks = ", ".join("?" * len(columns))
    connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)


def _time(number: int, ranks: int) -> int:
    return 10**9 + number // ranks * GAP_NS


def _ranges(count: int, ranks: int) -> Iterator[tuple[Any, ...]]:
    """Every third operator has a sequence number."""
    threads = [_thread(rank) for rank in range(ranks)]
    for number in range(count):
        sequence = f", seq = {number}" if number % 3 == 0 else ""
        text = f"{OPERATORS[number % len(OPERATORS)]}{sequence}, op_id = {number + 1}"
        start = _time(number, ranks)
        yield start, start + GAP_NS - 500, 59, text, threads[number % ranks], 0


def _calls(count: int, ranks: int, every: int) -> Iterator[tuple[int, ...]]:
    for number in range(count):
        start = _time(number // ranks * every * ranks, ranks) + 500
        yield start, start + 2000, 0, _thread(number % ranks), number + 1, 100, 0


def _work(count: int, ranks: int, every: int) -> Iterator[tuple[int, ...]]:
    for number in range(count):
        start, rank = _time(number // ranks * every * ranks, ranks) + 5000, number % ranks
        pid, name = _global_thread(_pid(rank)), 101 + number % len(KERNELS)
        yield start, start + 3000, rank, 1, 7, number + 1, pid, name, 64, 1, 1, 128, 1, 1
