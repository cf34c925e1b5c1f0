"""Programs of ranks: habits and counterparts."""

from __future__ import annotations

import numpy as np

from builders.programs import journal_of_programs
from tracelink._hang.facts.programs import Counterparts, Habits

# Habits and counterparts.


STEP = "b1 a>1 a>1 a<1 a>1 a<1 a<1"
"""One forward, one backward, of three microbatches."""
TWO = [0, 1]


def last_deviates(words: str) -> bool:
    journal = journal_of_programs({0: words, 1: ""}, a=TWO, b=TWO)
    return Habits(journal).deviates(len(journal) - 1)


def test_usual_call_of_every_step() -> None:
    steps = f"{STEP} {STEP} {STEP}"
    assert not last_deviates(f"{steps} b1 a>1 a>1 a<1 a>1 a<1 a<1")
    assert last_deviates(f"{steps} b1 a>1 a>1 a<1 a>1 a<1 a>1")


def test_first_step_has_no_habits() -> None:
    assert not last_deviates("b1 a>1 a<1 a>1 a<1 a>1 a<1 a>1 a<1 a>1 a<1 a>1 a<1 a<1")


def test_single_call_is_not_a_habit() -> None:
    assert not last_deviates("b1 a>1 b1 a<1")


def test_counterparts_in_similar_groups() -> None:
    journal = journal_of_programs(
        {0: "a>1", 1: "a<0", 2: "c>1", 3: "c<0"}, descriptions={"a": "pp", "c": "pp"}, a=[0, 1], c=[2, 3]
    )
    assert Counterparts(journal).of(0, 1) == [(1, 3)]
    assert Counterparts(journal).expected(0, 1, 1) == Counterparts(journal).codes(np.array([3]))


def test_differing_counterparts() -> None:
    descriptions = {"a": "pp", "c": "pp", "d": "pp"}
    words = {0: "a>1", 2: "c>1", 4: "d<1"}
    journal = journal_of_programs(words, descriptions=descriptions, a=[0, 1], c=[2, 3], d=[4, 5])
    assert Counterparts(journal).expected(0, 0, 1) == ()


def test_any_order_within_a_batch() -> None:
    words = {0: "[a>1 a<1]", 2: "[c<1 c>1]"}
    journal = journal_of_programs(words, descriptions={"a": "pp", "c": "pp"}, a=[0, 1], c=[2, 3])
    counterparts = Counterparts(journal)
    assert counterparts.expected(0, 0, 1) == counterparts.codes(counterparts.message_rows(0, 0, 1))
