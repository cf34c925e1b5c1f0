"""Lateness: tables, ranks that are late together, clocks, and stragglers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.dumps import MS, Entries, diagnosis_of, journal, recorded, rounds, together
from builders.dumps import recorded as journal_of_entries
from builders.recorded_jobs import faulty_plans, plans
from builders.recorder import process_group
from generators.recorded_jobs import Fault, Plan, job
from tracelink._hang.facts.journal import Journal
from tracelink._hang.facts.model import Kind, Lateness
from tracelink._hang.facts.participation import parts_of
from tracelink._hang.facts.stalls import Clues
from tracelink._hang.verdicts.lateness import LatenessReport, lateness_report

# The table of lateness.


def late(journal: Journal) -> LatenessReport:
    return lateness_report(journal, parts_of(journal))


def lateness(journal: Journal) -> list[Lateness]:
    return list(late(journal).lateness)


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
    assert lateness(journal_of_entries(entries)) == []


def test_empty_journal() -> None:
    assert lateness(journal_of_entries({0: [], 1: []})) == []


# Ranks that are usually late, or whose clocks are ahead.


def usual(lags: Sequence[float], count: int = 30) -> list[str]:
    """Of ranks that come so many ms after each step of 100 ms begins, and in turn a little later."""
    at = [
        [100 * step + lag + 0.1 * ((step + rank) % len(lags)) for rank, lag in enumerate(lags)]
        for step in range(count)
    ]
    found = late(together(at=at))
    assert found.stragglers == []
    return list(found.notes)


@pytest.mark.parametrize(
    ("lags", "note"),
    [
        (
            [0, 1, 0, 1, 40, 41],
            "Ranks 4 and 5 usually arrive 39.9 ms after the others: a slow host, more work",
        ),
        ([0, 40, 0], "Rank 1 usually arrives 40.0 ms after the others: it is slow, more work"),
        ([0, 40], "Rank 1 usually arrives 40.0 ms after the others: it is slow, more work"),
    ],
)
def test_ranks_that_are_usually_late(lags: list[float], note: str) -> None:
    assert usual(lags) == [f"{note}, or a clock that is ahead. The dumps do not show which."]


@pytest.mark.parametrize(
    "lags",
    [
        pytest.param([0, 0, 40, 40, 40, 40], id="most are what is usual"),
        pytest.param([0, 8, 16, 24, 32, 40], id="they come one after the other"),
        pytest.param([0, 0, 0, 0, 4, 4], id="it costs little"),
    ],
)
def test_nobody_is_usually_late(lags: list[float]) -> None:
    assert usual(lags) == []


def test_too_few_collectives() -> None:
    assert usual([0, 0, 0, 40, 40], count=10) == []


def test_clocks_that_recorders_contradict() -> None:
    """A recorder sees a collective completed before another rank joins it, by its clock."""
    at = [[100 * number] * 3 for number in range(30)]
    found = late(
        together(at=at, done=[row[0] + 50 for row in at], name="nccl:all_reduce", ahead={1: 700, 2: -9000})
    )
    assert (found.lateness, found.stragglers) == ([], [])
    assert found.notes == [
        "Clocks of ranks differ: by their times, ranks left collectives before others joined them. "
        "Lateness is measured relative to how late each rank usually is."
    ]


def test_late_completion_is_no_contradiction() -> None:
    at = [[100 * number, 100 * number + 30, 100 * number] for number in range(10)]
    found = late(together(at=at, done=[row[0] + 31 for row in at], name="nccl:all_reduce"))
    assert [(one.rank, one.collectives) for one in found.lateness] == [(1, 10)]
    assert found.notes == []


# Stragglers.


STEP, INSIDE = 100, (0, 40, 41, 60)
"""A step takes so many ms and has collectives at these times."""


def culprits(journal: Journal) -> list[tuple[int, ...]]:
    return [problem.culprits for problem in late(journal).stragglers]


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
    (problem,) = late(together(at=steps(10, delay=60))).stragglers
    assert (problem.kind, problem.culprits, problem.waiting) == (Kind.STRAGGLER, (2,), (0, 1, 3))
    assert (problem.group, problem.description, problem.operation) == ("0", "default_pg", "gloo:all_reduce")
    assert problem.sentence() == (
        "Rank 2 arrived late at 9 of 39 collectives: the others spent 37 % of the time waiting for it, "
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
    assert late(together(at=at)).stragglers == []


def test_late_once_is_a_note() -> None:
    at = steps(10)
    at[20:] = [[time + 6200 for time in row] for row in at[20:]]
    at[20] = [time - 6200 * (rank != 2) for rank, time in enumerate(at[20])]
    found = late(together(at=at))
    assert found.stragglers == []
    assert found.notes == ["Rank 2 arrived 6.2 s late at all_reduce #21 of group 0 (default_pg)."]


def test_constant_lateness_is_not_blamed() -> None:
    assert (
        culprits(together(at=[[100 * step, 100 * step + 40 + step % 3, 100 * step] for step in range(30)]))
        == []
    )


@given(st.lists(st.sampled_from([0, 0.4, -30, 5000, -90_000]), min_size=4, max_size=4), st.booleans())
def test_clocks_do_not_change_who_is_blamed(ahead: list[float], seen: bool) -> None:
    at = steps(10, delay=60)
    how: dict[str, Any] = {"done": [max(row) + 1 for row in at], "name": "nccl:all_reduce"} if seen else {}
    (problem,) = late(together(at=at, ahead=dict(enumerate(ahead)), **how)).stragglers
    assert (problem.culprits, problem.waiting, problem.count) == ((2,), (0, 1, 3), 9)


def test_late_half_of_the_time() -> None:
    at = [[100 * number + 60 * (rank == 1 and number % 2) for rank in range(3)] for number in range(40)]
    assert culprits(together(at=at)) == [(1,)]


def test_two_ranks_that_differ_half_of_the_time() -> None:
    """One of two is late as often as the other one is early: it is not known which."""
    assert (
        culprits(together(at=[[100 * number, 100 * number + 60 * (number % 2)] for number in range(40)]))
        == []
    )


def test_inherited_lateness() -> None:
    """Rank 0 is late in its pair with 1; then 1 is late to its pair with 2, for it had to wait."""
    entries: Entries = {0: [], 1: [], 2: []}
    for step in range(12):
        begin = 100.0 * step
        one = rounds(
            at=[[begin + 50, begin], [begin + 60, begin + 60], [begin + 70, begin + 70]],
            ranks=[0, 1],
            group=("1", "tp"),
        )
        other = rounds(
            at=[[begin + 55, begin + 5], [begin + 65, begin + 65], [begin + 75, begin + 75]],
            ranks=[1, 2],
            group=("2", "dp"),
        )
        for number in range(3):
            for pair in (one, other):
                for rank, rows in pair.items():
                    entries[rank].append(rows[number] | {"collective_seq_id": 3 * step + number + 1})
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
    journal = recorded({rank: rows + left.get(rank, []) for rank, rows in entries.items()})
    assert [(one.kind, one.culprits) for one in diagnosis_of(journal).problems] == [
        (Kind.IN_FLIGHT, (2,)),
        (Kind.STRAGGLER, (2,)),
    ]
    hanging = diagnosis_of(journal, clues=Clues(hung=True))
    assert [problem.kind for problem in hanging.problems] == [Kind.NEVER_JOINED]
    assert hanging.problems[0].message.endswith("Before, it arrived late at 9 collectives.")
    assert [note for note in hanging.notes if note.startswith("Rank 2 arrived late at 9 of 39")]


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
