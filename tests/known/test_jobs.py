"""Jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from generators.files import EXECUTION_TRACE, KINETO, RECORDER, Kept, Missing
from generators.job import Cluster, HostClock
from generators.jobs import write_cluster as job
from tracelink import EventGraph, load
from tracelink._model.columns import NO_TIME

SMALL: dict[str, Any] = {"ranks": 8, "ranks_per_host": 4, "tensor_parallel": 2, "steps": 3, "layers": 2}
FIRST, MIDDLE, LAST, THREE = (None, 1), (4, 5), (-1, None), (3, 6)

Member = tuple[int, int, int]
"""Rank, and when it entered and left by its own clock."""
Together = dict[tuple[tuple[int, ...], str], list[frozenset[Member]]]
"""By the ranks of the group and the operation, in the order of the group."""


def known(truth: dict[str, Any], source: str = KINETO) -> Together:
    """What a source shows of the collectives."""
    found: Together = {}
    for one in truth["collectives"]:
        members = frozenset((m["rank"], *m["shown_ns"][1:]) for m in one["members"] if source in m["sources"])
        if members:
            found.setdefault((tuple(one["ranks"]), OPERATIONS[one["operation"]]), []).append(members)
    return found


OPERATIONS = {
    "all_reduce": "all_reduce",
    "all_reduce_barrier": "barrier",
    "_all_gather_base": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "all_to_all": "all_to_all",
    "broadcast": "broadcast",
}


def said(graph: EventGraph) -> Together:
    """What tracelink makes of them."""
    collectives, parts = graph.collectives, graph.participations
    found: Together = {}
    for row in np.lexsort((collectives.order, collectives.group)).tolist():
        own = np.flatnonzero(parts.collective == row)
        members = zip(
            parts.rank[own].tolist(), parts.start[own].tolist(), parts.end[own].tolist(), strict=True
        )
        ranks = tuple(graph.groups[collectives.group[row]].ranks)
        key = (ranks, graph.strings[collectives.operation[row]])
        found.setdefault(key, []).append(frozenset(members))
    return found


@pytest.mark.parametrize("numbered", [True, False], ids=["Seq", "no Seq"])
@pytest.mark.parametrize(
    "sources",
    [[KINETO], [KINETO, RECORDER], [KINETO, EXECUTION_TRACE]],
    ids=lambda sources: "+".join(sources),
)
def test_every_collective_is_found_with_all_its_members(
    tmp_path: Path, sources: Sequence[str], numbered: bool
) -> None:
    truth = job(tmp_path, Kept(sources=sources), **SMALL, sequence_numbers=numbered)
    assert said(load(tmp_path, clock="none")) == known(truth)


@pytest.mark.parametrize(("start", "stop"), [FIRST, MIDDLE, LAST, THREE], ids=str)
@pytest.mark.parametrize(
    ("group", "numbered"),
    [("0", False), ("2", False), ("5", False), ("2", True)],
    ids=["world", "tensor", "data", "tensor with Seq"],
)
def test_what_one_rank_does_not_show_shifts_nothing(
    tmp_path: Path, group: str, numbered: bool, start: int | None, stop: int | None
) -> None:
    missing = [Missing(2, start, stop, group=group)]
    parameters = {**SMALL, "sequence_numbers": numbered}
    truth = job(tmp_path, Kept(sources=[KINETO], missing=missing), **parameters)
    assert said(load(tmp_path, clock="none")) == known(truth)


def test_recorders_alone_tell_who_took_part(tmp_path: Path) -> None:
    truth = job(tmp_path, Kept(sources=[RECORDER], recorder_entries=30), **SMALL)
    graph = load(tmp_path, clock="none")
    found = sorted(
        (tuple(graph.groups[group].ranks), sequence, tuple(graph.participations.rank[parts].tolist()))
        for row, (group, sequence) in enumerate(
            zip(graph.collectives.group.tolist(), graph.collectives.sequence.tolist(), strict=True)
        )
        for parts in [np.flatnonzero(graph.participations.collective == row)]
    )
    assert found == sorted(
        (tuple(one["ranks"]), one["sequence"], ranks)
        for one in truth["collectives"]
        if (ranks := tuple(m["rank"] for m in one["members"] if RECORDER in m["sources"]))
    )


def test_who_came_last_and_how_late_is_known_as_well_as_the_clocks(tmp_path: Path) -> None:
    truth = job(tmp_path, Kept(sources=[KINETO]), **SMALL, straggler_ns=2_000_000)
    graph = load(tmp_path)
    late = {
        (tuple(one["ranks"]), one["sequence"]): (one["last_rank"], one["skew_ns"])
        for one in truth["collectives"]
        if one["skew_ns"] > 500_000
    }
    assert len(late) > len(truth["stragglers"])
    collectives = graph.collectives
    for row in range(len(collectives)):
        key = (tuple(graph.groups[collectives.group[row]].ranks), int(collectives.order[row]) + 1)
        if key in late:
            last, skew = late[key]
            assert collectives.last_rank[row] == last
            assert abs(int(collectives.skew[row]) - skew) < 60_000


def test_messages_are_paired_and_timed(tmp_path: Path) -> None:
    truth = job(tmp_path, Kept(sources=[KINETO]), **SMALL)
    graph = load(tmp_path, clock="none")
    messages = graph.messages
    columns = (messages.source, messages.target, messages.order, messages.sent, messages.received)
    found = sorted(zip(*(column.tolist() for column in columns), strict=True))
    assert found == sorted(
        (
            message["source"],
            message["target"],
            message["order"] - 1,
            message["send"]["shown_ns"][1],
            message["receive"]["shown_ns"][2],
        )
        for message in truth["messages"]
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("numbered", [True, False], ids=["Seq", "no Seq"])
def test_the_true_clock_of_every_rank_lies_in_what_is_said_of_it(
    tmp_path: Path, seed: int, numbered: bool
) -> None:
    truth = job(
        tmp_path, Kept(sources=[KINETO]), **SMALL, pause_ns=10**9, seed=seed, sequence_numbers=numbered
    )
    graph = load(tmp_path)
    errors = []
    for rank, true in zip(graph.ranks, truth["ranks"], strict=True):
        passed = rank.clock_reference_ns - true["clock_reference_ns"]
        offset = true["clock_offset_ns"] + round(passed * true["clock_drift_ppm"] * 1e-6)
        assert rank.clock_low_ns is not None
        assert rank.clock_high_ns is not None
        assert rank.clock_low_ns <= offset <= rank.clock_high_ns
        errors.append(abs(rank.clock_offset_ns - offset))
    assert np.median(errors) < 10_000
    messages = graph.messages
    assert (messages.sent != NO_TIME).all()
    assert (messages.sent < messages.received).all()


def test_a_clock_that_is_set_while_the_job_runs_is_named(tmp_path: Path) -> None:
    half = Cluster().start_ns + 10**9
    clocks = (HostClock(), HostClock(step_ns=20_000_000, step_at_ns=half), HostClock(), HostClock())
    parameters = {**SMALL, "clocks": clocks, "pause_ns": 10**9, "sequence_numbers": True}
    job(tmp_path, Kept(sources=[KINETO]), **parameters)
    said = [one.message for one in load(tmp_path).findings if one.reason == "clock_contradiction"]
    assert said
    assert all("node001" in message for message in said)
