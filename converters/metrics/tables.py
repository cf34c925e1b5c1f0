"""Tables as programs write them: CSV, nvidia-smi dmon, dcgmi dmon and vmstat; repeated and changed headers."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence

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
    LONGEST_NAME,
    Samples,
    TimeFormat,
    is_missing,
    numbers,
    time_format,
    times,
    unit_of,
    unwrapped,
)

# Tables with a header: which column is what, and blocks of rows as samples.

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
    """The meaning of the columns of a header; `units` is a second line of the header."""
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
    """True if dates without a zone are in UTC."""
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


SEPARATORS = (",", ";", "\t")
LONGEST_CELL = 1 << 17
"""Longest quoted cell."""
UNITS_MARK, HEADER_MARK = "ID", "#"

# Tables with separators.


def read_csv(blocks: Iterable[list[str]], samples: Samples) -> None:
    """Adds all rows of a CSV: its header can be repeated, and be preceded by other lines or by the time of its rows."""
    reader = _Csv(samples)
    for lines in blocks:
        reader.add([line.rstrip("\r") for line in lines if line and not line.isspace()])
    if reader.table is None:
        raise reader.refusal()


class _Csv(Struct):
    """A CSV that is read in blocks of lines."""

    samples: Samples
    table: Table | None = None
    separator: str = ""
    header: str = ""
    width: int = 0
    """Cells of the header."""
    before: str = ""
    """A line with nothing but a time: of the rows below the next header."""
    refused: Sequence[str] = ()
    """The cells of the first line that could be a header, but names no time."""

    def add(self, lines: list[str]) -> None:
        """Rows are added at once where no other line is between them."""
        begin = 0
        while self.table is None and begin < len(lines):
            self._take(lines[begin])
            begin += 1
        if self.table is None:
            return
        lines, begin = lines[begin:], 0
        for number in self._others(lines):
            self._add_rows(lines[begin:number])
            if self._take(lines[number]):
                self._add_rows([lines[number]])
            begin = number + 1
        self._add_rows(lines[begin:])

    def _others(self, lines: Sequence[str]) -> Sequence[int]:
        """The lines that may not be rows."""
        width, first = self.width - 1, self.header.partition(self.separator)[0].lower()
        cut = len(first)
        return [
            number
            for number, line in enumerate(lines)
            if (line.count(self.separator) != width and '"' not in line) or line[:cut].lower() == first
        ]

    def _take(self, line: str) -> bool:
        """Uses a line that is a header or a time, else counts it; True if it is a row."""
        same = line == self.header
        if same and not self.before:
            return False
        if (separator := _header(line, self.separator)) and self._open(line, separator):
            return False
        if not (self.separator and self.separator in line) and time_format(line):
            self.before = line.strip()
            return False
        if self.table is None:
            self.samples.skipped["noise"] += 1
            return False
        return True

    def _open(self, line: str, separator: str) -> bool:
        """The table of a header; False if no column contains times, and none names GPUs."""
        cells = next(_rows([line.lstrip("# ")], separator), [])
        names = names_of(cells)
        if names.time is None and not self.before and names.index is names.uuid is None:
            self.refused = self.refused or cells
            return False
        if len(cells) > MOST_COLUMNS:
            self.samples.skipped["many_columns"] += len(cells) - MOST_COLUMNS
        self.table = Table(names, self.samples, block_time=self.before)
        self.separator, self.header, self.width, self.before = separator, line, len(cells), ""
        return True

    def refusal(self) -> UnreadableError:
        """Why nothing could be read."""
        if not self.refused:
            return UnreadableError(
                "it has no header with names of columns", advice="Write the names into its first line."
            )
        names = ", ".join(self.refused[:8])
        return UnreadableError(
            f"no column contains times (its columns: {names})",
            advice="Name one of its columns timestamp.",
        )

    def _add_rows(self, lines: list[str]) -> None:
        if self.table and lines:
            _add_lines(self.table, lines, self.separator, self.width)


def read_headless(blocks: Iterable[list[str]], samples: Samples) -> None:
    """Adds the rows of nvidia-smi with `noheader`: the first column is the time, the others have no names."""
    table: Table | None = None
    width = 0
    for lines in blocks:
        rows = [line.rstrip("\r") for line in lines if line.strip()]
        if table is None and rows:
            first = [row.split(",") for row in rows[:1000]]
            second = numbers([row[1] for row in first if len(row) > 2])[0]
            indexed = (
                len(first[0]) > 2
                and len(second) > 0
                and bool(((second >= 0) & (second < 64) & (second % 1 == 0)).all())
            )
            names = ["timestamp", *(f"column {number}" for number in range(2, len(first[0]) + 1))]
            text = "columns are named by their position"
            if indexed:
                names[1] = "index"
                text += ", and the second one was taken as the index of the GPU"
            message = (
                f"it has no header: {text}. Record it without noheader, or add the header as its first line."
            )
            samples.findings.append(Finding(Severity.WARNING, "no_header", message))
            table, width = Table(names_of(names), samples), len(names)
        if table:
            _add_lines(table, rows, ",", width)


def _header(text: str, separator: str) -> str:
    """The separator of a line of names of columns; empty if it is none."""
    separator = separator or next((one for one in SEPARATORS if one in text), "")
    cells = [cell.strip() for cell in next(_rows([text], separator), [])] if separator else []
    named = [cell for cell in cells if cell and not cell[0].isdigit() and cell[0] not in "+-."]
    return separator if len(cells) > 1 and len(named) == len([cell for cell in cells if cell]) else ""


def _add_lines(table: Table, lines: list[str], separator: str, width: int) -> None:
    """Adds lines as columns; rows with another number of cells are counted."""
    if not any('"' in line for line in lines):
        fitting = [line for line in lines if line.count(separator) == width - 1]
        table.samples.skipped["damaged_rows"] += len(lines) - len(fitting)
        if fitting:
            cells = separator.join(fitting).split(separator)
            table.add([cells[column::width] for column in range(width)])
        return
    rows = [row for row in _rows(lines, separator) if len(row) == width]
    table.samples.skipped["damaged_rows"] += len(lines) - len(rows)
    if rows:
        table.add(list(zip(*rows, strict=True)))


def _rows(lines: Sequence[str], separator: str) -> Iterator[list[str]]:
    """The cells of each line; a line that cannot be split is left out."""
    for line in lines:
        try:
            yield next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
        except csv.Error:
            continue


# Tables with spaces.


def read_dmon(blocks: Iterable[list[str]], samples: Samples) -> None:
    """Adds the rows of nvidia-smi dmon: two lines of header, names and units, after each page."""
    _read_spaced(blocks, samples, of_dcgm=False)


def read_dcgmi(blocks: Iterable[list[str]], samples: Samples) -> None:
    """Adds the rows of dcgmi dmon: `GPU 0` in the first column, and no times."""
    _read_spaced(blocks, samples, of_dcgm=True)


def _read_spaced(blocks: Iterable[list[str]], samples: Samples, *, of_dcgm: bool) -> None:
    reader = _Spaced(samples, of_dcgm)
    for lines in blocks:
        for line in lines:
            if line and not line.isspace():
                reader.add(line)
        reader.flush()


class _Spaced(Struct):
    """A table with spaces that is read line by line; equal headers continue the same table."""

    samples: Samples
    of_dcgm: bool
    names: str = ""
    """A line of names, until its line of units follows."""
    table: Table | None = None
    width: int = 0
    rows: list[list[str]] = field(default_factory=list)
    tables: dict[str, Table] = field(default_factory=dict)

    def add(self, line: str) -> None:
        """A line of names, of units, or of values."""
        marked = line.lstrip().startswith(HEADER_MARK)
        if self.names and (marked or line.split()[0] == UNITS_MARK):
            self._open(line)
        elif marked:
            self.names = line
        elif self.table is None:
            self.samples.skipped["noise"] += 1
        else:
            self.rows.append(line.split())

    def _open(self, units: str) -> None:
        """The table of these names and units, which later rows are of."""
        self.flush()
        header = self.names.strip().lstrip(HEADER_MARK).split()
        if self.of_dcgm:
            header = ["entity", "index", *header[1:]]
            below = _aligned(units, self.names, header)
        else:
            below = units.strip().lstrip(HEADER_MARK).split()
        key = self.names + units
        if key not in self.tables:
            self.tables[key] = Table(names_of(header, below), self.samples, of_dcgm=self.of_dcgm)
        self.table, self.width, self.names = self.tables[key], len(header), ""

    def flush(self) -> None:
        """Adds the rows since the last header."""
        if self.table and self.rows:
            _add_spaced(self.table, self.rows, self.width)
        self.rows = []


def _aligned(units: str, header_line: str, header: Sequence[str]) -> list[str]:
    """The unit below each name, by the position in the line: names without a unit have nothing below."""
    found = [""] * len(header)
    names = header[2:]
    position = 0
    for offset, name in enumerate(names):
        position = header_line.find(name, position)
        below = units[position : position + len(name) + 2].split()
        found[offset + 2] = below[0] if position >= 0 and below else ""
        position += len(name)
    return found


def _add_spaced(table: Table, rows: list[list[str]], width: int) -> None:
    fitting = [row for row in rows if len(row) == width]
    table.samples.skipped["damaged_rows"] += len(rows) - len(fitting)
    if fitting:
        table.add(list(zip(*fitting, strict=True)))


def read_vmstat(blocks: Iterable[list[str]], samples: Samples) -> None:
    """Adds the rows of vmstat; with -t a row ends with date and time, under the name of the zone."""
    table: Table | None = None
    header: list[str] = []
    for lines in blocks:
        pending: list[list[str]] = []
        for line in lines:
            words = line.split()
            if not words or words[0] == "procs":
                continue
            if not words[0].isdigit():
                if not header:
                    header = words
                continue
            if not header:
                samples.skipped["noise"] += 1
                continue
            if table is None:
                table, words = _vmstat_table(header, words, samples)
            pending.append(words)
        if table:
            _add_spaced(table, pending, len(header) + (table.names.time is not None))


def _vmstat_table(header: list[str], first: list[str], samples: Samples) -> tuple[Table, list[str]]:
    """The table, and the first row without averages since the machine was started."""
    has_time = len(first) == len(header) + 1
    zone = header[-1] if has_time else ""
    titles = [*header[:-1], schema.DATE, schema.TIME] if has_time else header
    names = names_of(titles)
    units = {"swpd": "KiB", "free": "KiB", "buff": "KiB", "cache": "KiB", "inact": "KiB", "active": "KiB"}
    units |= dict.fromkeys(("us", "sy", "id", "wa", "st", "gu"), "%")
    units |= {"si": "KiB/s", "so": "KiB/s", "bi": "blocks/s", "bo": "blocks/s", "in": "1/s", "cs": "1/s"}
    values = [(column, f"vmstat {name}", units.get(name, unit)) for column, name, unit in names.values]
    cleared = [
        "-" if column < len(titles) and titles[column] in schema.SINCE_BOOT else cell
        for column, cell in enumerate(first)
    ]
    lost = sum(1 for column, cell in enumerate(cleared) if cell != first[column])
    samples.skipped["since_boot"] += lost
    samples.skipped["no_value"] -= lost
    table = Table(replace(names, values=values), samples, in_utc=zone.upper() in ("UTC", "GMT"))
    return table, cleared
