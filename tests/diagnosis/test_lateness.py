"""Lateness: tables, ranks that are late together, clocks, and stragglers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.dumps import MS, Entries, journal, recorded, rounds, together
from builders.dumps import recorded as journal_of_entries
from builders.recorded_jobs import faulty_plans, plans
from builders.recorder import process_group
from generators.recorded_jobs import Fault, Plan, job
from tracelink.diagnosis.examine import diagnosis_of
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.lateness import (
    ArrivalTimes,
    LatenessReport,
    LateRanks,
    arrival_times,
    lateness_report,
    possible_clock_lead,
    ranks_late_together,
    synchronizing_collectives,
    times_by_one_clock,
)
from tracelink.diagnosis.model import Kind, Lateness
from tracelink.diagnosis.participation import parts_of
from tracelink.diagnosis.stalls import Clues

# The table of lateness.


def lateness(journal: Journal) -> list[Lateness]:
    return list(lateness_report(journal, parts_of(journal)).lateness)


def test_lateness_of_last_ranks() -> None:
    assert lateness(together(at=[[0, 5, 2], [10, 11, 13], [20, 29, 20]])) == [
        Lateness(1, collectives=2, of=3, worst_ns=9 * MS, total_ns=12 * MS, group="0", sequence=3),
        Lateness(2, collectives=1, of=3, worst_ns=2 * MS, total_ns=2 * MS, group="0", sequence=2),
    ]


def test_simultaneous_arrivals() -> None:
    assert lateness(together(at=[[0, 0], [7, 7]])) == []


def test_broadcasts_are_ignored() -> None:
    assert lateness(together(at=[[0, 50]], name="gloo:broadcast")) == []


def test_incomplete_collectives_are_ignored() -> None:
    entries = rounds(at=[[0, 1, 2], [10, 11, 12]])
    del entries[2][1]
    assert [(one.rank, one.of) for one in lateness(journal_of_entries(entries))] == [(2, 1)]


def test_ranks_without_dumps_are_ignored() -> None:
    entries = rounds(at=[[0, 1, 2], [10, 12, 11]])
    del entries[2]
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    assert [(one.rank, one.total_ns) for one in lateness(journal_of_entries(entries, pg_config=config))] == [
        (1, 3 * MS)
    ]


def test_groups_are_separate() -> None:
    entries = rounds(at=[[0, 1], [5, 6]])
    pair = rounds(at=[[8, 30]], ranks=[0, 1], group=("1", "tp"))
    both = {rank: entries[rank] + pair[rank] for rank in entries}
    config = {name: {"name": name, "desc": "", "ranks": "[0, 1]"} for name in ("0", "1")}
    (late,) = lateness(journal_of_entries(both, pg_config=config))
    assert (late.rank, late.collectives, late.group, late.sequence) == (1, 3, "1", 1)


def test_entries_without_times_are_ignored() -> None:
    entries = rounds(at=[[0, 3], [10, 11]])
    entries[1][0]["time_created_ns"] = 0
    assert [(one.rank, one.of) for one in lateness(journal_of_entries(entries))] == [(1, 1)]


def test_empty_journal() -> None:
    assert lateness(journal_of_entries({0: [], 1: []})) == []


# Ranks that are late together.


def found(lags: Sequence[float], count: int = 30) -> LateRanks | None:
    """Of ranks that come so many ms after each step of 100 ms begins, and in turn a little later."""
    at = [
        [100 * step + lag + 0.1 * ((step + rank) % len(lags)) for rank, lag in enumerate(lags)]
        for step in range(count)
    ]
    journal = together(at=at)
    parts = parts_of(journal)
    return ranks_late_together(journal, parts, synchronizing_collectives(journal, parts, parts.created))


def test_ranks_of_a_slow_host() -> None:
    late = found([0, 1, 0, 1, 40, 41])
    assert late is not None
    assert late.ranks == (4, 5)
    assert late.lag_ns == pytest.approx(40 * MS, abs=MS)


@pytest.mark.parametrize(
    "lags",
    [
        pytest.param([0, 0, 0, 0, 0, 40], id="one alone is a straggler"),
        pytest.param([0, 0, 40, 40, 40, 40], id="most are what is usual"),
        pytest.param([0, 8, 16, 24, 32, 40], id="they come one after the other"),
        pytest.param([0, 0, 0, 0, 4, 4], id="it costs little"),
        pytest.param([0, 40], id="there are but two"),
    ],
)
def test_no_ranks_late_together(lags: list[float]) -> None:
    assert found(lags) is None


def test_too_few_collectives() -> None:
    assert found([0, 0, 0, 40, 40], count=10) is None


# Clocks.


NCCL = "nccl:all_reduce"
EVERY_100_MS = [[100 * number] * 3 for number in range(30)]


def arrivals_of(journal: Journal, rank: int = 1) -> ArrivalTimes:
    parts = parts_of(journal)
    rounds = synchronizing_collectives(journal, parts, parts.created)
    (seen,) = arrival_times(journal, parts, rounds, parts.created, rank)
    return seen


def doubt(at: Sequence[Sequence[float]], **how: Any) -> tuple[float, bool]:
    """In ms, of rank 1."""
    ahead, surely = possible_clock_lead(arrivals_of(together(at=at, **how)))
    return round(ahead / MS, 2), surely


def late_by(delay: float, at: Sequence[Sequence[float]] = EVERY_100_MS) -> list[list[float]]:
    return [[times[0], times[1] + delay, *times[2:]] for times in at]


def moved(journal: Journal) -> list[float] | None:
    """By how much the times of each rank are corrected, in ms; from those of rank 0."""
    parts = parts_of(journal)
    created = times_by_one_clock(journal, parts, synchronizing_collectives(journal, parts, parts.created))
    if created is None:
        return None
    shift = [float((created - parts.created)[parts.rank == rank][0]) / MS for rank in journal.ranks.tolist()]
    return [round(one - shift[0], 2) for one in shift]


def test_punctual_rank_has_no_clock_lead() -> None:
    assert doubt(EVERY_100_MS) == (0, False)
    assert doubt(late_by(-3)) == (0, False)


def test_always_late_may_be_the_clock() -> None:
    assert doubt(late_by(30)) == (30, False)


def test_mostly_late_is_not_the_clock() -> None:
    at = [row for number, row in enumerate(late_by(30)) if number % 5] + EVERY_100_MS[::5]
    assert doubt(sorted(at)) == (0, False)


def test_prompt_continuation_excludes_the_clock() -> None:
    at = [[31 * number, 31 * number + 30, 31 * number + 0.5] for number in range(30)]
    assert doubt(at) == (1, False)


def test_short_lateness_may_be_a_coincidence() -> None:
    at = [[9 * number, 9 * number + 8.75, 9 * number + 0.25] for number in range(30)]
    assert doubt(at) == (8.62, False)


def test_equal_completion_times_exclude_the_clock() -> None:
    assert doubt(late_by(30), done=[row[0] + 31 for row in EVERY_100_MS], name=NCCL) == (0, True)


def test_later_completion_is_a_clock_lead() -> None:
    done = [row[0] + 50 for row in EVERY_100_MS]
    assert doubt(EVERY_100_MS, done=done, ahead={1: 30}, name=NCCL) == (30, True)


def test_too_few_polls() -> None:
    """All is seen at two looks, and these are not at the same time on all ranks."""
    done = [[1500 + 1500 * (number > 14) + rank * 20 for rank in range(3)] for number in range(30)]
    assert doubt(late_by(30), done=done, name=NCCL) == (30, False)


def test_plausible_clocks_are_kept() -> None:
    assert moved(together(at=EVERY_100_MS)) is None
    assert moved(together(at=late_by(30))) is None
    assert moved(together(at=late_by(30), done=[row[0] + 31 for row in EVERY_100_MS], name=NCCL)) is None


@pytest.mark.parametrize("how", [{}, {"done": [row[0] + 50 for row in EVERY_100_MS], "name": NCCL}])
def test_contradicting_clocks_are_corrected(how: dict[str, Any]) -> None:
    assert moved(together(at=EVERY_100_MS, ahead={1: 700, 2: -9000}, **how)) == [0, -700, 9000]


def test_asynchronous_ranks_are_not_corrected() -> None:
    at = [
        [100 * number + 3 * burst + rank for rank in (0, 5, 1)] for number in range(10) for burst in range(6)
    ]
    assert moved(together(at=at)) is None


def test_single_contradiction_is_ignored() -> None:
    at = [list(row) for row in EVERY_100_MS]
    at[7] = [700, 850, 700]
    at[8] = [800, 860, 800]
    assert moved(together(at=at)) is None


@given(st.floats(0, 200), st.floats(-200, 200))
def test_clock_lead_is_an_upper_bound(delay: float, offset: float) -> None:
    """Where recorders see the end, however late the rank comes."""
    at = [[1000 * number, 1000 * number + delay * (number % 3 > 0), 1000 * number] for number in range(30)]
    done = [max(row) + 1 for row in at]
    ahead, _ = doubt(at, done=done, ahead={1: offset}, name=NCCL)
    assert ahead >= min(offset, 0) - 0.01
    assert ahead <= max(offset, 0) + 0.01


# Stragglers.


STEP, INSIDE = 100, (0, 40, 41, 60)
"""A step takes so many ms and has collectives at these times."""


def late(journal: Journal) -> LatenessReport:
    return lateness_report(journal, parts_of(journal))


def culprits(journal: Journal) -> list[tuple[int, ...]]:
    return [problem.culprits for problem in late(journal).problems]


def steps(
    count: int, delay: float = 0, *, ranks: int = 4, who: int = 2, inside: Sequence[float] = INSIDE
) -> list[list[float]]:
    """Steps in which one rank is late to the first collective, and everybody waits for it."""
    times = []
    for step in range(count):
        begin = step * (STEP + delay)
        jitter = [0.01 * ((step + rank) % ranks) for rank in range(ranks)]
        first = [begin + jitter[rank] + delay * (rank == who) for rank in range(ranks)]
        rest = [[begin + delay + after + more for more in jitter] for after in inside[1:]]
        times += [first, *rest]
    return times


def test_straggler() -> None:
    (problem,) = late(together(at=steps(10, delay=60))).problems
    assert (problem.kind, problem.culprits, problem.waiting) == (Kind.STRAGGLER, (2,), (0, 1, 3))
    assert (problem.group, problem.description, problem.operation) == ("0", "default_pg", "gloo:all_reduce")
    assert problem.message == (
        "Rank 2 arrived last at 19 of 40 collectives: the others spent 37 % of the time waiting for it, "
        "typically 60.0 ms."
    )
    assert (problem.sequence or 0) % len(INSIDE) == 1
    assert list(problem.rows) == [2]


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(steps(10), id="nobody is late"),
        pytest.param(steps(10, delay=15), id="what others wait for it is little"),
        pytest.param(steps(4, delay=60), id="there are few collectives"),
        pytest.param(
            [time for step in range(10) for time in steps(1, delay=60, who=step % 4)],
            id="it is another each time",
        ),
        pytest.param(
            [[time + 900 * (number > 20) for time in row] for number, row in enumerate(steps(10))],
            id="all pause",
        ),
    ],
)
def test_no_straggler(at: list[list[float]]) -> None:
    assert late(together(at=at)).problems == []


def test_late_once_is_a_note() -> None:
    at = steps(10)
    at[20:] = [[time + 6200 for time in row] for row in at[20:]]
    at[20] = [time - 6200 * (rank != 2) for rank, time in enumerate(at[20])]
    found = late(together(at=at))
    assert found.problems == []
    assert found.notes == ["Rank 2 arrived 6.2 s late at all_reduce #21 of group 0 (default_pg)."]


def test_constant_lateness_is_a_note() -> None:
    found = late(together(at=[[100 * step, 100 * step + 40 + step % 3, 100 * step] for step in range(30)]))
    assert found.problems == []
    assert found.notes == [
        "Rank 1 arrived last at 30 of 30 collectives, always by about 41.0 ms: it is slow, or its clock is ahead. "
        "The dumps do not show which."
    ]


def test_straggler_with_equal_completion_times() -> None:
    at = [[100 * step, 100 * step + 40, 100 * step] for step in range(30)]
    done = [max(row) + 0.3 for row in at]
    assert culprits(together(at=at, done=done, name="nccl:all_reduce")) == [(1,)]


def test_clock_lead_is_not_a_straggler() -> None:
    at = [[100 * step] * 3 for step in range(30)]
    done = [row[0] + 50 for row in at]
    found = late(together(at=at, done=done, name="nccl:all_reduce", ahead={1: 40}))
    assert (found.problems, found.notes) == ([], [])


def seen_by_a_watchdog(delay: float, offset: float) -> Journal:
    """Ranks issue ten collectives at once, which take their devices 500 ms; the end is seen up to 100 ms later."""
    at, done = [], []
    for step in range(40):
        begin = step * (700 + delay)
        for number in range(10):
            over = begin + delay + 50 * (number + 1)
            at.append([begin + number + delay * (rank == 1) for rank in range(4)])
            done.append(
                [over + (37 * step + 61 * number + 29 * rank + 13 * step * rank) % 100 for rank in range(4)]
            )
    return together(at=at, done=done, name="nccl:all_reduce", ahead={1: offset})


def test_straggler_or_clock_by_completion_times() -> None:
    assert culprits(seen_by_a_watchdog(delay=300, offset=0)) == [(1,)]
    assert culprits(seen_by_a_watchdog(delay=300, offset=-5)) == [(1,)]
    for offset in (40, 300):
        found = late(seen_by_a_watchdog(delay=0, offset=offset))
        assert found.problems == []
        assert [note for note in found.notes if "slow" in note] == []


def test_two_ranks_with_different_clocks() -> None:
    at = [[100 * number, 100 * number + 60 * (number % 2)] for number in range(40)]
    assert culprits(together(at=at)) == [(1,)]
    found = late(together(at=at, ahead={0: 7000}))
    assert found.problems == []
    assert len(found.notes) == 1


def test_straggler_with_prompt_continuation() -> None:
    at = [[41 * step, 41 * step + 40, 41 * step + 0.2] for step in range(30)]
    assert culprits(together(at=at)) == [(1,)]


def test_straggler_with_corrected_clocks() -> None:
    found = late(together(at=steps(10, delay=60), ahead={0: 5000, 3: -90_000}))
    assert [problem.culprits for problem in found.problems] == [(2,)]
    assert found.lateness[0].rank == 2
    assert "Clocks of ranks differ" in found.notes[0]


def test_inherited_lateness() -> None:
    """Rank 0 is late in its pair with 1; then 1 is late to its pair with 2, for it had to wait."""
    entries: Entries = {0: [], 1: [], 2: []}
    for step in range(12):
        begin = 100.0 * step
        # a quiet collective of each pair shows that nobody's clock is ahead
        one = rounds(at=[[begin + 50, begin], [begin + 60, begin + 60]], ranks=[0, 1], group=("1", "tp"))
        other = rounds(
            at=[[begin + 55, begin + 5], [begin + 65, begin + 65]], ranks=[1, 2], group=("2", "dp")
        )
        for number in range(2):
            for pair in (one, other):
                for rank, rows in pair.items():
                    entries[rank].append(rows[number] | {"collective_seq_id": 2 * step + number + 1})
    groups = process_group("1", [0, 1], "tp") | process_group("2", [1, 2], "dp")
    assert culprits(recorded(entries, pg_config=groups)) == [(0,)]


def test_others_do_not_wait() -> None:
    at = steps(10, delay=60)
    entries = rounds(at=at)
    meanwhile = rounds(
        at=[[row[0] + 10] * 3 for row in at[:: len(INSIDE)]], ranks=[0, 1, 3], group=("9", "other")
    )
    for rank, rows in meanwhile.items():
        for step, row in reversed(list(enumerate(rows))):
            entries[rank].insert(step * len(INSIDE) + 1, row)
    assert culprits(recorded(entries)) == []


def test_straggler_in_a_hanging_job() -> None:
    at = steps(10, delay=60)
    entries = rounds(at=at, done=[max(row) + 0.5 for row in at], name="nccl:all_reduce")
    assert [problem.kind for problem in diagnosis_of(recorded(entries)).problems] == [Kind.STRAGGLER]
    left = rounds(
        at=[[2000, 2000, 2001]], ranks=[0, 1, 3], name="nccl:all_reduce", collective_seq_id=len(at) + 1
    )
    hanging = {rank: rows + left.get(rank, []) for rank, rows in entries.items()}
    diagnosis = diagnosis_of(recorded(hanging))
    assert [problem.kind for problem in diagnosis.problems] == [Kind.NEVER_JOINED]
    assert [note for note in diagnosis.notes if note.startswith("Rank 2 arrived last at 19 of 40")]


def test_never_joined_after_always_late() -> None:
    at = [[100 * step, 100 * step + 30, 100 * step + step % 2] for step in range(30)]
    entries = rounds(at=at, done=[max(row) + 1 for row in at], name="nccl:all_reduce")
    left = rounds(at=[[3000, 3001]], ranks=[0, 2], name="nccl:all_reduce", collective_seq_id=31)
    journal = recorded({rank: rows + left.get(rank, []) for rank, rows in entries.items()})
    (problem,) = diagnosis_of(journal, clues=Clues(hung=True)).problems
    assert (problem.kind, problem.culprits) == (Kind.NEVER_JOINED, (1,))
    assert problem.message.endswith("Before, it arrived last at 30 of 30 collectives.")
    undecided = diagnosis_of(journal).problems
    assert [(one.kind, one.culprits) for one in undecided] == [(Kind.STRAGGLER, (1,)), (Kind.IN_FLIGHT, (1,))]


def test_slow_host_is_a_note() -> None:
    at = [[100 * step + 40 * (rank > 3) + (step + rank) % 3 for rank in range(6)] for step in range(30)]
    assert late(together(at=at)).notes == [
        "Ranks 4 and 5 usually arrive 39.8 ms after the others: a slow host, more work, or a clock that is ahead. "
        "The dumps do not show which."
    ]


@given(
    st.lists(st.sampled_from([0, 0.4, -3, 17, 250, -4000]), min_size=2, max_size=5),
    st.integers(0, 10**6),
    st.booleans(),
)
def test_any_clocks_and_noise_are_not_stragglers(ahead: list[float], seed: int, seen: bool) -> None:
    at, state = [], seed
    for number in range(40):
        row = []
        for _ in ahead:
            state = (state * 1103515245 + 12345) % 2**31
            row.append(20 * number + 3 * state / 2**31)
        at.append(row)
    done = [max(row) + 1 for row in at] if seen else None
    assert culprits(together(at=at, done=done, ahead=dict(enumerate(ahead)))) == []


@given(plans())
@settings(max_examples=15)
def test_healthy_jobs(plan: Plan) -> None:
    assert culprits(journal(job(plan).dumps)) == []


@given(faulty_plans("straggler"), st.sampled_from([3, 12]))
@settings(max_examples=15)
def test_jobs_with_a_straggler(faulty: tuple[Plan, Fault], steps: int) -> None:
    plan, fault = faulty
    recorded_job = job(replace(plan, steps=steps), fault)
    assert recorded_job.truth is not None
    assert culprits(journal(recorded_job.dumps)) in ([], [recorded_job.truth.culprits])
