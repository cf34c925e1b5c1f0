"""How a job of very many ranks behaves on a cluster: simulated from recorded costs, next to what was measured.

python benchmarks/fleet_model.py                    # prints the tables, and writes docs/images/fleet-scaling.svg
python benchmarks/fleet_model.py --record           # measures this machine, and writes fleet_costs.json first

Tasks of each step are given to workers one after the other, at the rate of one scheduler; each takes its CPU time and
the time of its bytes, by a spread that makes some late. What is not measured on one machine (network, store) is
assumed, and named so in fleet_costs.json.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))  # for the generators of synthetic jobs
COSTS = HERE / "fleet_costs.json"
PICTURE = HERE.parent / "docs" / "images" / "fleet-scaling.svg"
MB = 1e6

RANKS = (64, 256, 1024, 4096, 16384)
WORKERS = (2, 8, 32, 128, 512)
ENTRIES = 2000

PART_CALLS, BATCH_CALLS = 1 << 18, 1 << 16
"""As in tracelink._match.job."""


# The costs, as fleet_costs.json has them.


@dataclass(frozen=True, slots=True)
class Costs:
    """What a unit of each kind of work costs."""

    steps: dict[str, tuple[float, float]]
    """CPU microseconds of each step of matching for each entry, and what each further thousand ranks add to that."""
    bytes: dict[str, float]
    """Bytes for each entry that a step leaves for the next; `ticket` for each piece, `rank` for each rank."""
    memory: dict[str, float]
    """MB of a process without work, and bytes for each entry of a part, of a solution, and of tables."""
    read_cpu_s_per_mb: float
    read_memory_per_mb: float
    mb_per_rank: float
    task_ms: float
    step_s: float
    """Sending the work of a step to all workers."""
    network_mb_s: float
    store_mb_s: float
    stream_mb_s: float
    """What one worker gets from the store."""
    spread: float
    """Standard deviation of the logarithm of the time of a task."""

    @classmethod
    def loaded(cls, path: Path = COSTS) -> Costs:
        """The recorded costs."""
        recorded = json.loads(path.read_text())
        return cls(**recorded["costs"])

    def cpu(self, step: str, ranks: int) -> float:
        """CPU seconds of a step for each entry."""
        each, further = self.steps[step]
        return (each + further * ranks / 1000) / MB


# The cluster: workers, one scheduler, and what flows between them.


@dataclass(slots=True)
class Run:
    """One simulated run."""

    costs: Costs
    ranks: int
    workers: int
    seconds: dict[str, float] = field(default_factory=dict)
    moved_mb: dict[str, float] = field(default_factory=dict)
    memory_mb: dict[str, float] = field(default_factory=dict)
    tasks: int = 0
    _random: random.Random = field(default_factory=lambda: random.Random(1))

    def step(self, name: str, durations: Sequence[float], shared_s: float = 0.0) -> None:
        """Tasks of a step on all workers; `shared_s` is the time of what they all wait for together."""
        between = self.costs.task_ms / 1000
        free = [0.0] * self.workers
        for number, duration in enumerate(durations):
            start = max(heapq.heappop(free), number * between)
            late = math.exp(self._random.gauss(0.0, self.costs.spread))
            heapq.heappush(free, start + duration * late + between)
        self.seconds[name] = self.seconds.get(name, 0.0) + max(*free, shared_s) + self.costs.step_s
        self.tasks += len(durations)

    def moved(self, way: str, megabytes: float) -> None:
        """Bytes between two kinds of machines."""
        self.moved_mb[way] = self.moved_mb.get(way, 0.0) + megabytes

    @property
    def total(self) -> float:
        """Seconds of all steps."""
        return sum(self.seconds.values())

    @property
    def longest(self) -> str:
        """The step that takes most of the time."""
        return max(self.seconds, key=lambda name: self.seconds[name])


def simulated(
    costs: Costs,
    ranks: int,
    workers: int,
    *,
    mb_per_rank: float | None = None,
    read: bool = True,
    match: bool = True,
) -> Run:
    """Reads, links and matches a job."""
    run = Run(costs, ranks, workers)
    size = costs.mb_per_rank if mb_per_rank is None else mb_per_rank
    if read:
        _read(run, size)
    if match:
        _match(run)
    entries = ranks * ENTRIES
    memory, base = costs.memory, costs.memory["base_mb"]
    part = min(entries, PART_CALLS)
    run.memory_mb = {
        "worker": base
        + max(
            part * memory["part"] / MB,
            entries * memory["solve"] / MB,
            ranks * memory["plan_rank"] / MB + ranks**2 * memory["plan_pair"] / MB,
            size * costs.read_memory_per_mb if read else 0.0,
        ),
        "client": base + entries * memory["tables"] / MB + ranks * costs.bytes["rank"] / MB,
        "scheduler": base + run.tasks * memory["task"] / MB,
    }
    return run


def _read(run: Run, size: float) -> None:
    costs = run.costs
    together = max(1, min(32, round(8 / size)))
    tasks = -(-run.ranks // together)
    whole = run.ranks * size
    each = together * size * (costs.read_cpu_s_per_mb + 1 / costs.stream_mb_s)
    run.step("read", [each] * tasks, whole / costs.store_mb_s)
    run.moved("store", whole)
    run.moved("client", run.ranks * costs.bytes["rank"] / MB)
    run.moved("scheduler", tasks * costs.bytes["item"] / MB)


def _match(run: Run) -> None:
    costs, entries = run.costs, run.ranks * ENTRIES
    parts, batches = max(1, -(-entries // PART_CALLS)), max(1, -(-entries // BATCH_CALLS))
    away = 1 - 1 / run.workers
    alone = entries <= PART_CALLS

    def spread_out(name: str, tasks: int, step: str, bytes_in: float) -> None:
        """A step whose tasks fetch what other workers have left."""
        fetched = entries * bytes_in * away / MB
        each = entries * costs.cpu(step, run.ranks) / tasks + fetched / tasks / costs.network_mb_s
        run.step(name, [each] * tasks)
        run.moved("worker to worker", fetched)

    def on_one(name: str, step: str, megabytes: float) -> None:
        run.step(name, [entries * costs.cpu(step, run.ranks) + megabytes / costs.network_mb_s])
        run.moved("worker to worker", megabytes)

    outlines = (run.ranks * costs.bytes["outline"] + run.ranks**2 * costs.bytes["outline_pair"]) / MB
    if alone:
        cpu = entries * sum(costs.cpu(step, run.ranks) for step in costs.steps)
        run.seconds["match"] = cpu + entries * costs.bytes["calls"] / MB / costs.network_mb_s
        run.moved("client", entries * costs.bytes["calls"] / MB + outlines)
        return
    on_one("plan", "plan", outlines * away)
    spread_out("cut", batches, "cut", 0.0)
    spread_out("match", parts, "match", costs.bytes["piece"])
    spread_out("clocks", 2 * parts, "glance", 0.0)
    spread_out("clocks", 2 * parts, "observe", 0.0)
    on_one("clocks", "solve", entries * costs.bytes["observation"] * away / MB)
    spread_out("measure", parts, "measure", 0.0)
    tables = entries * costs.bytes["tables"] / MB
    run.seconds["tables to the client"] = entries * costs.cpu("join", run.ranks) + tables / costs.network_mb_s
    run.moved("client", tables)
    pieces = parts * min(batches, 2 + batches / 4)
    run.moved("scheduler", (pieces * costs.bytes["ticket"] + run.tasks * costs.bytes["item"]) / MB)


# Measuring: steps of matching in one process, tasks on two Dask workers, and dumps that are read.


SMALL, LARGE, PREDICTED = 512, 2048, (1024, 4096)
PROFILE_BYTES, TASKS = 25_000_000, 1000
FEW, MANY = 16, 64
"""Profiles by which the cost of reading is measured, and profiles that are predicted."""
BYTES = {"outline": 2000.0, "outline_pair": 0.4, "ticket": 450.0, "rank": 2500.0, "item": 3000.0}
"""Of a pickled outline, which lists the members of groups once for 32 ranks, and of what names a piece or a rank."""
MEMORY = {
    "base_mb": 60.0,
    "part": 570.0,
    "solve": 51.0,
    "plan_rank": 20_000.0,
    "plan_pair": 0.4,
    "task": 5000.0,
}
"""Bytes at most, from VmHWM after each step of 4096 ranks x 2000 entries in one process."""
NAMES = {
    "plan": "plan",
    "cut": "cut",
    "match": "match",
    "clocks glance": "glance",
    "clocks": "observe",
    "clocks solved": "solve",
    "measured": "measure",
}


def recorded(repeats: int) -> dict[str, Any]:
    """Costs of this machine, and what two Dask workers took."""
    import measure
    import rank_inputs
    from measure import Job

    def runs(function: str, *arguments: object) -> list[measure.Cost]:
        return [measure.run(Job("", function, arguments)) for _ in range(repeats)]

    small, large = (runs("match_fleet", 1, ranks, ENTRIES, "host") for ranks in (SMALL, LARGE))
    steps = {}
    for name, step in NAMES.items():
        steps[step] = _line(
            *(min(cost.details["steps"][name]["cpu_s"] for cost in costs) for costs in (small, large))
        )
    joined = [
        min(cost.cpu_s - sum(step["cpu_s"] for step in cost.details["steps"].values()) for cost in costs)
        for costs in (small, large)
    ]
    steps["join"] = _line(*joined)
    profiles = rank_inputs.long_profiles(MANY, PROFILE_BYTES)
    paths, size = [profile.path for profile in profiles], profiles[0].megabytes
    memory = min(cost.peak_mb for cost in runs("store_ranks", 1, *paths[:FEW]))
    reading = min(
        cost.cpu_s for cost in runs("store_ranks", 2, *paths[:FEW])
    )  # both cores are busy, as on a cluster
    one, many = (min(cost.wall_s for cost in runs("many_tasks", 2, count)) for count in (1, TASKS))
    measured = {
        "matching": {
            str(ranks): min(cost.wall_s for cost in runs("match_fleet_on_dask", 2, ranks, ENTRIES, "host"))
            for ranks in PREDICTED
        },
        "reading": {str(MANY): min(cost.wall_s for cost in runs("store_ranks_on_dask", 2, *paths))},
    }
    entries = LARGE * ENTRIES
    left = {name: large[0].details["steps"][name]["bytes"] / entries for name in NAMES}
    costs = {
        "steps": steps,
        "bytes": {
            "calls": 138.0,
            "piece": left["cut"],
            "observation": left["clocks"],
            "tables": left["measured"],
            **BYTES,
        },
        "memory": {**MEMORY, "tables": (large[0].peak_mb - MEMORY["base_mb"]) * MB / entries},
        "read_cpu_s_per_mb": reading / FEW / size,
        "read_memory_per_mb": memory / size,
        "mb_per_rank": size,
        "task_ms": 1000 * (many - one) / TASKS,
        "step_s": one,
        **ASSUMED,
    }
    return {"assumed": [*ASSUMED, "memory.task", "bytes.item"], "costs": costs, "measured_wall_s": measured}


def _line(small: float, large: float) -> tuple[float, float]:
    """Microseconds for each entry, and what each further thousand ranks add, from the CPU seconds of two sizes."""
    first, second = (MB * cpu / ranks / ENTRIES for cpu, ranks in ((small, SMALL), (large, LARGE)))
    slope = max(0.0, (second - first) / (LARGE - SMALL) * 1000)
    return first - slope * SMALL / 1000, slope


ASSUMED: dict[str, Any] = {
    "network_mb_s": 1000.0,
    "store_mb_s": 20_000.0,
    "stream_mb_s": 200.0,
    "spread": 0.15,
}
"""One machine has no network and no store: 10 Gbit/s for each worker, and an object store of a large bucket."""


# What is printed and drawn.


def report(costs: Costs, measured: dict[str, dict[str, float]]) -> Iterator[str]:
    """The tables of docs/fleet.md."""
    yield "| on 2 workers of one machine | measured, s | simulated, s | error |\n|---|---|---|---|"
    for what, walls in measured.items():
        for ranks, seconds in walls.items():
            run = simulated(_here(costs), int(ranks), 2, read=what == "reading", match=what == "matching")
            error = 100 * (run.total / seconds - 1)
            yield f"| {what} {int(ranks):,} ranks | {seconds:.1f} | {run.total:.1f} | {error:+.0f} % |"
    yield ""
    yield (
        "| ranks of 25 MB | workers | time, s | longest step | worker, client, scheduler, MB "
        "| to the client, through the scheduler, worker to worker, MB |\n|---|---|---|---|---|---|"
    )
    for ranks in RANKS:
        for workers in WORKERS:
            run = simulated(costs, ranks, workers, mb_per_rank=25.0)
            memory = ", ".join(f"{run.memory_mb[one]:,.0f}" for one in ("worker", "client", "scheduler"))
            moved = ", ".join(
                f"{run.moved_mb.get(way, 0):,.1f}" for way in ("client", "scheduler", "worker to worker")
            )
            yield f"| {ranks:,} | {workers} | {run.total:,.0f} | {run.longest} | {memory} | {moved} |"


def _here(costs: Costs) -> Costs:
    """The costs on one machine, where workers map the files of others, and files are in memory."""
    from dataclasses import replace

    return replace(costs, network_mb_s=math.inf, store_mb_s=math.inf, stream_mb_s=math.inf, spread=0.0)


WIDTH, HEIGHT, LEFT, BOTTOM = 640, 340, 70, 40
DECADES = range(-1, 5)
"""Of the seconds that are drawn."""
COLORS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951")


def picture(costs: Costs) -> str:
    """Time over the number of workers, a line for each number of ranks, both logarithmic."""

    def x(workers: float) -> float:
        share = math.log(workers / WORKERS[0]) / math.log(WORKERS[-1] / WORKERS[0])
        return LEFT + share * (WIDTH - LEFT - 90)

    def y(seconds: float) -> float:
        share = (math.log10(seconds) - DECADES[0]) / (DECADES[-1] - DECADES[0])
        return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - 20)

    lines = []
    for decade in DECADES:
        height = y(10.0**decade)
        lines.append(
            f'<line x1="{LEFT}" x2="{WIDTH - 90}" y1="{height:.0f}" y2="{height:.0f}" stroke="#ddd"/>'
        )
        lines.append(
            f'<text x="{LEFT - 6}" y="{height + 4:.0f}" text-anchor="end">{10.0**decade:,g} s</text>'
        )
    lines += [
        f'<text x="{x(workers):.0f}" y="{HEIGHT - 20}" text-anchor="middle">{workers}</text>'
        for workers in WORKERS
    ]
    lines.append(f'<text x="{(WIDTH - 30) / 2:.0f}" y="{HEIGHT - 4}" text-anchor="middle">workers</text>')
    for ranks, color in zip(RANKS, COLORS, strict=True):
        points = [(x(each), y(simulated(costs, ranks, each, mb_per_rank=25.0).total)) for each in WORKERS]
        path = " ".join(f"{across:.1f},{up:.1f}" for across, up in points)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        lines.append(
            f'<text x="{points[-1][0] + 6:.0f}" y="{points[-1][1] + 4:.0f}" fill="{color}">{ranks:,} ranks</text>'
        )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
    return f'{head} font-size="12">\n' + "\n".join(lines) + "\n</svg>\n"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Simulate a job of very many ranks on a cluster.")
    parser.add_argument("--record", action="store_true", help="measure this machine first")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    if options.record:
        COSTS.write_text(json.dumps(recorded(options.repeat), indent=1) + "\n")
    costs = Costs.loaded()
    print("\n".join(report(costs, json.loads(COSTS.read_text())["measured_wall_s"])))
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture(costs))


if __name__ == "__main__":
    main()
