"""Flight-recorder dumps of a healthy job with very many ranks: all collectives and messages have their partners.

What ranks of one pipeline stage record differs in times and in names of groups only; so one rank of each stage is
pickled, and the others' dumps are made of its bytes.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from generators.cluster import Cluster
from generators.flight_recorder import START_NS, pickled, stack
from generators.job import Group

TENSOR, DATA, PIPELINE, WORLD = "tensor", "data", "pipeline", "world"
SEND, RECEIVE, COALESCED = "send", "recv", "coalesced"
STEP = (
    *((TENSOR, "all_reduce"),) * 4,
    *((TENSOR, "_all_gather_base"),) * 2,
    (PIPELINE, SEND),
    (PIPELINE, RECEIVE),
    *((TENSOR, "all_reduce"),) * 3,
    (TENSOR, "_all_gather_base"),
    *((TENSOR, "_reduce_scatter_base"),) * 2,
    *((DATA, "all_reduce"),) * 2,
    (PIPELINE, f"batched {SEND}"),
    (PIPELINE, f"batched {RECEIVE}"),
    (PIPELINE, COALESCED),
    (WORLD, "all_reduce"),
)
"""What every rank does over and over, where there are messages; the stages of a pipeline form a ring."""

BATCHED = "batched "
PERIOD_NS, LATENESS_NS, DISCOVERY_NS, DURATION_NS, JITTER_NS = 400_000, 60_000, 30_000, 350_000, 5_000
SHAPE = [64, 1024]
MARK = b"MARK"
MARKED_TIME = re.compile(rb"\x8a\x08(.{4})" + MARK, re.DOTALL)
CREATED, STARTED, COMPLETED = range(3)


@dataclass(frozen=True, slots=True)
class Fleet:
    """How many ranks there are, and how much each remembers."""

    ranks: int = 512
    entries: int = 2000
    tensor_parallel: int = 8
    stages: int = 4
    seed: int = 0
    pipelined: bool = True
    """Whether stages send each other messages; without, there are collectives only."""

    @property
    def step(self) -> tuple[tuple[str, str], ...]:
        """What every rank does over and over."""
        return STEP if self.pipelined else tuple((role, name) for role, name in STEP if role != PIPELINE)

    @property
    def cluster(self) -> Cluster:
        """The groups."""
        return Cluster(ranks=self.ranks, tensor_parallel=self.tensor_parallel, stages=self.stages)

    @property
    def collectives(self) -> int:
        """How many collectives all ranks together take part in."""
        cluster = self.cluster
        sizes = {group: len(found.ranks) for group, found in roles(cluster, 0).items()}
        return sum(
            self.ranks // sizes[group] * count
            for (group, name), count in self._counts()
            if _is_collective(name)
        )

    @property
    def messages(self) -> int:
        """How many messages there are between all of them; those whose receiving was not reached count too."""
        return self.ranks * sum(count for (_, name), count in self._counts() if name.endswith(SEND))

    def _counts(self) -> list[tuple[tuple[str, str], int]]:
        return list(Counter(self.step[number % len(self.step)] for number in range(self.entries)).items())


def _is_collective(name: str) -> bool:
    return not name.endswith((SEND, RECEIVE, COALESCED))


def roles(cluster: Cluster, rank: int) -> dict[str, Group]:
    """The groups of a rank by what they are for."""
    return {
        WORLD: cluster.everyone,
        TENSOR: cluster.tensor_group(rank),
        DATA: cluster.gradient_group(rank),
        PIPELINE: cluster.pipeline_group(rank),
    }


def write_dumps(fleet: Fleet, folder: Path) -> int:
    """Writes one dump for each rank; returns the bytes of all."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = fleet.cluster
    templates = [Template(fleet, stage) for stage in range(fleet.stages)]
    written = 0
    for rank in range(fleet.ranks):
        data = templates[cluster.stage(rank)].dump(rank)
        (folder / f"nccl_trace_rank_{rank}").write_bytes(data)
        written += len(data)
    return written


