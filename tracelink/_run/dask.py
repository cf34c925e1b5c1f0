"""Work on a Dask cluster: a task is a file or a rank, results are those of one process, and only calls travel.

What ranks contain stays on the workers that read it (`tracelink._run.worker`). A worker that is lost costs its
tasks, which run again elsewhere; a lost scheduler is an error.
"""

from __future__ import annotations

import logging
import os
import pickle
import queue
import re
import signal
import threading
import time
import urllib.request
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import dask
import distributed
from msgspec import Struct

from tracelink._io.engine import Meter, worker_of
from tracelink._io.spool import Store, unpacked
from tracelink._io.system import cores
from tracelink._model import __version__
from tracelink._model.errors import TraceError, UsageError
from tracelink._run.processes import Processes
from tracelink._run.worker import (
    Answer,
    ClusterStore,
    FileServer,
    Work,
    forget,
    packed_item,
    run,
    versions,
)

Item = TypeVar("Item")
Result = TypeVar("Result")

WAIT = 60
"""Seconds without any worker after which work is given up."""

CONNECT = 10
"""Seconds after which a scheduler does not exist."""

LOOK = 2.0
"""Seconds without an answer after which the cluster is looked at."""

WORKER_ENVIRONMENT = {"MALLOC_TRIM_THRESHOLD_": "268435456", "MALLOC_MMAP_THRESHOLD_": "33554432"}
"""With which workers are started here, so that they keep memory for the next rank; docs/fleet.md recommends it."""

LOCAL_SETTINGS = {
    **{f"distributed.nanny.pre-spawn-environ.{name}": value for name, value in WORKER_ENVIRONMENT.items()},
    "distributed.worker.profile.enabled": False,  # it would interrupt work 100 times a second
}
"""Dask's settings for workers that are started here."""

TRIES = 3
"""How often work is submitted that the cluster lost."""


class Connection(Struct):
    """A client of a cluster, and the cluster if it was started for this."""

    client: Any
    cluster: Any
    address: str
    """Of the scheduler."""
    token: str

    @classmethod
    def of(cls, client: Any, token: str, cluster: Any = None) -> Connection:
        """The connection of a client; its files on workers are in folders of this name."""
        return cls(client, cluster, str(client.scheduler.address), token).prepared()

    @classmethod
    def to(cls, address: str, token: str, jobs: int | None) -> Connection:
        """Connects to a scheduler, or starts workers on this machine if the address is empty."""
        for name in [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]:
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters is raised as an error
        cluster = None
        if address.startswith("/") and not os.path.isfile(address):
            raise UsageError(
                f"{address}: there is no such file", advice="Name the --scheduler-file of `dask scheduler`."
            )
        if not address:
            cluster = _local_cluster(jobs or cores())
        try:
            where = (
                {"scheduler_file": address} if address.startswith("/") else {"address": cluster or address}
            )
            client = distributed.Client(
                **where, timeout=CONNECT, direct_to_workers=True, set_as_default=False
            )
        except (OSError, TimeoutError, ValueError) as error:
            raise UsageError(
                f"there is no Dask scheduler at {_without_secrets(address)} ({_without_secrets(_reason(error))})",
                advice="Check the address that `dask scheduler` prints, or use --engine dask to start workers here.",
            ) from error
        return cls.of(client, token, cluster)

    def prepared(self) -> Connection:
        """The same with workers that have the right version, and that give their files to others."""
        try:
            self.client.wait_for_workers(1, timeout=WAIT)
            self.client.register_plugin(FileServer())
            found = self.client.run(versions)
        except TimeoutError as error:
            raise UsageError(
                f"the cluster has no workers after {WAIT} s",
                advice="Start some: dask worker SCHEDULER --nthreads 1 --nworkers auto",
            ) from error
        except ImportError as error:
            raise UsageError(
                f"the workers cannot import tracelink ({error})",
                advice=f"Install torch-tracelink[dask]=={__version__} on every worker.",
            ) from error
        if others := {address: other for address, other in found.items() if other != versions()}:
            address, (version, python) = next(iter(others.items()))
            raise UsageError(
                f"{len(others)} workers have another version: {address} has tracelink {version} on Python {python}, "
                f"this is {versions()[0]} on Python {versions()[1]}",
                advice="Install the same versions on every worker.",
            )
        return self

    def workers(self) -> Mapping[str, int]:
        """The number of threads of each worker, by its address."""
        threads: Mapping[str, int] = self.client.nthreads()
        return threads

    def close(self) -> None:
        """Removes what was kept for this client, and ends what was started for it."""
        with suppress(Exception):
            if self.cluster is None and self.client.status == "running":
                self.client.run(forget, self.token)
            self.client.close(timeout=LOOK)
            if self.cluster is not None:
                self.cluster.close(timeout=LOOK)


