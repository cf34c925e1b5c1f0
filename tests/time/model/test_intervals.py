"""Arithmetic on stretches of time, against a bitmap with a bit for each ns."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracelink._model.columns import Bools, Int64s
from tracelink._model.selection import Spans
from tracelink._time.model.intervals import covered, difference, intersection, length, without_overlaps

END = 60

Pairs = list[tuple[int, int]]
stretches = st.lists(st.tuples(st.integers(0, END), st.integers(0, END)), max_size=12)


def spans(pairs: Pairs) -> Spans:
    return Spans.of(*columns(pairs))


def columns(pairs: Pairs) -> tuple[Int64s, Int64s]:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def bits(pairs: Pairs) -> Bools:
    marked = np.zeros(END, np.bool_)
    for start, end in pairs:
        marked[start:end] = True
    return marked


def drawn(found: Spans) -> Bools:
    assert (found.starts < found.ends).all()
    assert (found.starts[1:] > found.ends[:-1]).all()
    return bits(list(zip(found.starts.tolist(), found.ends.tolist(), strict=True)))


@given(stretches, stretches)
def test_intersection_and_difference_are_those_of_the_bits(one: Pairs, other: Pairs) -> None:
    both, only = intersection(spans(one), spans(other)), difference(spans(one), spans(other))
    assert (drawn(both) == (bits(one) & bits(other))).all()
    assert (drawn(only) == (bits(one) & ~bits(other))).all()
    assert length(both) + length(only) == length(spans(one)) == np.count_nonzero(bits(one))


@given(stretches, st.lists(st.tuples(st.integers(0, END), st.integers(0, END)).map(sorted).map(tuple)))
def test_a_window_is_covered_by_as_many_bits(pairs: Pairs, windows: Pairs) -> None:
    starts, ends = columns(windows)
    expected = [int(np.count_nonzero(bits(pairs)[start:end])) for start, end in windows]
    assert covered(spans(pairs), starts, ends).tolist() == expected


@given(stretches.map(lambda pairs: sorted((min(pair), max(pair)) for pair in pairs)))
def test_without_overlaps_each_bit_is_of_the_first_stretch_that_covers_it(pairs: Pairs) -> None:
    owner = np.full(END, -1)
    for index, (start, end) in reversed(list(enumerate(pairs))):
        owner[start:end] = index
    found = np.full(END, -1)
    starts, ends = without_overlaps(*columns(pairs))
    for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        assert (found[start:end] == -1).all()
        found[start:end] = index
    assert (found == owner).all()
