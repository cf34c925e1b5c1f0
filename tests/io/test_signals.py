"""Signals are deferred, and none is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from tracelink._io.signals import ENDING, DeferredSignals, deferred_signals


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
