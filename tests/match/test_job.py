"""Linking across ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from msgspec.structs import replace

from builders.calls import linked as matched
from builders.calls import messages, told
from builders.data import traces, truth
from tracelink._io.sources import discover_inputs
from tracelink._join.ranks import read_ranks
from tracelink._match.job import JobTables
from tracelink._model.clock import ClockMode
from tracelink._model.communications import RankCalls
from tracelink._run.processes import Processes


@cache
def ranks_in(path: str) -> Sequence[RankCalls]:
    gathered = read_ranks(discover_inputs([str(traces(path))]), Processes(1), with_events=False)
    return [gathered.store.get(rank.calls.calls) for rank in gathered.ranks]


def linked(ranks: Sequence[RankCalls]) -> JobTables:
    return matched(ranks, ClockMode.NONE)


def facts(tables: JobTables) -> dict[tuple[int, ...], tuple[float, ...]]:
    """Of each collective, by its kernels on the four ranks, what was measured."""
    table, parts = tables.collectives, tables.participations
    names = ("last_rank", "skew", "duration", "bytes", "algorithm_gb_s", "bus_gb_s", "start", "end")
    found = {}
    for row in range(len(table)):
        own = parts.collective == row
        kernels = dict(zip(parts.rank[own].tolist(), parts.kernel[own].tolist(), strict=True))
        key = tuple(kernels.get(rank, -1) for rank in range(4))
        found[key] = tuple(getattr(table, name)[row].item() for name in names)
    return found


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("rank", range(4))
def test_collectives_that_one_rank_lacks_change_no_other(rank: int, count: int) -> None:
    ranks = ranks_in("data_parallel")
    whole = facts(linked(ranks))
    assert len(whole) == 15
    for first in range(16 - count):
        kept = np.delete(np.arange(15), np.s_[first : first + count])
        tables = linked(
            [replace(one, calls=one.calls.take(kept)) if one.rank == rank else one for one in ranks]
        )
        found = facts(tables)
        expected = {
            tuple(
                -1 if place in range(first, first + count) and r == rank else row for r, row in enumerate(key)
            ): key
            for place, key in enumerate(whole)
        }
        assert set(found) == set(expected)
        assert all(found[key] == whole[key] for key in found if -1 not in key)
        assert not tables.findings or {f.reason for f in tables.findings} == {"missing_from_collectives"}


@pytest.mark.parametrize("path", ["data_parallel", "cluster"])
def test_collectives_and_messages_are_those_that_were_made(path: str) -> None:
    tables, made = linked(ranks_in(path)), truth(path)
    assert Counter((group, str(ranks), verdict) for group, _, _, ranks, verdict in told(tables)) == (
        Counter((one["group"], str(one["ranks"]), "complete") for one in made["collectives"])
    )
    assert Counter((source, target, verdict) for source, target, _, _, verdict in messages(tables)) == (
        Counter((one["source"], one["target"], "complete") for one in made["messages"])
    )
    assert not tables.findings


@pytest.mark.foreign
@pytest.mark.parametrize("path", ["kineto/four_ranks_derived", "matched8", "pairs/dlrm8"])
def test_collectives_and_messages_of_jobs_that_ran_are_complete(path: str) -> None:
    tables = linked(ranks_in(path))
    assert {verdict for *_, verdict in (*told(tables), *messages(tables))} == {"complete"}


def verdicts(case: str) -> dict[tuple[str, int], tuple[str, list[int]]]:
    """The collectives which not everybody took part in or not in the same way, with who did."""
    return {
        (group, number): (verdict, members)
        for group, number, _, members, verdict in told(linked(ranks_in(case)))
        if verdict != "complete"
    }


@pytest.mark.parametrize("case", ["gloo/healthy", "gloo/unconfigured", "gloo/late"])
def test_dumps_of_healthy_jobs_show_nothing_wrong(case: str) -> None:
    assert verdicts(case) == {}


def test_dumps_of_wrapped_buffers_show_a_part() -> None:
    assert {verdict for verdict, _ in verdicts("nccl/wrapped").values()} == {"partial"}


def without(rank: int) -> list[int]:
    return [other for other in range(8) if other != rank]


DEADLOCK = {("0", 5): ("missing", without(7)), ("4", 10): ("missing", [7])}


@pytest.mark.parametrize(
    ("case", "known"),
    [
        ("gloo/never_joined/settled", {("0", 7): ("missing", without(3))}),
        ("gloo/never_joined/missing_other", {("0", 7): ("missing", [0, 1, 2, 4, 6, 7])}),
        ("gloo/deadlock/settled", DEADLOCK),
        ("gloo/operation_mismatch/settled", {("5", 8): ("mismatch", [0, 2, 4, 6])}),
        ("gloo/dtype_mismatch/settled", {("6", 9): ("mismatch", [1, 3, 5, 7])}),
        ("gloo/skipped/settled", {("6", 13): ("mismatch", [1, 3, 5, 7])}),
    ],
)
def test_dumps_of_faulty_jobs_show_who_is_missing_and_who_does_something_else(
    case: str, known: dict[tuple[str, int], tuple[str, list[int]]]
) -> None:
    found = verdicts(case)
    assert known.items() <= found.items()
    assert {verdict for key, (verdict, _) in found.items() if key not in known} <= {"missing", "partial"}


def test_of_a_deadlock_two_calls_are_incomplete() -> None:
    assert verdicts("gloo/deadlock/settled") == DEADLOCK
