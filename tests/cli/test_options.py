"""Package."""

from __future__ import annotations

from collections.abc import Mapping

import click

from tracelink import plugins
from tracelink.cli.merge import merge


def options_of_writers() -> Mapping[str, Mapping[str, set[str]]]:
    """For each format its options, and the words for each."""
    return {
        name: {option: set(words) for option, words in writer.options.items()}
        for name, writer in plugins.writers().items()
    }


def shown(option: str) -> click.Option:
    (found,) = (one for one in merge.params if f"--{option}" in one.opts)
    assert isinstance(found, click.Option)
    return found


def test_every_word_can_be_said() -> None:
    for options in options_of_writers().values():
        for option, words in options.items():
            said = shown(option).type
            assert words == (set(said.choices) if isinstance(said, click.Choice) else {"yes", "no"})


def test_help_names_the_formats_of_every_option() -> None:
    formats: dict[str, list[str]] = {}
    for name, options in options_of_writers().items():
        for option in options:
            formats.setdefault(option, []).append(name)
    assert {option: (shown(option).help or "").partition(":")[0] for option in formats} == {
        option: ", ".join(names) for option, names in formats.items()
    }
