"""Work in one process or in forked children: the same results, in the same order, and nothing left behind."""

from __future__ import annotations

import errno
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tracelink._io.engine import Meter
from tracelink._io.targets import Place, file_target
from tracelink._io.temporary import abandoned_files_removed
from tracelink._model.errors import TraceError, UnreadableError
from tracelink._run.processes import Processes

ENGINES = pytest.mark.parametrize("jobs", [1, 2, 4])


@ENGINES
@pytest.mark.parametrize("items", [[], [3], list(range(25))])
def test_results_stand_in_the_order_of_the_items(jobs: int, items: list[int]) -> None:
    def work(item: int) -> int:
        time.sleep(0.001 * (item % 3))
        return item * item

    assert Processes(jobs).map(work, items) == [item * item for item in items]


def test_work_is_spread_over_so_many_processes_at_most() -> None:
    def work(_: int) -> int:
        time.sleep(0.01)
        return os.getpid()

    assert set(Processes(1).map(work, range(6))) == {os.getpid()}
    processes = Processes(3).map(work, range(6))
    assert processes[-1] == os.getpid()
    assert len(set(processes)) > 1


def test_children_see_what_this_process_has_in_memory() -> None:
    table = {number: str(number) for number in range(100)}
    array = np.arange(1_000_000)
    assert Processes(2).map(lambda item: (table[item], int(array[item])), [5, 6]) == [("5", 5), ("6", 6)]


@dataclass(frozen=True)
class Thing:
    """Something that cannot be pickled."""

    work: Callable[[], int]


def test_shared_objects_come_back_as_this_process_has_them() -> None:
    things = [Thing(lambda: 1), Thing(lambda: 2), Thing(lambda: 3)]
    results = Processes(2).map(lambda thing: (thing, {"also": thing}), things, shared=things)
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
        Processes(jobs).map(work, range(6))
    assert str(caught.value) == "a.json, byte 5: broken. Mend it."


def test_an_error_that_cannot_be_sent_still_has_a_text() -> None:
    class LocalError(Exception):
        pass

    def work(item: int) -> int:
        raise LocalError(f"item {item}")

    with pytest.raises((RuntimeError, LocalError), match="item"):
        Processes(2).map(work, range(3))


def test_a_result_that_cannot_be_sent_is_an_error() -> None:
    with pytest.raises((TypeError, AttributeError, RuntimeError)):
        Processes(2).map(lambda item: lambda: item, range(3))


def test_a_killed_child_is_told_and_not_waited_for() -> None:
    parent = os.getpid()

    def work(item: int) -> int:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    with pytest.raises(TraceError, match="a worker process ended without an answer") as caught:
        Processes(2).map(work, range(3))
    assert "--jobs 1" in caught.value.advice


def test_a_child_that_dies_while_it_answers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(pipe: int, mode: str) -> object:
        os.write(pipe, b"\x80\x05\x95half an answer")
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError(mode)

    parent, opened = os.getpid(), os.fdopen
    monkeypatch.setattr(os, "fdopen", lambda *args: opened(*args) if os.getpid() == parent else cut(*args))
    with pytest.raises(TraceError, match="a worker process ended without an answer"):
        Processes(2).map(lambda item: item, range(3))


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
        Processes(3).map(work, range(6))
    assert children() == before


def test_no_pipe_stays_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    Processes(3).map(lambda item: item, range(20))
    assert len(os.listdir("/proc/self/fd")) == before


@ENGINES
def test_the_meter_counts_what_all_processes_did(jobs: int) -> None:
    told: list[int] = []
    engine = Processes(jobs, Meter(told.append))
    engine.map(engine.meter.add, [10, 20, 30, 40])
    assert engine.meter.total == 100
    assert told == sorted(told)
    assert told[-1] == 100


# Faults: the system, the program around the engine, and signals.


@pytest.fixture
def child_signal() -> Iterator[None]:
    previous = signal.getsignal(signal.SIGCHLD)
    yield
    signal.signal(signal.SIGCHLD, previous)


def reap(*_: object) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


