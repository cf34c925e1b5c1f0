"""Output for people: pages with tables, the progress bar, findings and exit codes."""

from __future__ import annotations

import glob
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tracelink.cli.console import Console, canvas, is_terminal, progress_canvas
from tracelink.cli.main import FINE, NO, UNREADABLE
from tracelink.io.remote.addresses import WEB, is_remote, scheme_of
from tracelink.model.errors import PageText, TraceError, printable
from tracelink.model.findings import Finding, Severity
from tracelink.model.text import number, shortened

if TYPE_CHECKING:
    from rich.progress import Progress

    from tracelink.model.trace import SourceInfo


# Pages: styled and fitted to the width on a terminal, plain and unwrapped elsewhere.


UNWRAPPED = 100_000
"""Width of a page that goes to a file or a pipe."""

EMPTY = "-"
"""A cell without a value."""

INDENT = 2
"""Blanks before indented lines."""

GAP = 2
"""Blanks between two columns."""

TRAILING = re.compile(r"(?<! ) +((?:\x1b\[[0-9;]*m)*)$")
"""Blanks at the end of a line, before the end of its style; from the first on, or long lines take quadratic time."""

LONGEST_CELL = 4096
"""Characters, as many as a path may have. All rows are as wide as the widest cell."""


class Page:
    """Collects lines and tables as text."""

    def __init__(self, *, to_stderr: bool = False) -> None:
        terminal = is_terminal(stderr=to_stderr)
        width = shutil.get_terminal_size().columns if terminal else UNWRAPPED
        self._console, self._lines = canvas(width, styled=terminal)

    @property
    def width(self) -> int:
        """Characters of a line."""
        return self._console.width

    def line(self, text: str = "", style: str = "", *, path: str = "", indent: int = 0) -> None:
        """Adds a paragraph; it is wrapped between words, and not within the path that it contains."""
        for line in _wrapped(printable(text), self.width - indent, printable(path)):
            self._console.print(Text(" " * indent + line, style=style), soft_wrap=True)

    def gap(self) -> None:
        """Adds an empty line, unless the page is empty or ends with one."""
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
        """Adds a table; the columns `numbers` are aligned right, and `styles` maps texts of cells to styles.

        If the table is too wide, the `optional` columns are left out, in this order, until it fits; then cells are
        wrapped between words, and then each row becomes a paragraph. No word is broken.
        """
        for count in range(len(optional) + 1):
            kept = [index for index, name in enumerate(header) if name not in optional[:count]]
            names, cells = [header[index] for index in kept], [[row[index] for index in kept] for row in rows]
            for narrow in (False, True):
                table = _table(names, cells, numbers, styles, narrow=narrow)
                if self._fits(table):
                    self._console.print(table)
                    return
        if widths := _widths(names, cells, self.width):
            self._console.print(_table(names, cells, numbers, styles, widths=widths))
        else:
            self._paragraphs(names, cells, label=f"{names[0]} ")

    def beneath(self, rows: Sequence[Sequence[str]]) -> None:
        """Adds indented rows without a header."""
        if not rows:
            return
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        for _ in rows[0]:
            table.add_column(overflow="fold")
        for row in rows:
            table.add_row(*(Text(shortened(printable(text), LONGEST_CELL)) for text in row))
        if self._fits(table, indent=INDENT):
            self._console.print(Padding(table, (0, 0, 0, INDENT), expand=False))
            return
        for row in rows:
            self.line((" " * GAP).join(row), path=row[0], indent=INDENT)

    def entries(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        numbers: Sequence[str] = (),
        optional: Sequence[str] = (),
    ) -> None:
        """Adds a table without the first `optional` columns if it is too wide, else a paragraph for each row."""
        for count in range(len(optional) + 1):
            kept = [index for index, name in enumerate(header) if name not in optional[:count]]
            table = _table(
                [header[index] for index in kept], [[row[index] for index in kept] for row in rows], numbers
            )
            if self._fits(table):
                self._console.print(table)
                return
        self._paragraphs(header, rows)

    def _paragraphs(self, header: Sequence[str], rows: Sequence[Sequence[str]], *, label: str = "") -> None:
        """Each row as its first cell, and a paragraph of the other cells."""
        for first, *others in rows:
            if first:
                self.line(f"{label}{first}", "bold", path=first)
            cells = zip(header[1:], others, strict=True)
            details = ", ".join(f"{name} {text}" for name, text in cells if text not in ("", EMPTY))
            self.line(details, indent=INDENT)

    def _fits(self, table: Table, *, indent: int = 0) -> bool:
        unwrapped = self._console.options.update(width=UNWRAPPED)
        return self._console.measure(table, options=unwrapped).maximum + indent <= self._console.width

    @property
    def text(self) -> PageText:
        """The text of the page, without a newline at the end."""
        lines = (TRAILING.sub(r"\1", line) for line in self._lines.getvalue().splitlines())
        return PageText("\n".join(lines).rstrip("\n"))


