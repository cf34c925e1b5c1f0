"""Synthetic jobs in folders: profiles, execution traces, recorder dumps, samples of metrics, and what is true of them.

No GPU ran: the times are invented. The layouts are those of torch 2.6 on CUDA, of dumps of torch 2.9 for NCCL, and of
`nvidia-smi --query-gpu=... --format=csv -lms 100`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from generators.files import KINETO, SOURCES, Kept, write_files
from generators.job import Cluster, Job
from generators.recorded_jobs import Fault, Plan, RecordedJob, Snapshot
from generators.recorded_jobs import job as recorded_job
from generators.recording import Participation, Recording
from generators.training import simulate, slow_step, train_step

WHOLE = Kept()


def write(job: Job, folder: Path, kept: Kept = WHOLE, **how: Any) -> dict[str, Any]:
    """Writes a job, or what is kept of it, with its truth next to the folder; returns the whole truth."""
    recordings = simulate(job)
    write_files(job, recordings, folder, kept, **how)
    facts = truth(job, recordings, kept)
    _write_json(folder, facts, None if isinstance(job, Cluster) else 1)
    return facts


def write_cluster(folder: Path, kept: Kept = WHOLE, **parameters: Any) -> dict[str, Any]:
    """Writes a job of these parameters of `Cluster`, or what is kept of it; returns the whole truth."""
    return write(Cluster(**parameters), folder, kept)


def gpu_pair(folder: Path, *, plain: bool = False, **parameters: Any) -> None:
    """The sample of a pair of GPUs, or a job of other parameters; `plain` files are not compressed."""
    write(Job(**parameters), folder, compressed=not plain)


def many_hosts(folder: Path, *, compressed: bool = False, **parameters: Any) -> None:
    """A job on many hosts: tensor, data and pipeline parallel, with clock errors and late ranks."""
    write(Cluster(**parameters), folder, compressed=compressed)


def two_runs(folder: Path) -> None:
    """Two runs of one job: in the second one kernels are slower and a data loader makes a rank late."""
    job, kept = Job(steps=6, layers=2, clock_skew_ns=0), Kept(sources=[KINETO])
    for name, step in (("run_before", train_step), ("run_after", slow_step)):
        write_files(job, simulate(job, step), folder / name, kept, compressed=True)


def hung_job(folder: Path, *, fault: str = "", ranks: int = 8, seed: int = 0) -> RecordedJob:
    """Recorder dumps of the sample that hangs, or of a job with another fault in some rank."""
    wrong = Fault(fault) if fault else Fault("never_joined", rank=3, role="mesh_dp")
    recorded = recorded_job(Plan(world=ranks, seed=seed), wrong, Snapshot("timed_out"))
    assert recorded.truth
    recorded.write(folder / "dumps")
    _write_json(folder, asdict(recorded.truth))
    return recorded


def truth_file(folder: Path) -> Path:
    """The file with the truth of a job: next to its folder, which has only what a job leaves."""
    return folder.with_name(f"{folder.name}.truth.json")


def _write_json(folder: Path, facts: dict[str, Any], indent: int | None = 1) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(facts, indent=indent, default=sorted)
    truth_file(folder).write_text(f"{text}\n", "utf-8")


# What is true of a job: links, collectives, messages and clock offsets, by the ids in the files.


def truth(job: Job, recordings: Sequence[Recording], kept: Kept) -> dict[str, Any]:
    """The whole truth; of a job on many hosts without the links within ranks, which are very many."""
    many = isinstance(job, Cluster)
    steps = range(1, job.steps + 1)
    shared = _Shared(job, recordings, kept)
    groups = {group.number: group for rank in range(job.ranks) for group in job.groups(rank)}
    return {
        "job": asdict(job),
        "ranks": [clock(job, one.rank) | ({} if many else links(one)) for one in recordings],
        **({"stragglers": [*map(job.straggler, steps)]} if isinstance(job, Cluster) else {}),
        "groups": [
            {"name": group.name, "description": group.description, "ranks": list(group.ranks)}
            for _, group in sorted(groups.items())
        ],
        "collectives": shared.collectives(),
        "messages": shared.messages(),
    }


def clock(job: Job, rank: int) -> dict[str, Any]:
    """Where the clock of a rank stands: at the true time `clock_reference_ns` it shows so much more."""
    own = {f"clock_{name}": value for name, value in asdict(job.clock(rank)).items()}
    return {"rank": rank, "host": job.host(rank), **own}


def links(recording: Recording) -> dict[str, Any]:
    """The links of one rank, and how many events with a duration there are, by category."""
    slices = Counter(operation.category for operation in recording.operations)
    slices.update(event.category for event in recording.gpu)
    slices.update(python_function=len(recording.frames), cuda_runtime=len(recording.calls))
    slices.update(overhead=1, Trace=1)
    return {
        "slices": dict(sorted(slices.items())),
        "launches": [
            {"correlation": one.correlation, "call": one.name, "external_id": one.args.get("External id")}
            | {"gpu_events": one.kernels}
            for one in recording.calls
            if one.kernels
        ],
        "backward_of": [
            {"forward": forward.external_id, "backward": backward.external_id}
            for forward, backward in recording.backward_of
        ],
        "same_et_kineto": [
            {"node": operation.node, "record_function": operation.record_function}
            for operation in recording.operations
        ],
        "same_recorder_kineto": [
            {"record": part.record, "external_id": part.external_id} for part in recording.participations
        ],
    }


class _Shared:
    """Collectives and messages with true times, and with what the clocks of the ranks showed."""

    def __init__(self, job: Job, recordings: Sequence[Recording], kept: Kept) -> None:
        self.job = job
        self.parts = [part for recording in recordings for part in recording.participations]
        self.shown = {
            source: {
                (part.rank, part.record) for recording in recordings for part in kept.shown(recording, source)
            }
            for source in SOURCES
        }

    def collectives(self) -> list[dict[str, Any]]:
        """Every collective with its members: the others wait for the last to start."""
        found: dict[tuple[int, int], list[Participation]] = {}
        for part in self.parts:
            if not part.point_to_point:
                found.setdefault((part.group.number, part.sequence), []).append(part)
        return [self.collective(members) for _, members in sorted(found.items())]

    def collective(self, members: Sequence[Participation]) -> dict[str, Any]:
        first, last = members[0], max(members, key=lambda part: part.started)
        start = min(part.started for part in members)
        return {
            "group": first.group.name,
            "ranks": list(first.group.ranks),
            "operation": first.operation,
            "sequence": first.sequence,
            "start_ns": start,
            "end_ns": max(part.finished for part in members),
            "last_rank": last.rank,
            "skew_ns": last.started - start,
            "members": [self.member(part) for part in members],
        }

    def messages(self) -> list[dict[str, Any]]:
        """Every message with both its ends."""
        found: dict[tuple[Any, ...], dict[str, Participation]] = {}
        for part in self.parts:
            if part.peers is not None:
                key = (part.group.number, part.peers, part.message)
                found.setdefault(key, {})[part.operation.split()[0]] = part
        return [self.message(found[key]["send"], found[key]["recv"]) for key in sorted(found)]

    def message(self, send: Participation, receive: Participation) -> dict[str, Any]:
        assert send.peers
        return {
            "group": send.group.name,
            "source": send.peers[0],
            "target": send.peers[1],
            "order": send.message,
            "shape": list(send.shapes[0]),
            "batched": send.batched,
            "sent_ns": send.started,
            "received_ns": receive.finished,
            "send": self.member(send),
            "receive": self.member(receive),
        }

    def member(self, part: Participation) -> dict[str, Any]:
        """One rank's part: true times, what its clock showed, and the names of its events."""
        clock = self.job.clock(part.rank)
        times = {name: getattr(part, name) for name in ("enqueued", "started", "finished")}
        names = ("kernel", "correlation", "record", "record_function", "external_id")
        return {
            "rank": part.rank,
            "sequence": part.sequence,
            **{f"{name}_ns": time for name, time in times.items()},
            "shown_ns": [clock.shown(time) for time in times.values()],
            **{name: getattr(part, name) for name in names},
            "sources": [source for source in SOURCES if (part.rank, part.record) in self.shown[source]],
        }


