"""Clock estimation, its findings, and clock files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.crossings import EPOCH, MS, US, JobBuilder, S, crossings, earliest_leaving, true_offset
from tracelink._match.clock import Crossings, estimate_clocks, read_clocks
from tracelink._model.clock import Clock, ClockMode, Clocks
from tracelink._model.columns import NO_TIME
from tracelink._model.errors import UsageError
from tracelink._model.findings import Finding, Severity

# One clock: where each rank's clock stands, between what that must lie, and what contradicts itself.


HOST, COLLECTIVES = ClockMode.HOST, ClockMode.COLLECTIVES


def estimate(job: JobBuilder, mode: ClockMode = COLLECTIVES, hosts: dict[int, str] | None = None) -> Clocks:
    return estimate_clocks(job.recorded(), hosts or dict.fromkeys(job.clocks, ""), mode)


def errors(job: JobBuilder, found: Clocks) -> list[float]:
    """By how much each offset is wrong, in ns."""
    return [abs(clock.offset_ns - true_offset(job, clock)) for clock in found.ranks]


def holds_truth(job: JobBuilder, clock: Clock) -> bool:
    assert clock.low_ns is not None
    assert clock.high_ns is not None
    return clock.low_ns - 1 <= true_offset(job, clock) <= clock.high_ns + 1


def steady(job: JobBuilder, groups: list[list[int]], count: int = 20, span: int = S, seed: int = 0) -> None:
    """Everyone enters up to 200 us late, the collective takes 50 us, and all leave within 3 us."""
    random = np.random.default_rng(seed)
    for start in np.linspace(0, span, count).astype(int).tolist():
        for group in groups:
            entered = start + random.integers(0, 200 * US, len(group))
            job.meeting(group, entered, entered.max() + 50 * US + random.integers(0, 3 * US, len(group)))
            start += MS


def stepped(recorded: Crossings, rank: int, after: int, by: int) -> Crossings:
    """The clock of a rank is set forward `after` so much of its time."""
    columns = recorded.columns()
    for name in ("entered", "left"):
        time = columns[name]
        late = (recorded.rank == rank) & (time != NO_TIME) & (time > EPOCH + after)
        columns[name] = np.where(late, time + by, time)
    return Crossings(**columns)


# --- What is assumed


def test_without_correction_all_clocks_agree_and_nothing_is_claimed_of_them() -> None:
    job = JobBuilder({0: (0, 0), 1: (5 * MS, 0)})
    steady(job, [[0, 1]])
    found = estimate(job, ClockMode.NONE, {0: "a", 1: "b"})
    assert found == Clocks.of([Clock(0, "a"), Clock(1, "b")])


def test_one_rank_is_the_reference() -> None:
    assert estimate_clocks(crossings(), {3: "a"}, COLLECTIVES).by_rank == {3: Clock(3, "a", 0, 0.0, 0, 0)}


def test_nothing_is_known_of_ranks_that_never_meet() -> None:
    found = estimate_clocks(crossings(), {0: "a", 1: "b", 2: "a"}, HOST)
    assert found.by_rank == {
        0: Clock(0, "a", 0, 0.0, 0, 0),
        1: Clock(1, "b"),
        2: Clock(2, "a", 0, 0.0, 0, 0),
    }
    (finding,) = found.findings
    assert (finding.reason, finding.count, finding.example) == ("clock_unbounded", 1, "rank 1")
    assert finding.message == (
        "1 rank has a clock offset from rank 0 without a bound on one or both sides: its uncertainty is unknown."
    )


def test_ranks_of_one_host_share_a_clock_that_is_exactly_right() -> None:
    job = JobBuilder(dict.fromkeys(range(4), (3 * MS, 20)))
    steady(job, [[0, 1, 2, 3]])
    found = estimate(job, HOST, dict.fromkeys(range(4), "node"))
    start = int(job.recorded().entered.min())
    assert found == Clocks.of(Clock(rank, "node", 0, 0.0, 0, 0, 0, start) for rank in range(4))


def test_ranks_of_one_host_get_the_same_numbers() -> None:
    job = JobBuilder({0: (0, 0), 1: (0, 0), 2: (9 * MS, 0), 3: (9 * MS, 0)})
    steady(job, [[0, 2], [1, 3]])
    clocks = estimate(job, HOST, {0: "a", 1: "a", 2: "b", 3: "b"}).by_rank
    assert clocks[3] == Clock(
        3,
        "b",
        clocks[2].offset_ns,
        clocks[2].drift_ppm,
        clocks[2].low_ns,
        clocks[2].high_ns,
        clocks[2].constraints,
        clocks[2].reference_ns,
    )
    assert max(errors(job, estimate(job, HOST, {0: "a", 1: "a", 2: "b", 3: "b"}))) < 3 * US


def test_a_rank_without_a_host_has_a_clock_of_its_own() -> None:
    job = JobBuilder({0: (0, 0), 1: (-7 * MS, 0), 2: (8 * MS, 0)})
    steady(job, [[0, 1, 2]])
    found = estimate(job, HOST, {0: "a", 1: "", 2: ""})
    assert [round(clock.offset_ns / MS) for clock in found.ranks] == [0, -7, 8]


def test_a_host_name_that_two_clocks_share_is_not_trusted() -> None:
    job = JobBuilder({0: (0, 0), 1: (20 * MS, 0), 2: (20 * MS, 0)})
    steady(job, [[0, 1, 2]])
    found = estimate(job, HOST, dict.fromkeys(range(3), "localhost"))
    assert [round(clock.offset_ns / MS) for clock in found.ranks] == [0, 20, 20]
    (finding,) = found.findings
    assert (finding.severity, finding.reason, finding.example) == (
        "warning",
        "host_clocks_differ",
        "ranks 0 and 1",
    )
    assert finding.message.startswith(
        "Ranks 0 and 1 both report the same host localhost, but their clocks differ by at least 19.9"
    )


def test_a_host_whose_ranks_differ_by_a_few_microseconds_is_trusted() -> None:
    job = JobBuilder({0: (0, 0), 1: (60 * US, 0)})
    job.meeting([0, 1], 0, 10 * US)
    found = estimate(job, HOST, {0: "a", 1: "a"})
    assert ([clock.offset_ns for clock in found.ranks], found.findings) == ([0, 0], [])


# --- What the numbers mean


def test_corrected_times_are_those_of_the_reference_clock() -> None:
    clock = Clock(1, offset_ns=100, drift_ppm=10.0, reference_ns=EPOCH)
    times = np.array([EPOCH + 100, EPOCH + 100 + S, NO_TIME])
    assert clock.corrected(times).tolist() == [EPOCH, EPOCH + S - 10_000, NO_TIME]


def test_the_reference_time_is_the_earliest_on_the_reference_clock() -> None:
    job = JobBuilder({0: (0, 0), 1: (5 * MS, 0)})
    job.meeting([0, 1], [2 * MS, MS], 3 * MS)
    job.meeting([0, 1], [4 * MS, 4 * MS], 5 * MS)
    assert {clock.reference_ns for clock in estimate(job).ranks} == {EPOCH + MS}


def test_offsets_lie_between_the_latest_entering_and_the_earliest_leaving() -> None:
    job = JobBuilder({0: (0, 0), 1: (0, 0)})
    job.meeting([0, 1], [0, 40 * US], [100 * US, 60 * US], together=False)
    clock = estimate(job).by_rank[1]
    # rank 1 left 60 us after rank 0 entered; rank 0 left 60 us after rank 1 entered; and a little for drift
    assert clock == Clock(
        1, "", 0, 0.0, pytest.approx(-60 * US, abs=100), pytest.approx(60 * US, abs=100), 2, EPOCH
    )


def test_constraints_are_the_pairs_of_ranks_of_different_clocks_that_wait_for_each_other() -> None:
    job = JobBuilder(dict.fromkeys(range(5), (0, 0)))
    job.meeting(
        [0, 1, 2, 3], 0, MS
    )  # two ranks of host a with two of host b: 4 pairs, each in both directions
    job.meeting([0, 2], 2 * MS, 3 * MS, waits=[False, True], awaited=[True, False])  # one pair
    job.meeting([2, 4], 4 * MS, 5 * MS)  # one pair, in both directions
    found = estimate(job, HOST, {0: "a", 1: "a", 2: "b", 3: "b", 4: "c"})
    assert [clock.constraints for clock in found.ranks] == [9, 9, 11, 11, 2]


def test_messages_in_one_direction_bound_one_side_only() -> None:
    job = JobBuilder({0: (0, 0), 1: (MS, 0)})
    job.message(0, 1, 0, 10 * US)
    found = estimate(job)
    clock = found.by_rank[1]
    assert (clock.offset_ns, clock.low_ns, clock.uncertainty_ns) == (0, None, None)
    assert clock.high_ns == pytest.approx(MS + 10 * US, abs=2 * US)
    assert [finding.reason for finding in found.findings] == ["clock_unbounded"]


def test_clocks_that_meet_each_other_but_not_the_reference_are_brought_together() -> None:
    job = JobBuilder({0: (0, 0), 1: (2 * MS, 0), 2: (5 * MS, 0)})
    steady(job, [[1, 2]])
    found = estimate(job)
    assert (found.by_rank[1].offset_ns, round(found.by_rank[2].offset_ns / MS)) == (0, 3)
    assert [(clock.low_ns, clock.high_ns) for clock in found.ranks] == [
        (0, 0),
        (None, None),
        (None, None),
    ]
    assert earliest_leaving(job.recorded(), found.by_rank) > 0
    assert [finding.example for finding in found.findings] == ["ranks 1, 2"]


# --- How well it works


def test_sixty_four_ranks_are_brought_together_within_microseconds() -> None:
    random = np.random.default_rng(5)
    of_host = [(int(random.integers(-50 * MS, 50 * MS)), float(random.uniform(-50, 50))) for _ in range(8)]
    job = JobBuilder({rank: of_host[rank // 8] for rank in range(64)})
    tp = [list(range(first, first + 8)) for first in range(0, 64, 8)]
    dp = [list(range(first, 64, 8)) for first in range(8)]
    steady(job, [*tp, *dp, list(range(64))], count=50, span=5 * S)
    drifts = np.array([job.clocks[rank][1] - job.clocks[0][1] for rank in range(64)])
    for mode in (HOST, COLLECTIVES):
        found = estimate(job, mode, {rank: f"host{rank // 8}" for rank in range(64)})
        assert np.median(errors(job, found)) < 10 * US
        assert all(holds_truth(job, clock) for clock in found.ranks)
        assert np.abs([clock.drift_ppm for clock in found.ranks] - drifts).max() < 1
        assert earliest_leaving(job.recorded(), found.by_rank) > 0
        assert found.findings == []


def test_a_rank_that_is_always_last_is_no_trouble() -> None:
    random = np.random.default_rng(1)
    job = JobBuilder({0: (0, 0), 1: (8 * MS, 3), 2: (-4 * MS, -2), 3: (MS, 0)})
    for start in range(0, 2 * S, 50 * MS):
        entered = start + random.integers(0, 100 * US, 4)
        entered[2] = start + 5 * MS
        job.meeting(range(4), entered, entered.max() + 30 * US + random.integers(0, 3 * US, 4))
    found = estimate(job)
    assert max(errors(job, found)) < 10 * US
    assert all(holds_truth(job, clock) for clock in found.ranks)
    assert found.findings == []


def test_clocks_are_bounded_through_others() -> None:
    job = JobBuilder({rank: (rank * 3 * MS, rank * 2.0) for rank in range(8)})
    steady(job, [[rank, rank + 1] for rank in range(7)], count=30)
    found = estimate(job)
    assert max(errors(job, found)) < 10 * US
    assert all(holds_truth(job, clock) for clock in found.ranks)
    widths = [clock.uncertainty_ns for clock in found.ranks]
    assert widths == sorted(widths)
    assert earliest_leaving(job.recorded(), found.by_rank) > 0


def test_an_hour_is_no_trouble_to_clocks_that_drift() -> None:
    job = JobBuilder({0: (0, 0), 1: (8 * MS, 45.0)})
    steady(job, [[0, 1]], count=300, span=3600 * S)
    found = estimate(job)
    assert found.by_rank[1].drift_ppm == pytest.approx(45, abs=0.01)
    assert max(errors(job, found)) < 10 * US
    assert earliest_leaving(job.recorded(), found.by_rank) > 0


def test_no_drift_is_read_into_noise() -> None:
    random = np.random.default_rng(3)
    job = JobBuilder({0: (0, 0), 1: (0, 0)})
    for start in range(0, 400 * MS, 20 * MS):
        job.meeting([0, 1], start, start + MS + random.integers(0, 900 * US, 2))
    assert estimate(job).by_rank[1].drift_ppm == 0


def test_where_no_ends_compare_an_offset_is_corrected_only_as_far_as_it_must_be() -> None:
    job = JobBuilder({0: (0, 0), 1: (500 * US, 0), 2: (4 * MS, 0)})
    for start in range(0, S, 100 * MS):
        job.meeting(range(3), start, start + MS, together=False)
    clocks = estimate(job).by_rank
    assert clocks[1].offset_ns == pytest.approx(0, abs=5)
    assert clocks[2].offset_ns == pytest.approx(3 * MS, abs=10 * US)
    assert earliest_leaving(job.recorded(), clocks) >= 0


def test_ends_that_mislead_do_not_outweigh_causes() -> None:
    job = JobBuilder({0: (0, 0), 1: (0, 0)})
    for start in range(0, S, 50 * MS):
        job.meeting([0, 1], start, [start + 320 * US, start + 900 * US])
        job.message(0, 1, start + MS, start + MS + 100 * US)
        job.message(1, 0, start + MS, start + MS + 100 * US)
    found = estimate(job)
    assert earliest_leaving(job.recorded(), found.by_rank) >= 0
    assert found.by_rank[1].offset_ns == pytest.approx(100 * US, abs=10)
    assert holds_truth(job, found.by_rank[1])


# --- What contradicts itself


def stepping_job() -> JobBuilder:
    job = JobBuilder({rank: (rank * MS, 0) for rank in range(6)})
    steady(job, [list(range(6)), [0, 1, 2], [3, 4, 5]], count=40, span=4 * S)
    return job


@pytest.mark.parametrize("together", [True, False])
def test_a_clock_that_is_set_in_mid_run_is_named_and_both_sides_lie_in_its_interval(together: bool) -> None:
    job = stepping_job()
    recorded = stepped(job.recorded(), rank=3, after=3 * S, by=5 * MS)
    recorded = Crossings(**{**recorded.columns(), "together": recorded.together & together})
    found = estimate_clocks(recorded, dict.fromkeys(range(6), "") | {3: "c", 0: "a"}, COLLECTIVES)
    (finding,) = found.findings
    assert (finding.severity, finding.reason, finding.count) == ("warning", "clock_contradiction", 20)
    assert finding.message.startswith("The clocks of rank 3 (host c) and rank ")
    assert " contradict each other by 4.8" in finding.message
    assert re.search(r"the events of rank 3 \(host c\) from 3\.08\d s to 4\.00\d s", finding.message)
    clock = found.by_rank[3]
    assert clock.low_ns is not None
    assert clock.high_ns is not None
    assert clock.low_ns < 3 * MS
    assert clock.high_ns > 8 * MS
    assert max(errors(job, found)) < (5 * US if together else 300 * US)
    others = [clock for rank, clock in found.by_rank.items() if rank != 3]
    assert all(holds_truth(job, other) and (other.uncertainty_ns or 0) < MS for other in others)


def test_a_reference_clock_that_is_set_makes_all_others_less_certain() -> None:
    job = stepping_job()
    found = estimate_clocks(
        stepped(job.recorded(), rank=0, after=3 * S, by=5 * MS), dict.fromkeys(range(6), ""), COLLECTIVES
    )
    assert [finding.reason for finding in found.findings] == ["clock_contradiction"]
    assert (found.by_rank[0].offset_ns, found.by_rank[0].low_ns, found.by_rank[0].high_ns) == (0, 0, 0)
    for rank in range(1, 6):
        low, high = found.by_rank[rank].low_ns, found.by_rank[rank].high_ns
        assert low is not None
        assert high is not None
        assert low < (rank - 5) * MS < rank * MS < high


def test_meetings_that_are_matched_wrongly_are_left_out() -> None:
    job = stepping_job()
    recorded = job.recorded()
    rows = np.flatnonzero((recorded.rank == 2) & (recorded.meeting % 3 == 0))
    columns = {name: column.copy() for name, column in recorded.columns().items()}
    for name in ("entered", "left"):
        columns[name][rows[[9, 30]]] = columns[name][rows[[10, 31]]]
    found = estimate_clocks(Crossings(**columns), dict.fromkeys(range(6), ""), COLLECTIVES)
    assert [(finding.reason, finding.count) for finding in found.findings] == [("clock_contradiction", 2)]
    assert max(errors(job, found)) < 5 * US


def test_three_clocks_can_contradict_each_other_though_no_two_do() -> None:
    job = JobBuilder(dict.fromkeys(range(3), (0, 0)))
    for source, target in ((0, 1), (1, 2), (2, 0)):
        for start in range(0, 10 * MS, MS):
            job.message(source, target, start, start + 100 * US)
    job.message(0, 1, 10 * MS, 10 * MS - 400 * US)
    found = estimate(job)
    (finding,) = found.findings
    assert (finding.reason, finding.count) == ("clock_contradiction", 1)
    assert "rank 1" in finding.message
    assert "from 0.010 s to 0.010 s" in finding.message
    assert all(abs(clock.offset_ns) <= 400 * US for clock in found.ranks)


def test_a_microsecond_is_no_contradiction() -> None:
    job = JobBuilder(dict.fromkeys(range(2), (0, 0)))
    job.meeting([0, 1], [0, 0], [-300, -300])
    assert estimate(job).findings == []


def test_who_is_known_neither_to_enter_nor_to_leave_changes_nothing() -> None:
    job = stepping_job()
    recorded = stepped(job.recorded(), rank=3, after=3 * S, by=5 * MS)
    absent = crossings(
        meeting=[1, 4],
        rank=[3, 3],
        entered=[NO_TIME] * 2,
        left=[NO_TIME] * 2,
        waits=[True] * 2,
        awaited=[True] * 2,
        together=[True] * 2,
    )
    both = {
        name: np.concatenate([column, absent.columns()[name]]) for name, column in recorded.columns().items()
    }
    hosts = dict.fromkeys(range(6), "")
    assert estimate_clocks(Crossings(**both), hosts, COLLECTIVES) == estimate_clocks(
        recorded, hosts, COLLECTIVES
    )


# Clocks from a file: what `tracelink clocks --json` writes, or a few offsets by hand.


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "clocks.json"


def written(file: Path, said: Any) -> Path:
    file.write_text(said if isinstance(said, str) else json.dumps(said))
    return file


def test_clocks_are_read_as_they_were_written(file: Path) -> None:
    said = {
        "reference_ns": 1_790_000_000_000_000_000,
        "ranks": [
            {
                "rank": 1,
                "host": "b",
                "offset_ns": -1500,
                "drift_ppm": 2.5,
                "low_ns": -2000,
                "high_ns": -1000,
                "constraints": 7,
            },
            {
                "rank": 4,
                "host": "c",
                "offset_ns": 0,
                "drift_ppm": 0.0,
                "low_ns": None,
                "high_ns": None,
                "constraints": 0,
            },
        ],
        "findings": [],
    }
    assert read_clocks(written(file, said)) == Clocks.of(
        [
            Clock(1, "b", -1500, 2.5, -2000, -1000, 7, 1_790_000_000_000_000_000),
            Clock(4, "c", 0, 0.0, None, None, 0, 1_790_000_000_000_000_000),
        ],
        mode=str(file),
    )


def test_offsets_by_hand_are_enough(file: Path) -> None:
    assert read_clocks(written(file, {"0": 0, "3": -1500})) == Clocks.of(
        [Clock(0), Clock(3, offset_ns=-1500)], mode=str(file)
    )


@given(st.dictionaries(st.integers(0, 999_999), st.integers(-(10**18), 10**18)))
def test_every_offset_by_hand_is_kept(
    tmp_path_factory: pytest.TempPathFactory, offsets: dict[int, int]
) -> None:
    file = tmp_path_factory.getbasetemp() / "clocks.json"
    found = read_clocks(written(file, {str(rank): offset for rank, offset in offsets.items()}))
    assert found == Clocks.of(
        (Clock(rank, offset_ns=offset) for rank, offset in offsets.items()), mode=str(file)
    )


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("{", "is not a clock file: Input data was truncated"),
        ([1], "is not a clock file: Expected `object`, got `array`"),
        ({"zero": 1}, "is not a clock file: Expected `int`, got `str`"),
        ({"0": 1.5}, "is not a clock file: Expected `int`, got `float`"),
        ({"-1": 5}, "is not a clock file: Expected `int` >= 0"),
        (
            {"ranks": [{"rank": 0}]},
            "is not a clock file: Object missing required field `offset_ns` - at `$.ranks[0]`",
        ),
        (
            {"ranks": [{"rank": 0, "offset_ns": "1"}]},
            "is not a clock file: Expected `int`, got `str` - at `$.ranks[0].offset_ns`",
        ),
        ({"ranks": [{"rank": 2, "offset_ns": 1}] * 2}, "has duplicate entries for rank 2"),
        ({"0": 10**30}, "is not a clock file"),
        ({"1000000": 0}, "is not a clock file"),
        ({"ranks": [{"rank": 2, "offset_ns": 10**19}]}, "is not a clock file"),
        (
            {"reference_ns": 0, "ranks": [{"rank": 2, "offset_ns": 1, "drift_ppm": 1e300}]},
            "is not a clock file",
        ),
        (
            {"ranks": [{"rank": 2, "offset_ns": 1, "low_ns": 3, "high_ns": 2}]},
            "has low_ns above high_ns for rank 2",
        ),
        (
            {"ranks": [{"rank": 2, "offset_ns": 1, "drift_ppm": 3.0}]},
            "has a drift for rank 2, but no reference_ns",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said(file: Path, said: Any, problem: str) -> None:
    with pytest.raises(UsageError) as error:
        read_clocks(written(file, said))
    assert error.value.source == str(file)
    assert error.value.problem.startswith(problem)
    assert error.value.advice


def test_a_word_that_is_neither_a_mode_nor_a_file_is_refused() -> None:
    with pytest.raises(
        UsageError,
        match=r"the clock file hosts: cannot be read: No such file or directory\. Did you mean host\? Use none, ",
    ):
        read_clocks("hosts")


def test_ranks_that_a_file_does_not_name_are_not_corrected() -> None:
    earlier = Finding(Severity.INFO, "clock_unbounded", "Of the run in which they were measured.")
    given = Clocks.of([Clock(1, offset_ns=-5), Clock(7, offset_ns=3)], [earlier])
    clocks = given.for_ranks({0: "a", 1: "b"})
    assert clocks.by_rank == {0: Clock(0, "a"), 1: Clock(1, "b", -5)}
    assert [(finding.reason, finding.count) for finding in clocks.findings] == [("clock_of_no_rank", 1)]
