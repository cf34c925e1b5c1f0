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
from builders.data import shared
from tracelink.engines.processes import Processes
from tracelink.io.sources import discover_inputs
from tracelink.matching.job import JobTables
from tracelink.model.clock import ClockMode
from tracelink.model.collectives import RankCalls
from tracelink.pipeline.ranks import read_ranks


@cache
def ranks_in(path: str) -> Sequence[RankCalls]:
    gathered = read_ranks(discover_inputs([str(shared(path))]), Processes(1), with_events=False)
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


@pytest.mark.foreign
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("rank", range(4))
def test_collectives_that_one_rank_lacks_change_no_other(rank: int, count: int) -> None:
    ranks = ranks_in("kineto/four_ranks_derived")
    whole = facts(linked(ranks))
    assert len(whole) == 21
    for first in range(22 - count):
        kept = np.delete(np.arange(21), np.s_[first : first + count])
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


@pytest.mark.foreign
def test_four_ranks_are_late_by_less_than_a_third_of_a_millisecond() -> None:
    table = linked(ranks_in("kineto/four_ranks_derived")).collectives
    assert table.skew.max() < 300_000


@pytest.mark.foreign
def test_recorders_profiles_and_execution_traces_of_eight_ranks() -> None:
    ranks = ranks_in("matched8")
    tables = linked(ranks)
    assert Counter(len(members) for _, _, _, members, _ in told(tables)) == {8: 30, 4: 28, 2: 60}
    assert {verdict for *_, verdict in told(tables)} == {"complete"}
    assert Counter(verdict for *_, verdict in messages(tables)) == {"complete": 32}
    assert not tables.findings


@pytest.mark.foreign
def test_kernels_and_execution_traces_of_eight_ranks() -> None:
    tables = linked(ranks_in("pairs/dlrm8"))
    assert told(tables) == [
        (
            "default_pg",
            number,
            "all_reduce" if number in (151, 153, 154) else "all_to_all",
            list(range(8)),
            "complete",
        )
        for number in range(147, 155)
    ]


def verdicts(case: str) -> dict[tuple[str, int], tuple[str, list[int]]]:
    """The collectives which not everybody took part in or not in the same way, with who did."""
    return {
        (group, number): (verdict, members)
        for group, number, _, members, verdict in told(linked(ranks_in(f"fr/{case}")))
        if verdict != "complete"
    }


def without(*ranks: int) -> list[int]:
    return [rank for rank in range(8) if rank not in ranks]


@pytest.mark.foreign
def test_dumps_of_healthy_jobs_show_nothing_wrong() -> None:
    assert (
        verdicts("healthy8/dumps")
        == verdicts("healthy8_rawpg/dumps")
        == verdicts("straggler/dumps_end")
        == {}
    )
    assert {verdict for verdict, _ in verdicts("wrapped/dumps").values()} == {"partial"}


@pytest.mark.foreign
def test_dumps_of_jobs_that_hang_show_who_is_missing() -> None:
    assert verdicts("skip_hang/dumps_hang") == {("0", 9): ("missing", without(3))}
    assert verdicts("straggler/dumps_hang") == {("0", 7): ("missing", without(6))}
    assert verdicts("subgroup_deadlock/dumps_hang") == {
        ("0", 5): ("missing", without(6)),
        ("5", 5): ("missing", [6]),
    }
    missing = verdicts("missing_other/dumps")
    assert [key for key, (verdict, _) in missing.items() if verdict == "missing"] == [("0", 9)]


@pytest.mark.foreign
def test_dumps_of_ranks_that_do_different_things_show_where() -> None:
    assert verdicts("op_mismatch/dumps_hang") == {("0", 5): ("mismatch", without())}
    assert verdicts("dtype_mismatch/dumps_hang") == {("0", 5): ("mismatch", without())}
    assert verdicts("skip_next/dumps_hang") == {("0", 7): ("mismatch", without())}
