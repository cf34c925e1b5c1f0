"""What a native trace says for readers of tracelink's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from tracelink.converters.perfetto_native.schema import Fact
from tracelink.ranks import LARGEST_RANK

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
Large = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]


class ProcessFact(msgspec.Struct, array_like=True):
    """A process as it is in JSON."""

    pid: Number
    name: str
    label: str
    original: str | None = None


class ThreadFact(msgspec.Struct, array_like=True):
    """A thread as it is in JSON."""

    pid: Number
    tid: Number
    name: str
    original: str | None = None


class CounterFact(msgspec.Struct, array_like=True):
    """A counter as it is in JSON, and the track that it has here."""

    number: Number
    pid: Number
    name: str


class ArrowFact(msgspec.Struct, array_like=True):
    """So many arrows of one sort, of which the last lead from the event that is met second."""

    name: str
    count: Large
    turned: Large


class Facts(msgspec.Struct):
    """The facts on a rank, or on groups."""

    processes: list[ProcessFact] = msgspec.field(name=Fact.PROCESSES.value)
    threads: list[ThreadFact] = msgspec.field(name=Fact.THREADS.value)
    counters: list[CounterFact] = msgspec.field(name=Fact.COUNTERS.value)
    rank: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_RANK)] | None = msgspec.field(
        name=Fact.RANK.value, default=None
    )
    first_arrow: Large = msgspec.field(name=Fact.FIRST_ARROW.value, default=0)
    arrows: list[ArrowFact] = msgspec.field(name=Fact.ARROWS.value, default_factory=list)


@dataclass(slots=True)
class Said:
    """All facts of a file."""

    header: dict[str, Any] | None = None
    blocks: list[Facts] = field(default_factory=list)
    unusable: int = 0

    def add(self, texts: Sequence[bytes]) -> None:
        """Facts in the order in which they stand; the first are the header."""
        for text in texts:
            try:
                if self.header is None:
                    self.header = msgspec.json.decode(text, type=dict[str, Any])
                else:
                    self.blocks.append(msgspec.json.decode(text, type=Facts))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self.unusable += 1

    @property
    def threads(self) -> list[ThreadFact]:
        """The threads of all ranks, and of groups."""
        return [thread for block in self.blocks for thread in block.threads]

    @property
    def counters(self) -> list[CounterFact]:
        """The counters of all ranks, and of groups."""
        return [counter for block in self.blocks for counter in block.counters]

    @property
    def base(self) -> int:
        """What time 0 of JSON is."""
        base = (self.header or {}).get("baseTimeNanoseconds")
        return base if type(base) is int and abs(base) < 1 << 62 else 0
