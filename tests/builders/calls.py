"""Calls of several ranks in a few readable lines.

    rank(0, call("all_reduce", 1, 0, 10), call("barrier", 2), groups=[group("0", 0, 1)])

is what rank 0 of a job did; `whole(4, call(...), ...)` are four ranks which all did the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracelink._match.job import JobTables, StoredCalls, link_ranks
from tracelink._model.clock import ClockMode, Clocks
from tracelink._model.columns import NO_TIME, UNKNOWN, StringTable
from tracelink._model.communications import Calls, Evidence, RankCalls
from tracelink._model.trace import ProcessGroup
from tracelink._run.processes import Processes

Call = dict[str, Any]


def call(
    operation: str = "all_reduce",
    sequence: int | None = None,
    start: int | None = None,
    end: int | None = None,
    *,
    group: str | None = "0",
    elements: int | tuple[int, int] = 8,
    evidence: Evidence | None = None,
    **columns: Any,
) -> Call:
    """A call; one with times rests on kernels unless said otherwise, and one without on nothing."""
    given, gotten = elements if isinstance(elements, tuple) else (elements, elements)
    if evidence is None:
        evidence = Evidence.NONE if start is None and end is None else Evidence.KERNEL
    times = {"start": NO_TIME if start is None else start, "end": NO_TIME if end is None else end}
    what = {"operation": operation, "group": group, "type": "Float", "evidence": evidence}
    numbers = {"sequence": UNKNOWN if sequence is None else sequence, "elements_in": given}
    return {**what, **numbers, "elements_out": gotten, **times, **columns}


def send(target: int, sequence: int | None = None, start: int | None = None, **more: Any) -> Call:
    """The sending of a message to a rank of the group."""
    return call("send", sequence, start, target=target, point_to_point=True, **more)


def recv(source: int, sequence: int | None = None, end: int | None = None, **more: Any) -> Call:
    """The receiving of a message from a rank of the group."""
    return call("recv", sequence, None, end, source=source, point_to_point=True, **more)


def group(name: str, *ranks: int, size: int = 0, description: str = "", backend: str = "") -> ProcessGroup:
    """A process group as a source describes it."""
    return ProcessGroup(name, description, ranks, size or len(ranks), backend)


def rank(
    number: int,
    *calls: Call,
    groups: Sequence[ProcessGroup] = (),
    world: int | None = None,
    host: str = "",
) -> RankCalls:
    strings = StringTable()
    columns: dict[str, list[Any]] = {}
    for name in sorted({name for one in calls for name in one}):
        values = [one.get(name, UNKNOWN) for one in calls]
        if name in Calls.text_columns():
            values = [UNKNOWN if value in (None, UNKNOWN) else strings[value] for value in values]
        elif name in ("point_to_point", "global_ranks"):
            values = [value is True for value in values]
        elif name in ("enqueued", "start", "end"):
            values = [NO_TIME if value in (None, UNKNOWN) else value for value in values]
        columns[name] = values
    table = Calls.of(len(calls), **columns)
    return RankCalls(number, strings.texts(), table, tuple(groups), host, world)


def whole(count: int, *calls: Call, **more: Any) -> list[RankCalls]:
    """So many ranks of one group, all of which did the same."""
    world = [group("0", *range(count), description="default_pg")]
    return [rank(number, *calls, groups=world, **more) for number in range(count)]


def told(tables: JobTables) -> list[tuple[str, int, str, list[int], str]]:
    """Each collective: group, number (or place, where it has none), operation, ranks, verdict."""
    collectives, parts = tables.collectives, tables.participations
    numbers = np.where(collectives.sequence == UNKNOWN, collectives.order, collectives.sequence).tolist()
    return [
        (
            tables.groups[collectives.group[row]].name,
            number,
            tables.strings[collectives.operation[row]],
            parts.rank[parts.collective == row].tolist(),
            tables.strings[collectives.verdict[row]],
        )
        for row, number in enumerate(numbers)
    ]


def messages(tables: JobTables) -> list[tuple[int, int, int, int, str]]:
    """Each message: the ranks it goes between, the events of both ends, verdict."""
    table = tables.messages
    columns = (table.source, table.target, table.send, table.receive, table.verdict)
    return [
        (source, target, sent, received, tables.strings[verdict])
        for source, target, sent, received, verdict in zip(*(c.tolist() for c in columns), strict=True)
    ]


def linked(ranks: Sequence[RankCalls], clock: ClockMode | Clocks = ClockMode.HOST) -> JobTables:
    """What the ranks did together, matched in one process."""
    engine = Processes(1)
    store = engine.store((), in_memory=True)
    return link_ranks([StoredCalls.of(rank, store) for rank in ranks], engine, store, clock)
