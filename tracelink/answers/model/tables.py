"""The tables of a summary: rows without anything nested, in which every row of a rank names the rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_type_hints

from msgspec import Struct, defstruct

from tracelink.answers.model.communication import (
    BandwidthRow,
    CollectiveRow,
    Delay,
    Exchange,
    LateRank,
    PairRow,
    PatternRow,
)
from tracelink.answers.model.results import (
    PARTS,
    Cause,
    CriticalPath,
    GapRow,
    KernelRow,
    Launches,
    LineRow,
    Memory,
    ModuleRow,
    Note,
    OperatorRow,
    PathPart,
    PathStep,
    Portion,
    RankSummary,
    ShapeRow,
    Stream,
    Summary,
    WaitRow,
    WhatIf,
)
from tracelink.model.errors import UsageError, choices
from tracelink.model.fields import without_unit
from tracelink.model.results import ResultTable
from tracelink.model.text import counted, number, span

EXPLAINED = {
    "idle": "idle",
    "exposed_communication": "exposed communication",
    "exposed_copies": "exposed copies",
}
"""The fields of steps with causes, and what the table of causes calls them."""


class StepRow(Struct, frozen=True):
    """One step of one rank."""

    rank: int
    step: int | None
    start_ns: int
    duration_ns: int
    compute_ns: int
    exposed_communication_ns: int
    exposed_copy_ns: int
    idle_ns: int
    communication_ns: int
    copy_ns: int


class BreakdownRow(Struct, frozen=True):
    """All steps of one rank."""

    rank: int
    steps: int
    duration_ns: int
    compute_ns: int
    exposed_communication_ns: int
    exposed_copy_ns: int
    idle_ns: int
    exposed_communication_share: float
    idle_share: float


class CauseRow(Struct, frozen=True):
    """One cause of idle or exposed time in all steps of one rank."""

    rank: int
    part: str
    cause: Cause
    waited_for: int | None
    """The rank that was waited for."""
    during: str
    """What the host did then."""
    total_ns: int
    share: float
    """Of the duration of the steps."""


class PathRow(Struct, frozen=True):
    """The critical path on one rank, in one module, or of one kind."""

    by: str
    name: str
    total_ns: int
    share: float
    """Of the length of the path."""


class MemorySample(Struct, frozen=True):
    """The most memory from one time until the next one."""

    rank: int
    counter: str
    time_ns: int
    used_bytes: int


NESTED = frozenset({"over_time", "by_rank", "by_kind", "matrix_bytes"})
"""Fields that are no columns."""


def _columns(row_type: type[Struct]) -> dict[str, Any]:
    types = get_type_hints(row_type)
    return {name: types[name] for name in row_type.__struct_fields__ if name not in NESTED}


def _flat(row_type: type[Struct], *, of_rank: bool = False) -> type[Struct]:
    """The class of the rows without what is nested, with the rank if they are of one."""
    fields = {**({"rank": int} if of_rank else {}), **_columns(row_type)}
    name = row_type.__name__.removesuffix("Row") + "Row"
    return defstruct(name, list(fields.items()), module=__name__, frozen=True)


StreamRow = _flat(Stream, of_rank=True)
LaunchesRow = _flat(Launches, of_rank=True)
MemoryRow = _flat(Memory, of_rank=True)
CollectiveTableRow = defstruct("CollectiveTableRow", list(_columns(CollectiveRow).items()), module=__name__)
ExchangeRow = _flat(Exchange)

PathStepRow = _flat(PathStep)

OF_SUMMARY: Mapping[str, type[Struct]] = {
    "kernels": KernelRow,
    "operators": OperatorRow,
    "modules": ModuleRow,
    "lines": LineRow,
    "gaps": GapRow,
    "waits": WaitRow,
    "shapes": ShapeRow,
    "collectives": CollectiveTableRow,
    "what_if": WhatIf,
    "notes": Note,
}
OF_COMMUNICATION: Mapping[str, type[Struct]] = {
    "bandwidths": BandwidthRow,
    "late": LateRank,
    "delays": Delay,
    "patterns": PatternRow,
    "pairs": PairRow,
    "exchanges": ExchangeRow,
}
OF_PATH: Mapping[str, tuple[type[Struct], Callable[[CriticalPath], Sequence[Any]]]] = {
    "critical_path": (PathRow, lambda path: _divided(path)),
    "path_steps": (PathStepRow, lambda path: path.steps),
    "path_parts": (PathPart, lambda path: path.longest),
}
"""Tables of `Summary`, `Summary.communication` and `Summary.critical_path`, and their rows."""


def table_of(summary: Summary, name: str) -> ResultTable[Any]:
    """One table of a summary; raises `UsageError` if there is no such table."""
    title = name.replace("_", " ").capitalize()
    if name in OF_RANKS:
        row_type, rows, plotted = OF_RANKS[name]
        found = (row for rank in summary.ranks for row in rows(rank))
        return ResultTable.of_rows(row_type, found, title=title, plotted=plotted)
    if name in OF_SUMMARY:
        return _flat_table(OF_SUMMARY[name], getattr(summary, name), title)
    if name in OF_COMMUNICATION:
        return _flat_table(OF_COMMUNICATION[name], getattr(summary.communication, name), title)
    if name in OF_PATH:
        row_type, parts = OF_PATH[name]
        return _flat_table(row_type, parts(summary.critical_path) if summary.critical_path else (), title)
    raise UsageError(f"there is no table {name!r}", advice=choices(name, TABLES))


def _flat_table(row_type: type[Struct], rows: Sequence[Struct], title: str) -> ResultTable[Any]:
    columns = {name: [getattr(row, name) for row in rows] for name in row_type.__struct_fields__}
    return ResultTable.of(row_type, columns, title=title)


def _divided(path: CriticalPath) -> list[PathRow]:
    divisions = {"kind": path.by_kind, "rank": path.by_rank, "module": path.by_module}
    return [
        PathRow(by, name, total, total / (path.length_ns or 1))
        for by, parts in divisions.items()
        for name, total in sorted(parts.items(), key=lambda part: -part[1])
    ]


def _steps(rank: RankSummary) -> Iterable[StepRow]:
    names = StepRow.__struct_fields__[1:]
    return (StepRow(rank.rank, *(getattr(step, name) for name in names)) for step in rank.steps)


def _breakdown(rank: RankSummary) -> Iterable[BreakdownRow]:
    if not rank.steps:
        return
    sums = {name: sum(getattr(step, name) for step in rank.steps) for name in ("duration_ns", *PARTS)}
    whole = sums["duration_ns"] or 1
    yield BreakdownRow(
        rank.rank,
        len(rank.steps),
        **sums,
        exposed_communication_share=sums["exposed_communication_ns"] / whole,
        idle_share=sums["idle_ns"] / whole,
    )


def _causes(rank: RankSummary) -> Iterable[CauseRow]:
    whole = sum(step.duration_ns for step in rank.steps) or 1
    totals: defaultdict[tuple[str, Cause, int | None, str], int] = defaultdict(int)
    for step in rank.steps:
        for field, part in EXPLAINED.items():
            portions: Sequence[Portion] = getattr(step, field)
            for portion in portions:
                totals[part, portion.cause, portion.rank, portion.during] += portion.ns
    for key, total in sorted(totals.items(), key=lambda item: -item[1]):
        yield CauseRow(rank.rank, *key, total, total / whole)


def _memory_over_time(rank: RankSummary) -> Iterable[MemorySample]:
    for memory in rank.memory:
        for time, used in memory.over_time:
            yield MemorySample(rank.rank, memory.counter, time, used)


def _of_rank(row_type: type[Struct], field: str) -> Callable[[RankSummary], Iterable[Struct]]:
    def rows(rank: RankSummary) -> Iterable[Struct]:
        found = getattr(rank, field)
        for value in [found] if isinstance(found, Struct) else found or ():
            yield row_type(rank.rank, *(getattr(value, name) for name in row_type.__struct_fields__[1:]))

    return rows


OF_RANKS: Mapping[str, tuple[type[Struct], Callable[[RankSummary], Iterable[Any]], Sequence[str]]] = {
    "steps": (StepRow, _steps, PARTS),
    "breakdown": (BreakdownRow, _breakdown, PARTS),
    "causes": (CauseRow, _causes, ("total_ns",)),
    "streams": (StreamRow, _of_rank(StreamRow, "streams"), ("busy_ns",)),
    "launches": (LaunchesRow, _of_rank(LaunchesRow, "launches"), ("launch_p50_ns", "queue_p50_ns")),
    "memory": (MemoryRow, _of_rank(MemoryRow, "memory"), ("peak_bytes",)),
    "memory_over_time": (MemorySample, _memory_over_time, ("used_bytes",)),
}
"""Tables with rows of each rank: the class of the rows, the rows of a rank, and the columns of their plot."""

TABLES = (*OF_RANKS, *OF_SUMMARY, *OF_COMMUNICATION, *OF_PATH)
"""The names of all tables."""


def overview_of(summary: Summary) -> tuple[str, dict[str, str]]:
    """A heading and the parts of a summary, in a few lines."""
    time = summary.step_time
    steps = f", {counted(time.count, 'step')} of {span(time.p50)} (median)" if time.count else ""
    sizes = {name: len(summary.table(name)) for name in TABLES}
    ranks = list(summary.table("breakdown").sorted_by("idle_ns", descending=True))
    parts = {"verdict": " ".join(summary.verdict)} if summary.verdict else {}
    parts |= {f"rank {row.rank}": _in_words(row) for row in ranks[:SHOWN]}
    if len(ranks) > SHOWN:
        parts["other ranks"] = f"{number(len(ranks) - SHOWN)}, less idle"
    parts["tables"] = ", ".join(f"{name} {number(rows)}" for name, rows in sizes.items() if rows)
    parts["notes"] = number(len(summary.notes))
    return f"Summary: {counted(len(summary.ranks), 'rank')}{steps}", parts


SHOWN = 4
"""Ranks in an overview: those that are idle longest."""


def _in_words(row: BreakdownRow) -> str:
    whole = row.duration_ns or 1
    shares = (
        f"{without_unit(name).replace('_', ' ')} {100 * getattr(row, name) / whole:.0f} %" for name in PARTS
    )
    return ", ".join(shares)
