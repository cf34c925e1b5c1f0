"""Numbers of processes and threads in JSON, which viewers append to names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import perfetto
from builders.job import JobBuilder
from tracelink._model.events import EventKind, TrackKind
from tracelink.converters.perfetto.json_events import NamedThread, ShownProcess, counter_names


def shown(process: ShownProcess) -> list[str]:
    """What a viewer shows: the name, then the number; the process first."""
    names = [event for event in process.metadata() if event["name"] in ("process_name", "thread_name")]
    numbers = [process.pid, *(event["tid"] for event in names[1:])]
    return [f"{event['args']['name']} {number}" for event, number in zip(names, numbers, strict=True)]


def of_rank(*threads: tuple[str, str], rank: int = 3, title: str = "rank 3 · node-1") -> ShownProcess:
    return ShownProcess.of_rank(rank, title, ["CPU"], [NamedThread(*thread) for thread in threads])


def test_numbers_are_those_that_people_know() -> None:
    assert shown(
        of_rank(
            ("rank 3 steps and waits", "steps and waits"),
            ("rank 3 main thread 4200", "4200"),
            ("rank 3 main thread 4200 (2)", "4200"),
            ("rank 3 thread 4277 pt_autograd_0", "4277"),
            ("rank 3 stream 7 · compute", "7"),
            ("rank 3 stream -1", "-1"),
            ("rank 3 profiler overhead", "0"),
        )
    ) == [
        "node-1 · rank 3",
        "rank 3 steps and waits · row 1",
        "rank 3 main thread 4200",
        "rank 3 main thread 4200 (2) · row 2",
        "rank 3 thread 4277 pt_autograd_0 4277",
        "rank 3 stream 7 · compute 7",
        "rank 3 stream -1 · row 4",
        "rank 3 profiler overhead · row 5",
    ]


def test_a_thread_is_not_numbered_as_its_process() -> None:
    """A viewer would take it for the main thread."""
    assert shown(of_rank(("rank 7 stream 7", "7"), rank=7, title="rank 7")) == [
        "rank 7",
        "rank 7 stream 7 · row 1",
    ]


def test_groups_are_a_process_before_all_ranks() -> None:
    process = ShownProcess.of_groups(8, [NamedThread("group dp [0, 1]", None)])
    assert (process.order, of_rank().order) == (0, 4)
    assert shown(process) == ["collectives · world size 8", "group dp [0, 1] · row 1"]


NUMBERS = st.integers(-2, 9) | st.sampled_from([4200, 1 << 31, 1 << 62])


@given(st.lists(st.tuples(st.sampled_from(["stream", "thread"]), NUMBERS), max_size=12), st.integers(0, 9))
def test_no_two_threads_have_one_number(threads: list[tuple[str, int]], rank: int) -> None:
    process = of_rank(*((f"rank {rank} {kind} {number}", str(number)) for kind, number in threads), rank=rank)
    assert len({*process.tids, rank}) == len(threads) + 1
    assert all(0 < tid < 1 << 31 for tid in process.tids)


@pytest.mark.parametrize(
    ("names", "labels", "unique"),
    [
        (["load", "load"], ["GPU 0", "GPU 1"], ["load", "load · GPU 1"]),
        (["load", "memory"], ["", ""], ["load", "memory"]),
    ],
)
def test_counters_of_a_rank_have_names_of_their_own(
    names: list[str], labels: list[str], unique: list[str]
) -> None:
    assert counter_names(names, labels) == unique


def test_equal_numbers_of_two_ranks_stay_apart_with_their_flows() -> None:
    built = JobBuilder()
    for rank in (0, 1):
        thread, stream = built.track(rank=rank), built.track(TrackKind.STREAM, rank, "0", "7")
        built.add(thread, f"launch {rank}", 0, 5, EventKind.RUNTIME)
        built.add(stream, f"kernel {rank}", 5, 5, EventKind.KERNEL)
    written = perfetto.write(built.build())
    assert [(event["name"], event["pid"], event["tid"]) for event in written.slices()] == [
        ("launch 0", 0, 101),
        ("kernel 0", 0, 7),
        ("launch 1", 1, 101),
        ("kernel 1", 1, 7),
    ]
