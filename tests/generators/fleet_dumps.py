"""Flight-recorder dumps of a healthy job with very many ranks: all collectives and messages have their partners.

What ranks of one pipeline stage record differs in times and in names of groups only; so one rank of each stage is
pickled, and the others' dumps are made of its bytes.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from builders.recorder import collective, dump, frame, pickled, progress, tensors
from generators.job import DATA, PIPELINE, TENSOR, WORLD, Cluster
from generators.recorded_plan import START_NS

SEND, RECEIVE, COALESCED = "send", "recv", "coalesced"
GATHER, SCATTER = "_all_gather_base", "_reduce_scatter_base"
STEP = (
    *((TENSOR, ("all_reduce",)),) * 4,
    *((TENSOR, (GATHER,)),) * 2,
    *((PIPELINE, (SEND,)), (PIPELINE, (RECEIVE,))),
    *((TENSOR, ("all_reduce",)),) * 3,
    (TENSOR, (GATHER,)),
    *((TENSOR, (SCATTER,)),) * 2,
    *((DATA, ("all_reduce",)),) * 2,
    *((PIPELINE, (SEND, RECEIVE, COALESCED)), (WORLD, ("all_reduce",))),
)
"""The calls that every rank makes over and over, where there are messages; the stages of a pipeline form a ring."""

PERIOD_NS, LATENESS_NS, DISCOVERY_NS, DURATION_NS, JITTER_NS = 400_000, 60_000, 30_000, 350_000, 5_000
ROWS, COLUMNS = 64, 1024
DEPTHS = range(1, 10)
THREAD: dict[str, Any] = {"thread_name": "pt_main_thread", "thread_id": "140321668979584"}
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
        sizes = {group.description: len(group.ranks) for group in self.cluster.groups(0)}
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


def write_dumps(fleet: Fleet, folder: Path) -> int:
    """Writes one dump for each rank; returns the bytes of all."""
    folder.mkdir(parents=True, exist_ok=True)
    templates = [Template(fleet, stage) for stage in range(fleet.stages)]
    dumps = (templates[fleet.cluster.stage(rank)].dump(rank) for rank in range(fleet.ranks))
    return sum((folder / f"nccl_trace_rank_{rank}").write_bytes(data) for rank, data in enumerate(dumps))


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
        for group in self.cluster.groups(rank):
            mark = f"\0{group.description}"
            for old, new in ((mark, group.name), (f"{mark} ranks", str(list(group.ranks)))):
                written = written.replace(_pickled_text(old), _pickled_text(new))
        return written

    def times(self, rank: int) -> npt.NDArray[np.int64]:
        """When a rank issued each entry, and when its watchdog saw it start and complete."""
        random = np.random.default_rng((self.fleet.seed, rank))
        late = random.integers(0, LATENESS_NS, self.fleet.entries)
        longer = random.integers(0, JITTER_NS, self.fleet.entries)
        entry, within = np.divmod(self.base - START_NS, PERIOD_NS)
        return self.base + np.where(within < DURATION_NS, late[entry], longer[entry])

    def content(self) -> dict[str, Any]:
        kinds = [group.description for group in self.cluster.groups(0)]
        kinds = [kind for kind in kinds if self.fleet.pipelined or kind != PIPELINE]
        marks = {kind: f"\0{kind}" for kind in kinds}
        entries = list(islice(self.entries(marks), self.fleet.entries))
        last = {entry["pg_id"]: max(entry["collective_seq_id"], entry["p2p_seq_id"]) for entry in entries}
        return dump(
            *entries,
            pg_config={
                mark: {"name": mark, "desc": kind, "ranks": f"{mark} ranks"} for kind, mark in marks.items()
            },
            comm_lib_version="2.27.5",
            pg_status={str(number): progress(*[last.get(number, -1)] * 3) for number in range(len(marks))},
        )

    def entries(self, marks: dict[str, str]) -> Iterator[dict[str, Any]]:
        """What a rank of this stage does, over and over."""
        numbers: Counter[tuple[str, str]] = Counter()
        outer = [frame(f"frame_{depth}", f"/srv/job/file_{depth}.py", 40 + depth) for depth in DEPTHS]
        lines = range(100, 100 + len(self.fleet.step))
        stacks = [[frame("step", "/srv/job/train.py", line), *outer] for line in lines]
        records = count()
        for stack, (kind, names) in cycle(zip(stacks, self.fleet.step, strict=True)):
            numbers[kind, "messages" if kind == PIPELINE else "collectives"] += 1
            for name in names:
                numbers[kind, "operations"] += 1
                record = next(records)
                begun = START_NS + PERIOD_NS * record
                times = {"completed": begun + DURATION_NS, "time_discovered_started_ns": begun + DISCOVERY_NS}
                known: dict[str, Any] = {"duration_ms": 0.2, **times}
                yield collective(
                    f"nccl:{self.spelled(name)}",
                    group=(marks[kind], kind),
                    frames=stack,
                    record_id=record,
                    pg_id=list(marks).index(kind),
                    **THREAD,
                    collective_seq_id=numbers[kind, "collectives"],
                    p2p_seq_id=numbers[kind, "messages"],
                    op_id=numbers[kind, "operations"],
                    created=begun,
                    **self.sizes(kind, name),
                    **({} if len(names) > 1 and name != COALESCED else known),
                    is_p2p=kind == PIPELINE,
                )

    def spelled(self, name: str) -> str:
        """The operation as the recorder spells it, with this stage's place in the ring."""
        following, before = ((self.stage + way) % self.fleet.stages for way in (1, -1))
        ends = {SEND: f" {self.stage}->{following}", RECEIVE: f" {self.stage}<-{before}"}
        return name + ends.get(name, "")

    def sizes(self, kind: str, name: str) -> dict[str, Any]:
        """What goes in and what comes out; nothing of the end of a batch."""
        group = self.cluster.group(kind, 0)
        assert group
        whole = ROWS * len(group.ranks)
        given, gotten = (whole if name == SCATTER else ROWS), (whole if name == GATHER else ROWS)
        shapes = ([], []) if name == COALESCED else ([[given, COLUMNS]], [[gotten, COLUMNS]])
        return tensors(*shapes, "BFloat16")


def _pickled_text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()
