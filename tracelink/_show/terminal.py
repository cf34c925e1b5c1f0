"""Reports as text: styled and fitted to the width on a terminal, plain and unwrapped elsewhere.

Widths, wrapping and colors are done here, on `rich.cells`: which columns are left out, and that a number stays with its
unit, is decided before anything is drawn, and importing rich's console and tables takes 35 ms, a fifth of a merge.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len

from tracelink._model.errors import PageText, printable
from tracelink._model.fields import PATH, Unit
from tracelink._model.findings import Finding, Severity
from tracelink._model.text import both_ends, counted, number, shortened
from tracelink._show.cells import BLOCKS, EMPTY, Column
from tracelink._show.document import (
    Block,
    Chart,
    Code,
    Details,
    Facts,
    Frames,
    Heading,
    Items,
    Legend,
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

ASCII_BLOCKS = str.maketrans(BLOCKS, "#=-.")
"""Of bars where a terminal, or a file, may not have blocks."""

_CODES = {Tone.STRONG: "1", Tone.ASIDE: "2", Tone.GOOD: "32", Tone.WARNING: "33", Tone.PROBLEM: "31"}
"""Of the terminal: bold, dim, green, yellow, red."""


def draw(
    report: Report,
    *,
    width: int = UNWRAPPED,
    styled: bool = False,
    verbose: bool = False,
    blocks: bool = False,
) -> PageText:
    """Returns a report as text.

    Args:
        report: What is drawn.
        width: Characters of a line.
        styled: Whether it is for a terminal that shows colors and weights.
        verbose: Whether all rows, sections and findings are drawn.
        blocks: Whether bars are drawn with BLOCKS, not with characters of ASCII.
    """
    page = Page(width, styled=styled, verbose=verbose, blocks=blocks)
    if report.headline:
        page.line(report.headline, Tone.STRONG, report.tone)
    page.blocks(report.summary)
    for section in report.sections:
        page.section(section)
    page.findings(report.findings)
    return page.text


class Page:
    """Collects the lines of a text."""

    def __init__(
        self,
        width: int = UNWRAPPED,
        *,
        styled: bool = False,
        verbose: bool = False,
        blocks: bool = False,
    ) -> None:
        self.width = width
        self._of_blocks = {} if blocks else ASCII_BLOCKS
        self._styled = styled
        self._verbose = verbose
        self._lines: list[str] = []

    @property
    def text(self) -> PageText:
        """The text, without a newline at the end."""
        return PageText("\n".join(self._lines).rstrip("\n"))

    def line(self, text: str = "", *tones: Tone, path: str = "", indent: int = 0) -> None:
        """Adds a paragraph; it is wrapped between words, and not within the path that it contains."""
        for line in wrapped(printable(text), self.width - indent, printable(path)):
            self._add(" " * indent + self._toned(line, *tones))

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
            case Heading():
                self.gap()
                self.line(block.text, Tone.STRONG)
            case Items():
                self._items(block)
            case Facts():
                self._facts(block.values)
            case Table():
                self._table(block)
            case Legend():
                parts = (f"{glyph} {name}" for glyph, name in zip(BLOCKS, block.parts, strict=False))
                self._add(f"{block.title}: {'  '.join(parts)}".translate(self._of_blocks))
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

    def _toned(self, text: str, *tones: Tone) -> str:
        code = ";".join(_CODES[tone] for tone in tones if tone in _CODES)
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
        rows = self._shown(table)
        columns = [self._in_glyphs(column) for column in table.columns_of(rows)]
        if not columns:
            return
        kept, dropped = fitted(columns, self.width, from_right=table.from_right)
        if table.narrow and (dropped or kept is None):
            self._table(table.narrow)
            return
        if kept is None:
            self._paragraphs(columns)
        else:
            self._draw(kept, table.tones)
        if dropped and kept is not None:
            names = ", ".join(dropped)
            self.line(f"Left out at this width: {names}.", Tone.ASIDE)
        self._left_out(len(table.rows) - len(rows), table.thing, table.things, table.more)

    def _shown(self, table: Table) -> Sequence[Any]:
        if table.brief is None or (self._verbose and table.more == "-v"):
            return table.rows
        if isinstance(table.brief, int):
            return table.rows[: table.brief]
        return [table.rows[index] for index in table.brief]

    def _in_glyphs(self, column: Column) -> Column:
        if column.field.unit is not Unit.PARTS:
            return column
        return column._replace(cells=[cell.translate(self._of_blocks) for cell in column.cells])

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
            if hidden:
                self.line(more(hidden, "note", all_of_them=hidden == len(findings)), Tone.ASIDE)

    def _similar(self, findings: Sequence[Finding]) -> None:
        severity = findings[0].severity
        for finding in findings[: None if self._verbose else SIMILAR]:
            self.line(paragraph(finding), TONES[severity], path=finding.source)
        if not self._verbose and len(findings) > SIMILAR:
            self.line(more(len(findings) - SIMILAR, f"similar {word_of(severity)}"), TONES[severity])


# Columns that fit.


class Sized:
    """A column with its width, its heading and cells in lines."""

    def __init__(self, column: Column, width: int, *, wrapping: bool = False) -> None:
        self.width = width
        self.right = column.right
        self.heading_lines = wrapped(" ".join(printable(column.heading).split()), width)
        self.cells = [
            wrapped(cell, width) if wrapping and cell_len(cell) > width else [_short(cell, width)]
            for cell in column.cells
        ]


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
        for least in (_whole, _with_narrow_heading, _shortened):
            widths = [least(column) for column in kept]
            spare = width - sum(widths) - GAP * (len(widths) - 1)
            if spare >= 0:
                sized = map(Sized, kept, _widened(kept, widths, spare))
                return list(sized), [clean[index].heading for index in sorted(dropped)]
    return _with_wrapped_cells(kept, width), [clean[index].heading for index in sorted(dropped)]


def _clean(cell: str) -> str:
    return shortened(printable(cell), LONGEST_CELL)


def _width(column: Column) -> int:
    return max(map(cell_len, column.cells), default=0)


def _whole(column: Column) -> int:
    return max(_width(column), cell_len(printable(column.heading)))


def _with_narrow_heading(column: Column) -> int:
    return max([_width(column), *map(cell_len, printable(column.heading).split())])


def _shortened(column: Column) -> int:
    """With texts that leave room for other columns."""
    if column.right or _width(column) <= column.field.shown.longest // 2:
        return _with_narrow_heading(column)
    least = max(column.field.shown.longest // 2, NARROWEST)
    return max([least, *map(cell_len, printable(column.heading).split())])


def _short(cell: str, width: int) -> str:
    """The start and the end of a text that is wider than this."""
    if cell_len(cell) <= width:
        return cell
    most = next(most for most in range(width, 0, -1) if cell_len(both_ends(cell, most)) <= width)
    return both_ends(cell, most)


def _widened(columns: Sequence[Column], widths: Sequence[int], spare: int) -> list[int]:
    """The widths with what is spare: first for texts that are shortened, then for the headings of most lines."""
    found = list(widths)
    for index, column in enumerate(columns):
        added = min(spare, max(_width(column) - found[index], 0))
        found[index] += added
        spare -= added
    headings = [" ".join(printable(column.heading).split()) for column in columns]
    while spare > 0:
        lines = [len(wrapped(heading, width)) for heading, width in zip(headings, found, strict=True)]
        tallest = lines.index(max(lines))
        heading, width = headings[tallest], found[tallest]
        wider = range(width + 1, min(width + spare, cell_len(heading)) + 1)
        least = next((one for one in wider if len(wrapped(heading, one)) < lines[tallest]), None)
        if least is None:
            break
        found[tallest] = least
        spare -= least - width
    return found


def _with_wrapped_cells(columns: Sequence[Column], width: int) -> list[Sized] | None:
    """Columns whose texts are wrapped between words, the widest first; None if a word is too wide."""
    texts = [[*printable(column.heading).split(), *column.cells] for column in columns]
    least = [
        max(
            cell_len(word)
            for cell in cells
            for word in ([cell] if _is_whole(column) else cell.split() or [""])
        )
        for column, cells in zip(columns, texts, strict=True)
    ]
    widths = [max(map(cell_len, cells)) for cells in texts]
    room = width - GAP * (len(columns) - 1)
    if sum(least) > room:
        return None
    while sum(widths) > room:
        wider = (index for index in range(len(widths)) if widths[index] > least[index])
        widths[max(wider, key=widths.__getitem__)] -= 1
    return [Sized(column, size, wrapping=True) for column, size in zip(columns, widths, strict=True)]


def _is_whole(column: Column) -> bool:
    """Whether its cells are not wrapped: numbers, and paths, which people copy."""
    return column.right or column.field.shown.longest >= PATH


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


def more(count: int, thing: str, option: str = "-v", *, things: str = "", all_of_them: bool = False) -> str:
    """`4 more notes (-v shows them).`, or `4 notes` if none is shown."""
    which = "" if all_of_them else "more "
    named = f"{number(count)} {which}{things}" if things and count != 1 else counted(count, f"{which}{thing}")
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
