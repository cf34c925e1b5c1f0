"""Options of `diagnose`: which dumps to read, and which entries to show."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypedDict

import click

from tracelink.cli.entries_wanted import Wanted
from tracelink.ranges import Numbers

SHOWN = 20
"""Rows of a table, unless the user says how many."""

ENTRIES = (
    click.option("--entries", is_flag=True, help="Show the last entries of all ranks side by side instead."),
    click.option(
        "--ranks", "only_ranks", metavar="N-M,...", help="With --entries: only these ranks, such as 0-7,64."
    ),
    click.option(
        "-g",
        "--group",
        "groups",
        multiple=True,
        metavar="NAME",
        help="With --entries: only groups of this name or description, or a part of it. Repeatable.",
    ),
    click.option("--stacks", is_flag=True, help="With --entries: the Python stack of each entry too."),
    click.option("--csv", "as_csv", is_flag=True, help="With --entries: a row for each entry, as CSV."),
)


DUMPS = (
    click.option(
        "-p",
        "--prefix",
        default="",
        metavar="TEXT",
        help="Read only files whose names begin so; a number that is all that follows is the rank.",
    ),
    click.option(
        "--replica-size",
        type=click.IntRange(min=1),
        metavar="N",
        help="Each N ranks are a replica, whose groups may count its ranks from 0, as with torchft.",
    ),
)


class DumpKeywords(TypedDict):
    """How `tracelink.api` calls what is said of dumps."""

    prefix: str
    replica_size: int | None


def takes_dumps(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that say which dumps to read and how; the function gets them as `dumps`."""

    def gathering(*args: Any, prefix: str, replica_size: int | None, **kwargs: Any) -> None:
        said = DumpKeywords(prefix=prefix, replica_size=replica_size)
        function(*args, dumps=said, **kwargs)

    taking: Callable[..., None] = update_wrapper(gathering, function)
    for option in reversed(DUMPS):
        taking = option(taking)
    return taking


def takes_entries(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that show entries; the function gets them as `entries`, None where they are not wanted."""

    def gathering(
        *args: Any,
        entries: bool,
        only_ranks: str | None,
        groups: tuple[str, ...],
        stacks: bool,
        as_csv: bool,
        **kwargs: Any,
    ) -> None:
        said = {"--ranks": only_ranks, "--group": groups, "--stacks": stacks, "--csv": as_csv}
        alone = [name for name, value in said.items() if value]
        if alone and not entries:
            raise click.UsageError(f"{alone[0]} says which entries to show: add --entries.")
        if "=" in (only_ranks or ""):
            raise click.UsageError("--ranks chooses ranks, such as 0-7; --rank FILE=N says whose a file is.")
        if as_csv and args[0].json:
            raise click.UsageError("--csv and --json exclude each other.")
        ranks = None if only_ranks is None else Numbers.parse(only_ranks, "--ranks")
        wanted = Wanted(ranks, groups, stacks, kwargs["limit"], as_csv)
        function(*args, entries=wanted if entries else None, **kwargs)

    taking: Callable[..., None] = update_wrapper(gathering, function)
    for option in reversed(ENTRIES):
        taking = option(taking)
    return taking