def _wrapped(text: str, width: int, path: str = "") -> list[str]:
    """The text in lines that are as wide as this, or a word or the path wide."""
    lines: list[str] = []
    word = rf"(?:{re.escape(path)}|\S)+" if path else r"\S+"
    line: list[str] = []
    used = 0
    for part in re.findall(rf"\s*{word}", text):
        if line and used + (more := cell_len(part)) <= width:
            used += more
        else:
            lines.append("".join(line))
            part = part.lstrip() if line else part
            line, used = [], cell_len(part)
        line.append(part)
    return [*lines[1:], "".join(line)]


def _widths(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """The widths of columns that are wrapped between words to fit, the widest first; None if a word is too wide."""
    columns = list(zip(header, *rows, strict=True))
    least = [max(cell_len(word) for text in column for word in text.split() or [""]) for column in columns]
    widths = [max(map(cell_len, column)) for column in columns]
    room = width - GAP * (len(columns) - 1)
    if sum(least) > room:
        return None
    while sum(widths) > room:
        widest = max(
            (index for index in range(len(widths)) if widths[index] > least[index]), key=widths.__getitem__
        )
        widths[widest] -= 1
    return widths


def _table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Sequence[str],
    styles: Mapping[str, str] | None = None,
    *,
    narrow: bool = False,
    widths: Sequence[int] = (),
) -> Table:
    """A table; `narrow` wraps headings, and only these."""
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for index, (name, *cells) in enumerate(zip(header, *rows, strict=True)):
        narrowest = max(map(cell_len, [*name.split(), *cells])) if narrow else None
        table.add_column(
            name,
            justify="right" if name in numbers else "left",
            overflow="fold",
            width=widths[index] if widths else narrowest,
        )
    for row in rows:
        table.add_row(*(_cell(text, styles or {}) for text in row))
    return table


def _cell(text: str, styles: Mapping[str, str]) -> Text:
    default = "bold red" if text.startswith("0 of ") else ""
    return Text(shortened(printable(text), LONGEST_CELL), style=styles.get(text, default))


# The progress bar, on a terminal.


PATIENCE = 1.0
"""Seconds before a bar appears."""

INTERVAL = 0.1
"""Seconds between two updates of the bar."""

COMPRESSED = (b"\x1f\x8b", b"PK")
PACKED = (".gz", ".tgz", ".zip")


@contextmanager
def watching(console: Console, paths: Sequence[str]) -> Iterator[Bar | None]:
    """A bar to call with the number of bytes read or written so far; None if no one would see it."""
    if console.quiet or not is_terminal(stderr=True) or (console.json and is_terminal()):
        yield None
        return
    bar = Bar(paths)
    try:
        yield bar
    finally:
        bar.end()


