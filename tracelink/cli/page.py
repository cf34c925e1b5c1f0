"""Text and tables for a person: styled on a terminal and fitted to it, plain and unwrapped elsewhere."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tracelink.cli.voice import printable

UNWRAPPED = 100_000
"""Columns of a page that goes to a file or a pipe."""

NOTHING = "-"
"""A cell with nothing to say."""

INDENTED = (0, 0, 0, 2)
"""Blanks above, right, below and left."""

KILO = 1000


class Page:
    """Collects what is to be read."""

    def __init__(self, *, aside: bool = False) -> None:
        terminal = (sys.stderr if aside else sys.stdout).isatty()
        self._lines = io.StringIO()
        self._console = Console(
            file=self._lines,
            force_terminal=terminal,
            width=shutil.get_terminal_size().columns if terminal else UNWRAPPED,
            highlight=False,
            emoji=False,
            markup=False,
        )

    @property
    def width(self) -> int:
        """Letters of a line."""
        return self._console.width

    def line(self, text: str = "", style: str = "") -> None:
        """Adds a paragraph."""
        self._console.print(Text(printable(text), style=style))

    def gap(self) -> None:
        """Adds an empty line, unless there is one or nothing stands before it."""
        text = self._lines.getvalue()
        if text and not text.endswith("\n\n"):
            self._lines.write("\n")

    def table(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        numbers: Sequence[str] = (),
        optional: Sequence[str] = (),
        styles: Mapping[str, str] | None = None,
    ) -> None:
        """Adds a table; the columns `numbers` are aligned to the right, and `styles` are by the text of a cell.

        Where it is too wide, the `optional` columns go, the first of them first.
        """
        for count in range(len(optional) + 1):
            kept = [place for place, name in enumerate(header) if name not in optional[:count]]
            names, cells = [header[place] for place in kept], [[row[place] for place in kept] for row in rows]
            for narrow in (False, True):
                table = _table(names, cells, numbers, styles, narrow=narrow)
                if self._fits(table):
                    self._console.print(table)
                    return
        self._console.print(_table(names, cells, numbers, styles))

    def beneath(self, rows: Sequence[Sequence[str]]) -> None:
        """Adds rows of cells under the line before, set in and without a header."""
        if not rows:
            return
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        for _ in rows[0]:
            table.add_column(overflow="fold")
        for row in rows:
            table.add_row(*(Text(printable(text)) for text in row))
        self._console.print(Padding(table, INDENTED))

    def entries(
        self, header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()
    ) -> None:
        """Adds a table, or a paragraph for each row where a table would be too wide."""
        table = _table(header, rows, numbers)
        if self._fits(table):
            self._console.print(table)
            return
        for first, *others in rows:
            self.line(first, "bold")
            said = zip(header[1:], others, strict=True)
            details = ", ".join(f"{name} {text}" for name, text in said if text != NOTHING)
            self._console.print(Padding(Text(printable(details)), INDENTED))

    def _fits(self, table: Table) -> bool:
        unwrapped = self._console.options.update(width=UNWRAPPED)
        return self._console.measure(table, options=unwrapped).maximum <= self._console.width

    @property
    def text(self) -> str:
        """Everything so far, without the last line's end."""
        lines = (line.rstrip() for line in self._lines.getvalue().splitlines())
        return "\n".join(lines).rstrip("\n")


def number(value: int) -> str:
    """12,345."""
    return f"{value:,}"


def counted(count: int, thing: str) -> str:
    """1 file, 2 files."""
    return f"{number(count)} {thing}" if count == 1 else f"{number(count)} {thing}s"


def size(count: int) -> str:
    """12.3 MB."""
    if count < KILO:
        return f"{count} B"
    value, units = float(count), iter(("kB", "MB", "GB", "TB"))
    unit = ""
    while value >= KILO and (following := next(units, "")):
        value, unit = value / KILO, following
    return f"{value:.1f} {unit}"


def _table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Sequence[str],
    styles: Mapping[str, str] | None = None,
    *,
    narrow: bool = False,
) -> Table:
    """A table; in a narrow one the names of columns are wrapped, and nothing else."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name, *cells in zip(header, *rows, strict=True):
        table.add_column(
            name,
            justify="right" if name in numbers else "left",
            overflow="fold",
            width=max(map(len, [*name.split(), *cells])) if narrow else None,
        )
    for row in rows:
        table.add_row(*(_cell(text, styles or {}) for text in row))
    return table


def _cell(text: str, styles: Mapping[str, str]) -> Text:
    usual = "bold red" if text.startswith("0 of ") else ""
    return Text(printable(text), style=styles.get(text, usual))
