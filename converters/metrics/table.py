"""Tables with a header: which column is what, and blocks of rows as samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._model.columns import NO_TIME, Int64s
from tracelink._model.errors import UnreadableError
from tracelink._model.findings import Finding, Severity
from tracelink._model.metrics import Basis, Gauge
from tracelink._model.text import counted
from tracelink.converters.metrics import schema
from tracelink.converters.metrics.cells import (
    TimeFormat,
    is_missing,
    numbers,
    time_format,
    times,
    unit_of,
    unwrapped,
)
from tracelink.converters.metrics.samples import LONGEST_NAME, Samples

MOST_COLUMNS = 4096
Columns = Sequence[Sequence[str]]


class Names(Struct, frozen=True):
    """What a header says: the index of each special column, and the names and units of values."""

    time: int | None = None
    date: int | None = None
    """A second column with the date of each time."""
    time_unit: str = ""
    host: int | None = None
    index: int | None = None
    uuid: int | None = None
    pid: int | None = None
    rank: int | None = None
    series: int | None = None
    values: Sequence[tuple[int, str, str]] = ()
    """Column, name and unit."""


def names_of(header: Sequence[str], units: Sequence[str] = ()) -> Names:
    """What the columns of a header are; `units` is a second line of the header."""
    pairs = [schema.name_and_unit(cell[:LONGEST_NAME]) for cell in header[:MOST_COLUMNS]]
    lower = [name.lower() for name, _ in pairs]

    def first(known: frozenset[str]) -> int | None:
        return next((column for column, name in enumerate(lower) if name in known), None)

    times_in_order = [lower.index(name) for name in schema.TIME_NAMES if name in lower]
    time = next(iter(times_in_order), None)
    if time is None:
        time = next((column for column, name in enumerate(lower) if "timestamp" in name), None)
    date = None
    if schema.DATE in lower and schema.TIME in lower:
        time, date = lower.index(schema.TIME), lower.index(schema.DATE)
    keys = {
        "host": first(schema.HOST_NAMES),
        "index": first(schema.INDEX_NAMES),
        "uuid": first(schema.UUID_NAMES),
        "pid": first(schema.PID_NAMES),
        "rank": first(schema.RANK_NAMES),
        "series": first(schema.SERIES_NAMES),
    }
    if keys["uuid"] is None and keys["index"] is None:
        keys["uuid"] = first(schema.BUS_NAMES)
    special = {time, date, *times_in_order, *keys.values()}
    values = [
        (column, name, unit or _unit(units, column))
        for column, (name, unit) in enumerate(pairs)
        if column not in special and name and lower[column] not in schema.LABELS
    ]
    unit = schema.TIME_UNIT.search(lower[time]) if time is not None else None
    return Names(time, date, unit[1] if unit else "", values=values, **keys)


def _unit(units: Sequence[str], column: int) -> str:
    text = units[column].strip() if column < len(units) else ""
    return "" if text.lower() in ("idx", "", "id") else text


def _with_text_devices(names: Names, columns: Columns) -> Names:
    """The columns, where one of devices that are no GPUs, such as disks, only tells counters apart."""
    if names.index is None:
        return names
    cells = {cell.strip().strip('"') for cell in columns[names.index][:1000]}
    if all(schema.is_device(cell) for cell in cells if not is_missing(cell)):
        return names
    return replace(names, index=None, series=names.index if names.series is None else names.series)


def _rows_in_a_round(moments: Int64s) -> int:
    """How many rows follow each other at once, before the next interval; 1 if their number changes."""
    steps = np.diff(moments)
    if not len(steps) or steps.max() <= 0:
        return max(1, len(moments)) if len(steps) else 1
    begins = np.flatnonzero(steps > steps.max() // 2) + 1
    within = np.delete(steps, begins - 1)
    counts = np.diff(np.concatenate([[0], begins]))
    equal = len(set(counts.tolist())) == 1 and len(moments) - begins[-1] <= counts[0]
    return int(counts[0]) if equal and (not len(within) or within.max() < steps.max() / 5) else 1


def _full_name(series: str, name: str) -> str:
    if not series:
        return name
    return series if name.lower() == schema.VALUE else f"{series} {name}"[:LONGEST_NAME]


class Table(Struct):
    """A table whose rows are added in blocks; what its columns contain is settled by the first block."""

    names: Names
    samples: Samples
    of_dcgm: bool = False
    block_time: str = ""
    """The time of all rows that follow, if a line before their header says it."""
    in_utc: bool = False
    """Whether dates without a zone are in UTC."""
    forms: TimeFormat | None = None
    _kept: list[tuple[int, str, str]] | None = None
    _rounds: dict[Gauge, int] = field(default_factory=dict)
    """Rows seen of each device, in tables without times."""
    _gpus: int = 0
    """How many GPUs follow each other in rows without an index."""
    _seen: int = 0

    def add(self, columns: Columns) -> None:
        """Rows, as columns of equal length."""
        if not columns or not columns[0]:
            return
        if self._kept is None:
            self._settle(columns)
        assert self._kept is not None
        gauges, which = self._devices(columns)
        time = self._times(columns, which, gauges)
        self.samples.rows += len(time)
        untimed = int(np.count_nonzero(time == NO_TIME))
        self.samples.skipped["no_time"] += untimed
        for column, name, unit in self._kept:
            values, wrong = numbers(columns[column], unit)
            self.samples.skipped["not_numbers"] += wrong
            self.samples.skipped["no_value"] -= wrong
            named = [replace(gauge, name=_full_name(gauge.name, name), unit=unit) for gauge in gauges]
            of_dcgm = self.of_dcgm or name.startswith(schema.DCGM)
            self.samples.add_mixed(named, which, time, values, of_dcgm=of_dcgm)

    def _settle(self, columns: Columns) -> None:
        """Drops columns without any number in the first block, and takes units from cells."""
        self._kept = []
        self.names = _with_text_devices(self.names, columns)
        for column, name, unit in self.names.values:
            cells = columns[column]
            filled = [cell for cell in cells[:1000] if not is_missing(cell)]
            unit = next((own for cell in filled[:1] if (own := unit_of(cell))), unit)
            values, wrong = numbers(filled, unit)
            if not filled or wrong < len(values):
                self._kept.append((column, name, unit))
            else:
                self.samples.skipped["text_columns"] += 1
        self._gpus = self._rows_of_gpus(columns)
        if not self._kept:
            raise UnreadableError("no column contains numbers", advice="Name a table with sampled values.")

    def _rows_of_gpus(self, columns: Columns) -> int:
        """The number of GPUs of which nvidia-smi wrote a row each time; 0 if a column names them."""
        names = self.names
        of_nvidia_smi = any(name.lower() in schema.OF_NVIDIA_SMI for _, name, _ in names.values)
        if not of_nvidia_smi or names.time is None or names.index is not None or names.uuid is not None:
            return 0
        cells = columns[names.time][:1000]
        form = next((form for cell in cells if (form := time_format(cell, names.time_unit))), None)
        count = _rows_in_a_round(times(cells, form)) if form else 1
        message = (
            f"no column names GPUs: the rows were taken as those of {counted(count, 'GPU')} in turn. Record index or "
            "uuid, too."
        )
        self.samples.findings.append(Finding(Severity.WARNING, "no_index", message))
        return count

    def _times(self, columns: Columns, which: Int64s, gauges: Sequence[Gauge]) -> Int64s:
        names = self.names
        if self.block_time:
            cells: Sequence[str] = [self.block_time] * len(which)
        elif names.time is None:
            return self._numbered(which, gauges)
        elif names.date is not None:
            cells = [
                f"{date.strip()} {time.strip()}"
                for date, time in zip(columns[names.date], columns[names.time], strict=True)
            ]
        else:
            cells = columns[names.time]
        if self.forms is None:
            self.forms = next((form for cell in cells if (form := time_format(cell, names.time_unit))), None)
        if self.forms is None:
            return np.full(len(cells), NO_TIME, np.int64)
        basis = self.forms.basis
        if self.in_utc and basis is Basis.LOCAL:
            basis = Basis.EPOCH
        if self.samples.basis not in (None, basis):
            return np.full(len(cells), NO_TIME, np.int64)
        self.samples.basis = basis
        found = times(cells, self.forms)
        if basis is Basis.DAY:
            found = unwrapped(found, self.samples.last_of_day)
            self.samples.last_of_day = int(found.max(initial=self.samples.last_of_day))
        return found

    def _numbered(self, which: Int64s, gauges: Sequence[Gauge]) -> Int64s:
        """The number of each row among those of its device."""
        self.samples.basis = Basis.ROUND
        order = np.argsort(which, kind="stable")
        begins = np.flatnonzero(np.diff(which[order], prepend=-1))
        counts = np.diff(begins, append=len(which))
        before = np.array([self._rounds.get(gauge, 0) for gauge in gauges], np.int64)
        result = np.empty(len(which), np.int64)
        result[order] = np.arange(len(which)) - np.repeat(begins, counts) + before[which[order]]
        for number, count in zip(which[order][begins].tolist(), counts.tolist(), strict=True):
            self._rounds[gauges[number]] = self._rounds.get(gauges[number], 0) + count
        return result

    def _devices(self, columns: Columns) -> tuple[list[Gauge], Int64s]:
        """The distinct hosts, devices and processes of these rows, without a name, and which one each row is of."""
        names = self.names
        keys = (names.host, names.index, names.uuid, names.pid, names.rank, names.series)
        used = [columns[key] for key in keys if key is not None]
        count = len(columns[0])
        if not used and self._gpus:
            which = (self._seen + np.arange(count)) % self._gpus
            self._seen += count
            return [Gauge("", device=str(number)) for number in range(self._gpus)], which
        if not used:
            return [Gauge("")], np.zeros(count, np.int64)
        numbers_of: dict[tuple[str, ...], int] = {}
        which = np.array([numbers_of.setdefault(key, len(numbers_of)) for key in zip(*used, strict=True)])
        gauges: dict[Gauge, int] = {}
        renumbered = []
        for key in numbers_of:
            gauge = self._gauge(dict(zip((name for name in keys if name is not None), key, strict=True)))
            renumbered.append(gauges.setdefault(gauge, len(gauges)))
        return list(gauges), np.array(renumbered, np.int64)[which]

    def _gauge(self, cells: dict[int, str]) -> Gauge:
        def text(column: int | None) -> str:
            cell = cells[column].strip().strip('"') if column is not None else ""
            return "" if is_missing(cell) else cell[:LONGEST_NAME]

        def number(column: int | None) -> int | None:
            cell = text(column)
            return int(cell) if cell.isascii() and cell.isdecimal() and len(cell) < 10 else None

        names = self.names
        index, uuid = text(names.index), text(names.uuid)
        if schema.UUID.fullmatch(index):
            index, uuid = "", index
        return Gauge(
            text(names.series),
            host=text(names.host),
            device=schema.index_of_device(index),
            uuid=uuid,
            pid=number(names.pid),
            rank=number(names.rank),
        )
