"""Servers for the tests of remote stores, all of them on loopback."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from builders.stores import S3, Web, s3_server, web_server

LONGEST_END = 10.0
"""Seconds for threads of servers to end."""


@pytest.fixture(scope="session")
def server() -> Iterator[S3]:
    pytest.importorskip("s3fs")
    pytest.importorskip("moto.server")
    with s3_server() as running:
        yield running


@pytest.fixture
def s3(server: S3, monkeypatch: pytest.MonkeyPatch) -> S3:
    """An empty bucket, in the environment of this process."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.empty()
    return server


@pytest.fixture
def web() -> Iterator[Web]:
    with web_server() as running:
        yield running


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """Other tests of this process fork."""
    yield
    latest = time.monotonic() + LONGEST_END
    while threading.active_count() > 1 and time.monotonic() < latest:
        time.sleep(0.01)
    assert threading.enumerate() == [threading.main_thread()]


@pytest.fixture(autouse=True)
def _fresh_clients_without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients remember the environment in which they were made."""
    from tracelink._io.remote import attempts, stores

    monkeypatch.setattr(attempts, "FIRST_PAUSE", 0.001)
    stores._store.cache_clear()
    stores._session.cache_clear()
