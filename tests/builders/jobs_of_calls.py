"""Jobs of random calls, for properties of matching.

Groups and subgroups, missing ranks, calls without numbers, duplicates, mismatches, messages of known and of any source,
coalesced calls, calls without a group, and clocks of hosts.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from msgspec.structs import replace

from builders.calls import Call, call, group, rank
from tracelink._match.job import JobTables
from tracelink._model.communications import Evidence, RankCalls, RoundTrips
from tracelink._model.trace import ProcessGroup

COLLECTIVES = ("all_reduce", "all_gather", "broadcast", "barrier", "all_to_all", "reduce")
RANKS = 6
GROUPS = (
    group("0", *range(RANKS), description="default_pg"),
    group("tp", 0, 1, 2),
    group("tp", 3, 4, 5),
    group("dp", 0, 3),
    group("dp", 1, 4),
    group("dp", 2, 5),
)
PERIOD, CLOCK = 1_000_000, 3_000_000
OFTEN = 0.9
SELDOM = 0.1


class RandomJob:
    """What all ranks have in common."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.tidy = self.random.random() < 0.5
        """Whether nothing is missing or wrong."""
        self.length = self.random.randint(1, 8)
        self.operations = self.random.choices(COLLECTIVES, k=3)
        self.numbered = {own: self.random.random() < OFTEN for own in GROUPS}
        self.any_source = self.random.random() < 0.3
        self.evidence = self.random.choice(list(Evidence))

    def ranks(self) -> list[RankCalls]:
        """The calls of each rank; a rank can be given twice."""
        count = RANKS if self.tidy else self.random.randint(1, RANKS)
        made = [self._rank(number) for number in self.random.sample(range(RANKS), count)]
        return [*made, *(replace(again) for again in made[: self._seldom()])]

    def _seldom(self) -> bool:
        return not self.tidy and self.random.random() < SELDOM

    def _rank(self, number: int) -> RankCalls:
        clock = self.random.randint(-CLOCK, CLOCK)
        groups = [own for own in GROUPS if number in own.ranks]
        calls: list[Call] = []
        for own in groups:
            for place in range(1, self.length + 1):
                calls += self._collective(own, place, clock, len(calls))
            calls += self._messages(number, own, clock)
        if self._seldom():
            self.random.shuffle(calls)
        if self._seldom():
            calls.append(call("wait", 1, group="", size=1))
        made = rank(
            number,
            *calls,
            groups=groups[:1] if self._seldom() else groups,
            world=RANKS if self.random.random() < 0.5 else None,
            host=self.random.choice(("", "a", "b")),
        )
        trips = self._round_trips(clock) if number and self.random.random() < 0.3 else RoundTrips.empty()
        return replace(made, round_trips=trips, broken_off=self._seldom())

    def _collective(self, own: ProcessGroup, place: int, clock: int, row: int) -> list[Call]:
        if self._seldom():
            return []
        operation = self.random.choice(COLLECTIVES) if self._seldom() else self.operations[place % 3]
        made = call(
            operation,
            place if self.numbered[own] and not self._seldom() else None,
            group=None if self._seldom() else own.name,
            elements=9 if self._seldom() else 8,
            source=0 if operation in ("broadcast", "reduce") else -1,
            members=str(list(own.ranks)) if self._seldom() else None,
            size=len(own.ranks),
            **self._times(clock + place * PERIOD, row),
        )
        again = [made] * self._seldom()
        return [made, *again, *[{**made, "operation": "coalesced"}] * self._seldom()]

    def _messages(self, number: int, own: ProcessGroup, clock: int) -> list[Call]:
        """Around the ring of the group."""
        within, size = own.ranks.index(number), len(own.ranks)
        made = []
        for place in range(1, self.random.randint(1, 3) if self._seldom() else 3):
            name = None if self._seldom() else own.name
            times = self._times(clock + (self.length + place) * PERIOD, 100 + place)
            tag = {"tag": place % 2, "group": name, "elements": 7 if self._seldom() else 8}
            made.append(call("send", place, target=(within + 1) % size, point_to_point=True, **tag, **times))
            source = -1 if self.any_source and self.random.random() < 0.5 else (within - 1) % size
            made.append(call("recv", place, source=source, point_to_point=True, **tag, **times))
        return made[: -1 if self._seldom() else None]

    def _times(self, begin: int, row: int) -> dict[str, Any]:
        entered = begin + self.random.randint(0, PERIOD // 10)
        left = begin + PERIOD // 2 + self.random.randint(0, PERIOD // 10)
        if self.evidence is Evidence.NONE or self._seldom():
            return {"enqueued": entered, "evidence": Evidence.NONE, "operator": row}
        column = {Evidence.RECORDER: "record", Evidence.ANNOTATION: "annotation", Evidence.KERNEL: "kernel"}
        return {
            "enqueued": entered - 50,
            "start": entered,
            "end": left,
            "evidence": self.evidence,
            column[self.evidence]: row,
            "state": "completed",
        }

    def _round_trips(self, clock: int) -> RoundTrips:
        true = PERIOD * np.arange(1, 3)
        return RoundTrips(true + clock - 500, true, true + clock + 500)


def contents(tables: JobTables) -> dict[str, object]:
    """Everything, in values that can be compared; of columns the type, too."""
    return {
        "strings": list(tables.strings),
        "groups": list(tables.groups),
        "findings": list(tables.findings),
        "clocks": tables.clocks,
        **{
            f"{table}.{name}": (column.dtype, column.tobytes())
            for table in ("collectives", "participations", "messages")
            for name, column in getattr(tables, table).columns().items()
        },
    }
