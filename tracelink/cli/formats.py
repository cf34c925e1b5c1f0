"""Formats, completion."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import get_completion_class

from tracelink import plugins
from tracelink.cli.console import Console
from tracelink.cli.main import FINE, NO, main
from tracelink.cli.options import command
from tracelink.cli.terminal import Page
from tracelink.errors import TraceError, UsageError
from tracelink.plugins import Conversion, Files, Plugin, Reader, Writer

# `tracelink formats`.


Format = TypeVar("Format")
Row = dict[str, Any]


@command("tracelink formats", "tracelink formats --json | jq -r '.writers[].name'")
def formats(console: Console) -> None:
    """List the readers, writers and conversions that are installed."""
    readers, broken = _described(plugins.readers(), _reader)
    writers, also_broken = _described(plugins.writers(), _writer)
    conversions, broken_too = _described(plugins.conversions(), _conversion)
    if console.json:
        console.document({"readers": readers, "writers": writers, "conversions": conversions})
    else:
        console.info(_listing(readers, writers, conversions))
    for error in (errors := broken + also_broken + broken_too):
        console.error(str(error))
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


# `tracelink completion`.


SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_TRACELINK_COMPLETE"


@command(
    "bash: tracelink completion bash > ~/.local/share/bash-completion/completions/tracelink",
    'zsh:  tracelink completion zsh > "${fpath[1]}/_tracelink"',
    "fish: tracelink completion fish > ~/.config/fish/completions/tracelink.fish",
)
@click.argument("shell", required=False, type=click.Choice(SHELLS))
def completion(console: Console, shell: str | None) -> None:
    """Print the script that completes commands in your shell.

    Without an argument: for the shell in $SHELL. Write it to the file that your shell looks for, as in the
    examples (make the folder if there is none), and open a new shell.
    """
    shell = shell or _users_shell()
    made = get_completion_class(shell)
    assert made is not None
    script = made(main, {}, "tracelink", VARIABLE).source()
    if console.json:
        console.document({"shell": shell, "script": script})
    else:
        click.echo(script)


def _users_shell() -> str:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise UsageError(
            "it is not known which shell you use", advice=f"Name it: tracelink completion {'|'.join(SHELLS)}"
        )
    return name
