"""Where things wait until they are needed again: in memory where there are few, else in a spool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tracelink.spool import Spool, Ticket

Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True)
class Held(Generic[Thing]):
    """A thing that is kept in memory."""

    thing: Thing


Place = Held[Thing] | Ticket[Thing]


class Keeper:
    """Keeps things by place; every process of a job can keep and fetch."""

    def __init__(self, shared: Sequence[object], *, in_memory: bool) -> None:
        self.shared = shared
        self._spool = None if in_memory else Spool(shared)

    def put(self, thing: Thing) -> Place[Thing]:
        """Keeps a thing."""
        return self._spool.put(thing) if self._spool else Held(thing)

    def get(self, place: Place[Thing]) -> Thing:
        """The thing again."""
        if isinstance(place, Held):
            return place.thing
        assert self._spool, "a ticket comes from a spool"
        return self._spool.get(place)
