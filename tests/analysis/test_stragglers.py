"""Ranks that others wait for over and over, and those that only seem to be late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.journal import Entries, journal, recorded, rounds, together
from builders.recorded_jobs import faulty_plans, plans
from builders.recorder import process_group
from tracelink.diagnosis.examine import diagnosis_of
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.lateness import Latecomers, latecomers_of
from tracelink.diagnosis.model import Kind
from tracelink.diagnosis.participation import parts_of
from tracelink.samples.generate.recorded_jobs import Fault, Plan, job

STEP, INSIDE = 100, (0, 40, 41, 60)
"""A step takes so many ms and has collectives at these times."""


def late(journal: Journal) -> Latecomers:
    return latecomers_of(journal, parts_of(journal))


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


def test_a_rank_that_is_late_to_every_step_is_a_straggler() -> None:
    (problem,) = late(together(at=steps(10, delay=60))).problems
    assert (problem.kind, problem.culprits, problem.waiting) == (Kind.STRAGGLER, (2,), (0, 1, 3))
    assert (problem.group, problem.description, problem.operation) == ("0", "default_pg", "gloo:all_reduce")
    assert problem.message == (
        "Rank 2 came last to 19 of 40 collectives: the others waited 37 % of the time for it, usually 60.0 ms."
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
def test_nobody_is_a_straggler_where(at: list[list[float]]) -> None:
    assert late(together(at=at)).problems == []


def test_being_late_once_is_worth_a_note() -> None:
    at = steps(10)
    at[20:] = [[time + 6200 for time in row] for row in at[20:]]
    at[20] = [time - 6200 * (rank != 2) for rank, time in enumerate(at[20])]
    found = late(together(at=at))
    assert found.problems == []
    assert found.notes == ["Rank 2 came 6.2 s late to all_reduce #21 of group 0 (default_pg)."]


def test_always_late_by_the_same_may_be_a_clock() -> None:
    found = late(together(at=[[100 * step, 100 * step + 40 + step % 3, 100 * step] for step in range(30)]))
    assert found.problems == []
    assert found.notes == [
        "Rank 1 came last to 30 of 30 collectives, always by about 41.0 ms: it is slow, or its clock is ahead; "
        "the dumps do not tell."
    ]


def test_that_all_left_together_shows_that_clocks_agree() -> None:
    at = [[100 * step, 100 * step + 40, 100 * step] for step in range(30)]
    done = [max(row) + 0.3 for row in at]
    assert culprits(together(at=at, done=done, name="nccl:all_reduce")) == [(1,)]


def test_that_a_rank_left_later_than_others_shows_that_its_clock_is_ahead() -> None:
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


def test_when_a_rank_sees_the_end_tells_a_straggler_from_a_clock() -> None:
    assert culprits(seen_by_a_watchdog(delay=300, offset=0)) == [(1,)]
    assert culprits(seen_by_a_watchdog(delay=300, offset=-5)) == [(1,)]
    for offset in (40, 300):
        found = late(seen_by_a_watchdog(delay=0, offset=offset))
        assert found.problems == []
        assert [note for note in found.notes if "slow" in note] == []


def test_of_two_ranks_with_different_clocks_nothing_tells_which_is_late() -> None:
    at = [[100 * number, 100 * number + 60 * (number % 2)] for number in range(40)]
    assert culprits(together(at=at)) == [(1,)]
    found = late(together(at=at, ahead={0: 7000}))
    assert found.problems == []
    assert len(found.notes) == 1


def test_that_others_go_on_as_soon_as_it_comes_shows_that_they_waited() -> None:
    at = [[41 * step, 41 * step + 40, 41 * step + 0.2] for step in range(30)]
    assert culprits(together(at=at)) == [(1,)]


def test_clocks_that_cannot_be_right_are_corrected_by_how_late_ranks_usually_are() -> None:
    found = late(together(at=steps(10, delay=60), ahead={0: 5000, 3: -90_000}))
    assert [problem.culprits for problem in found.problems] == [(2,)]
    assert found.lateness[0].rank == 2
    assert "the clocks differ" in found.notes[0]


def test_who_waited_for_a_late_rank_is_not_late_itself() -> None:
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


def test_nobody_waits_for_a_late_rank_who_goes_on_without_it() -> None:
    at = steps(10, delay=60)
    entries = rounds(at=at)
    meanwhile = rounds(
        at=[[row[0] + 10] * 3 for row in at[:: len(INSIDE)]], ranks=[0, 1, 3], group=("9", "other")
    )
    for rank, rows in meanwhile.items():
        for step, row in reversed(list(enumerate(rows))):
            entries[rank].insert(step * len(INSIDE) + 1, row)
    assert culprits(recorded(entries)) == []


def test_a_straggler_is_no_cause_of_a_hang() -> None:
    at = steps(10, delay=60)
    entries = rounds(at=at, done=[max(row) + 0.5 for row in at], name="nccl:all_reduce")
    assert [problem.kind for problem in diagnosis_of(recorded(entries)).problems] == [Kind.STRAGGLER]
    left = rounds(
        at=[[2000, 2000, 2001]], ranks=[0, 1, 3], name="nccl:all_reduce", collective_seq_id=len(at) + 1
    )
    hanging = {rank: rows + left.get(rank, []) for rank, rows in entries.items()}
    diagnosis = diagnosis_of(recorded(hanging))
    assert [problem.kind for problem in diagnosis.problems] == [Kind.NEVER_JOINED]
    assert [note for note in diagnosis.notes if note.startswith("Rank 2 came last to 19 of 40")]


def test_of_a_rank_that_never_came_it_is_said_that_it_was_always_late() -> None:
    at = [[100 * step, 100 * step + 30, 100 * step + step % 2] for step in range(30)]
    entries = rounds(at=at, done=[max(row) + 1 for row in at], name="nccl:all_reduce")
    left = rounds(at=[[3000, 3001]], ranks=[0, 2], name="nccl:all_reduce", collective_seq_id=31)
    (problem,) = diagnosis_of(
        recorded({rank: rows + left.get(rank, []) for rank, rows in entries.items()})
    ).problems
    assert problem.culprits == (1,)
    assert problem.message.endswith("Before, it came last to 30 of 30 collectives.")


def test_ranks_of_one_slow_host_are_noted_together() -> None:
    at = [[100 * step + 40 * (rank > 3) + (step + rank) % 3 for rank in range(6)] for step in range(30)]
    assert late(together(at=at)).notes == [
        "Ranks 4 and 5 usually come 39.8 ms after the others: a slow host, more work, or a clock that is ahead; "
        "the dumps do not tell."
    ]


@given(
    st.lists(st.sampled_from([0, 0.4, -3, 17, 250, -4000]), min_size=2, max_size=5),
    st.integers(0, 10**6),
    st.booleans(),
)
def test_neither_clocks_nor_noise_make_a_straggler(ahead: list[float], seed: int, seen: bool) -> None:
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
def test_healthy_jobs_have_no_stragglers(plan: Plan) -> None:
    assert culprits(journal(job(plan).dumps)) == []


@given(faulty_plans("straggler"), st.sampled_from([3, 12]))
@settings(max_examples=15)
def test_of_a_job_with_a_straggler_nobody_else_is_named(faulty: tuple[Plan, Fault], steps: int) -> None:
    plan, fault = faulty
    recorded_job = job(replace(plan, steps=steps), fault)
    assert recorded_job.truth is not None
    assert culprits(journal(recorded_job.dumps)) in ([], [recorded_job.truth.culprits])
