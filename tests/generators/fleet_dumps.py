"""Flight-recorder dumps of a healthy job with very many ranks: all collectives and messages have their partners.

What ranks of one pipeline stage record differs in times and in names of groups only; so one rank of each stage is
pickled, and the others' dumps are made of its bytes.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from builders.recorder import collective, dump, frame, pickled, progress, tensors
from generators.job import Cluster, Group
from generators.recorded_plan import START_NS

TENSOR, DATA, PIPELINE, WORLD = "tensor", "data", "pipeline", "world"
SEND, RECEIVE, COALESCED = "send", "recv", "coalesced"
STEP = (
    *((TENSOR, ("all_reduce",)),) * 4,
    *((TENSOR, ("_all_gather_base",)),) * 2,
    (PIPELINE, (SEND,)),
    (PIPELINE, (RECEIVE,)),
    *((TENSOR, ("all_reduce",)),) * 3,
    (TENSOR, ("_all_gather_base",)),
    *((TENSOR, ("_reduce_scatter_base",)),) * 2,
    *((DATA, ("all_reduce",)),) * 2,
    (PIPELINE, (SEND, RECEIVE, COALESCED)),
    (WORLD, ("all_reduce",)),
)
"""The calls that every rank makes over and over, where there are messages; the stages of a pipeline form a ring."""

PERIOD_NS, LATENESS_NS, DISCOVERY_NS, DURATION_NS, JITTER_NS = 400_000, 60_000, 30_000, 350_000, 5_000
ROWS, COLUMNS = 64, 1024
STACK_DEPTH = 10
NUMBER = re.compile(rb"(?=\x8a\x08(.{8}))", re.DOTALL)
"""A pickled number of eight bytes, or what looks like one."""


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
    def step(self) -> list[tuple[str, tuple[str, ...]]]:
        """The calls that every rank makes over and over."""
        return [call for call in STEP if self.pipelined or call[0] != PIPELINE]

    @property
    def cluster(self) -> Cluster:
        return Cluster(ranks=self.ranks, tensor_parallel=self.tensor_parallel, stages=self.stages)

    @property
    def collectives(self) -> int:
        """How many collectives all ranks together take part in."""
        sizes = {role: len(group.ranks) for role, group in roles(self.cluster, 0).items()}
        return sum(
            self.ranks // sizes[role] * count for (role, _), count in self._counts() if role != PIPELINE
        )

    @property
    def messages(self) -> int:
        """How many messages there are between all of them; those whose receiving was not reached count too."""
        return self.ranks * sum(count for (_, name), count in self._counts() if name == SEND)

    def _counts(self) -> list[tuple[tuple[str, str], int]]:
        names = cycle((role, name) for role, names in self.step for name in names)
        return list(Counter(islice(names, self.entries)).items())


def roles(cluster: Cluster, rank: int) -> dict[str, Group]:
    """The groups of a rank by what they are for."""
    return dict(zip((WORLD, TENSOR, DATA, PIPELINE), cluster.groups(rank), strict=True))


def write_dumps(fleet: Fleet, folder: Path) -> int:
    """Writes one dump for each rank; returns the bytes of all."""
    folder.mkdir(parents=True, exist_ok=True)
    templates = [Template(fleet, stage) for stage in range(fleet.stages)]
    written = 0
    for rank in range(fleet.ranks):
        data = templates[fleet.cluster.stage(rank)].dump(rank)
        written += (folder / f"nccl_trace_rank_{rank}").write_bytes(data)
    return written


class Template:
    """The dump of a rank of one stage, with marks in place of the names of groups."""

    def __init__(self, fleet: Fleet, stage: int) -> None:
        self.fleet, self.stage, self.cluster = fleet, stage, fleet.cluster
        self.text = pickled(self.content())
        numbers = {one.start(1): struct.unpack("<q", one[1])[0] for one in NUMBER.finditer(self.text)}
        last = START_NS + PERIOD_NS * fleet.entries
        times = {place: number for place, number in numbers.items() if START_NS <= number < last}
        self.places, self.base = np.array(list(times.items()), np.int64).T

    def dump(self, rank: int) -> bytes:
        data = np.frombuffer(self.text, np.uint8).copy()
        data[self.places[:, None] + np.arange(8)] = self.times(rank).view(np.uint8).reshape(-1, 8)
        written = data.tobytes()
        for role, group in roles(self.cluster, rank).items():
            for mark, text in ((f"\0{role}", group.name), (f"\0{role} ranks", str(list(group.ranks)))):
                written = written.replace(_pickled_text(mark), _pickled_text(text))
        return written

    def times(self, rank: int) -> npt.NDArray[np.int64]:
        """When a rank issued each entry, and when its watchdog saw it start and complete."""
        random = np.random.default_rng((self.fleet.seed, rank))
        late = random.integers(0, LATENESS_NS, self.fleet.entries)
        longer = random.integers(0, JITTER_NS, self.fleet.entries)
        entry, within = np.divmod(self.base - START_NS, PERIOD_NS)
        return self.base + np.where(within < DURATION_NS, late[entry], longer[entry])

    def content(self) -> dict[str, Any]:
        groups = {
            role: {"name": f"\0{role}", "desc": group.description, "ranks": f"\0{role} ranks"}
            for role, group in roles(self.cluster, 0).items()
            if self.fleet.pipelined or role != PIPELINE
        }
        entries = self.entries(groups)
        last = {entry["pg_id"]: max(entry["collective_seq_id"], entry["p2p_seq_id"]) for entry in entries}
        return dump(
            *entries,
            pg_config={group["name"]: group for group in groups.values()},
            comm_lib_version="2.27.5",
            pg_status={str(number): progress(*[last.get(number, -1)] * 3) for number in range(len(groups))},
        )

    def entries(self, groups: dict[str, dict[str, str]]) -> list[dict[str, Any]]:
        numbers: Counter[tuple[str, str]] = Counter()
        written: list[dict[str, Any]] = []
        outer = [
            frame(f"frame_{depth}", f"/srv/job/file_{depth}.py", 40 + depth)
            for depth in range(1, STACK_DEPTH)
        ]
        stacks = [
            [frame("step", "/srv/job/train.py", 100 + line), *outer] for line in range(len(self.fleet.step))
        ]
        for stack, (role, names) in cycle(zip(stacks, self.fleet.step, strict=True)):
            numbers[role, "messages" if role == PIPELINE else "collectives"] += 1
            for name in names:
                numbers[role, "operations"] += 1
                begun = START_NS + PERIOD_NS * len(written)
                times: dict[str, Any] = {
                    "duration_ms": 0.2,
                    "completed": begun + DURATION_NS,
                    "time_discovered_started_ns": begun + DISCOVERY_NS,
                }
                written.append(
                    collective(
                        f"nccl:{self.spelled(name)}",
                        group=(groups[role]["name"], groups[role]["desc"]),
                        frames=stack,
                        record_id=len(written),
                        pg_id=list(groups).index(role),
                        thread_name="pt_main_thread",
                        thread_id="140321668979584",
                        collective_seq_id=numbers[role, "collectives"],
                        p2p_seq_id=numbers[role, "messages"],
                        op_id=numbers[role, "operations"],
                        created=begun,
                        **self.sizes(role, name),
                        **({} if len(names) > 1 and name != COALESCED else times),
                        is_p2p=role == PIPELINE,
                    )
                )
                if len(written) == self.fleet.entries:
                    return written
        return written

    def spelled(self, name: str) -> str:
        """The operation as the recorder spells it, with this stage's place in the ring."""
        stages = self.fleet.stages
        ends = {
            SEND: f" {self.stage}->{(self.stage + 1) % stages}",
            RECEIVE: f" {self.stage}<-{(self.stage - 1) % stages}",
        }
        return name + ends.get(name, "")

    def sizes(self, role: str, name: str) -> dict[str, Any]:
        """What goes in and what comes out; nothing of the end of a batch."""
        if name == COALESCED:
            return tensors([], [])
        whole = ROWS * len(roles(self.cluster, 0)[role].ranks)
        given, gotten = (
            whole if name == big else ROWS for big in ("_reduce_scatter_base", "_all_gather_base")
        )
        return tensors([[given, COLUMNS]], [[gotten, COLUMNS]], "BFloat16")


def _pickled_text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()
