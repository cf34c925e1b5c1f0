"""The document that every answer is for people: a headline, facts, sections of blocks, and findings.

A room makes one `Report` of its result; `terminal`, `html` and `markdown` draw it. Nothing here knows a medium.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct

from tracelink._model.fields import fields_of
from tracelink._model.findings import Finding
from tracelink._show.cells import Column, column_of
from tracelink._show.markup import Child


class Tone(StrEnum):
    """What a text is to its reader."""

    PLAIN = ""
    STRONG = "strong"
    ASIDE = "aside"
    GOOD = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Medium(StrEnum):
    """Where a report is drawn."""

    TERMINAL = "terminal"
    HTML = "html"
    MARKDOWN = "markdown"


class Paragraph(Struct, frozen=True):
    """A text of its own lines."""

    text: str
    tone: Tone = Tone.PLAIN
    path: str = ""
    """A part of the text that is not wrapped."""
    indent: int = 0


class Heading(Struct, frozen=True):
    """The title of the blocks that follow it in a section."""

    text: str


class Items(Struct, frozen=True):
    """Short texts, each with an item of its own."""

    texts: Sequence[str]
    brief: int | None = None
    """How many a terminal shows without -v; None: all."""
    thing: str = "note"


class Facts(Struct, frozen=True):
    """Names with their values."""

    values: Mapping[str, str]


class Table(Struct, frozen=True):
    """Rows of one class; the declarations of its fields say how they are shown.

    Columns that are empty in every row are left out.
    """

    rows: Sequence[Any]
    title: str = ""
    columns: Sequence[str] = ()
    """The names of the fields that are shown, in order; by default all that are not hidden."""
    headings: Mapping[str, str] = {}
    """Headings that differ from those of the declaration."""
    brief: int | Sequence[int] | None = None
    """Rows that a terminal shows without -v: how many of the first, or which; None: all."""
    thing: str = "row"
    """What a row is, for the sentence on rows that are not shown."""
    things: str = ""
    more: str = "-v"
    """The option that shows all rows."""
    place: Callable[[Any], str] | None = None
    """The command that shows a row in a timeline."""
    tones: Mapping[str, Tone] = {}
    """Texts of cells that are to be noticed."""
    drawn: Mapping[str, Callable[[Any], Child]] = {}
    """What a page has in the cells of a field instead of their text, such as links; it shows a hidden field, too."""
    together: Sequence[str] = ()
    """Fields whose numbers share one unit, so that parts of a whole can be compared."""
    from_right: bool = False
    """Whether columns without an order are left out of a narrow terminal too, the last ones first."""
    zero_ns: int | None = None
    """The instant from which times are counted; None: times are dates."""
    most: int = 500
    """Rows of a page."""
    narrow: Table | None = None
    """What a terminal shows instead if the columns do not fit."""

    def columns_of(self, rows: Sequence[Any], *, page: bool = False) -> list[Column]:
        """The columns of some rows that have any value; a page has those that it draws, too."""
        if not self.rows:
            return []
        fields = fields_of(type(self.rows[0]))
        names = self.columns or [
            name for name, field in fields.items() if field.is_column and not field.shown.hidden
        ]
        names = [*names, *(name for name in self.drawn if page and name not in names)]
        values = {name: [getattr(row, name) for row in rows] for name in names}
        most = max((abs(value) for name in self.together for value in values[name] if value), default=0)
        made = [
            column_of(
                fields[name],
                values[name],
                heading=self.headings.get(name, ""),
                most=most if name in self.together else 0,
                zero_ns=self.zero_ns,
            )
            for name in names
        ]
        return [column for column in made if not column.empty]


class Legend(Struct, frozen=True):
    """What the parts of the bars in a table are; for a terminal."""

    title: str
    parts: Sequence[str]


class Frames(Struct, frozen=True):
    """The frames of a stack, the innermost first: where each is, and its function."""

    frames: Sequence[tuple[str, str]]
    brief: int | None = None


class Code(Struct, frozen=True):
    """A text of a program, a command or a file, with its lines as they are."""

    text: str
    title: str = ""


class Chart(Struct, frozen=True):
    """A picture, and what a medium without pictures shows instead."""

    svg: str | Callable[[], str]
    """A function is called by media that have pictures only."""
    title: str
    note: str = ""
    lines: Sequence[str] = ()
    """For a terminal."""


class Details(Struct, frozen=True):
    """Blocks that a page folds until they are wanted; a terminal shows them with -v."""

    summary: str
    blocks: Sequence[Block]
    open: bool = False


class Only(Struct, frozen=True):
    """Blocks for some media."""

    media: Sequence[Medium]
    blocks: Sequence[Block] | Callable[[], Iterable[Block]]
    """A function makes them one by one, as one of these media is drawn: long pages are never in memory as a whole."""

    def made(self) -> Iterable[Block]:
        """The blocks."""
        return self.blocks() if callable(self.blocks) else self.blocks


class Element(Struct, frozen=True):
    """Markup of a page that no other medium has, such as a picture that answers to the mouse."""

    child: Child


Block = (
    Paragraph | Heading | Items | Facts | Table | Legend | Frames | Code | Chart | Details | Only | Element
)


class Section(Struct, frozen=True):
    """Blocks with a title; without blocks it is left out."""

    title: str
    blocks: Sequence[Block]
    anchor: str = ""
    """Of links to it; by default made of the title."""
    verbose: bool = False
    """Whether a terminal shows it with -v only."""
    titled: bool = False
    """Whether a terminal shows the title: where the table below does not say what it is."""


class Report(Struct, frozen=True):
    """What an answer says, in the order of importance."""

    command: str
    """The command that made it."""
    headline: str = ""
    """The answer in one sentence."""
    tone: Tone = Tone.PLAIN
    summary: Sequence[Block] = ()
    """What belongs to the answer: further sentences, and what they are based on."""
    sections: Sequence[Section] = ()
    findings: Sequence[Finding] = ()
    """What did not fit in the inputs."""
    assets: str = ""
    """The package with `style.css` and `script.js` of elements that only this page has."""
