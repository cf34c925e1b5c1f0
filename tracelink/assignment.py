"""Whose each source is: what its content, its name and the user say, else what it has in common with others."""

from __future__ import annotations

import os.path
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from tracelink.errors import RankConflictError
from tracelink.findings import Finding, Severity
from tracelink.ranks import resolve_rank
from tracelink.sources import Source
from tracelink.trace import SourceInfo

MOST_FOLDERS = 4
"""More are only counted."""


def said_rank(info: SourceInfo, source: Source) -> int | None:
    """The rank that content, name or user give it; raises `RankConflictError` where they differ."""
    return resolve_rank(info.path, content=info.rank, name=source.rank_hint, said=source.rank)


def placed(infos: Sequence[SourceInfo], findings: list[Finding]) -> list[int | None]:
    """A rank for each source: as said, else that of its process, else of the only rank there is, else 0."""
    ranks = [info.rank for info in infos]
    unranked = [number for number, rank in enumerate(ranks) if rank is None]
    alone = len(unranked) == len({infos[number].format for number in unranked})
    for number in unranked:
        ranks[number] = _place(infos[number], infos, ranks, findings, alone=alone)
    return ranks


def surveyed(
    infos: Sequence[SourceInfo], sources: Sequence[Source], findings: list[Finding]
) -> list[SourceInfo]:
    """The sources with their ranks, where something says it; contradictions are findings."""
    found = []
    for info, source in zip(infos, sources, strict=True):
        try:
            rank = said_rank(info, source)
        except RankConflictError as conflict:
            findings.append(_conflict(conflict, info.path))
            rank = info.rank
        found.append(replace(info, rank=rank))
    try:
        check_duplicates([info for info in found if info.rank is not None])
    except RankConflictError as conflict:
        findings.append(_conflict(conflict, ""))
    return found


def check_duplicates(infos: Sequence[SourceInfo]) -> None:
    """One rank has one file of a format, except for the windows of one profiler, one after the other."""
    for (rank, format_name), count in Counter((info.rank, info.format) for info in infos).items():
        if count == 1 or rank is None:
            continue
        alike = [info for info in infos if (info.rank, info.format) == (rank, format_name)]
        if not _successive(alike):
            paths = " and ".join(info.path for info in alike[:2])
            raise RankConflictError(
                f"rank {rank} stands twice in format {format_name}: {paths}", advice=_one_of(alike)
            )


def _one_of(alike: Sequence[SourceInfo]) -> str:
    folders = list(dict.fromkeys(os.path.dirname(info.path) or "." for info in alike))
    if len(folders) == 1:
        return "Take each job by itself: leave one out, or say whose each is with --rank FILE=N."
    if any(os.path.isfile(folder.partition(":")[0]) for folder in folders):
        return "Take each job by itself: unpack the archive, and name one folder of it."
    more = f" or {len(folders) - MOST_FOLDERS} more" if len(folders) > MOST_FOLDERS else ""
    return (
        f"Take each job by itself and name one folder: {' or '.join(folders[:MOST_FOLDERS])}{more}. Of one job, "
        "say whose each file is with --rank FILE=N."
    )


def _place(
    info: SourceInfo,
    infos: Sequence[SourceInfo],
    ranks: Sequence[int | None],
    findings: list[Finding],
    *,
    alone: bool,
) -> int | None:
    known = {rank for rank in ranks if rank is not None}
    of_process = {
        rank
        for other, rank in zip(infos, ranks, strict=True)
        if rank is not None and info.pid is not None and other.pid == info.pid
    }
    if len(of_process) == 1:
        rank, why = of_process.pop(), f"its process {info.pid} is that of rank"
    elif alone and len(known) <= 1:
        rank, why = next(iter(known), 0), "nothing says otherwise, so it counts as rank"
    else:
        message = f"{info.path}: neither content nor name says its rank. Say it with --rank {info.path}=N."
        findings.append(Finding(Severity.ERROR, "unknown_rank", message, source=info.path))
        return None
    message = f"{info.path}: neither content nor name says its rank; {why} {rank}."
    findings.append(Finding(Severity.INFO, "assumed_rank", message, source=info.path))
    return rank


def _conflict(conflict: RankConflictError, path: str) -> Finding:
    return Finding(Severity.ERROR, "rank_conflict", str(conflict), source=path)


def _successive(infos: Sequence[SourceInfo]) -> bool:
    windows = sorted((info.start_ns, info.end_ns or 0) for info in infos if info.start_ns is not None)
    apart = all(before[1] <= after[0] for before, after in pairwise(windows))
    return len(windows) == len(infos) and apart and len({info.pid for info in infos}) == 1
