"""Results on standard output, messages on standard error: as text for people or as JSON for programs."""

from __future__ import annotations

import json
import operator
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

NOT_ASCII = re.compile("[^\x00-\x7e]")


@dataclass(slots=True)
class Console:
    """How much the user wants to hear, and whether a program listens."""

    verbose: bool = False
    quiet: bool = False
    json: bool = False

    @property
    def silent(self) -> bool:
        """Whether nobody is to read a result in words."""
        return self.quiet or self.json

    def document(self, result: Mapping[str, Any]) -> None:
        """Prints a result for a program."""
        click.echo(_json(result))

    def info(self, text: str, *, aside: bool = False) -> None:
        """Prints a result for a person; `aside` keeps standard output free for data."""
        if not self.silent:
            click.echo(_encodable(text), err=aside)

    def result(self, text: str) -> None:
        """Prints the answer, in words, also to who wants to hear only what went wrong."""
        if not self.json:
            click.echo(_encodable(text))

    def error(self, text: str) -> None:
        """Says what went wrong in one paragraph, whatever the user wants to hear."""
        click.echo(f"tracelink: {printable(' '.join(text.split()))}", err=True)


def printable(text: str) -> str:
    """Text out of a trace, made harmless: what would command a terminal is spelled out."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def _json(result: Mapping[str, Any]) -> str:
    """The result in ASCII, which no terminal takes for a command."""
    import orjson

    try:
        text = orjson.dumps(result, default=operator.index, option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:  # names of files can hold what is not UTF-8
        return json.dumps(result, indent=2, default=operator.index)
    return NOT_ASCII.sub(lambda char: json.dumps(char[0])[1:-1], text)


def _encodable(text: str) -> str:
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
