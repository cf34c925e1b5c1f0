"""Pairs of starts and ends."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracelink.converters.perfetto.native.decode import pairs_of

EVENTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.booleans()), max_size=30)


def played(events: list[tuple[int, int, bool]]) -> tuple[dict[int, int], int]:
    """One after the other, as an engine does."""
    open_rows: dict[int, list[int]] = {}
    ends: dict[int, int] = {}
    lost = 0
    for row in sorted(range(len(events)), key=lambda row: events[row][1]):
        track, _, begins = events[row]
        stack = open_rows.setdefault(track, [])
        if begins:
            stack.append(row)
            ends[row] = -1
        elif stack:
            ends[stack.pop()] = row
        else:
            lost += 1
    return ends, lost


@given(EVENTS)
def test_pairs(events: list[tuple[int, int, bool]]) -> None:
    """In the order of time, and of the file where times are equal; some never end, and some never began."""
    track = np.array([track for track, _, _ in events], np.int32)
    time = np.array([time for _, time, _ in events], np.int64)
    begins = np.array([begins for _, _, begins in events], np.bool_)
    pairs = pairs_of(track, time, np.arange(len(events)), begins)
    found = dict(zip(pairs.begin.tolist(), pairs.end.tolist(), strict=True))
    assert (found, pairs.unmatched_ends) == played(events)
