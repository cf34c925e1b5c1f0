"""Profiles and execution traces that lie beside dumps: which of them are of which rank."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from tracelink.findings import Finding, Severity
from tracelink.journal import Journal
from tracelink.plugins import Recorder, Unpacking
from tracelink.reading import Task
from tracelink.sources import Source


def profiles_among(tasks: Sequence[Task]) -> list[Task]:
    """Those that are no dumps, nor timelines of several ranks."""
    return [task for task in tasks if not isinstance(task.reader, Recorder | Unpacking)]


def sources_of(ranks: Container[int], tasks: Sequence[Task], journal: Journal) -> dict[int, list[Source]]:
    """The profiles of each of these ranks that has some, and its dump; all with what is known of them."""
    by_path = {task.source.path: task for task in tasks}
    found: dict[int, list[Source]] = {}
    for task in profiles_among(tasks):
        if task.likely_rank is not None and task.likely_rank in ranks:
            found.setdefault(task.likely_rank, []).append(_said(task, task.likely_rank))
    for rank, sources in found.items():
        if rank in journal.recordings and (dump := by_path.get(journal.recordings[rank].source.path)):
            sources.append(_said(dump, rank))
    return found


def unranked(tasks: Sequence[Task]) -> list[Finding]:
    """Profiles of which nobody can say whose they are without reading them whole."""
    unknown = [task.source.path for task in profiles_among(tasks) if task.likely_rank is None]
    if not unknown:
        return []
    many = f"{len(unknown)} profiles were" if len(unknown) > 1 else "1 profile was"
    message = (
        f"{many} not read: neither name nor first bytes say the rank. Say it with --rank {unknown[0]}=N."
    )
    return [Finding(Severity.WARNING, "unknown_rank", message, len(unknown), example=unknown[0])]


def _said(task: Task, rank: int) -> Source:
    return replace(task.source, format=task.reader.name, rank=rank)
