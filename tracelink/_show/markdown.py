"""Reports as Markdown, for comments on pull requests and issues: names in it have no effect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from tracelink._model.errors import printable
from tracelink._model.findings import Severity, in_order
from tracelink._model.text import counted
from tracelink._show.document import (
    Block,
    Code,
    Details,
    Facts,
    Frames,
    Heading,
    Items,
    Medium,
    Only,
    Paragraph,
    Report,
    Table,
)
from tracelink._show.terminal import paragraph

SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~@&$:-])")
"""What Markdown or HTML could take for markup, a mention or a link."""
MOST_ROWS = 20
"""Rows of a table: a comment is read, not searched."""
MOST_FINDINGS = 20


def draw(report: Report) -> str:
    """Returns a report as Markdown."""
    lines = [f"**{markdown_escaped(report.headline)}**", ""] if report.headline else []
    lines += _blocks(report.summary)
    for one in report.sections:
        if blocks := [] if one.verbose else _blocks(one.blocks):
            lines += [f"### {markdown_escaped(one.title)}", "", *blocks]
    noticed = [one for one in in_order(report.findings) if one.severity is not Severity.INFO]
    lines += [f"- {markdown_escaped(paragraph(one))}" for one in noticed[:MOST_FINDINGS]]
    return "\n".join(lines).rstrip() + "\n"


def markdown_escaped(text: str) -> str:
    """A text that Markdown shows as it is."""
    return SPECIAL.sub(r"\\\1", printable(text))


def _blocks(blocks: Iterable[Block]) -> list[str]:
    return [line for block in blocks for line in _drawn(block)]


def _drawn(block: Block) -> Iterator[str]:
    match block:
        case Paragraph():
            yield from (markdown_escaped(block.text), "")
        case Heading():
            yield from (f"#### {markdown_escaped(block.text)}", "")
        case Items() if block.texts:
            yield from (*(f"- {markdown_escaped(text)}" for text in block.texts), "")
        case Facts() if block.values:
            yield from (
                *(
                    f"- {markdown_escaped(name)}: {markdown_escaped(value)}"
                    for name, value in block.values.items()
                ),
                "",
            )
        case Table():
            yield from _table(block)
        case Frames() if block.frames:
            yield from _fenced(f"{place}  {function}" for place, function in block.frames)
        case Code():
            yield from _fenced(block.text.splitlines())
        case Details():
            yield from _blocks(block.blocks)
        case Only() if Medium.MARKDOWN in block.media:
            yield from _blocks(block.made())


def _fenced(lines: Iterator[str] | Sequence[str]) -> Iterator[str]:
    """Lines as they are; indented, so that nothing in them ends the block."""
    yield from (*(f"    {printable(line)}" for line in lines), "")


def _table(block: Table) -> Iterator[str]:
    columns = block.columns_of(block.rows[:MOST_ROWS])
    if not columns:
        return
    yield from markdown_table(
        [markdown_escaped(column.heading) for column in columns],
        zip(*([markdown_escaped(cell) for cell in column.cells] for column in columns), strict=True),
        [column.right for column in columns],
    )
    yield ""
    hidden = len(block.rows) - MOST_ROWS
    if hidden > 0:
        yield from (f"{counted(hidden, f'more {block.thing}')}.", "")


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[bool] = ()
) -> list[str]:
    """The lines of a table; its cells are Markdown."""
    marks = [" ---: " if one else " --- " for one in right or [False] * len(header)]
    return [
        f"| {' | '.join(header)} |",
        f"|{'|'.join(marks)}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
