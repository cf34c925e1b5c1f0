"""The queries that come with tracelink: a file each, which begins with comments on its answer and its parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

from tracelink._model.errors import UsageError, choices
from tracelink._model.fields import Doc, Row, Shown, Text

FOLDER = Path(__file__).with_name("queries")

Value = int | float | str | None
"""A value of a parameter."""

PARAMETER = re.compile(r"-- \$(\w+) = (\S+): (.+)")
NUMBER = re.compile(r"-?\d{1,18}(\.\d+)?")
NULL = "null"
SENTENCE = 120
"""Characters of what a query answers."""


class Parameter(Row, frozen=True):
    """A parameter of a query."""

    name: Text
    default: Value
    text: Annotated[str, Doc("What it means.")]


class ShippedQuery(Row, frozen=True):
    """A query that comes with tracelink."""

    name: Annotated[Text, Shown("query")]
    title: Annotated[str, Doc("What it answers."), Shown("answers", longest=SENTENCE)]
    text: Annotated[str, Doc("What its columns mean."), Shown(hidden=True)]
    sql: Annotated[Text, Shown(hidden=True)]
    parameters: Sequence[Parameter] = ()

    @classmethod
    def parsed(cls, name: str, sql: str) -> ShippedQuery:
        """A query from its file."""
        comments = [line for line in sql.splitlines() if line.startswith("--")]
        matches = [PARAMETER.fullmatch(line) for line in comments]
        parameters = [Parameter(match[1], value_of(match[2]), match[3]) for match in matches if match]
        words = [
            line.removeprefix("--").strip()
            for line, match in zip(comments, matches, strict=True)
            if not match
        ]
        return cls(name, words[0], " ".join(filter(None, words[1:])), sql, tuple(parameters))

    def values(self, given: Mapping[str, Value]) -> dict[str, Value]:
        """The values of all parameters; raises `UsageError` for one that it does not have."""
        known = {parameter.name: parameter.default for parameter in self.parameters}
        for name in given:
            if name not in known:
                raise UsageError(f"{self.name} has no parameter {name!r}", advice=choices(name, known))
        return known | dict(given)


def value_of(text: str) -> Value:
    """The value that a text means: a number, null, or the text."""
    if NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    return None if text == NULL else text


@cache
def shipped_queries() -> dict[str, ShippedQuery]:
    """All of them, by name."""
    return {
        path.stem: ShippedQuery.parsed(path.stem, path.read_text("utf-8"))
        for path in sorted(FOLDER.glob("*.sql"))
    }


def shipped_query(name: str) -> ShippedQuery:
    """A query by its name; raises `UsageError` if there is none."""
    known = shipped_queries()
    if name not in known:
        raise UsageError(f"there is no query {name!r}", advice=choices(name, known))
    return known[name]
