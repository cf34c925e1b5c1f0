"""Large Nsight Systems exports: operators of torch, the calls that they make and the kernels that these launch."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from builders.nsys import SESSION_NS, columns_of, global_thread

OPERATORS = (
    *("aten::mul", "aten::add_", "aten::linear", "aten::t", "aten::transpose", "aten::as_strided"),
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
    texts = enumerate((LAUNCH, *KERNELS), 100)
    every = max(ranges // max(kernels, 1), 1)
    tables: dict[str, tuple[str, Any]] = {
        "StringIds": ("id, value", texts),
        "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs", [(SESSION_NS,)]),
        "META_DATA_EXPORT": ("name, value", [("EXPORT_SCHEMA_VERSION", "3.25.0")]),
        "PROCESSES": (
            "globalPid, pid, name",
            [(global_thread(_pid(rank)), _pid(rank), "python3") for rank in range(ranks)],
        ),
        "MPI_RANKS": ("globalTid, rank", ((_thread(rank), rank) for rank in range(ranks))),
        "NVTX_EVENTS": ("start, end, eventType, text, globalTid, domainId", _ranges(ranges, ranks)),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (
            "start, end, eventClass, globalTid, correlationId, nameId, returnValue",
            _calls(kernels, ranks, every),
        ),
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            "start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName, "
            "gridX, gridY, gridZ, blockX, blockY, blockZ",
            _work(kernels, ranks, every),
        ),
    }
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path, isolation_level=None)
    for setting in ("PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF", "BEGIN"):
        connection.execute(setting)
    for table, (columns, rows) in tables.items():
        connection.execute(f"CREATE TABLE {table} ({columns_of(table)})")
        marks = ", ".join("?" * len(columns.split(", ")))
        connection.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", rows)
    connection.execute("COMMIT")
    connection.close()


def _pid(rank: int) -> int:
    return 4000 + rank


def _thread(rank: int) -> int:
    return global_thread(_pid(rank), _pid(rank))


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
        pid, name = global_thread(_pid(rank)), 101 + number % len(KERNELS)
        yield start, start + 3000, rank, 1, 7, number + 1, pid, name, 64, 1, 1, 128, 1, 1
