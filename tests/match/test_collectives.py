"""Collectives: calls with one group and number, verdicts, and labels of calls without numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.calls import call, group, rank, told, whole
from builders.calls import linked as matched
from builders.inputs import reasons
from tracelink._match.collectives import call_labels
from tracelink._match.job import JobTables
from tracelink._model.clock import ClockMode
from tracelink._model.columns import UNKNOWN
from tracelink._model.communications import Evidence, RankCalls

# Collectives: calls of one group and number are one, and what is missing or differs is told.


PAIR = [group("0", 0, 1)]


def linked(*ranks: RankCalls) -> JobTables:
    return matched(ranks, ClockMode.NONE)


def recorded(*numbers: int, **more: object) -> list[dict[str, object]]:
    return [call(sequence=number, record=number, **more) for number in numbers]


def test_calls_of_one_group_and_number_are_one_collective() -> None:
    ranks = whole(2, call("all_reduce", 5), call("broadcast", 6))
    assert told(linked(*ranks)) == [
        ("0", 5, "all_reduce", [0, 1], "complete"),
        ("0", 6, "broadcast", [0, 1], "complete"),
    ]


def test_the_numbers_count_and_not_the_places() -> None:
    tables = linked(
        rank(0, *recorded(7, 8, 9), groups=PAIR),
        rank(1, *recorded(5, 6, 7, 8), groups=PAIR),
    )
    assert told(tables) == [
        ("0", 5, "all_reduce", [1], "partial"),
        ("0", 6, "all_reduce", [1], "partial"),
        ("0", 7, "all_reduce", [0, 1], "complete"),
        ("0", 8, "all_reduce", [0, 1], "complete"),
        ("0", 9, "all_reduce", [0], "missing"),
    ]


def test_numbers_of_two_groups_of_one_name_have_nothing_to_do_with_each_other() -> None:
    tables = linked(
        *(rank(r, call(sequence=1), groups=[group("0", r // 2 * 2, r // 2 * 2 + 1)]) for r in range(4))
    )
    assert told(tables) == [
        ("0", 1, "all_reduce", [0, 1], "complete"),
        ("0", 1, "all_reduce", [2, 3], "complete"),
    ]


def test_waiting_is_no_collective() -> None:
    assert told(linked(*whole(2, call(sequence=1), call("wait", 1, group="", size=1)))) == [
        ("0", 1, "all_reduce", [0, 1], "complete")
    ]


def test_a_member_without_any_source_makes_a_collective_partial() -> None:
    tables = linked(rank(0, *recorded(1), groups=[group("0", 0, 1, 2)]), rank(2, *recorded(1)))
    assert told(tables) == [("0", 1, "all_reduce", [0, 2], "partial")]


def test_a_member_that_did_the_one_before_and_the_one_after_is_missing() -> None:
    tables = linked(rank(0, *recorded(4, 5, 6), groups=PAIR), rank(1, *recorded(4, 6), groups=PAIR))
    assert [row[-1] for row in told(tables)] == ["complete", "missing", "complete"]
    assert reasons(tables) == {"missing_from_collectives": 1}


def test_a_rank_that_never_joined_is_missing_if_its_recorder_has_kept_everything() -> None:
    world, own = group("0", 0, 1, 2), group("1", 2)
    others = [rank(r, *recorded(1), groups=[world]) for r in (0, 1)]
    kept = rank(2, *recorded(1, 2, group="1"), groups=[world, own])
    wrapped = rank(2, *recorded(8, 9, group="1"), groups=[world, own])
    assert told(linked(*others, kept))[0] == ("0", 1, "all_reduce", [0, 1], "missing")
    assert told(linked(*others, wrapped))[0] == ("0", 1, "all_reduce", [0, 1], "partial")


def test_a_profile_that_ends_earlier_misses_nothing() -> None:
    def profiled(number: int) -> dict[str, object]:
        return call(sequence=number, start=number * 10, end=number * 10 + 5, operator=number)

    short = rank(1, profiled(1), profiled(2), groups=PAIR)
    longer = rank(
        1, profiled(1), profiled(2), call("barrier", 1, 90, 95, group="1"), groups=[*PAIR, group("1", 1)]
    )
    other = rank(0, *map(profiled, (1, 2, 3)), groups=PAIR)
    assert told(linked(other, short))[2] == ("0", 3, "all_reduce", [0], "partial")
    assert told(linked(other, longer))[2] == ("0", 3, "all_reduce", [0], "missing")


def test_a_source_that_breaks_off_is_not_missing_what_comes_after() -> None:
    cut = replace(rank(1, *recorded(1, 2), groups=PAIR), broken_off=True)
    assert told(linked(rank(0, *recorded(1, 2, 3), groups=PAIR), cut))[2][-1] == "partial"


def test_what_most_ranks_do_is_right_whoever_is_first() -> None:
    odd = rank(0, call("broadcast", 1, elements=256), groups=[group("0", 0, 1, 2)])
    tables = linked(odd, *(rank(r, call("all_reduce", 1, elements=128)) for r in (1, 2)))
    assert told(tables) == [("0", 1, "all_reduce", [0, 1, 2], "mismatch")]
    assert tables.collectives.bytes.tolist() == [512]
    assert reasons(tables) == {"mismatched_collectives": 1}


def verdict(
    operation: str, *elements: tuple[int, int], types: tuple[str, ...] = ("Float", "Float", "Float")
) -> str:
    world = [group("0", *range(len(elements)))]
    ranks = [
        rank(r, call(operation, 1, elements=each, type=types[r]), groups=world)
        for r, each in enumerate(elements)
    ]
    (row,) = told(linked(*ranks))
    return row[-1]


def test_sizes_that_must_be_equal_and_are_not_are_a_mismatch() -> None:
    assert verdict("all_reduce", (8, 8), (8, 8), (9, 9)) == "mismatch"
    assert verdict("all_gather", (4, 8), (4, 9)) == "mismatch"
    assert verdict("reduce_scatter", (8, 4), (9, 4)) == "mismatch"
    assert verdict("all_reduce", (8, 8), (8, 8), types=("Float", "Half")) == "mismatch"


def test_sizes_that_may_differ_do() -> None:
    assert verdict("all_to_all", (4, 12), (12, 4)) == "complete"
    assert verdict("all_gather", (4, 12), (8, 12)) == "complete"
    assert verdict("reduce_scatter", (12, 4), (12, 8)) == "complete"
    assert verdict("gather", (4, 12), (4, 0), (4, 0)) == "complete"
    assert verdict("scatter", (12, 4), (0, 4), (0, 4)) == "complete"
    assert verdict("barrier", (0, 0), (1, 1)) == "complete"
    assert verdict("all_reduce", (8, 8), (-1, -1)) == "complete"


def test_what_was_issued_as_one_is_one_collective_of_all_its_bytes() -> None:
    tables = linked(
        *whole(
            2,
            call("all_reduce", 1, 10, 20, elements=8, record=4, enqueued=5),
            call("all_reduce", 1, elements=24, record=5, enqueued=6),
            call("coalesced", 1, 30, 40, elements=0, record=6, enqueued=7, state="completed"),
        )
    )
    assert told(tables) == [("0", 1, "all_reduce", [0, 1], "complete")]
    assert tables.collectives.bytes.tolist() == [128]
    parts = tables.participations
    assert (parts.record.tolist(), parts.enqueued.tolist()) == ([4, 4], [5, 5])
    assert (parts.start.tolist(), parts.end.tolist()) == ([10, 10], [40, 40])
    assert [tables.strings[state] for state in parts.state] == ["completed"] * 2
    assert reasons(tables) == {}


def test_members_of_one_issue_need_no_closing() -> None:
    both = [call("all_gather", 1, elements=(4, 8)), call("all_gather", 1, elements=(1, 2))]
    tables = linked(*whole(2, *both))
    assert tables.collectives.bytes.tolist() == [40]


def test_a_number_that_one_rank_has_twice_is_told_and_its_first_call_taken() -> None:
    tables = linked(
        rank(0, call(sequence=1, record=3), call(sequence=1, record=4), groups=PAIR),
        rank(1, call(sequence=1, record=5), groups=PAIR),
    )
    assert told(tables) == [("0", 1, "all_reduce", [0, 1], "complete")]
    assert tables.participations.record.tolist() == [3, 5]
    assert reasons(tables) == {"repeated_collective": 1}


def test_a_rank_that_is_there_twice_counts_once() -> None:
    tables = linked(*whole(2, call(sequence=1)), rank(1, call("broadcast", 1)))
    assert told(tables) == [("0", 1, "all_reduce", [0, 1], "complete")]
    assert reasons(tables) == {"duplicate_rank": 1}


def test_no_ranks_did_nothing() -> None:
    tables = linked()
    assert (len(tables.collectives), len(tables.participations), len(tables.messages)) == (0, 0, 0)


NUMBERS = st.lists(st.integers(1, 9), unique=True, max_size=6).map(sorted)


@given(st.lists(NUMBERS, min_size=1, max_size=5), st.randoms(use_true_random=False), st.booleans())
def test_matching_by_number_depends_neither_on_order_nor_on_names(
    numbers: list, random, renamed: bool
) -> None:
    everybody = tuple(range(len(numbers)))

    def ranks(name: str) -> list[RankCalls]:
        return [
            rank(
                r,
                *(call(sequence=n, group=f"{name}{r}" if name else "0", record=n) for n in own),
                groups=[group(f"{name}{r}" if name else "0", *everybody)],
            )
            for r, own in enumerate(numbers)
        ]

    expected = sorted(
        (number, [r for r, own in enumerate(numbers) if number in own])
        for number in {n for own in numbers for n in own}
    )
    given_ranks = ranks("local" if renamed else "")
    random.shuffle(given_ranks)
    assert [(row[1], row[3]) for row in told(linked(*given_ranks))] == expected


def test_evidence_of_one_kind_is_compared() -> None:
    tables = linked(
        *(
            rank(r, call(sequence=1, start=10 + r, end=30, enqueued=r), groups=[group("0", 0, 1, 2)])
            for r in (0, 1)
        ),
        rank(2, call(sequence=1, start=500, end=900, enqueued=2, evidence=Evidence.RECORDER)),
    )
    assert tables.participations.end.tolist()[:2] == [30, 30]
    assert tables.collectives.skew.tolist() == [1]
    assert tables.collectives.end.tolist() == [30]


# What tells calls apart where nobody numbers them.


REDUCE, BARRIER, FLOAT, LONG = 3, 4, 1, 2


def labels(*calls: tuple[int, int, int]) -> tuple[list[int], list[bool]]:
    """The label of each call as the number of the first call that has it, and which are vague."""
    operation, size, type_ = np.array(calls).T
    label, vague = call_labels(operation.astype(np.int32), size, type_.astype(np.int32))
    return [label.tolist().index(one) for one in label], vague.tolist()


def test_operation_size_and_type_tell_calls_apart() -> None:
    found = labels((REDUCE, 8, FLOAT), (REDUCE, 8, LONG), (REDUCE, 9, FLOAT), (REDUCE, 8, FLOAT))
    assert found == ([0, 1, 2, 0], [False] * 4)


def test_what_a_call_lacks_is_taken_from_the_only_one_it_can_be() -> None:
    found = labels((REDUCE, 8, FLOAT), (REDUCE, 8, UNKNOWN), (REDUCE, 9, FLOAT), (REDUCE, UNKNOWN, UNKNOWN))
    assert found == ([0, 0, 2, 3], [False, False, False, True])


def test_an_operation_of_which_nobody_tells_a_size_is_not_vague() -> None:
    found = labels((BARRIER, UNKNOWN, UNKNOWN), (REDUCE, 8, FLOAT), (BARRIER, UNKNOWN, UNKNOWN))
    assert found == ([0, 1, 0], [False] * 3)