@pytest.mark.usefixtures("child_signal")
@pytest.mark.parametrize("handler", [signal.SIG_IGN, reap])
class TestChildrenReapedByOthers:
    def test_results_are_complete(self, handler: Any) -> None:
        signal.signal(signal.SIGCHLD, handler)
        assert Processes(3).map(lambda item: item * 2, range(20)) == [item * 2 for item in range(20)]

    def test_a_killed_child_is_an_error(self, handler: Any) -> None:
        signal.signal(signal.SIGCHLD, handler)
        parent = os.getpid()

        def work(item: int) -> int:
            if os.getpid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)
            return item

        with pytest.raises(TraceError, match="a worker process ended without an answer"):
            Processes(2).map(work, range(3))

    def test_no_child_outlives_an_error(self, handler: Any) -> None:
        signal.signal(signal.SIGCHLD, handler)
        parent, before = os.getpid(), children()

        def work(item: int) -> int:
            if os.getpid() == parent:
                raise UnreadableError("broken")
            time.sleep(60)
            return item

        with pytest.raises(UnreadableError):
            Processes(3).map(work, range(6))
        assert children() == before


def test_more_than_1024_files_can_be_open() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2000:
        pytest.skip(f"the limit of open files is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2000, hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert Processes(3).map(lambda item: item, range(9)) == [*range(9)]
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("missing", ["fork", "pipe"])
@pytest.mark.parametrize("possible", [0, 1, 2])
def test_what_cannot_be_forked_runs_in_this_process(
    missing: str, possible: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, calls = getattr(os, missing), iter(range(1000))

    def limited() -> object:
        if next(calls) >= possible:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        return made()

    monkeypatch.setattr(os, missing, limited)
    before = len(os.listdir("/proc/self/fd"))
    assert Processes(4).map(lambda item: item, range(9)) == [*range(9)]
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_a_fork_is_raised_when_the_child_is_known(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    class EndedError(Exception):
        pass

    def end(*_: object) -> None:
        raise EndedError

    fork = os.fork

    def interrupted() -> int:
        signal.raise_signal(number)  # the child must not run the handler of its parent either
        pid = fork()
        if pid:
            signal.raise_signal(number)
        return pid

    monkeypatch.setattr(os, "fork", interrupted)
    before, previous = children(), signal.signal(number, end)
    try:
        with pytest.raises(EndedError):
            Processes(3).map(lambda item: time.sleep(60), range(4))
    finally:
        signal.signal(number, previous)
    assert children() == before


def test_a_child_that_is_terminated_before_its_first_instruction_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fork = os.fork

    def terminated() -> int:
        pid = fork()
        if not pid:
            os.kill(os.getpid(), signal.SIGTERM)  # waits, as one that arrived during the fork does
        return pid

    monkeypatch.setattr(os, "fork", terminated)
    with pytest.raises(TraceError, match="a worker process ended without an answer"):
        Processes(2).map(lambda item: item, range(3))


def half_a_file(target: Place, written: Path, wait: Callable[[], object]) -> None:
    with target.file() as stream:
        stream.write(b"half")
        stream.flush()
        written.touch()
        wait()


def test_a_terminated_child_removes_its_unfinished_file(tmp_path: Path) -> None:
    parent, written = os.getpid(), tmp_path / "written"

    def work(item: int) -> None:
        if os.getpid() == parent:
            while not written.exists():
                time.sleep(0.001)
            raise UnreadableError("broken")
        half_a_file(file_target(tmp_path / "out.json"), written, lambda: time.sleep(60))

    with pytest.raises(UnreadableError):
        Processes(2).map(work, range(2))
    assert [path.name for path in tmp_path.iterdir()] == ["written"]


def test_the_unfinished_file_of_a_killed_child_is_removed(tmp_path: Path) -> None:
    parent, target = os.getpid(), file_target(tmp_path / "out.json")

    def work(item: int) -> None:
        if os.getpid() != parent:
            half_a_file(target, tmp_path / "written", lambda: os.kill(os.getpid(), signal.SIGKILL))

    with pytest.raises(TraceError, match="without an answer"), abandoned_files_removed(target.path()):
        Processes(2).map(work, range(2))
    assert [path.name for path in tmp_path.iterdir()] == ["written"]


def test_children_of_a_killed_process_end_and_remove_their_unfinished_files(tmp_path: Path) -> None:
    written = tmp_path / "written"
    process = os.fork()
    if not process:
        own = os.getpid()

        def work(item: int) -> None:
            if os.getpid() != own:
                half_a_file(file_target(tmp_path / "out.json"), written, lambda: time.sleep(60))
            time.sleep(60)

        Processes(2).map(work, range(2))
    while not written.exists():
        time.sleep(0.001)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    latest = time.monotonic() + 10
    while len(list(tmp_path.iterdir())) > 1 and time.monotonic() < latest:
        time.sleep(0.001)
    assert [path.name for path in tmp_path.iterdir()] == ["written"]
