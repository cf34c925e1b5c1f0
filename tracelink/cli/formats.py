"""`tracelink formats`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from tracelink import plugins
from tracelink.cli.failures import FINE, NO
from tracelink.cli.options import command
from tracelink.cli.page import Page
from tracelink.cli.voice import Voice
from tracelink.errors import TraceError
from tracelink.plugins import Conversion, Files, Plugin, Reader, Writer

Format = TypeVar("Format")
Row = dict[str, Any]


@command("tracelink formats", "tracelink formats --json | jq -r '.writers[].name'")
def formats(voice: Voice) -> None:
    """List the readers, writers and conversions that are installed."""
    readers, broken = _described(plugins.readers(), _reader)
    writers, also_broken = _described(plugins.writers(), _writer)
    conversions, broken_too = _described(plugins.conversions(), _conversion)
    if voice.json:
        voice.document({"readers": readers, "writers": writers, "conversions": conversions})
    else:
        voice.say(_listing(readers, writers, conversions))
    for error in (errors := broken + also_broken + broken_too):
        voice.complain(str(error))
    click.get_current_context().exit(NO if errors else FINE)


def _described(
    installed: Mapping[str, Plugin[Format]], describe: Callable[[Format], Row]
) -> tuple[list[Row], list[TraceError]]:
    """What can be loaded, and why the rest cannot."""
    rows: list[Row] = []
    broken: list[TraceError] = []
    for name, plugin in installed.items():
        try:
            rows.append({"name": name, "origin": plugin.origin, **describe(plugin.load())})
        except TraceError as error:
            broken.append(error)
    return rows, broken


def _reader(reader: Reader) -> Row:
    return {"summary": reader.summary}


def _writer(writer: Writer) -> Row:
    return {
        "summary": writer.summary,
        "suffixes": list(writer.suffixes),
        "one_file_per_rank": writer.files != Files.ONE,
    }


def _conversion(conversion: Conversion) -> Row:
    return {
        "summary": conversion.summary,
        "reads": list(conversion.reads),
        "suffixes": list(conversion.suffixes),
    }


def _listing(readers: list[Row], writers: list[Row], conversions: list[Row]) -> str:
    page = Page()
    page.entries(
        ("reads", "what it is", "comes from"),
        [(row["name"], row["summary"], row["origin"]) for row in readers],
    )
    page.line()
    page.entries(
        ("writes", "what it is", "file names", "comes from"),
        [(row["name"], row["summary"], " ".join(row["suffixes"]), row["origin"]) for row in writers],
    )
    if conversions:
        page.line()
        page.entries(
            ("converts to", "from", "what it is", "file names", "comes from"),
            [
                (
                    row["name"],
                    " ".join(row["reads"]),
                    row["summary"],
                    " ".join(row["suffixes"]),
                    row["origin"],
                )
                for row in conversions
            ],
        )
    return page.text