class Template:
    """The dump of a rank of one stage, with marks where ranks differ."""

    def __init__(self, fleet: Fleet, stage: int) -> None:
        self.fleet, self.stage, self.cluster = fleet, stage, fleet.cluster
        self.text = pickled(self.content())
        found = list(MARKED_TIME.finditer(self.text))
        self.places = np.array([one.start(1) for one in found], np.int64)
        self.marks = np.array([struct.unpack("<I", one[1])[0] for one in found], np.int64)

    def dump(self, rank: int) -> bytes:
        """The dump of one rank."""
        data = np.frombuffer(self.text, np.uint8).copy()
        times = self.times(rank)[self.marks // 3, self.marks % 3].astype("<i8")
        data[self.places[:, None] + np.arange(8)] = times.view(np.uint8).reshape(-1, 8)
        dump = data.tobytes()
        for role, group in roles(self.cluster, rank).items():
            for mark, text in ((f"\0{role}", group.name), (f"\0{role} ranks", str(list(group.ranks)))):
                dump = dump.replace(_pickled_text(mark), _pickled_text(text))
        return dump

    def times(self, rank: int) -> npt.NDArray[np.int64]:
        """When a rank issued each entry, and when its watchdog saw it start and complete."""
        fleet = self.fleet
        random = np.random.default_rng((fleet.seed, rank))
        begun = START_NS + PERIOD_NS * np.arange(fleet.entries)
        created = begun + random.integers(0, LATENESS_NS, fleet.entries)
        completed = begun + DURATION_NS + random.integers(0, JITTER_NS, fleet.entries)
        return np.stack([created, created + DISCOVERY_NS, completed], 1)

    def content(self) -> dict[str, Any]:
        """The dump before it is pickled."""
        groups = {
            role: {"name": f"\0{role}", "desc": group.description, "ranks": f"\0{role} ranks"}
            for role, group in roles(self.cluster, 0).items()
            if self.fleet.pipelined or role != PIPELINE
        }
        entries = self.entries(groups)
        status = {
            str(number): {f"last_{event}_collective": last for event in ("enqueued", "started", "completed")}
            for number, last in enumerate(_last_numbers(entries, len(groups)))
        }
        return {
            "version": "2.10",
            "pg_config": {group["name"]: group for group in groups.values()},
            "comm_lib_version": "2.27.5",
            "pg_status": status,
            "entries": entries,
        }

    def entries(self, groups: dict[str, dict[str, str]]) -> list[dict[str, Any]]:
        """Everything that a rank of this stage did."""
        step = self.fleet.step
        stacks = [stack(number) for number in range(len(step))]
        numbers = Numbers()
        written = []
        for record in range(self.fleet.entries):
            role, name = step[record % len(step)]
            written.append(
                {
                    "frames": stacks[record % len(step)],
                    "record_id": record,
                    "pg_id": list(groups).index(role),
                    "process_group": (groups[role]["name"], groups[role]["desc"]),
                    "thread_name": "pt_main_thread",
                    "thread_id": "140321668979584",
                    **numbers.of(role, name),
                    "profiling_name": f"nccl:{self.spelled(name)}",
                    "time_created_ns": _mark(record, CREATED),
                    **self.outcome(record, role, name),
                    "timeout_ms": 600_000,
                    "is_p2p": role == PIPELINE,
                }
            )
        return written

    def spelled(self, name: str) -> str:
        """The operation as the recorder spells it, with this stage's place in the ring."""
        stages = self.fleet.stages
        plain = name.removeprefix(BATCHED)
        ends = {
            SEND: f" {self.stage}->{(self.stage + 1) % stages}",
            RECEIVE: f" {self.stage}<-{(self.stage - 1) % stages}",
        }
        return plain + ends.get(plain, "")

    def outcome(self, record: int, role: str, name: str) -> dict[str, Any]:
        """Sizes and progress; the members of a batch stay scheduled."""
        waiting = name.startswith(BATCHED)
        size = len(roles(self.cluster, 0)[role].ranks)
        whole = [SHAPE[0] * size, SHAPE[1]]
        closes = name == COALESCED
        types = [] if closes else ["BFloat16"]
        return {
            **({} if waiting else {"duration_ms": 0.2}),
            "input_sizes": [] if closes else [whole if name == "_reduce_scatter_base" else SHAPE],
            "input_dtypes": types,
            "output_sizes": [] if closes else [whole if name == "_all_gather_base" else SHAPE],
            "output_dtypes": types,
            "state": "scheduled" if waiting else "completed",
            "time_discovered_started_ns": None if waiting else _mark(record, STARTED),
            "time_discovered_completed_ns": None if waiting else _mark(record, COMPLETED),
            "retired": not waiting,
        }


class Numbers:
    """Counts what the groups of a rank have issued, as the recorder numbers it."""

    def __init__(self) -> None:
        self._last: Counter[tuple[str, str]] = Counter()

    def of(self, role: str, name: str) -> dict[str, int]:
        """The numbers of the next entry; a batch has one for all of its entries."""
        kind = "collective" if role != PIPELINE else "message"
        # The batch of a step begins with its send.
        if not (name == COALESCED or name == BATCHED + RECEIVE):
            self._last[role, kind] += 1
        self._last[role, "operation"] += 1
        return {
            "collective_seq_id": self._last[role, "collective"],
            "p2p_seq_id": self._last[role, "message"],
            "op_id": self._last[role, "operation"],
        }


def _last_numbers(entries: list[dict[str, Any]], groups: int) -> list[int]:
    last = dict.fromkeys(range(groups), -1)
    for entry in entries:
        last[entry["pg_id"]] = max(entry["collective_seq_id"], entry["p2p_seq_id"])
    return list(last.values())


def _mark(record: int, which: int) -> int:
    number: int = struct.unpack("<q", struct.pack("<I", record * 3 + which) + MARK)[0]
    return number


def _pickled_text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()
