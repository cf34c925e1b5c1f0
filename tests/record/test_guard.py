"""The thread that dumps a rank: on signals, and if no step ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tracelink._record.guard import Guard

PATIENCE_S = 20.0


class Dumps:
    """The reasons of dumps, as they come."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.steps = 0

    def wait(self, count: int) -> list[str]:
        """The first reasons, as soon as there are so many."""
        end = time.monotonic() + PATIENCE_S
        while len(self.reasons) < count and time.monotonic() < end:
            time.sleep(0.005)
        return self.reasons


@contextmanager
def guarded(watchdog: float | None = None) -> Iterator[tuple[Dumps, str]]:
    dumps = Dumps()
    guard = Guard(dumps.reasons.append, lambda: dumps.steps, watchdog)
    problem = guard.start()
    try:
        yield dumps, problem
    finally:
        guard.stop()


def test_a_signal_dumps_and_the_program_goes_on() -> None:
    before = signal.getsignal(signal.SIGUSR2)
    with guarded() as (dumps, problem):
        assert problem == ""
        signal.raise_signal(signal.SIGUSR2)
        assert dumps.wait(1) == ["SIGUSR2"]
    assert signal.getsignal(signal.SIGUSR2) == before


def test_a_signal_dumps_while_the_main_thread_waits_outside_of_python() -> None:
    with guarded() as (dumps, _):
        other = threading.Thread(target=lambda: (time.sleep(0.2), os.kill(os.getpid(), signal.SIGUSR2)))
        other.start()
        gate = threading.Lock()
        gate.acquire()
        gate.acquire(timeout=1.0)
        other.join()
        assert dumps.reasons == ["SIGUSR2"]


def test_the_handler_of_the_program_is_called_too(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[int] = []
    former = signal.signal(signal.SIGUSR2, lambda number, frame: received.append(number))
    try:
        with guarded() as (dumps, _):
            signal.raise_signal(signal.SIGUSR2)
            assert dumps.wait(1) == ["SIGUSR2"]
        assert received == [signal.SIGUSR2]
    finally:
        signal.signal(signal.SIGUSR2, former)


def test_the_watchdog_dumps_once_for_each_step_that_does_not_end() -> None:
    with guarded(watchdog=0.1) as (dumps, _):
        assert dumps.wait(1) == ["watchdog"]
        time.sleep(0.3)
        assert dumps.reasons == ["watchdog"]
        dumps.steps += 1
        assert dumps.wait(2) == ["watchdog", "watchdog"]


def test_steps_that_end_keep_the_watchdog_quiet() -> None:
    with guarded(watchdog=0.4) as (dumps, _):
        for _ in range(30):
            time.sleep(0.02)
            dumps.steps += 1
        assert dumps.reasons == []


def test_without_the_main_thread_only_the_watchdog_works() -> None:
    found: list[object] = []

    def work() -> None:
        with guarded(watchdog=0.05) as (dumps, problem):
            found.extend((problem, list(dumps.wait(1))))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == ["signals do not dump this rank: the block is not in the main thread", ["watchdog"]]


def test_a_library_with_its_own_wakeup_keeps_it() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    former = signal.set_wakeup_fd(writer)
    try:
        with guarded() as (_, problem):
            assert "set_wakeup_fd" in problem
        assert signal.set_wakeup_fd(former) == writer
    finally:
        signal.set_wakeup_fd(former)
        os.close(reader)
        os.close(writer)


TERMINATED = """
import os, signal, sys, time
from tracelink._record.guard import Guard
guard = Guard(lambda reason: print(reason, flush=True), lambda: 0, None)
guard.start()
{}
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(30)
"""


def ended(code: str) -> tuple[int, str]:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    return result.returncode, result.stdout


def test_a_process_that_is_terminated_is_dumped_and_ends_as_without_a_guard() -> None:
    assert ended(TERMINATED.format("")) == (-signal.SIGTERM, "SIGTERM\n")


@pytest.mark.parametrize("fault", ["raise OSError('full')", "time.sleep(3600)"])
def test_a_dump_that_fails_or_takes_for_ever_does_not_keep_the_process(fault: str) -> None:
    patience = "import tracelink._record.guard as module\nmodule.PATIENCE_S = 0.2"
    code = f"{patience}\ndef dump(reason):\n    {fault}\nguard.dump = dump"
    assert ended(TERMINATED.format(code)) == (-signal.SIGTERM, "")


def test_a_forked_process_ends_at_once() -> None:
    """Workers of a DataLoader have no guard, and must not ignore the signal that ends them."""
    fork = "pid = os.fork()\nif pid: print(os.waitpid(pid, 0)[1], flush=True); guard.stop(); sys.exit()"
    assert ended(TERMINATED.format(fork)) == (0, f"{int(signal.SIGTERM)}\n")


def test_a_guard_that_ended_is_no_obstacle() -> None:
    code, output = ended(TERMINATED.format("guard.stop()"))
    assert (code, output) == (-signal.SIGTERM, "")
