"""Ranks without a whole dump, and what the dumps of the others prove about them."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.analysis.wording import group_in_words, lowered, ranks_in_words
from tracelink.cli.page import Page
from tracelink.diagnosis import Diagnosis, Stage, Standing

MOST_PLACES = 4
"""Collectives that are named of those that absent ranks joined."""


def show_absent(page: Page, diagnosis: Diagnosis, *, verbose: bool) -> None:
    """A line for missing dumps, and one for those that cannot be read; one for each if everything is asked for."""
    if diagnosis.missing:
        page.line(
            f"No dump of {lowered(ranks_in_words(diagnosis.missing))}. {_proof(diagnosis, diagnosis.missing)}",
            "yellow",
        )
    damaged = list(diagnosis.unreadable)
    if len(damaged) > 1 and not verbose:
        page.line(
            f"The dumps of {lowered(ranks_in_words(damaged))} are damaged. {_proof(diagnosis, damaged)} "
            f"The first: {diagnosis.unreadable[damaged[0]]}",
            "yellow",
        )
        return
    for rank in damaged:
        why = diagnosis.unreadable[rank]
        page.line(f"The dump of rank {rank} is damaged: {why} {_proof(diagnosis, [rank])}", "yellow")


def _proof(diagnosis: Diagnosis, ranks: Sequence[int]) -> str:
    they, them = ("they", "them") if len(ranks) > 1 else ("it", "it")
    if any(not set(problem.culprits).isdisjoint(ranks) for problem in diagnosis.problems):
        return f"What the other dumps prove about {them} stands above."
    reached = _reached(diagnosis.standings, ranks)
    if not reached:
        return f"The other dumps do not tell how far {they} came."
    return f"The other dumps prove that {they} joined {', '.join(reached)}; not what came after."


def _reached(standings: Sequence[Standing], ranks: Sequence[int]) -> list[str]:
    """The last collectives that they must have joined, for others have left them."""
    found: dict[str, int] = {}
    for standing in standings:
        unknown = standing.stage is Stage.UNKNOWN and not set(standing.ranks).isdisjoint(ranks)
        if unknown and standing.sequence is not None:
            label = group_in_words(standing.group, standing.description)
            found[label] = max(found.get(label, 0), standing.sequence)
    return [f"#{sequence} of {label}" for label, sequence in found.items()][:MOST_PLACES]
