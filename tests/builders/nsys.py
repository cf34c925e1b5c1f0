"""Nsight Systems exports of a few rows, in any schema from 3.0 to 3.25; times are ns since the session started."""

from __future__ import annotations

import sqlite3
import struct
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builders.recorder import as_source
from tracelink._io.sources import Source

SESSION_NS = 1_700_000_000_000_000_000
"""The time of the start of the session."""

OLDEST, MIDDLE, NEWEST = "3.0.0", "3.7.2", "3.25.0"

WORK = (
    "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, "
    "globalPid INTEGER"
)
CALL = (
    "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER"
)
VALUES = ("uint64Value", "int64Value", "doubleValue", "uint32Value", "int32Value", "floatValue")
DDL = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
    "META_DATA_CAPTURE": "name TEXT, value TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "TARGET_INFO_SYSTEM_ENV": "globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT",
    "ProcessStreams": "globalPid INTEGER, filenameId INTEGER, contentId INTEGER",
    "PROCESSES": "globalPid INTEGER, pid INTEGER, name TEXT",
    "ThreadNames": "nameId INTEGER, priority INTEGER, globalTid INTEGER",
    "MPI_RANKS": "globalTid INTEGER, rank INTEGER",
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{WORK}, demangledName INTEGER, shortName INTEGER, mangledName INTEGER, "
    "registersPerThread INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, "
    "blockZ INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, graphNodeId INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{WORK}, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{WORK}, value INTEGER, bytes INTEGER",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{WORK}, graphId INTEGER, graphExecId INTEGER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{WORK}, syncType INTEGER, eventId INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": f"{CALL}, returnValue INTEGER, callchainId INTEGER",
    "OSRT_API": "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, nameId INTEGER, "
    "returnValue INTEGER, nestingLevel INTEGER, callchainId INTEGER",
    "NVTX_EVENTS": "start INTEGER, end INTEGER, eventType INTEGER, rangeId INTEGER, category INTEGER, color INTEGER, "
    "text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, "
    "uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, "
    "floatValue REAL, jsonTextId INTEGER, jsonText TEXT",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": "domainId INTEGER, schemaId INTEGER, idx INTEGER, flags INTEGER, type INTEGER, "
    "name TEXT, description TEXT, arrayOrUnionDetail INTEGER, offset INTEGER",
    "GPU_METRICS": "timestamp INTEGER, typeId INTEGER, metricId INTEGER, value INTEGER",
    "TARGET_INFO_GPU_METRICS": "typeId INTEGER, sourceId INTEGER, typeName TEXT, metricId INTEGER, metricName TEXT",
    "CUDA_GPU_MEMORY_USAGE_EVENTS": "start INTEGER, globalPid INTEGER, deviceId INTEGER, contextId INTEGER, "
    "address INTEGER, bytes INTEGER, memKind INTEGER, memoryOperationType INTEGER",
}
"""The columns that tracelink reads, and some more, in schema 3.7."""
ADDED = {
    "CUPTI_ACTIVITY_KIND_KERNEL": ("greenContextId INTEGER", "graphId INTEGER", "clusterX INTEGER"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("greenContextId INTEGER", "graphNodeId INTEGER", "copyCount INTEGER"),
    "NVTX_EVENTS": ("binaryData TEXT",),
    "TARGET_INFO_SESSION_START_TIME": ("systemClockNs INTEGER",),
}
"""Columns of the newest schema."""

MAIN = (100, 100)
"""Process and thread."""


def columns_of(table: str, schema: str = NEWEST) -> str:
    return ", ".join([DDL[table], *(ADDED.get(table, ()) if schema == NEWEST else ())])


def global_thread(pid: int, tid: int = 0) -> int:
    """The id of a thread, or of a process, in all tables."""
    return 1 << 48 | pid << 24 | tid


@dataclass
class Export:
    """Collects rows. Tables without rows are absent, as in exports with --lazy=true."""

    schema: str = NEWEST
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=SESSION_NS, utcTime="2023-11-14T22:13:20")
        self.add("META_DATA_CAPTURE", name="DEVICE_DISPLAY_NAME", value="node0")

    def add(self, table: str, **columns: Any) -> None:
        self.rows.setdefault(table, []).append(columns)

    def text(self, value: str) -> int:
        return self.texts.setdefault(value, 100 + len(self.texts))

    def process(self, pid: int, name: str = "python3") -> None:
        self.add("PROCESSES", globalPid=global_thread(pid), pid=pid, name=name)

    def thread_name(self, thread: tuple[int, int], name: str) -> None:
        self.add("ThreadNames", nameId=self.text(name), priority=0, globalTid=global_thread(*thread))

    def mpi_rank(self, pid: int, rank: int) -> None:
        self.add("MPI_RANKS", globalTid=global_thread(pid, pid), rank=rank)

    def environment(self, text: str) -> None:
        """A variable of the only process, such as `RANK=3`."""
        self.add("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value=text)

    def kernel(self, name: str, start: int, duration: int, **columns: Any) -> None:
        self._work("KERNEL", start, duration, {"demangledName": self.text(name)} | columns)

    def copy(self, start: int, duration: int, **columns: Any) -> None:
        self._work("MEMCPY", start, duration, {"copyKind": 1, "bytes": 4096} | columns)

    def fill(self, start: int, duration: int, **columns: Any) -> None:
        self._work("MEMSET", start, duration, {"value": 0, "bytes": 512} | columns)

    def graph(self, start: int, duration: int, **columns: Any) -> None:
        self._work("GRAPH_TRACE", start, duration, {"graphId": 4, "graphExecId": 5} | columns)

    def wait(self, start: int, duration: int, **columns: Any) -> None:
        self._work("SYNCHRONIZATION", start, duration, {"syncType": 3, "eventId": 8} | columns)

    def _work(self, kind: str, start: int, duration: int, columns: Mapping[str, Any]) -> None:
        known = dict(columns)
        pid = global_thread(known.pop("pid", MAIN[0]))
        row = {"start": start, "end": start + duration, "globalPid": pid, "contextId": 1}
        row |= {"deviceId": 0, "streamId": 7, "correlationId": 1}
        self.add(f"CUPTI_ACTIVITY_KIND_{kind}", **row | known)

    def call(
        self, name: str, start: int, duration: int, correlation: int = 1, thread: tuple[int, int] = MAIN
    ) -> None:
        numbers = {"eventClass": 0, "correlationId": correlation}
        self._called("CUPTI_ACTIVITY_KIND_RUNTIME", name, start, duration, thread, **numbers)

    def system_call(self, name: str, start: int, duration: int, thread: tuple[int, int] = MAIN) -> None:
        self._called("OSRT_API", name, start, duration, thread, eventClass=27, nestingLevel=0)

    def _called(
        self, table: str, name: str, start: int, duration: int, thread: tuple[int, int], **more: int
    ) -> None:
        row = {"start": start, "end": start + duration, "globalTid": global_thread(*thread)}
        self.add(table, **row, nameId=self.text(name), returnValue=0, **more)

    def range(
        self, text: str, start: int, duration: int | None, thread: tuple[int, int] = MAIN, **columns: Any
    ) -> None:
        """A push/pop range; one that was never closed has no duration."""
        end = None if duration is None else start + duration
        self.nvtx(59, start, end, thread, text=text, **columns)

    def nvtx(
        self, kind: int, start: int, end: int | None = None, thread: tuple[int, int] = MAIN, **columns: Any
    ) -> None:
        row: dict[str, Any] = {"start": start, "end": end, "eventType": kind}
        self.add("NVTX_EVENTS", **row | {"globalTid": global_thread(*thread), "domainId": 0} | columns)

    def nccl(self, call: str, start: int, duration: int, schema: int, fields: bytes, **columns: Any) -> None:
        header = struct.pack("<IIIIQQ", 1, 0, schema, 0, len(fields), 32)
        row: dict[str, Any] = {"textId": self.text(call), "domainId": 1, "binaryData": header + fields}
        self.nvtx(59, start, start + duration, **row | columns)

    def payload_schema(self, schema: int, *entries: tuple[str, int, int | None]) -> None:
        """The fields of a payload: name, type, offset."""
        for index, (name, kind, offset) in enumerate(entries):
            self.add("NVTX_PAYLOAD_SCHEMA_ENTRIES", domainId=1, schemaId=schema, idx=index, type=kind, name=name,
                offset=offset)  # fmt: skip

    def data(self) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            path = self.write(Path(folder) / "export.sqlite")
            return path.read_bytes()

    def source(self, name: str = "export.sqlite") -> Source:
        return as_source(self.data(), name)

    def write(self, path: Path) -> Path:
        tables = {**self.rows, "META_DATA_EXPORT": self._export_rows()}
        tables["StringIds"] = [{"id": number, "value": text} for text, number in self.texts.items()]
        connection = sqlite3.connect(path)
        for table, rows in tables.items():
            connection.execute(f"CREATE TABLE {self._named(table)} ({columns_of(table, self.schema)})")
            for row in rows:
                marks = ", ".join("?" * len(row))
                connection.execute(
                    f"INSERT INTO {self._named(table)} ({', '.join(row)}) VALUES ({marks})",
                    list(row.values()),
                )
        connection.commit()
        connection.close()
        return path

    def _export_rows(self) -> list[dict[str, Any]]:
        values = {
            "EXPORT_PRODUCT_VERSION": "2026.2.1",
            "EXPORT_SCHEMA_VERSION": self.schema,
            "EXPORT_PARAM_TIME_NORMALIZE": "false",
            "EXPORT_PARAM_TIME_SHIFT": "0",
        }
        return [{"name": name, "value": value} for name, value in {**values, **self.parameters}.items()]

    def _named(self, table: str) -> str:
        return "EXPORT_META_DATA" if (table, self.schema) == ("META_DATA_EXPORT", OLDEST) else table


def example(schema: str = NEWEST) -> Export:
    """Something of everything, in two processes."""
    export = Export(schema)
    for rank, pid in enumerate((100, 200)):
        thread = (pid, pid)
        export.process(pid)
        export.mpi_rank(pid, rank)
        export.thread_name((pid, pid + 7), "pt_autograd_0")
        export.call("cudaLaunchKernel_v7000", 12_000, 2000, correlation=7, thread=thread)
        export.call("cuLaunchKernelEx", 15_000, 1000, correlation=8, thread=(pid, pid + 7))
        export.kernel("add_kernel", 20_000, 4000, correlationId=7, pid=pid, deviceId=rank)
        export.copy(25_000, 2000, correlationId=9, streamId=14, pid=pid)
        export.fill(28_000, 1000, correlationId=10, pid=pid)
        export.graph(40_000, 5000, correlationId=11, pid=pid)
        export.wait(50_000, 6000, correlationId=12, pid=pid)
        export.range("aten::mul, seq = 45328, op_id = 990726, sizes = [[2, 3]]", 10_000, 9000, thread)
        export.range("step 0", 5000, 100_000, thread, domainId=1, category=7, doubleValue=0.5)
        export.range("never closed", 6000, None, thread, jsonText='{"loss": 0.5}')
        export.nvtx(60, 7000, 90_000, thread, text="across threads", endGlobalTid=global_thread(pid, pid + 7))
        export.nvtx(34, 8000, thread=thread, text="step done")
        export.nvtx(75, 4000, thread=thread, text="train", domainId=1)
        export.nvtx(33, 4000, thread=thread, text="iteration", domainId=1, category=7)
        export.system_call("poll", 60_000, 2000, thread)
        if schema == NEWEST:
            fields = struct.pack("<QQii", 0xABCDEF, 4096, 0, 0)
            export.nccl("ncclAllReduce", 30_000, 3000, 1 << 24 | 5, fields, thread=thread)
    export.payload_schema(1 << 24 | 5, ("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8))
    return export


def parquet_folder(export: Export, folder: Path) -> Path:
    """The same tables as `nsys export --type parquetdir` writes them."""
    import pytest

    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.parquet

    folder.mkdir()
    database = sqlite3.connect(export.write(folder.parent / "source.sqlite"))
    database.row_factory = sqlite3.Row
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        rows = [dict(row) for row in database.execute(f"SELECT * FROM {table}").fetchall()]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / f"{table}.parquet")
    return folder
