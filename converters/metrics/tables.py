"""Tables as programs write them: CSV, nvidia-smi dmon, dcgmi dmon and vmstat; repeated and changed headers."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._model.errors import UnreadableError
from tracelink._model.findings import Finding, Severity
from tracelink.converters.metrics import schema
from tracelink.converters.metrics.cells import numbers, time_format
from tracelink.converters.metrics.samples import Samples
from tracelink.converters.metrics.table import MOST_COLUMNS, Table, names_of

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
