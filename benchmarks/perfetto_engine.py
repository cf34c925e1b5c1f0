"""What it takes Perfetto's own engine to load traces: those versions of it that the peer tests use."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import measure
from measure import Cost, JobFailed
from results import Result, failures_of

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from peers.peers_cache import ENGINES, cache
from peers.perfetto_process import EngineError, PerfettoEngine

FETCH = "tests/peers/perfetto_engine/fetch.sh"
MAIN_LISTS = ("slice", "flow", "args")

Loads = dict[str, list[Cost]]


@dataclass(frozen=True, slots=True)
class Load:
    """Loading a trace, beside what else reads it."""

    engine: PerfettoEngine
    trace: Path

    @property
    def label(self) -> str:
        """The name of its row."""
        return f"Perfetto's engine {self.engine.version}"

    @property
    def remark(self) -> str:
        """What runs it."""
        return "WebAssembly in node"

    def measured(self) -> Cost:
        """One load."""
        return loaded(self.engine, self.trace)


def engines(result: Result) -> Iterator[PerfettoEngine]:
    """The versions that are there; the others are named."""
    for version in ENGINES:
        with failures_of(f"Perfetto's engine {version}", result):
            yield found(version)


def newest(result: Result) -> Iterator[PerfettoEngine]:
    """The newest version, if it is there."""
    version = max(ENGINES)
    with failures_of(f"Perfetto's engine {version}", result):
        yield found(version)


def found(version: str) -> PerfettoEngine:
    """A version of the engine, and what runs it."""
    node, folder = shutil.which("node"), cache() / ENGINES[version]
    if node is None:
        raise JobFailed("node is not installed")
    if not folder.exists():
        raise JobFailed(f"it is not here; {FETCH} fetches it")
    return PerfettoEngine(version, folder, node)


def loads(engine: PerfettoEngine, traces: Mapping[str, Path], rounds: int, result: Result) -> Loads:
    """One load of each trace in a round; a trace that cannot be loaded is named."""
    costs: Loads = {name: [] for name in traces}
    for _ in range(rounds):
        for name in list(costs):
            try:
                costs[name].append(loaded(engine, traces[name]))
            except JobFailed as failure:
                result.failures.append(f"{engine.version} loads {name}: {failure}")
                del costs[name]
    return costs


def loaded(engine: PerfettoEngine, trace: Path) -> Cost:
    """One load in a process of its own, the start of the engine not included."""
    try:
        with engine.load(trace) as there:
            counts = {name: there.value(f"select count() from {name}") for name in MAIN_LISTS}
            took = there.took
    except EngineError as error:
        raise JobFailed(str(error).partition("\n")[0]) from error
    peak = took["peak_mb"]
    details = {"heap_mb": took["heap_mb"], **counts}
    return Cost(took["cpu_s"], took["wall_s"], peak, tree_peak_mb=peak, details=details)


def heap(cost: Cost) -> float:
    """Megabytes that the engine itself has allocated at its most."""
    megabytes: float = cost.details["heap_mb"]
    return megabytes


def ratio(costs: Loads, ours: str, other: str, pick: measure.Pick) -> float | None:
    """The best by the best, if both could be loaded."""
    both = ours in costs and other in costs
    return measure.best_ratio(costs[ours], costs[other], pick) if both else None
