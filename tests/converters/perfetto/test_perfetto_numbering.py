"""Numbers: small, and no two ranks share one though neither knows how many the other takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tracelink.converters.perfetto.timeline.layout import BINDINGS, STRIDE, Numbering

NUMBERS = st.integers(1, STRIDE - 1) | st.integers(STRIDE, 40 * STRIDE)
SEATS = st.sets(st.tuples(st.integers(0, 7), NUMBERS), max_size=30)


@given(SEATS)
def test_numbers_of_different_blocks_never_meet(seats: set[tuple[int, int]]) -> None:
    assert len({Numbering(block, 8).seat(number) for block, number in seats}) == len(seats)


@given(st.integers(0, 4095), NUMBERS)
def test_numbers_fit_what_the_engine_takes(block: int, number: int) -> None:
    assert 0 < Numbering(block, 4096).seat(number) < 1 << 31


def test_the_first_block_counts_from_one() -> None:
    assert [Numbering(0, 9).seat(number) for number in (1, 2, STRIDE - 1)] == [1, 2, STRIDE - 1]


def test_what_does_not_fit_a_block_stands_behind_all_blocks() -> None:
    assert [Numbering(1, 3).seat(number) for number in (STRIDE - 1, STRIDE, STRIDE + 1)] == [
        2 * STRIDE - 1,
        3 * STRIDE + 1,
        3 * STRIDE + 4,
    ]


def test_arrows_have_blocks_too() -> None:
    first, second = Numbering(0, 2), Numbering(1, 2)
    assert (first.first_arrow, first.first_binding) == (1, BINDINGS)
    assert second.first_arrow - first.first_arrow == second.first_binding - first.first_binding == 1 << 28
