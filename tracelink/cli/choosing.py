"""Options of what to keep of a job, and of how its clocks are taken."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from tracelink.selection import KINDS, Selection

Function = TypeVar("Function", bound=Callable[..., Any])

CLOCKS = {
    "none": "nothing is corrected",
    "host": "ranks of one host share a clock",
    "collectives": "every rank has its own clock",
}
"""What `--clock` can be told besides a file."""


def takes_clock(function: Function) -> Function:
    """Adds the option that says how the ranks' clocks are taken."""
    words = "\n".join(f"{word:<11}  {meaning}" for word, meaning in CLOCKS.items())
    return click.option(
        "--clock",
        default="host",
        metavar="none|host|collectives|FILE",
        shell_complete=_complete_clock,
        help=f"How the ranks' clocks are taken. Default: host.\n\n\b\n{words}\n"
        f"{'FILE':<11}  from `tracelink clocks --json`",
    )(function)


def _complete_clock(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    words = [CompletionItem(word, help=text) for word, text in CLOCKS.items() if word.startswith(incomplete)]
    return [*words, CompletionItem(incomplete, type="file")]


def _complete_kinds(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    before, comma, word = incomplete.rpartition(",")
    return [CompletionItem(f"{before}{comma}{kind}") for kind in KINDS if kind.startswith(word)]


SELECTING = (
    click.option(
        "--ranks",
        "only_ranks",
        metavar="N-M,...",
        help="Only these ranks, such as 0-7,64. No other is read.",
    ),
    click.option(
        "--window",
        metavar="FROM..TO",
        help="Only what overlaps this time after the first event, such as 2.5s..3.1s, 800ms.. or ..2min.",
    ),
    click.option(
        "--steps",
        metavar="N-M,...",
        help="Only what runs in these steps, such as 3-5,7, and what they put on the GPU. Steps are annotations "
        "such as ProfilerStep#3 or step 3.",
    ),
    click.option(
        "--only",
        metavar="KIND,...",
        shell_complete=_complete_kinds,
        help=f"Only these kinds of events: {', '.join(KINDS)}. Collectives are everything that takes part in a "
        "collective or a message.",
    ),
)


def takes_selection(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that cut a job; the function gets them as `selection`, None where nothing is cut."""

    def gathering(
        *args: Any,
        only_ranks: str | None,
        window: str | None,
        steps: str | None,
        only: str | None,
        **kwargs: Any,
    ) -> None:
        if "=" in (only_ranks or ""):
            raise click.UsageError("--ranks chooses ranks, such as 0-7; --rank FILE=N says whose a file is.")
        selection = Selection.parse(ranks=only_ranks, window=window, steps=steps, only=only)
        function(*args, selection=None if selection == Selection() else selection, **kwargs)

    taking: Callable[..., None] = update_wrapper(gathering, function)
    for option in reversed(SELECTING):
        taking = option(taking)
    return taking
