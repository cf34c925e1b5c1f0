"""Jobs by hand: groups, then what their ranks did together. Times are ns after `START`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from builders.graph import START
from tracelink.model.clock import Clock
from tracelink.model.collectives import Collectives, Messages, Participations, Verdict
from tracelink.model.columns import NO_TIME, UNKNOWN, StringTable
from tracelink.model.communications import Evidence
from tracelink.model.findings import Finding
from tracelink.model.graph import EventGraph, Rank
from tracelink.model.job import Job, Part
from tracelink.model.trace import ProcessGroup, SourceInfo


@dataclass(frozen=True)
class HeldPart:
    """A rank whose graph is at hand."""

    rank: int
    graph: EventGraph

    def load(self) -> EventGraph:
        """The graph."""
        return self.graph


@dataclass
class JobBuilder:
    """Collects collectives and messages; what is not said of them is unknown."""

    clocks: Sequence[Clock] = ()
    findings: Sequence[Finding] = ()
    parts: list[Part] = field(default_factory=list)
    groups: list[ProcessGroup] = field(default_factory=list)
    texts: StringTable = field(default_factory=StringTable)
    collectives: list[dict[str, Any]] = field(default_factory=list)
    participations: list[dict[str, Any]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)

    def group(self, name: str, ranks: Sequence[int], description: str = "") -> int:
        """A process group; returns its row."""
        self.groups.append(ProcessGroup(name, description, tuple(ranks), len(ranks)))
        return len(self.groups) - 1

    def collective(
        self,
        group: int,
        spans: Mapping[int, tuple[int, int]],
        operation: str = "all_reduce",
        verdict: Verdict = Verdict.COMPLETE,
        state: str = "completed",
        kernels: Mapping[int, int] | None = None,
        **said: Any,
    ) -> int:
        """A collective: when each rank entered and left it; returns its row."""
        starts = {rank: START + start for rank, (start, _) in spans.items()}
        ends = [START + end for _, end in spans.values()]
        last_rank = max(starts, key=lambda rank: starts[rank])
        last = starts[last_rank]
        known = {
            "sequence": len([row for row in self.collectives if row["group"] == group]),
            "start": min(starts.values()),
            "end": max(ends),
            "last_rank": last_rank,
            "skew": last - min(starts.values()),
            "duration": max(ends) - last,
        }
        codes = {"operation": self.texts[operation], "verdict": self.texts[verdict]}
        self.collectives.append({"group": group, **codes, **known, **said})
        for rank, (start, end) in spans.items():
            self.participations.append(
                {
                    "collective": len(self.collectives) - 1,
                    "rank": rank,
                    "enqueued": START + start,
                    "start": START + start,
                    "end": START + end,
                    "evidence": Evidence.KERNEL,
                    "wait": last - starts[rank],
                    "state": self.texts[state],
                    "kernel": (kernels or {}).get(rank, UNKNOWN),
                }
            )
        return len(self.collectives) - 1

    def unmatched(self, group: int, rank: int, operation: str = "all_reduce", **said: Any) -> int:
        """A call of one rank that no other could be matched with, of which no time is known."""
        codes = {"operation": self.texts[operation], "verdict": self.texts[Verdict.UNMATCHED]}
        self.collectives.append({"group": group, **codes, **said})
        self.participations.append({"collective": len(self.collectives) - 1, "rank": rank})
        return len(self.collectives) - 1

    def message(
        self, group: int, source: int, target: int, sent: int | None, received: int | None, **said: Any
    ) -> int:
        """A message; returns its row."""
        times = {
            "sent": NO_TIME if sent is None else START + sent,
            "received": NO_TIME if received is None else START + received,
        }
        verdict = Verdict.UNMATCHED if sent is None or received is None else Verdict.COMPLETE
        known = {"group": group, "source": source, "target": target, "verdict": self.texts[verdict]}
        self.messages.append({**known, **times, **said})
        return len(self.messages) - 1

    def build(self) -> Job:
        """The job; it begins at `START`."""
        parties = {row["rank"] for row in self.participations}
        clocks = self.clocks or [Clock(rank, low_ns=0, high_ns=0) for rank in sorted(parties)]
        return Job(
            parts=self.parts,
            ranks=[Rank.with_clock(clock) for clock in clocks],
            sources=[SourceInfo(f"k_{clock.rank}.json", "kineto", rank=clock.rank) for clock in clocks],
            strings=self.texts.texts(),
            groups=self.groups,
            collectives=_table(Collectives, self.collectives),
            participations=_table(Participations, self.participations),
            messages=_table(Messages, self.messages),
            findings=self.findings,
            first_ns=START,
            events=sum(len(part.load()) for part in self.parts),
        )


def _table(kind: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
    """The columns of rows; what a row does not say is as unknown as the table has it."""
    table = kind.of(len(rows))
    for name, column in table.columns().items():
        for place, row in enumerate(rows):
            if name in row:
                column[place] = row[name]
        assert isinstance(column, np.ndarray)
    return table
