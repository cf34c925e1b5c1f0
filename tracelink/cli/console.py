"""The console: results on standard output, errors on standard error; text for people or JSON for programs."""

from __future__ import annotations

import json
import operator
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tracelink.model.errors import printable

if TYPE_CHECKING:
    import msgspec

NOT_ASCII = re.compile("[^\x00-\x7e]")


@dataclass(slots=True)
class Console:
    """Prints results and errors as the options -v, -q and --json require."""

    verbose: bool = False
    quiet: bool = False
    json: bool = False

    @property
    def silent(self) -> bool:
        """True if no human-readable result is printed (--quiet or --json)."""
        return self.quiet or self.json

    def document(self, result: msgspec.Struct) -> None:
        """Prints a result as JSON."""
        import msgspec

        click.echo(_json(msgspec.to_builtins(result, enc_hook=operator.index)))

    def info(self, text: str, *, to_stderr: bool = False) -> None:
        """Prints text for people, unless --quiet or --json; `to_stderr` if standard output is for data."""
        if not self.silent:
            click.echo(_encodable(text), err=to_stderr)

    def result(self, text: str) -> None:
        """Prints text for people even with --quiet, unless --json."""
        if not self.json:
            click.echo(_encodable(text))

    def error(self, text: str) -> None:
        """Prints an error as one paragraph to standard error, always."""
        click.echo(f"tracelink: {printable(' '.join(text.split()))}", err=True)


def _json(result: Any) -> str:
    """The result in printable ASCII, which cannot control the terminal."""
    import orjson

    try:
        text = orjson.dumps(result, option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:  # names of files can hold what is not UTF-8
        return json.dumps(result, indent=2)
    return NOT_ASCII.sub(lambda char: json.dumps(char[0])[1:-1], text)


def _encodable(text: str) -> str:
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
