"""The options of writers."""

from __future__ import annotations

from collections.abc import Mapping

import click

from tracelink import plugins
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
    formats: dict[str, list[str]] = {}
    for name, options in options_of_writers().items():
        for option in options:
            formats.setdefault(option, []).append(name)
    assert {option: (shown(option).help or "").partition(":")[0] for option in formats} == {
        option: ", ".join(names) for option, names in formats.items()
    }
