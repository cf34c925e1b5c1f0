"""Flight-recorder dumps of synthetic jobs that use NCCL, or another backend: healthy, or with one known fault.

recorded = job(Plan(world=16, stages=2, kind="mixed"), Fault("skipped"), Snapshot("timed_out"))
recorded.write(folder)
recorded.truth.culprits
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from builders.recorder import pickled
from generators.flight_recorder import Recorder, with_evidence
from generators.recorded_faults import COLLECTIVE_FAULTS, MESSAGE_FAULTS, QUEUE_FAULTS, Place, Scene
from generators.recorded_plan import SECOND_NS, START_NS, Fault, Plan, Program, Snapshot, Truth
from generators.recorded_run import Run, run
from generators.recorded_training import programs

__all__ = ["FAULTS", "Fault", "Plan", "RecordedJob", "Snapshot", "Truth", "faults", "job"]

FAULTS = {**COLLECTIVE_FAULTS, **MESSAGE_FAULTS}
"""Everything that can go wrong, by name."""

FILE_NAME = "comm_lib_trace_rank_"


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """The dumps of a job and what is true of it."""

    plan: Plan
    snapshot: Snapshot
    dumps: Mapping[int, dict[str, Any]]
    """Of each rank that has one that can be read."""
    cut_short: Mapping[int, bytes]
    """Of each rank whose dump breaks off."""
    truth: Truth | None
    """None if the job is healthy."""
    taken: Mapping[int, int]
    """When each rank's dump was made, in true time."""

    def files(self) -> dict[str, bytes]:
        """The dumps as torch writes them, by file name."""
        whole = {f"{FILE_NAME}{rank}": pickled(content) for rank, content in self.dumps.items()}
        return whole | {f"{FILE_NAME}{rank}": data for rank, data in self.cut_short.items()}

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in self.files().items():
            (folder / name).write_bytes(data)


def job(plan: Plan, fault: Fault | None = None, snapshot: Snapshot = Snapshot()) -> RecordedJob:  # noqa: B008
    """Runs a job and takes its dumps. Raises ValueError where the fault makes no sense."""
    random = Random(f"fault {plan.seed} {fault.kind}" if fault else 0)
    scene = Scene(plan, programs(plan), fault.share if fault else 0, random)
    differing, truth = inject(scene, fault) if fault else ({}, None)
    if snapshot.when == "running" and truth is not None and truth.hangs:
        raise ValueError("a job that hangs is not running")
    done = run(plan, [differing.get(rank, each) for rank, each in enumerate(scene.programs)], scene.deaths)
    absent = {*snapshot.missing, *scene.deaths, *(truth.culprits if truth and truth.fault == "died" else ())}
    taken = {rank: time for rank, time in times(plan, done, snapshot).items() if rank not in absent}
    contents = {
        rank: Recorder(plan, rank, done.issued[rank], time, snapshot.when == "timed_out").content()
        for rank, time in taken.items()
    }
    broken = {rank: _half(pickled(contents.pop(rank))) for rank in snapshot.cut_short if rank in contents}
    shown = with_evidence(truth, plan, snapshot, contents) if truth else None
    return RecordedJob(plan, snapshot, contents, broken, shown, taken)


def times(plan: Plan, done: Run, snapshot: Snapshot) -> dict[int, int]:
    """When the dump of each rank is taken."""
    if snapshot.moments:
        return {rank: START_NS + moment for rank, moment in enumerate(snapshot.moments)}
    random = Random(f"snapshot {plan.seed}")
    waits = {
        "settled": snapshot.wait_ns,
        "timed_out": plan.timeout_ms * 1_000_000 + SECOND_NS,
        "running": round((snapshot.at - 1) * (done.over - START_NS)),
    }
    return {
        rank: done.over + waits[snapshot.when] + random.randint(0, snapshot.skew_ns)
        for rank in range(plan.world)
    }


def inject(scene: Scene, fault: Fault) -> tuple[Mapping[int, Program], Truth]:
    kind = (FAULTS | QUEUE_FAULTS)[fault.kind]
    everyone = range(scene.plan.world)
    ranks = [fault.rank] if fault.rank is not None else scene.random.sample(everyone, scene.plan.world)
    for clear in (True, False) if kind.needs_majority else (False,):
        for rank in ranks:
            if found := _suited(scene, fault, rank, 3 if clear else 2):
                place = scene.random.choice(found)
                differing, more = kind.inject(place)
                truth = replace(place.truth(fault.kind, kind.verdict), **{"also": kind.also, **more})
                return differing, replace(truth, tie=truth.tie or (kind.needs_majority and not clear))
    raise ValueError(f"{fault} makes no sense in {scene.plan}")


def _suited(scene: Scene, fault: Fault, rank: int, members: int) -> list[Place]:
    return [
        place
        for place in scene.places(rank)
        if len(place.call.group.ranks) >= members
        and (fault.step is None or fault.step == place.step)
        and (fault.role is None or fault.role == place.call.group.description)
        and (fault.number is None or fault.number == place.number)
        and not (scene.plan.blocks and place.call.messages)
        and (FAULTS | QUEUE_FAULTS)[fault.kind].suits(place)
    ]


@cache
def faults(plan: Plan) -> list[str]:
    """The kinds of faults that make sense in a job."""
    scene = Scene(plan, programs(plan))
    return [
        kind for kind in FAULTS if any(_suited(scene, Fault(kind), rank, 2) for rank in range(plan.world))
    ]


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]
