"""One of the two runs that are compared: the costs of each step, averaged over its ranks."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from tracelink._io.engine import Engine
from tracelink._model.columns import UNKNOWN, Float64s
from tracelink._model.findings import Finding, Severity
from tracelink._model.job import LinkedJob, Part
from tracelink._model.selection import Numbers
from tracelink._time.model.results import WorkIn
from tracelink._time.rank.account import RankCosts, rank_costs_of
from tracelink._time.rank.costs import Cost, StepPart

FAMILY = re.compile(r"^(?:void )?(?P<family>[^<(]+)")

StepKey = tuple[int | None, int]
"""The number of a step, and how many steps of this number were before it."""


class What(Struct, frozen=True):
    """What a cost is of; costs with equal `part` and `what` are one cause."""

    part: StepPart
    what: str
    name: str


class Series(Struct, frozen=True):
    """The average over ranks of each step."""

    ns: Float64s
    count: Float64s


class Side(Struct, frozen=True):
    """A run as far as it is compared."""

    ranks: Sequence[int]
    world_size: int | None
    work: frozenset[WorkIn]
    steps: Sequence[StepKey]
    duration: Float64s
    """Of each step."""
    costs: Mapping[What, Series]
    moved: Mapping[str, float]
    """Bytes that a rank moves in each step, by operation."""
    versions: Mapping[str, frozenset[str]]
    skipped: Sequence[int]
    """Ranks that have no breakdown or other steps than most."""
    recorded: Mapping[int, Numbers]
    """The steps of each rank that has a breakdown, also those that are not compared."""
    findings: Sequence[Finding] = ()
    """Warnings and errors of the inputs."""

    @property
    def whole_recordings(self) -> bool:
        """True if there are no steps, so that each recording is compared as a whole."""
        return bool(self.steps) and self.steps[0][0] is None


def side_of(job: LinkedJob, engine: Engine, steps: Numbers | None) -> Side:
    """What a job spent its steps on, or these steps of it."""

    def work(part: Part) -> RankCosts:
        return rank_costs_of(part.load(), job, None)

    found = engine.map(work, job.parts)
    profiled = [rank for rank in found if rank.work is not WorkIn.NOTHING and rank.steps]
    used, keys = _comparable_ranks(profiled, steps)
    chosen = [_positions(rank, keys) for rank in used]
    durations = [
        np.array([rank.steps[at].duration_ns for at in places], np.float64)
        for rank, places in zip(used, chosen, strict=True)
    ]
    numbers = [rank.rank for rank in used]
    return Side(
        ranks=numbers,
        world_size=max((rank.world_size for rank in job.ranks if rank.world_size), default=None),
        work=frozenset(rank.work for rank in used),
        steps=keys,
        duration=np.mean(durations, axis=0) if durations else np.empty(0),
        costs=_costs(used, chosen, len(keys)),
        moved=_moved(job, profiled),
        versions=_versions(job),
        skipped=sorted({rank.rank for rank in found} - set(numbers)),
        recorded={
            rank.rank: Numbers.of(step.step for step in rank.steps if step.step is not None)
            for rank in profiled
        },
        findings=[finding for finding in job.findings if finding.severity is not Severity.INFO],
    )


def _keys(rank: RankCosts) -> list[StepKey]:
    seen: Counter[int | None] = Counter()
    keys = []
    for step in rank.steps:
        keys.append((step.step, seen[step.step]))
        seen[step.step] += 1
    return keys


def _comparable_ranks(
    profiled: Sequence[RankCosts], wanted: Numbers | None
) -> tuple[list[RankCosts], list[StepKey]]:
    """The ranks whose wanted steps are those of most ranks, and the steps that all of them have."""
    steps = [[key for key in _keys(rank) if wanted is None or key[0] in wanted] for rank in profiled]
    times = Counter(key for keys in steps for key in keys)
    most = sum(1 for keys in steps if keys)
    frequent = [[key for key in keys if 2 * times[key] > most] for keys in steps]
    shared = max(frequent, key=len, default=[])
    if not shared:
        return [], []
    used = [rank for rank, keys in zip(profiled, steps, strict=True) if set(shared) <= set(keys)]
    return used, shared


def _positions(rank: RankCosts, keys: Sequence[StepKey]) -> list[int]:
    place = {key: index for index, key in enumerate(_keys(rank))}
    return [place[key] for key in keys]


def _costs(ranks: Sequence[RankCosts], chosen: Sequence[Sequence[int]], steps: int) -> dict[What, Series]:
    ns: dict[What, Float64s] = defaultdict(lambda: np.zeros(steps))
    count: dict[What, Float64s] = {}
    share = 1 / max(len(ranks), 1)
    for rank, places in zip(ranks, chosen, strict=True):
        for cost in rank.costs:
            key = _what(cost)
            ns[key] += np.array(cost.ns, np.float64)[places] * share
            counted = np.array(cost.count, np.float64)[places] * share
            count[key] = count[key] + counted if key in count else counted
    return {key: Series(times, count[key]) for key, times in ns.items()}


def _what(cost: Cost) -> What:
    """What is aligned between the runs: operators, families of communication kernels with what they waited for."""
    found = FAMILY.match(cost.name)
    family = (found["family"].strip() if found else cost.name) or "not known"
    match cost.part:
        case StepPart.IDLE:
            return What(cost.part, f"idle: {cost.reason}", "")
        case StepPart.EXPOSED_COMMUNICATION:
            return What(cost.part, f"{family}: {cost.reason}", cost.name)
        case StepPart.EXPOSED_COPY:
            return What(cost.part, cost.name or family, cost.name)
        case _:
            return What(cost.part, cost.operator or family, cost.name)


def _moved(job: LinkedJob, profiled: Sequence[RankCosts]) -> dict[str, float]:
    """Bytes of collectives for each rank and step, by operation; of all recorded steps."""
    parts, collectives = job.participations, job.collectives
    bytes_ = collectives.bytes[parts.collective]
    known = (bytes_ != UNKNOWN) & np.isin(parts.rank, [rank.rank for rank in profiled])
    share = max(sum(len(rank.steps) for rank in profiled), 1)
    operation = collectives.operation[parts.collective[known]]
    total: dict[str, float] = defaultdict(float)
    for code, moved in zip(operation.tolist(), bytes_[known].tolist(), strict=True):
        total[job.strings[code]] += moved / share
    return dict(total)


def _versions(job: LinkedJob) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for source in job.sources:
        if source.version:
            found[source.format].add(source.version)
    return {name: frozenset(versions) for name, versions in found.items()}
