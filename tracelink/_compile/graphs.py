"""What the compiled graphs of each rank contain: schedules, estimates, what ran; and what draft export met."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec.structs import asdict

from tracelink._compile.divergences import ESTIMATES, EXECUTION, SCHEDULE, short
from tracelink._compile.model import TORCH, CompileReport, Estimate, Execution, Export, Schedule, Unscheduled
from tracelink._model.fields import Nanoseconds, Ranks, Shown
from tracelink._model.witnesses import Artifact, CompileLog, ExportNote

LONGEST_REASON = 400
MOST_OPERATIONS = 12
"""Collectives of a graph that are always shown."""


Calls = Mapping[tuple[str, bool], Mapping[tuple[str, ...], int]]
"""For each compile id, forward or backward, how often its code called these collectives in this order."""


def schedules_of(rank: int, log: CompileLog, calls: Calls | None) -> Iterator[Schedule]:
    """The collectives of each graph."""
    for number, artifact in _numbered(log, SCHEDULE):
        try:
            names = msgspec.json.decode(artifact.text, type=list[str])
        except msgspec.DecodeError:
            names = [artifact.text] if artifact.text else []
        runs = None
        if calls is not None:
            called = tuple(map(short, names))
            runs = sum(
                calls.get((artifact.compile_id, backward), {}).get(called, 0) for backward in (False, True)
            )
        yield Schedule(rank, artifact.compile_id, number, tuple(names), runs)


def unscheduled_of(
    rank: int, schedules: Sequence[Schedule], calls: Calls, names: Mapping[str, str]
) -> list[Unscheduled]:
    """Runs whose collectives no schedule of the compilation has; nothing is known of one without schedules."""
    expected: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
    for one in schedules:
        expected[one.id].add(tuple(map(short, one.operations)))
    return [
        Unscheduled(rank, id_, backward, called, runs, names.get(id_, ""))
        for (id_, backward), sequences in calls.items()
        for called, runs in sequences.items()
        if id_ in expected and called not in expected[id_] and (called or len(expected[id_]) == 1)
    ]


def estimates_of(rank: int, log: CompileLog) -> Iterator[Estimate]:
    """What each graph takes, as inductor thinks; none if the record was damaged."""
    for number, artifact in _numbered(log, ESTIMATES):
        if artifact.text:
            operations, collectives, time, communication = (int(part) for part in artifact.text.split())
            yield Estimate(rank, artifact.compile_id, number, operations, collectives, time, communication)


def executions_of(rank: int, log: CompileLog) -> Iterator[Execution]:
    """The graphs that ran."""
    for _, artifact in _numbered(log, EXECUTION):
        yield Execution(rank, tuple(artifact.text.split()))


def _numbered(log: CompileLog, name: str) -> Iterator[tuple[int, Artifact]]:
    """The artifacts of this name, each with its number among those of its compilation."""
    counts: Counter[str] = Counter()
    for artifact in log.artifacts:
        if artifact.name == name:
            counts[artifact.compile_id] += 1
            yield counts[artifact.compile_id], artifact


def exports_of(rank: int, log: CompileLog) -> list[Export]:
    """What draft export met, each once."""
    counts = Counter(_exported(note) for note in log.exports)
    return [Export(rank, *key, count) for key, count in counts.items()]


def _exported(note: ExportNote) -> tuple[str, str, str, str, int | None]:
    own = next((frame for frame in reversed(note.stack) if not TORCH.search(frame.filename)), None)
    file, line = (own.filename, own.line) if own else ("", None)
    return note.what, note.about, note.reason[:LONGEST_REASON], file, line


# The same graph on several ranks.


class EstimatedGraph(Estimate, frozen=True):
    """What one graph takes on all ranks that have it: the longest estimate, and its rank."""

    ranks: Annotated[Ranks, Shown(drop=1)] = ()
    fastest_ns: Annotated[Nanoseconds, Shown("fastest rank")] = 0
    delta_ns: Annotated[Nanoseconds, Shown("difference")] = 0


def estimated_graphs(report: CompileReport) -> list[EstimatedGraph]:
    """Graphs by the difference between ranks, and then by their time; of a rank that compiled again the last one."""
    graphs: defaultdict[tuple[str, int], dict[int, Estimate]] = defaultdict(dict)
    for one in report.estimates:
        graphs[one.id, one.graph][one.rank] = one
    found = []
    for of_rank in graphs.values():
        slowest = max(of_rank.values(), key=lambda one: one.time_ns)
        fastest = min(one.time_ns for one in of_rank.values())
        delta = slowest.time_ns - fastest
        found.append(
            EstimatedGraph(**asdict(slowest), ranks=sorted(of_rank), fastest_ns=fastest, delta_ns=delta)
        )
    return sorted(found, key=lambda one: (-one.delta_ns, -one.time_ns))


def orders_of(report: CompileReport) -> list[tuple[tuple[str, ...], list[int]]]:
    """Orders of execution, and the ranks with each; the most frequent first."""
    of_rank: defaultdict[int, list[str]] = defaultdict(list)
    for one in report.executions:
        of_rank[one.rank] += one.ids
    ranks: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank, ids in of_rank.items():
        ranks[tuple(ids)].append(rank)
    return sorted(ranks.items(), key=lambda item: -len(item[1]))


def repeated(ids: Sequence[str]) -> list[tuple[str, int]]:
    """An order of execution with equal graphs in a row counted: `0/0`, three times."""
    found: list[tuple[str, int]] = []
    for id_ in ids:
        if found and found[-1][0] == id_:
            found[-1] = id_, found[-1][1] + 1
        else:
            found.append((id_, 1))
    return found


def operations_in_words(operations: Sequence[str]) -> str:
    """`all_gather x 2, add_`: short names, equal ones in a row counted."""
    counts = repeated([short(name) for name in operations])
    shown = ", ".join(name if count == 1 else f"{name} x {count}" for name, count in counts[:MOST_OPERATIONS])
    return (
        f"{shown}, and {len(counts) - MOST_OPERATIONS:,} more" if len(counts) > MOST_OPERATIONS else shown
    ) or "none"
