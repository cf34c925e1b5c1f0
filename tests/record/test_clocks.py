"""Round trips to rank 0 over the store of a job."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tracelink._record import clocks
from tracelink._record.clocks import KEPT, Place
from tracelink.converters.capture.schema import RoundTrip


class Store:
    """A TCPStore without a network: all connections share one dictionary."""

    host, port = "localhost", 1

    def __init__(self, *_: object, timeout: Any = None, **options: object) -> None:
        self.patience = timeout.total_seconds() if timeout else 0.0

    values: dict[str, bytes]
    changed: threading.Condition

    def add(self, key: str, count: int) -> int:
        with self.changed:
            self.values[key] = str(int(self.values.get(key, b"0")) + count).encode()
            return int(self.values[key])

    def set(self, key: str, value: str) -> None:
        with self.changed:
            self.values[key] = value.encode()
            self.changed.notify_all()

    def wait(self, keys: list[str]) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: all(key in self.values for key in keys), self.patience):
                raise RuntimeError("timeout")

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self.values[key]


@pytest.fixture
def distributed() -> Any:
    kind = type("Store", (Store,), {"values": {}, "changed": threading.Condition()})
    prefixed = SimpleNamespace(underlying_store=kind())
    return SimpleNamespace(distributed_c10d=SimpleNamespace(_get_default_store=lambda: prefixed))


def test_each_rank_keeps_its_shortest_trips(distributed: Any) -> None:
    kept: dict[int, list[RoundTrip]] = {}

    def keeper(rank: int) -> Any:
        return lambda trips: kept.update({rank: trips})

    begin = time.time_ns()
    threads = [clocks.compare(distributed, Place(rank, 3, rank, 0), keeper(rank)) for rank in range(3)]
    for thread in threads:
        thread.join(20)
    assert {rank: len(trips) for rank, trips in kept.items()} == {1: KEPT, 2: KEPT}
    trips = [trip for of_rank in kept.values() for trip in of_rank]
    assert all(begin <= trip.sent_ns <= trip.rank0_ns <= trip.received_ns for trip in trips)


def test_a_rank_0_that_never_answers_leaves_no_trips(
    distributed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clocks, "PATIENCE_S", 0.05)
    kept: list[object] = []
    clocks.compare(distributed, Place(1, 2, 1, 0), kept.append).join(20)
    assert kept == []


def test_a_store_without_a_network_cannot_be_asked() -> None:
    store = SimpleNamespace(distributed_c10d=SimpleNamespace(_get_default_store=dict))
    with pytest.raises(RuntimeError, match="the store of the job is a dict"):
        clocks.compare(store, Place(1, 2, 1, 0), print)


@pytest.mark.parametrize(
    ("place", "asks", "questions"),
    [
        (Place(0, 4, 0, 0), False, 3),
        (Place(3, 4, 3, 0), True, 3),
        (Place(8, 128, 0, 0), True, 15),
        (Place(9, 128, 1, 0), False, 15),
    ],
)
def test_in_large_jobs_one_rank_of_each_host_asks(
    monkeypatch: pytest.MonkeyPatch, place: Place, asks: bool, questions: int
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert (place.asks, place.questions) == (asks, questions)
