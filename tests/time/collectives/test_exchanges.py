"""Messages by pair of ranks, and matrices of all-to-all operations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from msgspec.structs import replace

from builders.job import JobBuilder
from tracelink._model.clock import Clock
from tracelink._model.events import EventKind, TrackKind
from tracelink._model.job import LinkedJob
from tracelink._time.collectives.exchanges import Splits, exchanges_of, pair_rows, splits_of
from tracelink._time.model.communication import Exchange, PairRow, Scope

MS = 1_000_000


def test_messages_are_rated_by_the_time_from_send_to_receive() -> None:
    builder = JobBuilder([Clock(rank, host="a", low_ns=0, high_ns=0) for rank in range(2)])
    group = builder.group(0, 1, name="0")
    for number, latency in enumerate((1, 2, 9)):
        builder.sent(group, 0, 1, 0, latency * MS, tag=0, order=number, bytes=2 * MS)
    builder.sent(group, 1, 0, 5, None, tag=0, order=0)
    assert pair_rows(builder.job()) == [
        PairRow(0, 1, Scope.INTRA_HOST, 3, 0, 6 * MS, 2 * MS, MS, 1.0),
        PairRow(1, 0, Scope.INTRA_HOST, 1, 1, None, None, None, None),
    ]


def all_to_all(sizes: Mapping[int, tuple[int, int]]) -> LinkedJob:
    """One all-to-all operation, in which each rank has a kernel; the bytes that it sends and receives."""
    builder = JobBuilder([Clock(rank, low_ns=0, high_ns=0) for rank in sizes])
    group = builder.group(*tuple(sizes), name="7")
    kernels = dict.fromkeys(sizes, 0)
    builder.collective(group, dict.fromkeys(sizes, (0, MS)), "all_to_all", kernels=kernels, order=0, bytes=1)
    job = builder.job()
    given, got = (np.array([pair[end] for pair in sizes.values()], np.int64) for end in (0, 1))
    return replace(job, participations=replace(job.participations, bytes_in=given, bytes_out=got))


def recorded(job: LinkedJob, parts: Mapping[int, str]) -> Splits:
    """What the profile of each rank says of the parts of its kernel."""
    found = []
    for rank, text in parts.items():
        graph = JobBuilder()
        stream = graph.track(TrackKind.STREAM, rank)
        graph.add(stream, "k", 0, MS, EventKind.KERNEL, {"In split size": text})
        found.append(splits_of(graph.build(), job, rank))
    return Splits.concatenate(found)


def test_recorded_parts_are_the_matrix() -> None:
    job = all_to_all({0: (400, 500), 1: (600, 500)})
    assert exchanges_of(job, recorded(job, {0: "[1, 3]", 1: "[4, 2]"})) == [
        Exchange(0, "7", [0, 1], 1, [400, 600], [500, 500], 1.0, [[100, 300], [400, 200]])
    ]


def test_no_parts_are_equal_parts_and_a_hot_rank_is_an_imbalance() -> None:
    job = all_to_all({0: (400, 200), 1: (400, 600)})
    assert exchanges_of(job, recorded(job, {0: "[]", 1: "[0, 8]"})) == [
        Exchange(0, "7", [0, 1], 1, [400, 400], [200, 600], 1.5, [[200, 200], [0, 400]])
    ]


@pytest.mark.parametrize("text", ["[1, 3, ...]", "[1, 2, 3]", "", "[0, 0]", "[1, -1]"])
def test_parts_that_do_not_fit_leave_the_sums(text: str) -> None:
    job = all_to_all({0: (400, 200), 1: (400, 600)})
    assert exchanges_of(job, recorded(job, {0: text, 1: "[]"})) == [
        Exchange(0, "7", [0, 1], 1, [400, 400], [200, 600], 1.5, None)
    ]