# What nvidia-smi would have sampled next to the sample gpu_pair: GPU 1 is hot and runs slower.


METRICS = "nvidia_smi.csv"
HEADER = (
    "timestamp, index, uuid, utilization.gpu [%], memory.used [MiB], power.draw [W], temperature.gpu, "
    "clocks.current.sm [MHz], clocks.current.memory [MHz]"
)
UUIDS = ("GPU-5d0a4c3e-0a51-4c6f-9c55-1f0e6b1f7a00", "GPU-5d0a4c3e-0a51-4c6f-9c55-1f0e6b1f7a01")
FIRST = datetime(2025, 3, 1, 8, 5, 59, 513_000)
"""Half a second before the job; the clock of the machine is in UTC."""
ROUNDS = 12
INTERVAL, BETWEEN = timedelta(milliseconds=100), timedelta(milliseconds=4)
"""From one round to the next, and from one GPU to the next."""
LEVELS = ((655, 61, 1980), (430, 87, 1410))
"""Power, temperature and clock of each GPU at work."""


def gpu_metrics(folder: Path) -> None:
    random = Random(1)
    lines = [HEADER]
    for number in range(ROUNDS):
        for gpu, (power, temperature, clock) in enumerate(LEVELS):
            time = FIRST + number * INTERVAL + gpu * BETWEEN
            stamp = f"{time:%Y/%m/%d %H:%M:%S}.{time.microsecond // 1000:03}"
            drawn = power + random.uniform(-8, 8)
            used = random.randint(93, 99)
            lines.append(
                f"{stamp}, {gpu}, {UUIDS[gpu]}, {used} %, 40211 MiB, {drawn:.2f} W, {temperature}, {clock} MHz, "
                "2619 MHz"
            )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / METRICS).write_text("\n".join(lines) + "\n")
