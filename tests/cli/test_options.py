"""The options of commands: those of writers, short flags, and their order in the help."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import click
import pytest

from builders.command_line import Run
from tracelink import plugins
from tracelink._run.reading import ReadOptions, flags_of, text_of
from tracelink.cli.main import COMMANDS, main
from tracelink.cli.merge import merge


def options_of_writers() -> Mapping[str, Mapping[str, set[str]]]:
    """For each format its options, and the values of each."""
    return {
        name: {option: set(words) for option, words in writer.options.items()}
        for name, writer in plugins.writers().items()
    }


def shown(option: str) -> click.Option:
    (parameter,) = (
        parameter for parameter in merge.params if f"--{option.replace('_', '-')}" in parameter.opts
    )
    assert isinstance(parameter, click.Option)
    return parameter


def test_every_value_of_a_writer_option_is_a_choice() -> None:
    for options in options_of_writers().values():
        for option, words in options.items():
            output = shown(option).type
            assert words == (set(output.choices) if isinstance(output, click.Choice) else {"yes", "no"})


def test_help_names_the_formats_of_every_option() -> None:
    for name, options in options_of_writers().items():
        for option in map(shown, options):
            assert name in f"{getattr(option, 'heading', '')} {option.help}"


SHORT = {
    "-b": "--before",
    "-e": "--et",
    "-f": "--fr",
    "-g": "--group",
    "-j": "--jobs",
    "-k": "--kineto",
    "-n": "--limit",
    "-o": "--output",
    "-p": "--param",
    "-q": "--quiet",
    "-r": "--rank",
    "-s": "--sort",
    "-t": "--to",
    "-v": "--verbose",
}


def test_a_short_flag_means_one_thing_in_every_command() -> None:
    """The table is what users learn: a new flag is added to it, and none changes its meaning."""
    used: dict[str, set[str]] = {}
    for option in every_option():
        for short in (name for name in option.opts if not name.startswith("--")):
            used.setdefault(short, set()).update(name for name in option.opts if name.startswith("--"))
    assert used == {short: {long} for short, long in SHORT.items()}


def every_option() -> Iterator[click.Option]:
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command
        yield from (option for option in command.params if isinstance(option, click.Option))


PARTS = {"--ranks", "--steps", "--window", "--only", "--clock"}
METRICS = {"--map", "--tz", "--metrics-start", "--interval"}
LEFT_OUT = {
    "merge": set(),
    "summary": set(),
    "collectives": set(),
    "query": set(),
    "clocks": METRICS,
    "diff": METRICS,
    "inspect": PARTS,
    "diagnose": PARTS - {"--ranks"},
    "compile": PARTS | METRICS,
    "validate": PARTS | METRICS | {"--et", "--kineto", "--fr", "--include"},
}
"""The options of reading that a command has no use for: what looks at each file, or at all ranks, takes no part."""


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_command_that_reads_has_the_options_of_reading(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command
    declared = {flag.names[-1]: flag for option in ReadOptions.__annotations__ for flag in flags_of(option)}
    taken = {option.opts[-1]: option for option in command.params if isinstance(option, click.Option)}
    assert declared.keys() - taken.keys() == LEFT_OUT[name]
    assert {taken[long].metavar for long in declared.keys() & taken.keys()} <= {
        flag.metavar for flag in declared.values()
    }


def test_every_option_of_reading_has_a_text_for_help_and_documentation() -> None:
    for option in ReadOptions.__annotations__:
        assert f"        {option}: {text_of(option)}" in (ReadOptions.__doc__ or "")


def test_help_has_the_common_options_first(tracelink: Run) -> None:
    headings = re.findall(r"^(\w.*):$", tracelink("merge", "--help").stdout, re.MULTILINE)
    assert headings == [
        "Options",
        "Timelines (perfetto, perfetto-json)",
        "Chakra traces (chakra)",
        "Drawings of Chakra traces (svg, dot, graphml)",
        "Inputs",
        "Metrics (sampled by other programs)",
        "Large jobs",
        "Examples",
    ]
