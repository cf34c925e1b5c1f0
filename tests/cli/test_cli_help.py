"""Help: every command explains itself and shows an example."""

from __future__ import annotations

import importlib

import pytest
from conftest import Run

from tracelink import __version__
from tracelink.cli.main import COMMANDS


def test_the_group_lists_its_commands_and_says_what_to_try(tracelink: Run) -> None:
    result = tracelink("--help")
    assert result.exit_code == 0
    assert all(f"  {name} " in result.stdout for name in COMMANDS)
    assert "tracelink demo" in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("asking", ["-h", "--help"])
def test_a_command_explains_itself_and_shows_an_example(tracelink: Run, name: str, asking: str) -> None:
    result = tracelink(name, asking)
    assert result.exit_code == 0
    _, examples = result.stdout.split("Examples:\n")
    assert f"tracelink {name}" in examples
    for option in ("-v, --verbose", "-q, --quiet", "--json", "-h, --help"):
        assert option in result.stdout


@pytest.mark.parametrize(("name", "module", "summary"), [(name, *rest) for name, rest in COMMANDS.items()])
def test_the_list_says_the_same_as_the_command(name: str, module: str, summary: str) -> None:
    command = getattr(importlib.import_module(f"tracelink.cli.{module}"), name)
    assert command.help.splitlines()[0] == summary


@pytest.mark.parametrize("asking", ["-V", "--version"])
def test_the_version(tracelink: Run, asking: str) -> None:
    assert tracelink(asking).stdout == f"tracelink {__version__}\n"
