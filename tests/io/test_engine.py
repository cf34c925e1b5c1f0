"""Work in one process or in forked children: the same results, in the same order, and nothing left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tracelink.io.engine import Engine, Meter
from tracelink.model.errors import TraceError, UnreadableError

ENGINES = pytest.mark.parametrize("jobs", [1, 2, 4])


@ENGINES
@pytest.mark.parametrize("items", [[], [3], list(range(25))])
def test_results_stand_in_the_order_of_the_items(jobs: int, items: list[int]) -> None:
    def work(item: int) -> int:
        time.sleep(0.001 * (item % 3))
        return item * item

    assert Engine(jobs).map(work, items) == [item * item for item in items]


def test_work_is_spread_over_so_many_processes_at_most() -> None:
    def work(_: int) -> int:
        time.sleep(0.01)
        return os.getpid()

    assert set(Engine(1).map(work, range(6))) == {os.getpid()}
    processes = Engine(3).map(work, range(6))
    assert processes[-1] == os.getpid()
    assert len(set(processes)) > 1


def test_children_see_what_this_process_has_in_memory() -> None:
    table = {number: str(number) for number in range(100)}
    array = np.arange(1_000_000)
    assert Engine(2).map(lambda item: (table[item], int(array[item])), [5, 6]) == [("5", 5), ("6", 6)]


@dataclass(frozen=True)
class Thing:
    """Something that cannot be pickled."""

    work: Callable[[], int]


def test_shared_objects_come_back_as_this_process_has_them() -> None:
    things = [Thing(lambda: 1), Thing(lambda: 2), Thing(lambda: 3)]
    results = Engine(2).map(lambda thing: (thing, {"also": thing}), things, shared=things)
    assert [first for first, _ in results] == things
    assert all(
        first is thing and second["also"] is thing
        for (first, second), thing in zip(results, things, strict=True)
    )


@ENGINES
@pytest.mark.parametrize("place", [0, 2, 5])
def test_an_error_is_raised_here_with_all_that_it_says(jobs: int, place: int) -> None:
    def work(item: int) -> int:
        if item == place:
            raise UnreadableError("broken", source="a.json", position="byte 5", advice="Mend it.")
        return item

    with pytest.raises(UnreadableError) as caught:
        Engine(jobs).map(work, range(6))
    assert str(caught.value) == "a.json, byte 5: broken. Mend it."


def test_an_error_that_cannot_be_sent_still_has_a_text() -> None:
    class LocalError(Exception):
        pass

    def work(item: int) -> int:
        raise LocalError(f"item {item}")

    with pytest.raises((RuntimeError, LocalError), match="item"):
        Engine(2).map(work, range(3))


def test_a_result_that_cannot_be_sent_is_an_error() -> None:
    with pytest.raises((TypeError, AttributeError, RuntimeError)):
        Engine(2).map(lambda item: lambda: item, range(3))


def test_a_killed_child_is_told_and_not_waited_for() -> None:
    parent = os.getpid()

    def work(item: int) -> int:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    with pytest.raises(TraceError, match="a worker process ended without an answer") as caught:
        Engine(2).map(work, range(3))
    assert "--jobs 1" in caught.value.advice


def test_a_child_that_dies_while_it_answers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(pipe: int, mode: str) -> object:
        os.write(pipe, b"\x80\x05\x95half an answer")
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError(mode)

    parent, opened = os.getpid(), os.fdopen
    monkeypatch.setattr(os, "fdopen", lambda *args: opened(*args) if os.getpid() == parent else cut(*args))
    with pytest.raises(TraceError, match="a worker process ended without an answer"):
        Engine(2).map(lambda item: item, range(3))


def children() -> Sequence[str]:
    tasks = Path("/proc/self/task").iterdir()
    return [child for task in tasks for child in (task / "children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="there is no /proc")
@pytest.mark.parametrize("error", [KeyboardInterrupt, UnreadableError("broken")])
def test_no_child_outlives_an_error(error: BaseException) -> None:
    parent, before = os.getpid(), children()

    def work(item: int) -> int:
        if os.getpid() == parent:
            time.sleep(0.05)
            raise error
        time.sleep(60)
        return item

    with pytest.raises(type(error) if isinstance(error, BaseException) else error):
        Engine(3).map(work, range(6))
    assert children() == before


def test_no_pipe_stays_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    Engine(3).map(lambda item: item, range(20))
    assert len(os.listdir("/proc/self/fd")) == before


@ENGINES
def test_the_meter_counts_what_all_processes_did(jobs: int) -> None:
    told: list[int] = []
    engine = Engine(jobs, Meter(told.append))
    engine.map(engine.meter.add, [10, 20, 30, 40])
    assert engine.meter.total == 100
    assert told == sorted(told)
    assert told[-1] == 100


def test_the_engine_of_this_machine_uses_the_cores_it_may() -> None:
    assert Engine.of_this_machine().jobs >= 1
