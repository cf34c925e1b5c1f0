"""Columns."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracelink._model.columns import UNKNOWN, Lean, lexical_order, own_ancestors
from tracelink._model.communications import Calls


@given(st.lists(st.integers(-1, 12), max_size=13))
def test_whatever_leads_back_to_itself_is_its_own_ancestor(parents: list[int]) -> None:
    parent = [above if above < len(parents) else UNKNOWN for above in parents]

    def leads_back(start: int) -> bool:
        index = parent[start]
        for _ in parent:
            if index in (start, UNKNOWN):
                break
            index = parent[index]
        return index == start

    found = own_ancestors(np.array(parent, np.int64))
    assert found.tolist() == [index for index in range(len(parent)) if leads_back(index)]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3))))
def test_lexical_order_is_that_of_pairs(pairs: list[tuple[int, int]]) -> None:
    first, second = (np.array([pair[at] for pair in pairs], np.int64) for at in range(2))
    assert lexical_order(first, second).tolist() == sorted(
        range(len(pairs)), key=lambda row: (*pairs[row], row)
    )


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=6))
def test_a_lean_table_is_the_table_without_repetitions(rows: list[tuple[int, bool]]) -> None:
    table = Calls.of(len(rows), sequence=[row[0] for row in rows], point_to_point=[row[1] for row in rows])
    lean = Lean.of(table)
    whole = lean.whole()
    for name, column in table.columns().items():
        found = getattr(whole, name)
        assert (found.dtype, found.tolist()) == (column.dtype, column.tolist())
    if rows:
        assert set(lean.columns) == {
            name for name, column in table.columns().items() if len(set(column.tolist())) > 1
        }
