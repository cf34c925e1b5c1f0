"""Ranks without a whole dump, and what the dumps of the others prove about them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tracelink.analysis.wording import group_in_words, lowered, ranks_in_words
from tracelink.cli.page import Page, counted
from tracelink.diagnosis import Diagnosis, Stage, Standing

MOST_LINES = 4
"""Reasons why dumps cannot be read that are shown before the others are only counted."""


def show_absent(page: Page, diagnosis: Diagnosis, *, verbose: bool) -> None:
    """A line for missing dumps, and one for each that cannot be read."""
    if diagnosis.missing:
        several = len(diagnosis.missing) > 1
        page.line(
            f"No dump of {lowered(ranks_in_words(diagnosis.missing))}. "
            + _proof(diagnosis, diagnosis.missing, "they" if several else "it"),
            "yellow",
        )
    shown = len(diagnosis.unreadable) if verbose else MOST_LINES
    for rank, why in list(diagnosis.unreadable.items())[:shown]:
        page.line(f"The dump of rank {rank} is damaged: {why} {_proof(diagnosis, [rank], 'it')}", "yellow")
    if (rest := len(diagnosis.unreadable) - shown) > 0:
        page.line(f"{counted(rest, 'more dump')} cannot be read to the end; -v says why.", "yellow")


def _proof(diagnosis: Diagnosis, ranks: Collection[int], they: str) -> str:
    blamed = [problem for problem in diagnosis.problems if set(problem.culprits) & set(ranks)]
    if blamed:
        return f"The dumps of the others tell on {they if they != 'they' else 'them'}: see above."
    reached = _reached(diagnosis.standings, ranks)
    if not reached:
        return f"The other dumps do not tell how far {they} came."
    return f"The other dumps prove that {they} joined {', '.join(reached)}; not what came after."


def _reached(standings: Sequence[Standing], ranks: Collection[int]) -> list[str]:
    """The last collectives that they must have joined, for the others have left them."""
    found: dict[str, int] = {}
    for standing in standings:
        unknown = standing.stage is Stage.UNKNOWN and not set(standing.ranks).isdisjoint(ranks)
        if unknown and standing.sequence is not None:
            label = group_in_words(standing.group, standing.description)
            found[label] = max(found.get(label, 0), standing.sequence)
    return [f"#{sequence} of {label}" for label, sequence in found.items()][:MOST_LINES]