def _local_cluster(workers: int) -> Any:
    """Worker processes on this machine, reachable from this machine only."""
    with _interrupts_ignored(), dask.config.set(LOCAL_SETTINGS):
        return distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        )


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ignores Ctrl-C, as do the processes that are started meanwhile: only this one handles it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _reason(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _without_secrets(text: str) -> str:
    """An address, or a text with one, without user and password."""
    return re.sub(r"[^\s/@'\"]+@", "", text)


class DaskEngine:
    """Runs work on a Dask cluster; connects when it is used for the first time."""

    def __init__(
        self,
        target: Any = "",
        jobs: int | None = None,
        on_connect: Callable[[DaskEngine], object] | None = None,
    ) -> None:
        """`target` is the address of a scheduler, a `distributed.Client`, or empty for workers on this machine."""
        self.meter = Meter()
        self._address = target.removeprefix("dask://") if isinstance(target, str) else ""
        self._wanted = jobs
        self._on_connect = on_connect
        self._token = uuid.uuid4().hex
        self._connected = None if isinstance(target, str) else Connection.of(target, self._token)

    def __reduce__(self) -> tuple[Any, ...]:
        """Where work takes this engine with it, the work inside of an item runs in one process."""
        return Processes, (1, self.meter)

    @property
    def connection(self) -> Connection:
        """The connection to the cluster."""
        if not self._connected:
            self._connected = connection = Connection.to(self._address, self._token, self._wanted)
            weakref.finalize(self, connection.close)
            if self._on_connect:
                self._on_connect(self)
        return self._connected

    @property
    def dashboard(self) -> str:
        """The address of the page on which Dask shows what it does; empty if there is none."""
        link = str(self.connection.client.dashboard_link)
        try:
            with urllib.request.urlopen(link, timeout=1):  # a scheduler without bokeh has no such page
                return link
        except (OSError, ValueError):
            return ""

    @property
    def jobs(self) -> int:
        """The number of threads of all workers."""
        return max(sum(self.connection.workers().values()), 1)

    @property
    def alone(self) -> Processes:
        """An engine of one process, for work inside of an item."""
        return Processes(1, self.meter)

    @property
    def shares_files(self) -> bool:
        """False: workers have files of their own."""
        return False

    def for_events(self, count: int) -> DaskEngine:
        """This engine: the events are on the cluster."""
        return self

    def split(self, items: int) -> tuple[DaskEngine, Processes]:
        """This engine for the items, and one process for the work inside each."""
        return self, self.alone

    def store(self, shared: Sequence[object], *, in_memory: bool) -> Store:
        """A store that keeps objects on the workers that make them."""
        return ClusterStore(shared, self._token, self)

    def map(
        self, work: Callable[[Item], Result], items: Sequence[Item], shared: Sequence[object] = ()
    ) -> list[Result]:
        """`[work(item) for item in items]`, each item on a worker, preferably on one that has what it needs.

        Raises `TraceError` if the scheduler is lost, or if an item ends several workers.
        """
        if not items:
            return []
        try:
            packed = [packed_item(item, shared) for item in items]
            sent = Work.of(work, shared, self.meter)
        except (TypeError, pickle.PicklingError) as error:
            raise UsageError(
                f"the work cannot be sent to a cluster: {_reason(error)}",
                advice="Name files that all machines can read, or leave out --engine.",
            ) from error
        batch = _Batch(self.connection, self.meter, sent, packed, [worker_of(item) for item in items])
        answers: dict[int, Answer] = {}
        for _ in range(TRIES):
            batch.submit([number for number in range(len(items)) if number not in answers], answers)
            results = {number: self._result(answer, shared) for number, answer in answers.items()}
            if len(results) == len(items):
                return [results[number] for number in range(len(items))]
        raise TraceError(
            f"the cluster lost {len(items) - len(answers)} of {len(items)} tasks {TRIES} times",
            advice="Its workers may have run out of memory: start them with a higher --memory-limit, or fewer of them.",
        )

    def _result(self, answer: Answer, shared: Sequence[object]) -> Any:
        content = unpacked(answer.content, shared)
        if not answer.fine:
            raise content
        return content


class _Batch(Struct):
    """Work on many items."""

    connection: Connection
    meter: Meter
    work: Work
    items: Sequence[bytes]
    places: Sequence[str]

    def submit(self, numbers: Sequence[int], answers: dict[int, Answer]) -> None:
        """Submits these items, and adds the answers; those that the cluster loses are missing."""
        client = self.connection.client
        try:
            work = client.scatter(self.work, broadcast=True, direct=True, hash=False)
            futures = {self._submitted(client, work, number): number for number in numbers}
        except (OSError, TimeoutError) as error:  # a worker that has just ended, or the scheduler
            self._check_workers(error)
            return
        done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for future in futures:
            future.add_done_callback(done.put)
        try:
            while futures:
                future = self._next(done)
                number = futures.pop(future)
                if (answer := self._answer(future)) is not None:
                    answers[number] = answer
                    self.meter.add(answer.counted)
                    if not answer.fine:
                        return
        finally:
            if futures:
                with suppress(Exception):
                    client.cancel(list(futures), force=True)

    def _submitted(self, client: Any, work: Any, number: int) -> Any:
        place = self.places[number]
        near: dict[str, Any] = {"workers": [place], "allow_other_workers": True} if place else {}
        key = f"tracelink-{self.work.token}-{number}-{uuid.uuid4().hex[:8]}"
        return client.submit(run, work, self.items[number], key=key, pure=False, **near)

    def _next(self, done: queue.SimpleQueue[Any]) -> Any:
        """The next future that is done; raises `TraceError` if the cluster has gone."""
        waited = 0.0
        while True:
            try:
                return done.get(timeout=LOOK)
            except queue.Empty:
                waited = 0.0 if self._workers() else waited + LOOK
                if waited > WAIT:
                    raise TraceError(
                        f"the cluster has no workers for {WAIT} s",
                        advice="Start some, and run the command again.",
                    ) from None

    def _workers(self) -> Mapping[str, int]:
        """The workers; raises `TraceError` if there is no scheduler to ask."""
        try:
            workers = self.connection.workers()
        except Exception as error:
            raise self._lost_scheduler() from error
        if self.connection.client.status != "running":
            raise self._lost_scheduler()
        return workers

    def _check_workers(self, error: Exception) -> None:
        """Waits until there is a worker; raises `TraceError` if there is none, or no scheduler."""
        time.sleep(LOOK)
        try:
            self.connection.client.wait_for_workers(1, timeout=WAIT)
        except Exception:  # noqa: BLE001  without a scheduler, Dask raises errors of many types
            raise self._lost_scheduler() from error
        self._workers()

    def _answer(self, future: Any) -> Answer | None:
        """The answer of a task; None if the cluster lost it."""
        if future.status == "finished":
            try:
                answer: Answer = self.connection.client.gather(future, direct=True)
            except (OSError, KeyError, distributed.client.FutureCancelledError):
                return None
            return answer
        if future.status != "error":
            if self.connection.client.status != "running":
                raise self._lost_scheduler()
            return None
        error = future.exception()
        if isinstance(error, distributed.KilledWorker):
            raise TraceError(
                "a task ended several workers, one after the other",
                advice="They may have run out of memory: start workers with a higher --memory-limit, or fewer of them.",
            ) from error
        raise TraceError(f"a task failed on the cluster: {_reason(error)}") from error

    def _lost_scheduler(self) -> TraceError:
        with suppress(Exception):
            self.connection.client.close(timeout=0)  # or it would try to connect until the program ends
        return TraceError(
            f"the Dask scheduler at {self.connection.address} does not answer any more",
            advice="Nothing was written. Start it again, and run the command again.",
        )
