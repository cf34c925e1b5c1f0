"""Work on Dask workers, which are processes of their own: the results of one process, whatever is lost meanwhile."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracelink
import tracelink.samples as samples
from builders.calls import linked
from builders.jobs_of_calls import RandomJob, contents
from tracelink._io.engine import Engine, Meter
from tracelink._match.job import StoredCalls, link_ranks
from tracelink._model.errors import TraceError, UnreadableError, UsageError
from tracelink._run import engine_for
from tracelink._run.processes import Processes

pytest.importorskip("distributed", reason="the extra dask is not installed")

from tracelink._run.dask import WORKER_ENVIRONMENT, DaskEngine
from tracelink._run.worker import WorkerFile

pytestmark = [pytest.mark.slow, pytest.mark.threads]


@pytest.fixture(scope="module")
def engine() -> Iterator[DaskEngine]:
    engine = DaskEngine("", 2)
    yield engine
    engine.connection.close()


def test_ranks_matched_in_parts_are_those_of_one_process(engine: DaskEngine) -> None:
    ranks = RandomJob(1).ranks()
    store = engine.store((), in_memory=False)
    stored = engine.map(lambda rank: StoredCalls.of(rank, store), ranks)
    found = link_ranks(stored, engine, store, most_calls=30, batch_calls=30)
    assert contents(found) == contents(linked(ranks))


@pytest.fixture
def breakable() -> Iterator[DaskEngine]:
    """A cluster of its own for each test, parts of which the test kills."""
    engine = DaskEngine("", 2)
    yield engine
    engine.connection.close()


def pids(engine: DaskEngine) -> dict[str, int]:
    """The process of each worker."""
    found: dict[str, int] = engine.connection.client.run(os.getpid)
    return found


# Work and its results.


@pytest.mark.parametrize("items", [[], [3], list(range(25))])
def test_results_are_in_the_order_of_the_items(engine: DaskEngine, items: list[int]) -> None:
    assert engine.map(lambda item: item * item, items) == [item * item for item in items]


def test_work_runs_in_workers_and_not_here(engine: DaskEngine) -> None:
    used = set(engine.map(lambda _: (time.sleep(0.05), os.getpid())[1], range(8)))
    assert used == set(pids(engine).values())
    assert os.getpid() not in used


def test_shared_objects_come_back_as_this_process_has_them(engine: DaskEngine) -> None:
    things = [np.arange(3), np.arange(4), np.arange(5)]
    results = engine.map(lambda number: (things[number], {"also": things[number]}), range(3), shared=things)
    assert all(
        first is thing is second["also"] for (first, second), thing in zip(results, things, strict=True)
    )


def test_items_are_shared_objects_too(engine: DaskEngine) -> None:
    things = [{"number": number} for number in range(3)]
    results = engine.map(lambda thing: thing, things, shared=things)
    assert all(result is thing for result, thing in zip(results, things, strict=True))


def test_an_error_is_raised_here_with_all_that_it_says(engine: DaskEngine) -> None:
    def work(item: int) -> int:
        if item == 2:
            raise UnreadableError("broken", source="a.json", position="byte 5", advice="Mend it.")
        return item

    with pytest.raises(UnreadableError) as caught:
        engine.map(work, range(6))
    assert str(caught.value) == "a.json, byte 5: broken. Mend it."


def test_an_error_that_cannot_be_sent_still_has_a_text(engine: DaskEngine) -> None:
    def work(item: int) -> int:
        error = ValueError(f"item {item}")
        error.handle = open(os.devnull)  # type: ignore[attr-defined]  # noqa: SIM115
        raise error

    with pytest.raises(RuntimeError, match="item 0"):
        engine.map(work, [0])


def test_bytes_are_counted_by_workers_and_watched_here(engine: DaskEngine) -> None:
    seen: list[int] = []
    engine.meter.restart(seen.append)
    meter = engine.meter
    engine.map(lambda number: meter.add(number), [10, 20, 30])
    engine.meter.restart(None)
    assert len(seen) == 3
    assert seen[-1] == 60


def test_work_inside_of_an_item_runs_in_one_process(engine: DaskEngine) -> None:
    outer, inner = engine.split(1)
    assert outer is engine
    assert inner == Processes(1, engine.meter)
    assert engine.map(lambda _: (type(engine).__name__, inner.jobs), [0]) == [("Processes", 1)]


# What work leaves for later work.


def test_objects_stay_on_the_worker_that_made_them(engine: DaskEngine) -> None:
    store = engine.store((), in_memory=False)
    tickets = engine.map(lambda number: store.put(np.full(100_000, number)), range(4))
    assert {ticket.worker for ticket in tickets} <= set(pids(engine))
    assert engine.map(lambda ticket: int(store.get(ticket).sum()), tickets) == [
        0,
        10**5,
        2 * 10**5,
        3 * 10**5,
    ]
    assert [int(store.get(ticket)[0]) for ticket in tickets] == [0, 1, 2, 3]


def test_work_goes_to_the_worker_that_has_what_it_needs(engine: DaskEngine) -> None:
    class Item(WorkerFile[Any], frozen=True):
        pass

    there = pids(engine)
    items = [Item(address, "", "", (0,)) for address in [*there, *there, *there]]
    assert engine.map(lambda _: os.getpid(), items) == [there[item.address] for item in items]


def elsewhere(ticket: Any) -> Any:
    """The ticket as another machine sees it, on which there is no such folder."""
    return WorkerFile(ticket.address, "/nowhere", ticket.name, ticket.ends, ticket.again)


def test_another_machine_gets_a_file_from_the_worker_that_has_it(engine: DaskEngine) -> None:
    store = engine.store((), in_memory=False)
    (ticket,) = engine.map(lambda _: store.put({"texts": ["a"], "column": np.arange(5_000_000)}), [0])
    far = elsewhere(ticket)
    assert store.get(far)["column"].sum() == np.arange(5_000_000).sum()
    assert engine.map(lambda _: int(store.get(far)["column"][-1]), [0, 1]) == [4_999_999] * 2


@pytest.mark.parametrize("name", ["../secret", "a/b", "0" * 32 + "/../../" + "0" * 32])
def test_a_worker_gives_no_other_files(engine: DaskEngine, name: str) -> None:
    store = engine.store((), in_memory=False)
    address = next(iter(pids(engine)))
    with pytest.raises(TraceError, match="is lost, and with it what it had made"):
        store.get(WorkerFile(address, "/nowhere", name, (10,)))


def test_what_a_lost_worker_had_is_made_again(breakable: DaskEngine) -> None:
    store = breakable.store((), in_memory=False)
    (ticket,) = breakable.map(lambda _: store.put("first", partial(str, "again")), [0])
    assert store.get(ticket) == "first"
    os.kill(pids(breakable)[ticket.worker], signal.SIGKILL)
    assert store.get(elsewhere(ticket)) == "again"
    with pytest.raises(TraceError, match="is lost"):
        store.get(WorkerFile(ticket.address, "/nowhere", ticket.name, ticket.ends))


# Workers and schedulers that end.


def test_a_killed_worker_costs_its_tasks_only(breakable: DaskEngine, tmp_path: Path) -> None:
    def work(number: int) -> int:
        marker = tmp_path / "killed"
        if number == 3 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        (tmp_path / f"{number}-{time.monotonic_ns()}").touch()
        return number

    assert breakable.map(work, range(12)) == list(range(12))
    assert (tmp_path / "killed").exists()


def test_work_that_kills_every_worker_is_an_error(breakable: DaskEngine) -> None:
    with pytest.raises(TraceError, match="the cluster lost 1 of 1 tasks 3 times") as caught:
        breakable.map(lambda _: os.kill(os.getpid(), signal.SIGKILL), [0])
    assert "--memory-limit" in caught.value.advice


@pytest.mark.parametrize("suffix", ["json", "pftrace", "json.gz"])
@pytest.mark.parametrize("when", [1, 3, 8])
def test_a_merge_survives_the_loss_of_all_workers(
    breakable: DaskEngine, tmp_path: Path, when: int, suffix: str
) -> None:
    calls = 0

    def watch(_: int) -> None:
        nonlocal calls
        calls += 1
        if calls == when:
            for pid in workers.values():
                os.kill(pid, signal.SIGKILL)

    workers = pids(breakable)
    source = samples.path("cpu_job")
    alone, clustered = tmp_path / f"alone.{suffix}", tmp_path / f"clustered.{suffix}"
    tracelink.merge(source, output=alone, jobs=1)
    tracelink.merge(source, output=clustered, engine=breakable, watch=watch)
    assert calls >= min(when, 2)
    assert clustered.read_bytes() == alone.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [alone.name, clustered.name]


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a scheduler with two workers, and its process."""
    file = tmp_path / "scheduler.json"
    common = ["--scheduler-file", str(file), "--no-dashboard"]
    arguments = [
        ["scheduler", *common, "--host", "127.0.0.1", "--port", "0"],
        *[["worker", *common, "--nthreads", "1", "--local-directory", str(tmp_path)]] * 2,
    ]
    started = []
    try:
        for words in arguments:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", f"distributed.cli.dask_{words[0]}", *words[1:]],
                    stderr=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
            )
            deadline = time.monotonic() + 60
            while not file.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
        yield json.loads(file.read_text())["address"], started[0]
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def test_a_lost_scheduler_is_one_error_and_no_output(
    scheduler: tuple[str, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    address, process = scheduler

    def watch(_: int) -> None:
        process.kill()

    engine = engine_for(None, None, address.replace("tcp://", "dask://"))
    with pytest.raises(
        TraceError, match=r"the Dask scheduler at tcp://127.0.0.1:.* does not answer any more"
    ):
        tracelink.merge(samples.path("cpu_job"), output=tmp_path / "out.json", engine=engine, watch=watch)
    assert not list(tmp_path.glob("*out.json*"))


def test_a_scheduler_is_found_by_its_file(scheduler: tuple[str, Any], tmp_path: Path) -> None:
    engine = engine_for(None, None, f"dask://{tmp_path / 'scheduler.json'}")
    assert engine.map(lambda number: number + 1, [1, 2]) == [2, 3]
    assert engine.connection.client.scheduler.address == scheduler[0]


def test_an_existing_client_is_an_engine(engine: DaskEngine) -> None:
    graph = tracelink.load(samples.path("gpu_pair"), engine=engine.connection.client)
    assert len(graph) == len(tracelink.load(samples.path("gpu_pair")))


def test_files_of_a_client_are_removed_when_it_leaves(scheduler: tuple[str, Any], tmp_path: Path) -> None:
    engine = DaskEngine(scheduler[0])
    store = engine.store((), in_memory=False)
    engine.map(lambda number: store.put(np.arange(number)), [1000, 2000])
    assert len(list(tmp_path.rglob("tracelink/*/*"))) == 2
    engine.connection.close()
    assert list(tmp_path.rglob("tracelink/*")) == []


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="/proc has the environment at the start")
def test_local_workers_are_started_with_settings_that_keep_memory() -> None:
    def settings() -> tuple[list[str], bool]:
        import dask

        return Path("/proc/self/environ").read_text().split("\0"), dask.config.get(
            "distributed.worker.profile.enabled"
        )

    engine = DaskEngine("", 1)
    ((environment, profiles),) = engine.connection.client.run(settings).values()
    assert {f"{name}={value}" for name, value in WORKER_ENVIRONMENT.items()} <= set(environment)
    assert profiles is False


def test_a_query_of_tables_starts_no_workers(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    tracelink.merge(samples.path("gpu_pair"), output=tmp_path / "job.duckdb")
    engine = DaskEngine()
    assert tracelink.query(tmp_path / "job.duckdb", "SELECT 1 one", engine=engine).rows() == [(1,)]
    assert engine._connected is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("slurm", "there is no engine 'slurm'"),
        ("dask://127.0.0.1:1", "there is no Dask scheduler at 127.0.0.1:1"),
        ("dask:///missing.json", "/missing.json: there is no such file"),
    ],
)
def test_unknown_engines_are_errors_with_advice(
    monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.setattr("tracelink._run.dask.CONNECT", 1)
    with pytest.raises(UsageError, match=message) as caught:
        tracelink.load(samples.path("gpu_pair"), engine=name)
    assert "dask" in caught.value.advice


# Every analysis and every format: the bytes of one process.


def graphs_equal(one: tracelink.EventGraph, other: tracelink.EventGraph) -> bool:
    names = (
        "events",
        "edges",
        "tracks",
        "ranks",
        "sources",
        "groups",
        "collectives",
        "participations",
        "messages",
    )
    return all(str(one.to_pandas(name).to_dict()) == str(other.to_pandas(name).to_dict()) for name in names)


@pytest.mark.parametrize("sample", ["gpu_pair", "cpu_job", "compile_job", "run_after"])
def test_graphs_are_equal(engine: DaskEngine, sample: str) -> None:
    source = samples.path(sample)
    assert graphs_equal(tracelink.load(source, engine=engine), tracelink.load(source, jobs=1))


Written = Callable[[Engine | None, Path], object]
OUTPUTS: Sequence[tuple[str, Written]] = [
    ("json", lambda e, p: tracelink.merge(samples.path("gpu_pair"), output=p / "a.json", engine=e)),
    ("gz", lambda e, p: tracelink.merge(samples.path("cpu_job"), output=p / "a.json.gz", engine=e)),
    ("native", lambda e, p: tracelink.merge(samples.path("cpu_job"), output=p / "a.pftrace", engine=e)),
    (
        "chakra",
        lambda e, p: tracelink.merge(samples.path("gpu_pair"), output=p / "job", to="chakra", engine=e),
    ),
    (
        "steps",
        lambda e, p: tracelink.merge(samples.path("cpu_job"), output=p / "a.json", engine=e, steps="1"),
    ),
    (
        "summary",
        lambda e, p: (p / "a").write_text(repr(tracelink.summary(samples.path("cpu_job"), engine=e))),
    ),
    (
        "verdict",
        lambda e, p: (p / "a").write_text(
            str(tracelink.diagnose(samples.path("hung_job") / "dumps", engine=e))
        ),
    ),
]


@pytest.mark.parametrize("written", [written for _, written in OUTPUTS], ids=[name for name, _ in OUTPUTS])
def test_outputs_are_those_of_one_process(engine: DaskEngine, tmp_path: Path, written: Written) -> None:
    alone, clustered = tmp_path / "alone", tmp_path / "clustered"
    for folder, chosen in ((alone, None), (clustered, engine)):
        folder.mkdir()
        written(chosen, folder)
    found = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in (alone, clustered)]
    assert found[0]
    assert found[0] == found[1]


def test_a_meter_counts_by_itself_in_a_worker() -> None:
    meter = Meter(print)
    meter.add(5)
    assert pickle.loads(pickle.dumps(meter)).total == 0
