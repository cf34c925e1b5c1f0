"""A job cut to a selection."""

from __future__ import annotations

from builders.graph import START, GraphBuilder
from builders.job import HeldPart, JobBuilder
from tracelink.engine import Engine
from tracelink.io.spool import Keeper
from tracelink.model.columns import UNKNOWN
from tracelink.model.events import EventKind, TrackKind
from tracelink.model.job import Job
from tracelink.pipeline.selection import Selection, cut


def part(rank: int) -> HeldPart:
    """A rank with an operator and a kernel every 100 ns."""
    built = GraphBuilder()
    thread, stream = built.track(rank=rank), built.track(TrackKind.STREAM, rank)
    for place in range(4):
        built.add(thread, f"op {place}", 100 * place, 10)
        built.add(stream, f"kernel {place}", 100 * place + 20, 50, EventKind.KERNEL)
    return HeldPart(rank, built.build())


def job() -> Job:
    """Two ranks with a collective in every kernel, and a message from the first operator to the last kernel."""
    built = JobBuilder(parts=[part(0), part(1)])
    group = built.group("world", [0, 1])
    for place in range(4):
        span = (100 * place + 20, 100 * place + 70)
        built.collective(group, {0: span, 1: span}, kernels={0: 2 * place + 1, 1: 2 * place + 1})
    built.message(group, 0, 1, 0, 370, send=0, receive=7)
    return built.build()


def cut_job(**said: str) -> Job:
    return cut(job(), Selection.parse(**said), Engine(1), Keeper((), in_memory=True))


def names(made: Job) -> list[list[str]]:
    graphs = [part.load() for part in made.parts]
    return [[graph.name(row) for row in range(len(graph))] for graph in graphs]


def test_each_rank_is_cut_and_what_is_left_out_is_counted() -> None:
    made = cut_job(window="300ns..", only="kernels")
    assert names(made) == [["kernel 3"], ["kernel 3"]]
    assert made.events == 2
    assert [(found.reason, found.count) for found in made.findings] == [("left_out", 14)]


def test_what_was_matched_stays_matched_under_the_new_rows() -> None:
    made = cut_job(window="200ns..")
    assert names(made) == [["op 2", "kernel 2", "op 3", "kernel 3"]] * 2
    assert (made.collectives.start - START).tolist() == [220, 320]
    assert made.participations.collective.tolist() == [0, 0, 1, 1]
    assert made.participations.kernel.tolist() == [1, 1, 3, 3]
    assert (made.messages.send.tolist(), made.messages.receive.tolist()) == ([UNKNOWN], [3])


def test_collectives_and_messages_of_which_no_event_is_left_go() -> None:
    made = cut_job(window="100ns..200ns")
    assert (made.collectives.start - START).tolist() == [120]
    assert made.participations.rank.tolist() == [0, 1]
    assert len(made.messages) == 0


def test_collectives_are_left_only_where_they_are_wanted() -> None:
    made = cut_job(only="collectives")
    kernels = [f"kernel {place}" for place in range(4)]
    assert names(made) == [["op 0", *kernels], kernels]
    assert len(made.collectives) == 4
    assert len(cut_job(only="kernels,operators").collectives) == 0
    assert len(cut_job(only="kernels,operators").messages) == 0
