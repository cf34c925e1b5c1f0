"""What docs/diagnose.md says is so."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

import tracelink
from tracelink import schemas
from tracelink.cli import main
from tracelink.diagnosis.model import Kind, Stage

DOCS = (Path(__file__).parents[2] / "docs" / "diagnose.md").read_text("utf-8")
COMMAND = re.compile(r"^(tracelink [^#|\n]*)", re.MULTILINE)


def rows(title: str) -> list[str]:
    """The first cells of the table under a heading, code in them only."""
    (section,) = re.findall(rf"^## {title}\n(.*?)(?:^## |\Z)", DOCS, re.DOTALL | re.MULTILINE)
    cells = re.findall(r"^\| (.*?) \|", section, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)(?:\[\])?`", cell)]


@pytest.mark.parametrize("command", COMMAND.findall(DOCS))
def test_an_example_is_understood(command: str) -> None:
    _, name, *arguments = shlex.split(command)
    found = main.get_command(click.Context(main), name)
    assert found
    found.make_context(name, arguments)


def test_every_kind_is_explained() -> None:
    assert set(rows("What it decides")) == {kind.value for kind in Kind}


def test_every_key_of_the_document_is_explained() -> None:
    assert set(rows("JSON")) == set(schemas.load("diagnose")["properties"])


def test_every_key_of_a_problem_and_every_stage_is_named() -> None:
    names = set(re.findall(r"`(\w+)`", DOCS))
    assert set(schemas.load("diagnose")["$defs"]["problem"]["properties"]) <= names
    assert {stage.value for stage in Stage} <= names


def test_the_names_in_python_are_there() -> None:
    assert all(hasattr(tracelink, name) for name in re.findall(r"\btracelink\.(\w+)\(", DOCS))
