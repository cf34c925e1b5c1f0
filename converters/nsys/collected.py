"""Events of all processes of an export, stored outside memory process by process until their rank is read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from tracelink._io.system import read_into_at, write_at
from tracelink._model.columns import UNKNOWN, Int64s, StringTable, stable_order
from tracelink._model.events import Key, KeyColumn, Track

COLUMNS = {
    "kind": np.uint8,
    "name": np.int32,
    "track": np.int32,
    "start": np.int64,
    "duration": np.int64,
    "row": np.int64,
}
"""Columns of stored events, with their types; `row` is the number of the row in its table."""


class Rows(Struct, frozen=True):
    """Events of any processes, which are rows of one table."""

    pid: Int64s
    columns: Mapping[str, npt.NDArray[Any]]
    keys: Mapping[Key, Int64s] = field(default_factory=dict)
    """Link keys of all rows; UNKNOWN for those without one."""


class Stored(Struct):
    """The events of one process: where their columns are in the spool."""

    spool: BinaryIO
    count: int = 0
    columns: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """The offset and the number of values of each part of a column."""
    keys: dict[Key, list[tuple[int, int, int]]] = field(default_factory=dict)
    """The offset and the number of rows, and of values behind them, and the first event that they count from."""
    tables: list[tuple[str, int]] = field(default_factory=list)
    """The tables in the order of events, each with the number of its events."""

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column of all events."""
        return self._joined(self.columns.get(name, []), np.dtype(COLUMNS[name]))

    def key(self, key: Key) -> KeyColumn:
        """The events that have a link key."""
        rows = [
            self._read(offset, count, np.dtype(np.int64)) + first for offset, count, first in self.keys[key]
        ]
        values = [
            self._read(offset + 8 * count, count, np.dtype(np.int64)) for offset, count, _ in self.keys[key]
        ]
        return KeyColumn(np.concatenate(rows), np.concatenate(values))

    def add(self, table: str, columns: Mapping[str, npt.NDArray[Any]], keys: Mapping[Key, Int64s]) -> None:
        """Appends events, which are rows of a table."""
        count = len(columns["kind"])
        for name, values in columns.items():
            array = np.ascontiguousarray(values, COLUMNS[name])
            self.columns.setdefault(name, []).append((self._write(array), count))
        for key, dense in keys.items():
            rows = np.flatnonzero(dense != UNKNOWN)
            if len(rows):
                place = self._write(np.concatenate([rows, dense[rows]]))
                self.keys.setdefault(key, []).append((place, len(rows), self.count))
        self.count += count
        if self.tables and self.tables[-1][0] == table:
            self.tables[-1] = (table, self.tables[-1][1] + count)
        else:
            self.tables.append((table, count))

    def _joined(self, parts: Sequence[tuple[int, int]], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        whole = np.empty(sum(count for _, count in parts), dtype)
        done = 0
        for offset, count in parts:
            read_into_at(self.spool.fileno(), whole[done : done + count].view(np.uint8).data, offset)
            done += count
        return whole

    def _read(self, offset: int, count: int, dtype: np.dtype[Any]) -> Int64s:
        return cast(Int64s, self._joined([(offset, count)], dtype))

    def _write(self, array: npt.NDArray[Any]) -> int:
        handle = self.spool.fileno()
        offset = begin = os.lseek(handle, 0, os.SEEK_END)
        rest = array.view(np.uint8).data
        while len(rest):
            written = write_at(handle, rest, begin)
            begin += written
            rest = rest[written:]
        return offset


def _spool() -> BinaryIO:
    """A file without a name: the system removes it with the last process that has it open."""
    return cast(BinaryIO, tempfile.TemporaryFile(prefix="tracelink-"))


class Collector(Struct):
    """Collects the events of an export, and the names and tracks that they use."""

    names: StringTable = field(default_factory=StringTable)
    tracks: dict[Track, int] = field(default_factory=dict)
    processes: dict[int, Stored] = field(default_factory=dict)
    """By pid."""
    spool: BinaryIO = field(default_factory=_spool)

    def track(self, track: Track) -> int:
        """The number of a track."""
        return self.tracks.setdefault(track, len(self.tracks))

    def add(self, table: str, rows: Rows) -> None:
        """Adds events to their processes, in their order."""
        pids, which = coded(rows.pid)
        columns, keys = rows.columns, rows.keys
        if len(pids) > 1:
            order = stable_order(which)
            columns = {name: values[order] for name, values in columns.items()}
            keys = {key: values[order] for key, values in keys.items()}
        ends = np.cumsum(np.bincount(which, minlength=len(pids))).tolist()
        for pid, begin, end in zip(pids.tolist(), [0, *ends], ends, strict=False):
            mine = slice(begin, end)
            self.processes.setdefault(pid, Stored(self.spool)).add(
                table,
                {name: values[mine] for name, values in columns.items()},
                {key: values[mine] for key, values in keys.items()},
            )


def coded(values: Int64s) -> tuple[Int64s, Int64s]:
    """The different values in order, and for each value its index among them: fast if few are different."""
    different = np.unique(values)
    return different, np.searchsorted(different, values)
