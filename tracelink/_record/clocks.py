"""How far the clock of a rank is from that of rank 0: round trips over the store of the job, in a thread of their own.

Each trip bounds the offset, whatever it took: rank 0 reads its clock after the question was sent, and before the answer
was received. The connection is a new one, because the store of the training answers one call at a time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tracelink.converters.capture import schema

TRIPS = 8
"""Questions of each rank."""
KEPT = 4
"""The shortest of them."""
MANY_RANKS = 64
"""In larger jobs one rank of each host asks."""
PATIENCE_S = 60.0
"""How long ranks wait for each other."""
PREFIX = "tracelink/{}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where this rank is in the job."""

    rank: int
    world_size: int
    local_rank: int | None
    number: int
    """How many captures this process made before, which is the same on all ranks."""

    @property
    def asks(self) -> bool:
        """Whether this rank compares its clock."""
        return self.rank != 0 and (self.world_size <= MANY_RANKS or self.local_rank == 0)

    @property
    def questions(self) -> int:
        """How many ranks ask rank 0."""
        if self.world_size <= MANY_RANKS:
            return self.world_size - 1
        on_host = os.environ.get("LOCAL_WORLD_SIZE", "")
        return self.world_size // int(on_host) - 1 if on_host.isdecimal() and int(on_host) else 0


def compare(
    distributed: Any, place: Place, keep: Callable[[list[schema.RoundTrip]], object]
) -> threading.Thread:
    """Starts the thread of this rank: rank 0 answers, others ask, and `keep` their shortest trips.

    Raises:
        RuntimeError: The job has no store to which another connection can be made.
    """
    store = distributed.distributed_c10d._get_default_store()
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    if not hasattr(store, "host"):
        raise RuntimeError(f"clocks are not compared: the store of the job is a {type(store).__name__}")
    connect = _Connection(type(store), store.host, store.port)

    def work() -> None:
        prefix = PREFIX.format(place.number)
        if place.rank == 0:
            _answer(connect(), prefix, place.questions)
        elif place.asks:
            keep(_ask(connect(), prefix))

    thread = threading.Thread(target=_quietly, args=(work,), name="tracelink-clocks", daemon=True)
    thread.start()
    return thread


@dataclass(frozen=True, slots=True)
class _Connection:
    kind: Any
    host: str
    port: int

    def __call__(self) -> Any:
        """A connection that waits no longer than PATIENCE_S for a key."""
        patience = timedelta(seconds=PATIENCE_S)
        return self.kind(self.host, self.port, is_master=False, wait_for_workers=False, timeout=patience)


def _quietly(work: Callable[[], None]) -> None:
    """A rank that does not answer, or a job that ends meanwhile, leaves clocks that are not compared: nothing more."""
    try:
        work()
    except Exception:  # noqa: BLE001  torch raises errors of several classes
        return


def _answer(store: Any, prefix: str, questions: int) -> None:
    """Answers each rank, in the order in which they ask."""
    for ticket in range(1, questions + 1):
        for trip in range(TRIPS):
            store.wait([f"{prefix}/ask/{ticket}/{trip}"])
            store.set(f"{prefix}/answer/{ticket}/{trip}", str(time.time_ns()))


def _ask(store: Any, prefix: str) -> list[schema.RoundTrip]:
    ticket = store.add(f"{prefix}/tickets", 1)
    trips = []
    for trip in range(TRIPS):
        sent = time.time_ns()
        store.set(f"{prefix}/ask/{ticket}/{trip}", "")
        answered = int(store.get(f"{prefix}/answer/{ticket}/{trip}"))
        trips.append(schema.RoundTrip(sent, answered, time.time_ns()))
    return sorted(trips, key=lambda trip: trip.received_ns - trip.sent_ns)[:KEPT]
