"""How long operators waited: what a replay does by itself is no part of how long they run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from builders.data import shared
from builders.ordering import RankBuilder
from tracelink.api import merge
from tracelink.converters.chakra.census import census
from tracelink.converters.chakra.decode import decode
from tracelink.converters.chakra.host import host_of
from tracelink.converters.chakra.plan import HAND_OVER, HOST_WAIT, RESUMPTION, waited
from tracelink.converters.chakra.schema import Name
from tracelink.ordering.order import Order


def waits(rank: RankBuilder, orders: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Who waited how long, where these are the orders: what ended before what began."""
    part = rank.part()
    host = host_of(part)
    pairs = {
        name: Order.of(np.array([before]), np.array([after])) for name, (before, after) in orders.items()
    }
    time = waited(part, host, pairs)
    return {part.graph.name(int(host.row[place])): int(time[place]) for place in np.flatnonzero(time)}


def test_within_a_call_until_the_device_is_done() -> None:
    rank = RankBuilder()
    item = rank.op("item", 0, 100)
    rank.call("cudaStreamSynchronize", 20, 95, inside=item)
    kernel = rank.work("kernel", 5, 90)
    after = rank.op("next", 110, 120)
    assert waits(rank, {HOST_WAIT: (kernel, after)}) == {"item": 70}


def test_nobody_waits_for_what_was_done_before_the_call() -> None:
    rank = RankBuilder()
    item = rank.op("item", 0, 100)
    rank.call("cudaStreamSynchronize", 20, 95, inside=item)
    kernel = rank.work("kernel", 5, 15)
    after = rank.op("next", 110, 120)
    assert waits(rank, {HOST_WAIT: (kernel, after)}) == {}


@pytest.mark.parametrize("name", [HAND_OVER, RESUMPTION])
def test_while_another_thread_works(name: str) -> None:
    rank = RankBuilder()
    step = rank.op("step", 0, 100)
    rank.op("loss", 10, 20, inside=step)
    backward = rank.op("backward", 25, 70, thread="autograd")
    after = rank.op("optimizer", 75, 90, inside=step)
    assert waits(rank, {name: (backward, after)}) == {"step": 50}


def test_a_thread_that_did_something_meanwhile_did_not_wait() -> None:
    rank = RankBuilder()
    step = rank.op("step", 0, 100)
    backward = rank.op("backward", 25, 40, thread="autograd")
    rank.op("between", 50, 60, inside=step)
    after = rank.op("optimizer", 75, 90, inside=step)
    assert waits(rank, {HAND_OVER: (backward, after)}) == {}


def test_outside_of_operators_nobody_is_made_shorter() -> None:
    rank = RankBuilder()
    rank.op("loss", 10, 20)
    backward = rank.op("backward", 25, 70, thread="autograd")
    after = rank.op("optimizer", 75, 90)
    assert waits(rank, {HAND_OVER: (backward, after)}) == {}


@pytest.mark.parametrize("rank", range(8))
def test_the_longest_chain_is_about_as_long_as_the_step(rank: int, tmp_path: Path) -> None:
    folder = shared("pairs/dlrm8")
    merge(
        [folder / f"host.{rank}.json.gz", folder / f"device.{rank}.json.gz"],
        output=tmp_path / "job",
        to="chakra",
    )
    with (tmp_path / f"job.{rank}.et").open("rb") as file:
        nodes = decode(file).nodes
    start = nodes.attribute(Name.START).whole_numbers(len(nodes), 0)
    length = nodes.attribute(Name.INCLUSIVE).whole_numbers(len(nodes), 0)
    length = np.maximum(length, nodes.attribute(Name.DURATION).whole_numbers(len(nodes), 0))
    timed = start > 0
    real = int((start + length)[timed].max() - start[timed].min())
    assert 0.95 * real < census(nodes).longest.total_ns < 1.02 * real
