"""Several runs in one folder, distinguished by compile ids that begin again, and ranks without a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct, field

from tracelink._compile.divergences import Logs
from tracelink._model.findings import Finding, Severity
from tracelink._model.selection import Numbers
from tracelink._model.text import counted, lowered, moment, ranks_in_words
from tracelink._model.witnesses import CompileLog

MOST_SAID = 8
"""Runs, or ranges of ranks, that a finding lists."""


class Run(Struct, frozen=True):
    """The logs that processes of one start of the job wrote."""

    number: int
    """From 1, in the order of time."""
    logs: Logs

    @property
    def start_ns(self) -> int:
        """The first event."""
        return min((_start(log) for of_rank in self.logs.values() for log in of_rank), default=0)


class _Started(Struct):
    """A process that compiled from its own first function on: no fork of another one."""

    rank: int
    log: CompileLog
    ids: frozenset[str] = field(default_factory=frozenset)


def runs_of(logs: Logs) -> list[Run]:
    """The runs; one if no rank has two processes that compiled under the same ids.

    A process that was forked continues with the ids of its parent, and belongs to the run that had begun then.
    """
    roots = sorted(_roots(logs), key=lambda root: _start(root.log))
    begins = [_start(roots[number].log) for number in _boundaries(roots)]
    if not begins:
        return [Run(1, logs)]
    found: list[dict[int, list[CompileLog]]] = [{} for _ in range(len(begins) + 1)]
    for rank, of_rank in logs.items():
        for log in of_rank:
            number = sum(begin <= _start(log) for begin in begins)
            found[number].setdefault(rank, []).append(log)
    return [Run(number + 1, each) for number, each in enumerate(found)]


def _start(log: CompileLog) -> int:
    return log.source.start_ns or log.last_ns or 0


def _roots(logs: Logs) -> Iterator[_Started]:
    for rank, of_rank in logs.items():
        for log in of_rank:
            if not log.unnamed_files:
                ids = (one.compile_id for one in log.compilations)
                yield _Started(rank, log, frozenset(filter(None, (*ids, *log.called_at))))


def _boundaries(roots: Sequence[_Started]) -> list[int]:
    """The numbers of the processes that begin a run.

    A rank that compiles an id again is in the next run. That began at the longest pause since the rank was seen last:
    other ranks may have been faster.
    """
    found: list[int] = []
    seen: dict[int, list[int]] = {}
    first = 0
    for number, root in enumerate(roots):
        earlier = [other for other in seen.get(root.rank, []) if other >= first]
        same = [other for other in earlier if _again(roots[other], root)]
        if same:
            pauses = [
                (_start(roots[b].log) - _start(roots[a].log), b)
                for a, b in pairwise(range(same[-1], number + 1))
            ]
            first = max(pauses)[1]
            found.append(first)
        seen.setdefault(root.rank, []).append(number)
    return found


def _again(earlier: _Started, later: _Started) -> bool:
    """Whether a process compiled again what one of the same rank had compiled.

    Processes without a rank can work at the same time.
    """
    apart = later.log.source.rank is not None or _start(later.log) > (earlier.log.last_ns or 0)
    return apart and not earlier.ids.isdisjoint(later.ids)


def findings_of_runs(runs: Sequence[Run], world_size: int | None, *, chosen: bool) -> list[Finding]:
    """What to know before comparing ranks: several runs, and ranks without a log."""
    missing = [finding for run in runs for finding in _missing(run, world_size or 0, several=len(runs) > 1)]
    if chosen or len(runs) == 1:
        return missing
    each = "; ".join(
        f"run {run.number} of {lowered(ranks_in_words(list(run.logs)))} from {moment(run.start_ns)}"
        for run in runs[:MOST_SAID]
    )
    message = (
        f"The logs are of {counted(len(runs), 'run')}: {each}. Ranks are compared within each run; other tables have "
        f"all of them. --run {runs[-1].number} shows the last one only."
    )
    return [Finding(Severity.WARNING, "several_runs", message, len(runs)), *missing]


def _missing(run: Run, world_size: int, *, several: bool) -> Iterator[Finding]:
    """Ranks of the job without a log; only profiles say how many there are, and logs show gaps between them."""
    if len(run.logs) < 2:
        return
    missing = Numbers(((0, max(*run.logs, world_size - 1)),)).without(set(run.logs))
    count = sum(last - first + 1 for first, last in missing.ranges)
    if not count:
        return
    listed = str(Numbers(missing.ranges[:MOST_SAID])) + (", …" if len(missing.ranges) > MOST_SAID else "")
    message = (
        f"{'Ranks' if count > 1 else 'Rank'} {listed} {'have' if count > 1 else 'has'} no log"
        f"{f' in run {run.number}' if several else ''}, other than {lowered(ranks_in_words(list(run.logs)))}: "
        f"{'they' if count > 1 else 'it'} compiled nothing, or the log is missing."
    )
    yield Finding(Severity.WARNING, "missing_ranks", message, count)
