"""`tracelink formats` and `tracelink completion`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import get_completion_class

import tracelink.plugins as plugins
from tracelink.cli.console import Console
from tracelink.cli.documents import results
from tracelink.cli.main import FINE, NO, main
from tracelink.cli.options import Words, command
from tracelink.cli.terminal import Page
from tracelink.model.errors import TraceError, UsageError
from tracelink.plugins import ConversionSpec, Files, Format, ReaderSpec, WriterSpec

# `tracelink formats`.

OWN = "torch-tracelink"
"""The distribution whose name is not shown."""


@command("tracelink formats", "tracelink formats --json | jq -r '.writers[].name'")
def formats(console: Console) -> None:
    """List the installed readers, writers and conversions."""
    known: list[tuple[Format, str]] = []
    broken: list[str] = []
    for plugin in plugins.installed().values():
        try:
            known.append((plugin.format(), plugin.origin))
        except TraceError as error:
            broken.append(str(error))
    readers = [
        _reader(declaration.name, origin, declaration.reader)
        for declaration, origin in known
        if declaration.reader
    ]
    writers = [
        _writer(declaration.name, origin, declaration.writer)
        for declaration, origin in known
        if declaration.writer
    ]
    conversions = [
        _conversion(declaration.name, origin, declaration.conversion)
        for declaration, origin in known
        if declaration.conversion
    ]
    if console.json:
        console.document(results.Formats(readers, writers, conversions))
    else:
        console.info(_listing(readers, writers, conversions))
    for message in broken:
        console.error(message)
    click.get_current_context().exit(NO if broken else FINE)


def _reader(name: str, origin: str, reader: ReaderSpec) -> results.Reader:
    return results.Reader(name, origin, reader.summary)


def _writer(name: str, origin: str, writer: WriterSpec) -> results.Writer:
    return results.Writer(
        name,
        origin,
        writer.summary,
        list(writer.suffixes),
        one_file_per_rank=writer.files not in (Files.ONE, Files.FOLDER),
    )


def _conversion(name: str, origin: str, conversion: ConversionSpec) -> results.Conversion:
    return results.Conversion(
        name, origin, conversion.summary, list(conversion.reads), list(conversion.suffixes)
    )


def _listing(
    readers: Sequence[results.Reader],
    writers: Sequence[results.Writer],
    conversions: Sequence[results.Conversion],
) -> str:
    page = Page()
    _show(
        page,
        ("reads", "description"),
        [(row.name, row.summary) for row in readers],
        [row.origin for row in readers],
    )
    _show(
        page,
        ("writes", "description", "file names"),
        [(row.name, row.summary, " ".join(row.suffixes)) for row in writers],
        [row.origin for row in writers],
    )
    _show(
        page,
        ("converts to", "from", "description", "file names"),
        [(row.name, " ".join(row.reads), row.summary, " ".join(row.suffixes)) for row in conversions],
        [row.origin for row in conversions],
    )
    return page.text


def _show(
    page: Page, header: tuple[str, ...], rows: Sequence[tuple[str, ...]], origins: Sequence[str]
) -> None:
    """A table; with the package of each row, if any is another one."""
    if not rows:
        return
    page.gap()
    if all(origin.startswith(f"{OWN} ") for origin in origins):
        page.table(header, rows)
        return
    page.table((*header, "package"), [(*row, origin) for row, origin in zip(rows, origins, strict=True)])


# `tracelink completion`.


SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_TRACELINK_COMPLETE"


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
        console.document(results.Completion(shell, script))
    else:
        console.result(*script.splitlines())


def _users_shell() -> str:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise UsageError(
            "unknown shell in $SHELL", advice=f"Name your shell: tracelink completion {'|'.join(SHELLS)}"
        )
    return name
