"""What operating systems do differently, with and without it."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tracelink._io import system
from tracelink._io.system import (
    ENDING,
    DeferredSignals,
    copy_within_system,
    cores,
    deferred_signals,
    end_with_parent,
    machine,
    most_processes,
    process_exists,
    read_at,
    read_into_at,
    undelivered,
    write_at,
)

WITH_AND_WITHOUT = pytest.mark.parametrize("missing", [(), ("preadv",), ("preadv", "pread", "pwrite")])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    return path


@WITH_AND_WITHOUT
def test_bytes_at_an_offset(missing: tuple[str, ...], file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in missing:
        monkeypatch.delattr(os, name)
    descriptor = os.open(file, os.O_RDWR)
    view = memoryview(bytearray(4))
    assert read_at(descriptor, 3, 2) == b"234"
    assert read_at(descriptor, 30, 8) == b"89"
    assert (read_into_at(descriptor, view, 5), bytes(view)) == (4, b"5678")
    assert (read_into_at(descriptor, view, 8), bytes(view)) == (2, b"8978")
    assert read_into_at(descriptor, view, 10) == 0
    assert write_at(descriptor, memoryview(b"ab"), 9) == 2
    os.close(descriptor)
    assert file.read_bytes() == b"012345678ab"


@pytest.mark.parametrize("possible", [True, False])
def test_a_copy_is_whole_or_its_length_says_what_is_missing(
    possible: bool, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not possible:
        monkeypatch.delattr(os, "sendfile")
    with file.open("rb") as source, (file.parent / "copy").open("wb") as target:
        done = copy_within_system(source.fileno(), target.fileno(), 10)
        assert copy_within_system(source.fileno(), target.fileno(), 0) == 0
    assert (file.parent / "copy").read_bytes() == b"0123456789"[:done]
    assert done == (10 if possible else 0)


def test_a_copy_of_a_file_that_became_shorter_ends(file: Path) -> None:
    with file.open("rb") as source, (file.parent / "copy").open("wb") as target:
        assert copy_within_system(source.fileno(), target.fileno(), 11) in (0, 10)


@pytest.mark.parametrize(("limit", "processes"), [(10, 1), (64, 4), (256, 28), (1024, 124)])
def test_the_limit_of_open_files_limits_processes(
    limit: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, 4096))
    assert most_processes() == processes


def test_processes_are_not_limited_where_files_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert most_processes() == sys.maxsize
    monkeypatch.setitem(sys.modules, "resource", None)
    assert most_processes() == sys.maxsize


def test_cores_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7}, raising=False)
    assert cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1


def test_processes_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = os.fork()
    if not ended:
        os._exit(0)
    os.waitpid(ended, 0)
    assert [process_exists(pid) for pid in (os.getpid(), 1, ended)] == [True, True, False]
    monkeypatch.setattr(os, "name", "nt")
    monkeypatch.delattr(os, "kill")  # which would end it there
    assert process_exists(ended)


def test_a_process_ends_with_its_parent() -> None:
    reading, writing = os.pipe()
    parent = os.fork()
    if not parent:
        child = os.fork()
        if not child:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not the handler of this file, which raises
            end_with_parent(signal.SIGTERM)
            os.write(writing, b"%d" % os.getpid())
            time.sleep(60)
        os._exit(0) if os.read(reading, 20) and not os.write(writing, b"%d" % child) else os._exit(1)
    os.waitpid(parent, 0)
    child = int(os.read(reading, 20))
    latest = time.monotonic() + 10
    while process_exists(child) and _state(child) != "Z" and time.monotonic() < latest:
        time.sleep(0.001)
    assert not process_exists(child) or _state(child) == "Z"


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_the_name_of_this_machine_is_short_and_stays() -> None:
    assert len(machine()) == 8
    assert machine() == machine()


@pytest.mark.parametrize("known", [True, False])
def test_undelivered_bytes(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not known:
        monkeypatch.setattr(system, "fcntl", None)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        other, _ = server.accept()
        with other:
            assert undelivered(client) == 0
            other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            sent = client.send(bytes(8 << 20))
            assert sent > 0
            assert (undelivered(client) > 0) is (known and sys.platform == "linux")


# Signals are deferred, and none is lost.


class EndedError(Exception):
    """Raised by the handler of a test."""


def end(number: int, _: object) -> None:
    raise EndedError(number)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    previous = {number: signal.signal(number, end) for number in ENDING}
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)


def deferring(work: Callable[[DeferredSignals], None]) -> None:
    with deferred_signals() as signals:
        work(signals)


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_is_raised_at_the_end(number: int) -> None:
    done = []

    def work(signals: DeferredSignals) -> None:
        signal.raise_signal(number)
        signal.raise_signal(number)
        done.extend(signals.received)

    with pytest.raises(EndedError) as caught:
        deferring(work)
    assert caught.value.args == (number,)
    assert done == [number, number]
    assert all(signal.getsignal(number) is end for number in ENDING)


def test_a_signal_before_an_error_is_not_lost() -> None:
    def fail(_: object) -> None:
        deferring(lambda _: signal.raise_signal(signal.SIGTERM))
        raise ValueError

    with pytest.raises(EndedError) as caught:
        deferring(fail)
    assert isinstance(caught.value.__context__, ValueError)


def test_ignored_signals_stay_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with deferred_signals() as signals:
        signal.raise_signal(signal.SIGINT)
        assert signals.received == []
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_callback_is_called_at_each_signal_and_at_once_for_an_earlier_one() -> None:
    calls: list[int] = []

    def work(signals: DeferredSignals) -> None:
        signal.raise_signal(signal.SIGINT)
        signals.on_signal(lambda: calls.append(1))
        signal.raise_signal(signal.SIGTERM)
        signals.ignore()
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(EndedError):
        deferring(work)
    assert calls == [1, 1]


def test_other_threads_defer_nothing() -> None:
    entered = []

    def work() -> None:
        with deferred_signals():
            entered.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert entered == [end]
