"""Which send and which receive are one message, where ring buffers forgot the oldest of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.journal import recorded
from builders.recorder import collective
from builders.told import journal_told
from tracelink.diagnosis.messages import Ends, Matching, Side, ends_of, match, shift_of
from tracelink.diagnosis.participation import outcomes, parts_of
from tracelink.model.columns import NO_TIME, UNKNOWN

TWO, THREE = [0, 1], [0, 1, 2]


def side(numbers: list[int], over: int, *, forgot: bool = True, completed: list[int] | None = None) -> Side:
    """So many messages of a rank, with their numbers, of which the first are over."""
    count = len(numbers)
    times = completed if completed is not None else [NO_TIME] * count
    return Side(
        np.array(numbers, np.int64),
        np.arange(count) < over,
        np.array(times, np.int64),
        np.full(count, 8, np.int64),
        np.zeros(count, np.bool_),
        forgot,
    )


@given(st.integers(1, 30), st.data())
def test_two_who_count_alike_are_paired_by_number(count: int, data: st.DataObject) -> None:
    sent, received = data.draw(st.integers(0, count)), data.draw(st.integers(0, count))
    lost = data.draw(st.integers(0, min(sent, received, count - 1)))
    numbers = list(range(1, count + 2))
    assert shift_of(side(numbers, sent), side(numbers[lost:], received - lost)) == -lost


def test_others_by_what_both_have_finished() -> None:
    assert shift_of(side([3, 5, 7, 9], 3), side([21, 25, 29], 2)) == -1


def test_nothing_tells_where_nothing_is_over() -> None:
    assert shift_of(side([3, 5, 7], 0), side([21, 25], 0)) is None


def test_what_was_not_forgotten_begins_at_the_first() -> None:
    assert shift_of(side([1, 2], 0, forgot=False), side([7, 9, 12], 3, forgot=False)) == 0


def test_numbers_that_happen_to_be_alike_do_not_outweigh_times() -> None:
    """One rank counts a message with somebody else, so what is one message has different numbers."""
    sends = side([4, 5, 6, 7], 4, completed=[100, 200, 300, 400])
    receives = side([5, 6, 7, 8], 4, completed=[101, 201, 301, 401])
    assert shift_of(sends, receives) == 0


def paired(words: dict[int, str], group: list[int], **how: object) -> tuple[Ends, Matching]:
    journal = journal_told(words, a=group, **how)  # type: ignore[arg-type]
    ends = ends_of(journal, outcomes(journal))
    return ends, match(journal, parts_of(journal), ends)


def partners(words: dict[int, str], group: list[int], **how: object) -> dict[int, int]:
    """The entry of each send to that of its receive."""
    ends, matching = paired(words, group, **how)
    sends = np.flatnonzero(ends.sends & (matching.partner != UNKNOWN))
    return dict(zip(ends.row[sends].tolist(), ends.row[matching.partner[sends]].tolist(), strict=True))


def test_each_pair_of_ranks_keeps_its_order() -> None:
    assert partners({0: "a>1 a>2 a>1", 1: "a<0 a<0", 2: "a<0"}, THREE) == {0: 3, 2: 4, 1: 5}


def test_members_of_a_batch_are_ends_and_what_closes_it_is_none() -> None:
    ends, _ = paired({0: "[a>1 a<1] a>1", 1: ""}, TWO)
    assert ends.row.tolist() == [0, 1, 3]
    assert ends.closing.tolist() == [2, 2, 3]
    assert ends.batched.tolist() == [True, True, False]


def test_single_messages_of_one_number_before_a_batch_are_not_of_it() -> None:
    """Some versions do not count batches: they have the number of the last single message."""
    journal = journal_told({0: "a>1 [a>1 a<1]!", 1: ""}, a=TWO)
    journal.records.sequence[:] = 1
    assert ends_of(journal, outcomes(journal)).batched.tolist() == [False, True, True]


@pytest.mark.parametrize("marked", [True, False])
def test_what_closes_a_batch_that_was_forgotten_is_no_collective(marked: bool) -> None:
    sizes: dict[str, Any] = {
        f"{way}_{what}": [] for way in ("input", "output") for what in ("sizes", "dtypes")
    }
    closing = collective("nccl:coalesced", 3, p2p_seq_id=7, record_id=40, is_p2p=marked, **sizes)
    journal = recorded({0: [closing], 1: []})
    assert len(parts_of(journal)) == 0
    assert len(ends_of(journal, outcomes(journal))) == 0


def test_what_both_joined_tells_where_nothing_is_over() -> None:
    words = {0: "a<1! a1! a>1! a2! a>1!", 1: "a>0! a1! a<0! a2! a<0!"}
    assert partners(words, TWO, forgotten={0: 5, 1: 7}) == {2: 7, 4: 9, 5: 0}
