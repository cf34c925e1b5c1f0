"""What all have joined and nobody finishes: who is in it, and whose device is held up in something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tracelink.analysis.waits import Wait, waits_by_rank
from tracelink.journal import Journal
from tracelink.records import State


def on_devices(journal: Journal, waits: Sequence[Wait], is_stuck: Callable[[Wait], bool]) -> list[Wait]:
    """The waits; what all have joined and is stuck waits for those whose devices are not in it.

    A device does one thing after the other: what was started, else what was asked for first. That some have
    started and others have not may be but a moment: it tells only of what is stuck, or of a ring.
    """
    inside = waits_by_rank(waits)
    heads = {rank: _head(journal, [waits[number] for number in own], rank) for rank, own in inside.items()}
    judged = (_judged(journal, wait, heads, is_stuck) for wait in waits)
    return [wait for wait in judged if wait.rows]


def _judged(journal: Journal, wait: Wait, heads: Mapping[int, int], is_stuck: Callable[[Wait], bool]) -> Wait:
    if wait.awaited:
        # Who has no dump may have joined what no device has come to yet.
        return wait if wait.absent or _inside(wait, heads) else replace(wait, unknown=())
    if is_stuck(wait):
        return _on_devices(journal, wait, heads)
    return replace(wait, rows=_inside(wait, heads)) if wait.message else wait


def _head(journal: Journal, waits: Sequence[Wait], rank: int) -> int:
    """The entry that the device of a rank is in."""
    rows = [wait.rows[rank] for wait in waits]
    started = [row for row in rows if journal.records.state[row] == State.STARTED]
    return min(started or rows)


def _on_devices(journal: Journal, wait: Wait, heads: Mapping[int, int]) -> Wait:
    elsewhere = tuple(rank for rank, row in wait.rows.items() if heads[rank] != row)
    inside = _inside(wait, heads)
    if elsewhere:
        return replace(wait, rows=inside, absent=elsewhere, queued=True)
    started = {rank: row for rank, row in inside.items() if journal.records.state[row] == State.STARTED}
    if not started or len(started) == len(inside):
        return wait
    idle = tuple(rank for rank in inside if rank not in started)
    return replace(wait, rows=started, absent=idle, queued=True)


def _inside(wait: Wait, heads: Mapping[int, int]) -> dict[int, int]:
    """Those whose devices are in it."""
    return {rank: row for rank, row in wait.rows.items() if heads[rank] == row}
