"""`tracelink formats` and `tracelink completion`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import click
from click.shell_completion import get_completion_class

import tracelink.plugins as plugins
from tracelink._model.errors import TraceError, UsageError
from tracelink._model.fields import Doc, Row, Shown, Text
from tracelink._model.results import Result
from tracelink._model.text import capitalized, counted
from tracelink._show.document import Report, Section, Table
from tracelink.cli.answer import print_answer, takes_output
from tracelink.cli.console import Console
from tracelink.cli.main import FINE, NO, main
from tracelink.cli.options import Words, command
from tracelink.plugins import Files, Format

# `tracelink formats`.

OWN = "torch-tracelink"
"""The distribution whose name is not shown."""
SUMMARY = 160
"""Characters of a description."""

Suffixes = Annotated[Sequence[str], Shown("file names")]


class ReadFormat(Row, frozen=True):
    """A format that can be read."""

    name: Text
    origin: Annotated[
        str, Doc("The distribution that the plugin comes from, with its version."), Shown("package")
    ]
    summary: Annotated[str, Shown("description", longest=SUMMARY)]


class WrittenFormat(ReadFormat, frozen=True):
    """A format that can be written."""

    suffixes: Suffixes
    one_file_per_rank: bool


class ConvertedFormat(ReadFormat, frozen=True):
    """A format that files of other formats can be rewritten as, with everything in them."""

    reads: Annotated[
        Sequence[str], Doc("The formats that it takes, by the names of their readers."), Shown("from")
    ]
    suffixes: Suffixes


class Formats(Result, frozen=True):
    """The installed readers, writers and conversions."""

    readers: Sequence[ReadFormat]
    writers: Sequence[WrittenFormat]
    conversions: Sequence[ConvertedFormat]

    drawn_by = "tracelink.cli.formats"

    @classmethod
    def of(cls, known: Sequence[tuple[Format, str]]) -> Formats:
        """Returns the declarations of these formats, each with its distribution."""
        return cls(
            [ReadFormat(one.name, origin, one.reader.summary) for one, origin in known if one.reader],
            [
                WrittenFormat(
                    one.name,
                    origin,
                    one.writer.summary,
                    list(one.writer.suffixes),
                    one_file_per_rank=one.writer.files not in (Files.ONE, Files.FOLDER),
                )
                for one, origin in known
                if one.writer
            ],
            [
                ConvertedFormat(
                    one.name,
                    origin,
                    one.conversion.summary,
                    list(one.conversion.reads),
                    list(one.conversion.suffixes),
                )
                for one, origin in known
                if one.conversion
            ],
        )


COLUMNS = ("name", "summary", "suffixes")


def report_of(formats: Formats) -> Report:
    """A table of each kind of formats; with the package of each row, if any is another one."""
    tables: Mapping[str, tuple[Sequence[ReadFormat], Sequence[str]]] = {
        "reads": (formats.readers, COLUMNS[:2]),
        "writes": (formats.writers, COLUMNS),
        "converts to": (formats.conversions, ("name", "reads", "summary", "suffixes")),
    }
    sections = []
    for title, (rows, columns) in tables.items():
        foreign = any(not row.origin.startswith(f"{OWN} ") for row in rows)
        shown = (*columns, "origin") if foreign else columns
        table = Table(rows, columns=shown, headings={"name": title}, thing="format")
        sections.append(Section(capitalized(title), [table]))
    counts = (
        counted(len(formats.readers), "reader"),
        counted(len(formats.writers), "writer"),
        counted(len(formats.conversions), "conversion"),
    )
    return Report("formats", ", ".join(counts), sections=sections)


@command(
    "tracelink formats",
    "tracelink formats -o formats.md",
    "tracelink formats --json | jq -r '.writers[].name'",
)
@takes_output
def formats(console: Console, output: str | None) -> None:
    """List the installed readers, writers and conversions."""
    known: list[tuple[Format, str]] = []
    broken: list[str] = []
    for plugin in plugins.installed().values():
        try:
            known.append((plugin.format(), plugin.origin))
        except TraceError as error:
            broken.append(str(error))
    print_answer(console, Formats.of(known), output)
    for message in broken:
        console.error(message)
    click.get_current_context().exit(NO if broken else FINE)


# `tracelink completion`.


SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_TRACELINK_COMPLETE"


class Completion(Row, frozen=True):
    """Result of `tracelink completion --json`."""

    shell: str
    script: str


@command(
    "tracelink completion bash > ~/.local/share/bash-completion/completions/tracelink",
    'tracelink completion zsh > "${fpath[1]}/_tracelink"',
    "tracelink completion fish > ~/.config/fish/completions/tracelink.fish",
)
@click.argument("shell", required=False, type=Words(SHELLS))
def completion(console: Console, shell: str | None) -> None:
    """Print the completion script for your shell.

    Without an argument, prints the script for the shell in $SHELL. Write it to the file that your shell reads, as in
    the examples (create the directory if needed), and open a new shell.
    """
    shell = shell or _users_shell()
    made = get_completion_class(shell)
    assert made is not None
    script = made(main, {}, "tracelink", VARIABLE).source()
    if console.json:
        console.document(Completion(shell, script))
    else:
        console.result(*script.splitlines())


def _users_shell() -> str:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise UsageError(
            "unknown shell in $SHELL", advice=f"Name your shell: tracelink completion {'|'.join(SHELLS)}"
        )
    return name
