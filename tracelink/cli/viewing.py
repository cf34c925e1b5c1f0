"""Options of what a drawing shows."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import click

from tracelink.view import View

VIEWING = (
    click.option(
        "--depth",
        type=int,
        metavar="N",
        help="Draw N levels of what encloses what; what lies deeper is part of the box around it.",
    ),
    click.option(
        "--window",
        metavar="FROM..TO",
        help="Draw only what overlaps this time after the first node, such as 2.5s..3.1s, 800us.. or ..2ms.",
    ),
    click.option(
        "--ranks",
        "only_ranks",
        metavar="N-M,...",
        help="Draw only these ranks of a directory, such as 0-7,64.",
    ),
    click.option(
        "--limit",
        type=int,
        metavar="N",
        help="Draw at most N nodes. Default: 2000, and all in .graphml.",
    ),
)


def takes_view(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of drawings; the function gets them as `view`, None where none is given."""

    def gathering(
        *args: Any,
        depth: int | None,
        window: str | None,
        only_ranks: str | None,
        limit: int | None,
        **kwargs: Any,
    ) -> None:
        view = View.parse(depth=depth, window=window, ranks=only_ranks, limit=limit)
        function(*args, view=None if view == View() else view, **kwargs)

    taking: Callable[..., None] = update_wrapper(gathering, function)
    for option in reversed(VIEWING):
        taking = option(taking)
    return taking
