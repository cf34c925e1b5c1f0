"""A job matched in parts is the same, byte for byte, as the job matched at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.calls import call, group, linked, rank, recv, send, told, whole
from builders.jobs_of_calls import RandomJob, contents
from tracelink._io.spool import LocalStore, LostError, Store
from tracelink._match.job import JobTables, StoredCalls, link_ranks
from tracelink._match.outlines import outlined, roster_of
from tracelink._match.parts import plan_of
from tracelink._model.clock import Clock, ClockMode, Clocks
from tracelink._model.communications import RankCalls
from tracelink._run.processes import Processes

GIVEN = Clocks.of([Clock(0, offset_ns=5), Clock(1, offset_ns=-7, drift_ppm=3.5), Clock(9)])


def in_parts(
    ranks: list[RankCalls],
    clock: ClockMode | Clocks,
    most_calls: int,
    batch_calls: int = 1,
    jobs: int = 1,
) -> JobTables:
    engine = Processes(jobs)
    store = engine.store((), in_memory=False)
    stored = [StoredCalls.of(one, store) for one in ranks]
    return link_ranks(stored, engine, store, clock, most_calls=most_calls, batch_calls=batch_calls)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    clock=st.sampled_from([*ClockMode, GIVEN]),
    most_calls=st.sampled_from([1, 2, 5, 20, 60]),
    batch_calls=st.sampled_from([1, 30, 10**6]),
)
def test_parts_together_are_the_whole(
    seed: int, clock: ClockMode | Clocks, most_calls: int, batch_calls: int
) -> None:
    ranks = RandomJob(seed).ranks()
    assert contents(in_parts(ranks, clock, most_calls, batch_calls)) == contents(linked(ranks, clock))


@pytest.mark.parametrize("seed", range(3))
def test_parts_of_several_processes_together_are_the_whole(seed: int) -> None:
    ranks = RandomJob(seed).ranks()
    assert contents(in_parts(ranks, ClockMode.HOST, 20, 1, jobs=2)) == contents(linked(ranks))


class LosingStore:
    """A store that once loses what it has."""

    def __init__(self, store: Store, after: int) -> None:
        self.store, self.shared, self.left = store, store.shared, after

    def put(self, item: object, again: object = None) -> object:
        return self.store.put(item)

    def get(self, stored: object) -> object:
        self.left -= 1
        if not self.left:
            raise LostError("the worker is lost")
        return self.store.get(stored)


class LosingEngine(Processes):
    """One process, and stores of which the first loses what it has when that is needed for the `after`-th time."""

    after: int = 1

    def store(self, shared: Sequence[object], *, in_memory: bool) -> Any:
        after, self.after = self.after, 0
        return LosingStore(super().store(shared, in_memory=in_memory), after)


@pytest.mark.parametrize("after", [1, 5, 12, 20])
def test_what_a_lost_worker_had_matched_is_matched_again(after: int) -> None:
    ranks = RandomJob(1).ranks()
    engine = LosingEngine(after=after)
    calls = LocalStore((), in_memory=True)
    stored = [StoredCalls.of(one, calls) for one in ranks]
    found = link_ranks(stored, engine, calls, most_calls=20, batch_calls=1)
    assert contents(found) == contents(linked(ranks))


def parts_of(ranks: list[RankCalls], most: int) -> int:
    return plan_of(roster_of([outlined(one) for one in ranks]), most).parts


def test_numbered_collectives_of_a_large_group_are_divided_by_their_numbers() -> None:
    ranks = whole(4, *(call(sequence=number) for number in range(1, 11)))
    assert [parts_of(ranks, most) for most in (40, 20, 8, 1)] == [1, 2, 5, 10]
    assert np.array_equal(in_parts(ranks, ClockMode.NONE, 8).collectives.order, np.arange(10))


def test_collectives_without_numbers_stay_together() -> None:
    ranks = whole(4, *(call(sequence=number) for number in range(1, 11)), call())
    assert parts_of(ranks, 8) == 1


def test_messages_of_a_large_group_are_divided_by_their_senders_unless_a_receive_has_any_source() -> None:
    world = [group("0", 0, 1, 2, 3)]
    ranks = [rank(r, send((r + 1) % 4, 1), recv((r - 1) % 4, 1), groups=world) for r in range(4)]
    assert parts_of(ranks, 2) == 4
    ranks[3] = rank(3, send(0, 1), recv(-1, 1), groups=world)
    assert parts_of(ranks, 2) == 1


def test_a_member_is_missing_by_what_it_did_in_all_parts() -> None:
    """In its own part nothing else of rank 2 is known."""
    calls = [call(sequence=number, enqueued=number) for number in range(1, 7)]
    world = [group("0", 0, 1, 2)]
    ranks = [rank(r, *calls, groups=world) for r in range(2)]
    ranks.append(rank(2, *calls[:2], *calls[4:], groups=world))
    verdicts = [verdict for *_, verdict in told(in_parts(ranks, ClockMode.NONE, 3))]
    assert verdicts == ["complete", "complete", "missing", "missing", "complete", "complete"]
