"""What it costs to match thousands of ranks: calls are made by ranks in the workers, and matched in parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import measure
from fleet_calls import FleetOfCalls
from jobs import cpu_seconds
from measure import Cost, Job
from results import Bar, Options, Result, Row, cpu

RANKS = (512, 1024, 2048, 4096)
ENTRIES = 2000
LARGEST_MB = 2000.0
LINEARITY = 1.25
TOGETHER = 32
"""Ranks that a worker makes at once, as it reads small files."""


class Metered:
    """An engine that notes what each step costs, and what it leaves in the store."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.steps: dict[str, dict[str, float]] = {}
        self.current: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def store(self, shared: Sequence[object], *, in_memory: bool) -> Any:
        """A store of the engine; in one process it counts what is put into it."""
        store = self.engine.store(shared, in_memory=in_memory)
        return MeteredStore(store, self) if self.engine.jobs == 1 and not in_memory else store

    def map(
        self, work: Callable[[Any], Any], items: Sequence[Any], shared: Sequence[object] = ()
    ) -> list[Any]:
        """The same as the engine, with a note."""
        name = work.__qualname__.removeprefix("_Steps.").replace(".<locals>.", " ").removesuffix(" work")
        step = self.steps.setdefault(name, {"cpu_s": 0.0, "wall_s": 0.0, "tasks": 0, "bytes": 0})
        self.current = step
        cpu_before, wall_before = cpu_seconds(), time.perf_counter()
        results = self.engine.map(work, items, shared)
        step["cpu_s"] += cpu_seconds() - cpu_before
        step["wall_s"] += time.perf_counter() - wall_before
        step["tasks"] += len(items)
        return results


class MeteredStore:
    """A store in a spool that counts, for each step, the bytes that this process puts into it."""

    def __init__(self, store: Any, engine: Metered) -> None:
        self.store, self.engine = store, engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def put(self, item: Any, again: Any = None) -> Any:
        """The same as the store, counted."""
        stored = self.store.put(item, again)
        self.engine.current["bytes"] += stored.ends[-1]
        return stored


def stored_fleet(fleet: FleetOfCalls, engine: Any, store: Any) -> list[Any]:
    """The calls of all ranks, each made by a worker and put into the store, as after reading."""
    from msgspec.structs import replace

    from tracelink._match.job import StoredCalls
    from tracelink._match.outlines import outlined, with_common_texts

    def work(ranks: range) -> list[StoredCalls]:
        made = [fleet.calls(rank) for rank in ranks]
        outlines = with_common_texts([outlined(rank) for rank in made])
        ticket = store.put({outline.rank: outline for outline in outlines})
        return [replace(StoredCalls.of(rank, store), outlines=ticket) for rank in made]

    batches = [range(first, min(first + TOGETHER, fleet.ranks)) for first in range(0, fleet.ranks, TOGETHER)]
    return [rank for batch in engine.map(work, batches) for rank in batch]


def matched(fleet: FleetOfCalls, engine: Any, clock: str) -> Callable[[], dict[str, Any]]:
    """Work that matches a fleet, and fails if anything is not found."""
    from tracelink._match.job import link_ranks
    from tracelink._model.clock import ClockMode

    metered = Metered(engine)
    store = engine.store((), in_memory=False)
    ranks = stored_fleet(fleet, engine, store)

    def work() -> dict[str, Any]:
        tables = link_ranks(ranks, metered, store, ClockMode(clock))
        complete = tables.strings.index("complete")
        for name, expected in (("collectives", fleet.collectives), ("messages", fleet.messages)):
            found = int((getattr(tables, name).verdict == complete).sum())
            if found != expected:
                raise SystemExit(f"{found} of {expected} {name} are complete")
        return {"entries": fleet.ranks * fleet.entries, "steps": metered.steps, "alive": tables}

    return work


def fleet(options: Options) -> Result:
    """Match 512 to 4096 ranks with 2000 entries each."""
    result = Result()
    for clock, remark in (("host", "clocks of hosts"), ("collectives", "a clock for each rank")):
        for ranks in RANKS if clock == "host" else (RANKS[0], RANKS[-1]):
            job = Job(f"{ranks} x {ENTRIES}, 2 jobs", "match_fleet", (2, ranks, ENTRIES, clock))
            costs = [measure.run(job) for _ in range(options.repeats)]
            each = f"{1e6 * measure.best(costs, cpu) / ranks / ENTRIES:.2f} us for each entry"
            result.rows.append(Row(job.label, costs, remark=f"{remark}: {each}"))
    first, *_, last, alone_first, alone_last = result.rows
    times = RANKS[-1] / RANKS[0]
    result.bars = [
        Bar("CPU for each entry, 4096 / 512 ranks", last.best(cpu) / first.best(cpu) / times, LINEARITY),
        Bar(
            "the same, a clock for each rank",
            alone_last.best(cpu) / alone_first.best(cpu) / times,
            LINEARITY,
        ),
        Bar(
            "largest process, MB", max(largest(cost) for row in result.rows for cost in row.costs), LARGEST_MB
        ),
    ]
    return result


def largest(cost: Cost) -> float:
    """Megabytes of the largest process."""
    return max(cost.peak_mb, cost.children_peak_mb)


SUITES: dict[str, Callable[[Options], Result]] = {"fleet": fleet}
