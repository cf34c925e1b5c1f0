"""Logs of the clog hook, as its source writes them.

    Clog(rank=1, world=4).call("all_reduce").call("barrier", ended=None).text

is the log of rank 1 of 4, whose barrier did not end. Every call takes ten milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from builders.inputs import held

as_source = held("clog_rank0.log")
BASE = 1_794_983_359_600
"""Of all logs, in milliseconds since 1970."""
COUNTS = "in_count=1024|out_count=1024|dtype=f32|red_op=sum|async_op=f"


@dataclass
class Clog:
    """A log as it grows; times are in milliseconds after its start."""

    rank: int = 0
    world: int = 2
    time: int = 0
    work: int = 0
    signatures: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        seconds = f"{BASE // 1000}.{BASE % 1000:03}"
        self.lines += [
            f"V|1|base_timestamp={seconds}",
            f"new_comm|comm=world|rank={self.rank}|world_size={self.world}",
        ]

    def add(self, line: str) -> Clog:
        self.lines.append(line)
        return self

    def signature(self, operation: str, parameters: str = COUNTS, comm: str = "world") -> int:
        """The number of a signature; a line for a new one."""
        text = f"{operation}|{parameters}|comm={comm}"
        if text not in self.signatures:
            self.signatures[text] = len(self.signatures) + 1
            self.add(f"C{self.signatures[text]}|sig|{text}")
        return self.signatures[text]

    def call(
        self,
        operation: str = "all_reduce",
        parameters: str = COUNTS,
        comm: str = "world",
        *,
        steps: str = "QSE",
        graph: int | None = None,
    ) -> Clog:
        """A call with these steps, a few milliseconds apart."""
        number = self.signature(operation, parameters, comm)
        prefix = "" if graph is None else f"G{graph}|"
        for step in steps:
            self.work += step == "Q"
            work = f"|work_id={self.work}" if step == "Q" else ""
            self.add(f"{prefix}C{number}|{step}{work}|+{self.stamp()}")
            self.time += 3
        self.time += 1
        return self

    def replay(
        self, graph: int, replay: int, *operations: str, steps: str = "SE", parameters: str = COUNTS
    ) -> Clog:
        """A replay: the steps of each of these calls in the communicator of all ranks."""
        for operation in operations:
            number = self.signature(operation, parameters)
            for step in steps:
                self.add(f"G{graph}|R{replay}|C{number}|{step}|+{self.stamp()}")
                self.time += 2
        return self

    def stamp(self) -> str:
        return f"{self.time // 1000}.{self.time % 1000:03}"

    @property
    def text(self) -> bytes:
        return "".join(f"{line}\n" for line in self.lines).encode()

    def save(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"clog_rank{self.rank}.log"
        path.write_bytes(self.text)
        return path
