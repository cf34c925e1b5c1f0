"""Reports as text: styled and fitted to the width on a terminal, plain and unwrapped elsewhere.

Widths, wrapping and colors are done here, on `rich.cells`: which columns are left out, and that a number stays with its
unit, is decided before anything is drawn, and importing rich's console and tables takes 35 ms, a fifth of a merge.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.cells import cell_len

from tracelink.model.errors import PageText, printable
from tracelink.model.findings import Finding, Severity
from tracelink.model.text import both_ends, counted, number, shortened
from tracelink.show.cells import EMPTY, Column
from tracelink.show.document import (
    Block,
    Chart,
    Code,
    Details,
    Facts,
    Frames,
    Items,
    Medium,
    Only,
    Paragraph,
    Report,
    Section,
    Table,
    Tone,
)

UNWRAPPED = 100_000
"""Width of what goes to a file or a pipe."""
GAP = 2
"""Blanks between two columns, and before indented lines."""
LONGEST_CELL = 4096
"""Characters, as many as a path may have. All rows are as wide as the widest cell."""
NARROWEST = 16
"""Characters to which a text is shortened before columns are left out."""

_CODES = {Tone.STRONG: "1", Tone.ASIDE: "2", Tone.GOOD: "32", Tone.WARNING: "33", Tone.PROBLEM: "31"}
"""Of the terminal: bold, dim, green, yellow, red."""


def draw(report: Report, *, width: int = UNWRAPPED, styled: bool = False, verbose: bool = False) -> PageText:
    """Returns a report as text.

    Args:
        report: What is drawn.
        width: Characters of a line.
        styled: Whether it is for a terminal that shows colors and weights.
        verbose: Whether all rows, sections and findings are drawn.
    """
    page = Page(width, styled=styled, verbose=verbose)
    if report.headline:
        page.line(report.headline, Tone.STRONG)
    page.blocks(report.summary)
    for section in report.sections:
        page.section(section)
    page.findings(report.findings)
    return page.text


class Page:
    """Collects the lines of a text."""

    def __init__(self, width: int = UNWRAPPED, *, styled: bool = False, verbose: bool = False) -> None:
        self.width = width
        self._styled = styled
        self._verbose = verbose
        self._lines: list[str] = []

    @property
    def text(self) -> PageText:
        """The text, without a newline at the end."""
        return PageText("\n".join(self._lines).rstrip("\n"))

    def line(self, text: str = "", tone: Tone = Tone.PLAIN, *, path: str = "", indent: int = 0) -> None:
        """Adds a paragraph; it is wrapped between words, and not within the path that it contains."""
        for line in wrapped(printable(text), self.width - indent, printable(path)):
            self._add(" " * indent + self._toned(line, tone))

    def gap(self) -> None:
        """Adds an empty line, unless the page is empty or ends with one."""
        if self._lines and self._lines[-1]:
            self._lines.append("")

    def section(self, section: Section) -> None:
        """Adds the blocks of a section, after an empty line."""
        if section.verbose and not self._verbose:
            return
        before = len(self._lines)
        self.gap()
        start = len(self._lines)
        if section.titled:
            self.line(section.title, Tone.STRONG)
        titled = len(self._lines)
        self.blocks(section.blocks)
        if len(self._lines) == titled:
            del self._lines[before if start > before else start :]

    def blocks(self, blocks: Iterable[Block]) -> None:
        """Adds blocks."""
        for block in blocks:
            self._block(block)

    def _block(self, block: Block) -> None:
        match block:
            case Paragraph():
                self.line(block.text, block.tone, path=block.path, indent=block.indent)
            case Items():
                self._items(block)
            case Facts():
                self._facts(block.values)
            case Table():
                self._table(block)
            case Frames():
                self._frames(block)
            case Code():
                for line in block.text.splitlines():
                    self._add(" " * GAP + printable(line))
            case Chart():
                for line in block.lines:
                    self._add(printable(line))
            case Details() if self._verbose:
                self.line(block.summary, Tone.STRONG)
                self.blocks(block.blocks)
            case Only() if Medium.TERMINAL in block.media:
                self.blocks(block.made())

    def _add(self, line: str) -> None:
        self._lines.append(line.rstrip(" "))

    def _toned(self, text: str, tone: Tone) -> str:
        code = _CODES.get(tone)
        return f"\x1b[{code}m{text}\x1b[0m" if self._styled and code and text else text

    def _items(self, items: Items) -> None:
        shown = items.texts if self._verbose else items.texts[: items.brief]
        for text in shown:
            self.line(text)
        self._left_out(len(items.texts) - len(shown), items.thing)

    def _left_out(self, count: int, thing: str, things: str = "", option: str = "-v") -> None:
        if count > 0:
            self.line(more(count, thing, option, things=things), Tone.ASIDE)

    def _facts(self, values: Mapping[str, str]) -> None:
        widest = max(map(cell_len, values), default=0)
        for name, value in values.items():
            self.line(f"{_padded(name, widest)}{' ' * GAP}{value}")

    def _frames(self, stack: Frames) -> None:
        shown = stack.frames if self._verbose else stack.frames[: stack.brief]
        widest = max((cell_len(printable(place)) for place, _ in shown), default=0)
        for place, function in shown:
            self.line(f"{_padded(printable(place), widest)}{' ' * GAP}{function}", path=place, indent=GAP)
        self._left_out(len(stack.frames) - len(shown), "frame")

    # Tables

    def _table(self, table: Table) -> None:
        rows = table.rows if self._verbose or table.brief is None else table.rows[: table.brief]
        columns = table.columns_of(rows)
        if not columns:
            return
        kept, dropped = fitted(columns, self.width, from_right=table.from_right)
        if kept is None:
            self._paragraphs(columns)
        else:
            self._draw(kept, table.tones)
        if dropped and kept is not None:
            names = ", ".join(dropped)
            self.line(f"Left out at this width: {names}.", Tone.ASIDE)
        self._left_out(len(table.rows) - len(rows), table.thing, table.things, table.more)

    def _draw(self, columns: Sequence[Sized], tones: Mapping[str, Tone]) -> None:
        for line in _lines_of([column.heading_lines for column in columns]):
            self._row(columns, line, {}, Tone.STRONG)
        for number_of_row in range(len(columns[0].cells)):
            for line in _lines_of([column.cells[number_of_row] for column in columns]):
                self._row(columns, line, tones, Tone.PLAIN)

    def _row(
        self, columns: Sequence[Sized], texts: Sequence[str], tones: Mapping[str, Tone], tone: Tone
    ) -> None:
        cells = []
        for column, text in zip(columns, texts, strict=True):
            blanks = " " * (column.width - cell_len(text))
            toned = self._toned(text, tones.get(text, tone))
            cells.append(f"{blanks}{toned}" if column.right else f"{toned}{blanks}")
        self._add((" " * GAP).join(cells))

    def _paragraphs(self, columns: Sequence[Column]) -> None:
        """Each row as its first cell, and a paragraph of the other cells."""
        first, *others = columns
        for number_of_row, text in enumerate(first.cells):
            self.line(f"{first.heading} {text}", Tone.STRONG, path=text)
            cells = ((column.heading, column.cells[number_of_row]) for column in others)
            self.line(", ".join(f"{name} {cell}" for name, cell in cells if cell != EMPTY), indent=GAP)

    # Findings

    def findings(self, findings: Sequence[Finding]) -> None:
        """Adds a paragraph for each finding, errors first; notes are counted, unless the page is verbose.

        Inputs that were not read are listed.
        """
        for severity in (Severity.ERROR, Severity.WARNING, Severity.INFO):
            by_reason: dict[str, list[Finding]] = {}
            for finding in findings:
                if finding.severity is severity:
                    by_reason.setdefault(finding.reason, []).append(finding)
            hidden = 0
            for reason, similar in by_reason.items():
                if severity is Severity.INFO and not self._verbose and reason not in NOT_READ:
                    hidden += len(similar)
                else:
                    self._similar(similar)
            self._left_out(hidden, "note")

    def _similar(self, findings: Sequence[Finding]) -> None:
        severity = findings[0].severity
        for finding in findings[: None if self._verbose else SIMILAR]:
            self.line(paragraph(finding), TONES[severity], path=finding.source)
        if not self._verbose and len(findings) > SIMILAR:
            self.line(more(len(findings) - SIMILAR, f"similar {word_of(severity)}"), TONES[severity])


# Columns that fit.


class Sized:
    """A column with its width, its heading and cells in lines."""

    def __init__(self, column: Column, width: int, heading_lines: Sequence[str]) -> None:
        self.width = width
        self.right = column.right
        self.heading_lines = heading_lines
        self.cells = [wrapped(cell, width) if cell_len(cell) > width else [cell] for cell in column.cells]


def fitted(
    columns: Sequence[Column], width: int, *, from_right: bool = False
) -> tuple[list[Sized] | None, list[str]]:
    """The columns in the widths in which they fit, and the headings of those that are left out.

    Headings are wrapped first, then long texts are shortened, then columns are left out in their order, then texts are
    wrapped between words. None: not even that fits. `from_right` leaves out those without an order too, the last first.
    """
    clean = [column._replace(cells=[_clean(cell) for cell in column.cells]) for column in columns]
    places = [column.field.shown.drop for column in clean]
    order = sorted((index for index, place in enumerate(places) if place), key=places.__getitem__)
    order += [index for index in range(len(clean) - 1, 0, -1) if from_right and not places[index]]
    for count in range(len(order) + 1):
        dropped = frozenset(order[:count])
        kept = [column for index, column in enumerate(clean) if index not in dropped]
        for size_of in (_whole, _with_narrow_heading, _shortened):
            sized = [size_of(column) for column in kept]
            if _total(sized) <= width:
                return sized, [clean[index].heading for index in sorted(dropped)]
    return _with_wrapped_cells(kept, width), [clean[index].heading for index in sorted(dropped)]


def _clean(cell: str) -> str:
    return shortened(printable(cell), LONGEST_CELL)


def _total(columns: Sequence[Sized]) -> int:
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)


def _width(column: Column) -> int:
    return max(map(cell_len, column.cells), default=0)


def _whole(column: Column) -> Sized:
    heading = printable(column.heading)
    return Sized(column, max(_width(column), cell_len(heading)), [heading])


def _with_narrow_heading(column: Column) -> Sized:
    words = printable(column.heading).split()
    width = max([_width(column), *map(cell_len, words)])
    return Sized(column, width, wrapped(" ".join(words), width))


def _shortened(column: Column) -> Sized:
    """With texts that leave room for other columns: of a long one the start and the end."""
    if column.right or _width(column) <= column.field.shown.longest // 2:
        return _with_narrow_heading(column)
    most = max(column.field.shown.longest // 2, NARROWEST)
    return _with_narrow_heading(column._replace(cells=[both_ends(cell, most) for cell in column.cells]))


def _with_wrapped_cells(columns: Sequence[Column], width: int) -> list[Sized] | None:
    """Columns whose texts are wrapped between words, the widest first; None if a word is too wide."""
    texts = [[*printable(column.heading).split(), *column.cells] for column in columns]
    least = [
        max(cell_len(word) for cell in cells for word in ([cell] if column.right else cell.split() or [""]))
        for column, cells in zip(columns, texts, strict=True)
    ]
    widths = [max(map(cell_len, cells)) for cells in texts]
    room = width - GAP * (len(columns) - 1)
    if sum(least) > room:
        return None
    while sum(widths) > room:
        wider = (index for index in range(len(widths)) if widths[index] > least[index])
        widths[max(wider, key=widths.__getitem__)] -= 1
    return [
        Sized(column, size, wrapped(printable(column.heading), size))
        for column, size in zip(columns, widths, strict=True)
    ]


def _lines_of(cells: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """The lines of a row whose cells have several."""
    for line in range(max(map(len, cells))):
        yield [cell[line] if line < len(cell) else "" for cell in cells]


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def wrapped(text: str, width: int, path: str = "") -> list[str]:
    """The text in lines that are as wide as this, or a word or the path wide."""
    if cell_len(text) <= width:
        return [text]
    lines: list[str] = []
    word = rf"(?:{re.escape(path)}|\S)+" if path else r"\S+"
    line: list[str] = []
    used = 0
    for part in re.findall(rf"\s*{word}", text):
        if line and used + (added := cell_len(part)) <= width:
            used += added
        else:
            lines.append("".join(line))
            part = part.lstrip() if line else part
            line, used = [], cell_len(part)
        line.append(part)
    return [*lines[1:], "".join(line)]


# Sentences on findings, and on what is not shown.


TONES = {Severity.ERROR: Tone.PROBLEM, Severity.WARNING: Tone.WARNING, Severity.INFO: Tone.PLAIN}
NOT_READ = frozenset({"skipped", "other_format", "other_prefix", "duplicate_source"})
"""Reasons of notes that are shown without -v: an input was not read."""
SIMILAR = 3
"""Findings with one reason that are shown without -v; the rest are counted."""


def more(count: int, thing: str, option: str = "-v", *, things: str = "") -> str:
    """`4 more notes (-v shows them).`"""
    named = f"{number(count)} more {things}" if things and count != 1 else counted(count, f"more {thing}")
    return f"{named} ({option} shows {'it' if count == 1 else 'them'})."


def word_of(severity: Severity) -> str:
    """What people call a finding."""
    return "note" if severity is Severity.INFO else severity.value


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
    return f"{word_of(finding.severity)}: {source}{message}{example}"
