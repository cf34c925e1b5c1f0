"""Who delays whom, and whose lateness others had caused before."""

from __future__ import annotations

from builders.job import JobBuilder
from tracelink._model.clock import Clock
from tracelink._time.collectives.report import collectives_of
from tracelink._time.model.communication import Communication, Delay, LateRank, Pattern, PatternRow

MS = 1_000_000


def builder_of(ranks: int) -> JobBuilder:
    return JobBuilder([Clock(rank, low_ns=0, high_ns=0) for rank in range(ranks)])


def enter(builder: JobBuilder, group: int, end: int, **starts: int) -> None:
    """A collective that all leave at `end`; `r0=3`: rank 0 enters at 3 ms."""
    number = len([row for row in builder.collectives if row["group"] == group])
    spans = {int(rank[1:]): (start * MS, end * MS) for rank, start in starts.items()}
    builder.collective(group, spans, order=number)


def communication_of(builder: JobBuilder) -> Communication:
    return collectives_of(builder.job()).communication


def test_a_rank_that_was_held_up_in_another_group_passes_its_lateness_on() -> None:
    """Rank 2 comes 50 ms late to rank 1, which therefore comes late to rank 0."""
    builder = builder_of(3)
    pair, other = builder.group(0, 1, name="1"), builder.group(1, 2, name="2")
    enter(builder, pair, 1, r0=0, r1=0)
    enter(builder, other, 61, r1=10, r2=60)
    enter(builder, pair, 72, r0=20, r1=70)
    found = communication_of(builder)
    assert found.late == [
        LateRank(
            2, 1, 1, own_ns=100 * MS, caused_ns=50 * MS, passed_on_ns=0, inherited_ns=50 * MS, waited_ns=0
        ),
        LateRank(0, 0, 2, own_ns=0, caused_ns=0, passed_on_ns=0, inherited_ns=0, waited_ns=50 * MS),
        LateRank(
            1, 1, 3, own_ns=0, caused_ns=50 * MS, passed_on_ns=50 * MS, inherited_ns=0, waited_ns=50 * MS
        ),
    ]
    assert found.delays == [Delay(2, 0, 50 * MS, 1), Delay(2, 1, 50 * MS, 1)]


def test_only_as_much_is_passed_on_as_the_rank_had_waited() -> None:
    builder = builder_of(3)
    pair, other = builder.group(0, 1, name="1"), builder.group(1, 2, name="2")
    enter(builder, pair, 1, r0=0, r1=0)
    enter(builder, other, 21, r1=10, r2=20)
    enter(builder, pair, 72, r0=20, r1=70)
    late = {row.rank: row for row in communication_of(builder).late}
    assert (late[1].caused_ns, late[1].passed_on_ns, late[2].inherited_ns) == (50 * MS, 10 * MS, 10 * MS)


def test_a_wait_that_both_ranks_had_is_no_reason_to_be_late() -> None:
    builder = builder_of(3)
    pair, everyone = builder.group(0, 1, name="1"), builder.group(0, 1, 2, name="0")
    enter(builder, pair, 1, r0=0, r1=0)
    enter(builder, everyone, 51, r0=1, r1=1, r2=50)
    enter(builder, pair, 72, r0=52, r1=60)
    late = {row.rank: row for row in communication_of(builder).late}
    assert (late[1].caused_ns, late[1].passed_on_ns) == (8 * MS, 0)


def test_causes_are_followed_through_several_groups() -> None:
    builder = builder_of(4)
    first, second, third = (builder.group(str(rank), (rank, rank + 1)) for rank in range(3))
    for group, ranks in ((first, "r0 r1"), (second, "r1 r2"), (third, "r2 r3")):
        enter(builder, group, 1, **dict.fromkeys(ranks.split(), 0))
    enter(builder, third, 41, r2=10, r3=40)
    enter(builder, second, 51, r1=20, r2=50)
    enter(builder, first, 61, r0=30, r1=60)
    late = {row.rank: row.own_ns for row in communication_of(builder).late}
    assert late == {3: 90 * MS, 0: 0, 1: 0, 2: 0}


def test_the_same_rank_again_and_again_is_constant_and_taking_turns_is_rotating() -> None:
    builder = builder_of(3)
    constant, rotating = builder.group(0, 1, 2, name="0"), builder.group(0, 1, 2, name="1")
    for number in range(6):
        begin = 200 * number
        enter(builder, constant, begin + 20, r0=begin, r1=begin, r2=begin + 10)
        arrivals = [begin + 100 + 10 * (rank == number % 3) for rank in range(3)]
        enter(builder, rotating, begin + 120, r0=arrivals[0], r1=arrivals[1], r2=arrivals[2])
    assert communication_of(builder).patterns == [
        PatternRow(0, "0", Pattern.CONSTANT, 2, 1.0, 6),
        PatternRow(1, "1", Pattern.ROTATING, None, 0.3333, 6),
    ]