class Bar:
    """A progress bar of bytes: first of reading, then of writing."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._began = self._shown = time.monotonic()
        self._done = 0
        self._restarted = False
        """True if bytes are counted from 0 again: reading is complete."""
        self._reading = True
        self._read = 0
        """Bytes that were counted before writing started."""
        self._progress: Progress | None = None

    def __call__(self, done: int) -> None:
        """Shows the number of bytes done."""
        now = time.monotonic()
        self._restarted |= done < self._done
        self._done = done
        if now - self._began < PATIENCE or now - self._shown < INTERVAL:
            return
        self._shown = now
        progress = self._progress = self._progress or self._started()
        (task,) = progress.tasks
        if self._restarted:
            progress.reset(task.id, description="writing")
            task.total, task.start_time = None, self._began
            self._restarted = False
        if task.total and done > task.total:
            task.total = None  # the sources are larger than their files
        progress.update(task.id, completed=done - self._read)
        progress.refresh()

    def _started(self) -> Progress:
        """A bar without a thread of its own, which would keep the engine from forking."""
        from rich import progress as parts

        progress = parts.Progress(
            parts.TextColumn("{task.description}"),
            parts.BarColumn(),
            parts.TaskProgressColumn(),
            parts.FileSizeColumn(),
            parts.TransferSpeedColumn(),
            parts.TimeElapsedColumn(),
            console=progress_canvas(),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            get_time=time.monotonic,
        )
        if self._reading:
            task = progress.add_task("reading", total=total_bytes(self._paths))
        else:
            task = progress.add_task("writing", total=None)
        progress.tasks[task].start_time = self._began
        progress.start()
        return progress

    def now_writing(self) -> None:
        """Removes the bar of reading, so that messages can be printed before writing."""
        self.end()
        self._reading = False
        self._read = self._done
        self._began = time.monotonic()

    def end(self) -> None:
        """Removes the bar."""
        if self._progress:
            self._progress.stop()
            self._progress = None


def total_bytes(paths: Sequence[str]) -> int | None:
    """The size of the inputs; None if it is unknown before they are read."""
    total = 0
    for path in paths:
        if is_remote(path):
            found = _remote_bytes(path)
            if found is None:
                return None
            total += found
            continue
        matches = (
            [Path(path)]
            if Path(path).exists()
            else [Path(match) for match in glob.glob(path, recursive=True)]
        )
        files = [file for match in matches for file in (match.rglob("*") if match.is_dir() else [match])]
        sizes = [_plain_size(file) for file in files if not file.is_dir()]
        if not sizes or None in sizes:
            return None
        total += sum(size for size in sizes if size is not None)
    return total


def _remote_bytes(url: str) -> int | None:
    """The size of objects that are not compressed by their names; None if it is unknown without reading each."""
    from tracelink.io.remote.listing import found_at

    try:
        entries = found_at(url).entries if scheme_of(url) not in WEB else []
    except TraceError:
        return None
    if not entries or any(entry.url.endswith(PACKED) or entry.bytes < 0 for entry in entries):
        return None
    return sum(entry.bytes for entry in entries)


def _plain_size(file: Path) -> int | None:
    if not file.is_file():
        return None  # reading from a pipe would consume it
    try:
        with file.open("rb") as stream:
            compressed = stream.read(2) in COMPRESSED
    except OSError:
        return None
    return None if compressed else file.stat().st_size


# Findings, and the exit codes that follow from them.


STYLES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: ""}
NOT_READ = frozenset({"skipped", "other_format", "other_prefix", "duplicate_source"})
"""Reasons of notes that are shown without -v: an input was not read."""
SHOWN = 3
"""Findings with one reason that are shown without -v; the rest are counted."""


def exit_code(sources: Sequence[SourceInfo], findings: Sequence[Finding]) -> int:
    """The exit code of a command that read `sources` with these findings."""
    if not sources:
        return UNREADABLE
    return NO if any(finding.severity is Severity.ERROR for finding in findings) else FINE


def print_errors(console: Console, findings: Sequence[Finding]) -> None:
    """Prints the errors among the findings to standard error, even with --quiet."""
    for finding in findings:
        if finding.severity is Severity.ERROR:
            console.error(paragraph(finding))


def show_findings(page: Page, findings: Sequence[Finding], *, verbose: bool) -> None:
    """One paragraph for each finding, errors first; notes (severity info) are counted, unless `verbose`.

    Inputs that were not read are listed.
    """
    for severity in (Severity.ERROR, Severity.WARNING, Severity.INFO):
        by_reason: dict[str, list[Finding]] = {}
        for finding in findings:
            if finding.severity is severity:
                by_reason.setdefault(finding.reason, []).append(finding)
        counted = severity is Severity.INFO and not verbose
        for reason, similar in by_reason.items():
            if not counted or reason in NOT_READ:
                _show_similar(page, similar, len(similar) if verbose else SHOWN)
        if notes := sum(len(some) for reason, some in by_reason.items() if reason not in NOT_READ) * counted:
            page.line(more(notes, "note"), "dim")


def _show_similar(page: Page, findings: Sequence[Finding], shown: int) -> None:
    severity = findings[0].severity
    for finding in findings[:shown]:
        page.line(paragraph(finding), STYLES[severity], path=finding.source)
    if (rest := len(findings) - shown) > 0:
        word = "note" if severity is Severity.INFO else severity
        page.line(more(rest, f"similar {word}"), STYLES[severity])


def more(count: int, thing: str, option: str = "-v", *, where: str = "") -> str:
    """`4 more notes (-v shows them).`"""
    things = f"{thing}{'' if count == 1 else 's'}{f' {where}' if where else ''}"
    return f"{number(count)} more {things} ({option} shows {'it' if count == 1 else 'them'})."


def paragraph(finding: Finding) -> str:
    """A finding as one paragraph; its source, count and example only if the message does not contain them."""
    message = " ".join(finding.message.split())
    source = f"{finding.source}: " if finding.source and finding.source not in message else ""
    count = number(finding.count)
    has_count = finding.count == 1 or re.search(rf"(?<![\d,.]){re.escape(count)}(?![,.]?\d)", message)
    if not has_count:
        message = f"{message.rstrip('.')} ({count} times)."
    example = ""
    if finding.example and finding.example not in message:
        message, example = f"{message.rstrip('.')}.", f" For example: {finding.example}"
    severity = "note" if finding.severity is Severity.INFO else finding.severity
    return f"{severity}: {source}{message}{example}"
