"""What a rank usually does next, and what its siblings do."""

from __future__ import annotations

import numpy as np

from builders.told import journal_told
from tracelink.diagnosis.programs import Habits, Siblings

STEP = "b1 a>1 a>1 a<1 a>1 a<1 a<1"
"""One forward, one backward, of three microbatches."""
TWO = [0, 1]


def last_deviates(words: str) -> bool:
    journal = journal_told({0: words, 1: ""}, a=TWO, b=TWO)
    return Habits(journal).deviates(len(journal) - 1)


def test_what_every_step_did_at_this_place_is_usual() -> None:
    steps = f"{STEP} {STEP} {STEP}"
    assert not last_deviates(f"{steps} b1 a>1 a>1 a<1 a>1 a<1 a<1")
    assert last_deviates(f"{steps} b1 a>1 a>1 a<1 a>1 a<1 a>1")


def test_a_first_step_has_no_habits() -> None:
    assert not last_deviates("b1 a>1 a<1 a>1 a<1 a>1 a<1 a>1 a<1 a>1 a<1 a>1 a<1 a<1")


def test_what_was_done_once_is_no_habit() -> None:
    assert not last_deviates("b1 a>1 b1 a<1")


def test_siblings_have_the_same_place_in_groups_like_this_one() -> None:
    journal = journal_told(
        {0: "a>1", 1: "a<0", 2: "c>1", 3: "c<0"}, descriptions={"a": "pp", "c": "pp"}, a=[0, 1], c=[2, 3]
    )
    assert Siblings(journal).of(0, 1) == [(1, 3)]
    assert Siblings(journal).due(0, 1, 1) == Siblings(journal).codes(np.array([3]))


def test_siblings_that_differ_tell_nothing() -> None:
    descriptions = {"a": "pp", "c": "pp", "d": "pp"}
    words = {0: "a>1", 2: "c>1", 4: "d<1"}
    journal = journal_told(words, descriptions=descriptions, a=[0, 1], c=[2, 3], d=[4, 5])
    assert Siblings(journal).due(0, 0, 1) == ()


def test_the_order_within_a_batch_is_free() -> None:
    words = {0: "[a>1 a<1]", 2: "[c<1 c>1]"}
    journal = journal_told(words, descriptions={"a": "pp", "c": "pp"}, a=[0, 1], c=[2, 3])
    siblings = Siblings(journal)
    assert siblings.due(0, 0, 1) == siblings.codes(siblings.call(0, 0, 1))
