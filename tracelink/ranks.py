"""Ranks: from the content, else from the name, else from the user; a contradiction is an error."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tracelink.errors import RankConflictError

SAYS_RANK = re.compile(r"rank[\[\]=._-]*(\d{1,6})(?!\d)", re.IGNORECASE)
"""The word itself, followed by a number: as good as a statement."""

RANK_AFTER_HOST = re.compile(r"rank[._-].*[._-](\d{1,6})$", re.IGNORECASE)
"""`nccl_trace_rank_<host>_<rank>`: flight-recorder dumps with the host in the name."""

LOOKS_LIKE_RANK = re.compile(
    r"(?:^|[._-])(?:kineto|k|et|fr|host(?=[._-])|device|worker|gpu|r|trace|traces|profile|prof|eg|dump|pt|nccl_trace)"
    r"(?:[._-]?trace)?[._-]?(\d{1,5})(?=$|[._-])",
    re.IGNORECASE,
)
"""A number after a word that names a per-rank file: a guess, used only where the content says nothing."""

NUMBERED = re.compile(r"\.(\d{1,6})\.et(?:\.gz)?$", re.IGNORECASE)
"""`<prefix>.<rank>.et`: how simulators find the file of a rank."""

SUFFIXES = re.compile(r"(?:\.(?:json|gz|pt|trace|pkl|pickle|bin|zip|tar|tgz|et|txt))+$", re.IGNORECASE)

LARGEST_RANK = 999_999
"""Larger numbers are no ranks; tables by rank need memory for all up to the largest."""


@dataclass(frozen=True, slots=True)
class RankHint:
    """What a file name says about the rank, and whether it says so in so many words."""

    rank: int
    certain: bool


def rank_in_name(name: str) -> RankHint | None:
    """The rank in a file name, if there is one."""
    stem = SUFFIXES.sub("", name)
    if match := SAYS_RANK.search(stem):
        return RankHint(int(match[1]), certain=True)
    if match := RANK_AFTER_HOST.search(stem):
        return RankHint(int(match[1]), certain=True)
    if match := NUMBERED.search(name) or LOOKS_LIKE_RANK.search(stem):
        return RankHint(int(match[1]), certain=False)
    return None


def resolve_rank(path: str, *, content: int | None, name: RankHint | None, said: int | None) -> int | None:
    """One rank out of what the content, the name and the user say; None where nobody says anything."""
    statements = {"the content says": content, "--rank says": said}
    if name and name.certain:
        statements["the name says"] = name.rank
    made = {who: rank for who, rank in statements.items() if rank is not None}
    if len(set(made.values())) > 1:
        text = ", ".join(f"{who} {rank}" for who, rank in made.items())
        raise RankConflictError(
            f"the rank is contradictory: {text}",
            source=path,
            advice="Rename the file, or leave out --rank for it, so that all agree.",
        )
    if made:
        return next(iter(made.values()))
    return name.rank if name else None
