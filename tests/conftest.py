"""Settings of all tests."""

import gc
import signal
from collections.abc import Iterator
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tracelink._io.system import cores

MOST_WORKERS = 8
"""Processes that run tests at once: each imports everything once more."""

# Modules and tests stay: collections of garbage that look at them all the time take a fifth of the time of all tests.
gc.set_threshold(100_000, 20, 20)

settings.register_profile(
    "any machine",
    deadline=None,  # how long an example takes says nothing about it
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,  # what lands must not depend on luck
)
settings.register_profile(
    "search", settings.get_profile("any machine"), derandomize=False, print_blob=True
)  # docs/dev/fuzzing.md
settings.load_profile("any machine")


def pytest_configure() -> None:
    """Constants of the modules that are loaded by chance are no examples, so that these are the same each time."""
    if settings.default.derandomize:
        providers._get_local_constants = lambda: providers._local_constants


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A worker for each processor; none for a selection of tests, for which they would take longer to start."""
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS or config.option.keyword:
        return 0
    return min(cores(), MOST_WORKERS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that leave threads behind come last: a process with threads does not fork."""
    items.sort(key=lambda item: item.get_closest_marker("threads") is not None)


def pytest_collection_finish() -> None:
    """Collections of garbage never look at what has been imported."""
    gc.freeze()


def pytest_unconfigure() -> None:
    """Lets the interpreter release everything as it ends: else DuckDB complains."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def bugs_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of a format is an error of the test that finds it; users get a finding (tests/test_plugins.py)."""

    def raise_error(name: str, role: str, error: Exception) -> NoReturn:
        raise error

    monkeypatch.setattr("tracelink.plugins.registry.crash", raise_error)


@pytest.fixture
def heeded_signals() -> Iterator[None]:
    """SIGINT and SIGHUP end this process and those that it starts, although its parent ignores them (`nohup`, `&`)."""
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)
