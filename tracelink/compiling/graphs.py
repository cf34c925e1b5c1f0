"""What the compiled graphs of each rank contain: schedules, estimates, what ran; and what draft export met."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from tracelink.compiling.divergences import ESTIMATES, EXECUTION, SCHEDULE, short
from tracelink.compiling.model import TORCH, CompileReport, Estimate, Execution, Export, Schedule, Unscheduled
from tracelink.model.compiles import Artifact, CompileLog, ExportNote

LONGEST_REASON = 400


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


def unscheduled_of(rank: int, schedules: Sequence[Schedule], calls: Calls) -> list[Unscheduled]:
    """Runs whose collectives no schedule of the compilation has; nothing is known of one without schedules."""
    expected: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
    for one in schedules:
        expected[one.id].add(tuple(map(short, one.operations)))
    return [
        Unscheduled(rank, id_, backward, called, runs)
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


class EstimatedGraph(Struct, frozen=True):
    """What one graph takes on all ranks that have it."""

    id: str
    graph: int
    ranks: Sequence[int]
    fastest_ns: int
    slowest_ns: int
    slowest: int
    """The rank with the longest estimate."""
    collective_ns: int
    """On that rank."""
    operations: int

    @property
    def delta_ns(self) -> int:
        """How much longer than on the fastest rank it takes on the slowest one."""
        return self.slowest_ns - self.fastest_ns


def estimated_graphs(report: CompileReport) -> list[EstimatedGraph]:
    """Graphs by the difference between ranks, and then by their time; of a rank that compiled again the last one."""
    graphs: defaultdict[tuple[str, int], dict[int, Estimate]] = defaultdict(dict)
    for one in report.estimates:
        graphs[one.id, one.graph][one.rank] = one
    found = []
    for (id_, graph), of_rank in graphs.items():
        slowest = max(of_rank.values(), key=lambda one: one.time_ns)
        fastest = min(one.time_ns for one in of_rank.values())
        found.append(
            EstimatedGraph(
                id_,
                graph,
                sorted(of_rank),
                fastest,
                slowest.time_ns,
                slowest.rank,
                slowest.collective_ns,
                slowest.operations,
            )
        )
    return sorted(found, key=lambda one: (-one.delta_ns, -one.slowest_ns))


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
