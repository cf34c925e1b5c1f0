"""The nearest point that meets constraints."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracelink._match.consistency import Constraints, nearest_point


def constraints(*rows: tuple[list[float], float]) -> Constraints:
    """Weights of the variables from the first on, and the most that the sum may be."""
    weight = np.array([weights for weights, _ in rows], np.float64)
    index = np.broadcast_to(np.arange(weight.shape[1]), weight.shape)
    return Constraints(index, weight, -np.array([most for _, most in rows], np.float64))


def test_where_zero_meets_all_demands_it_is_nearest() -> None:
    np.testing.assert_allclose(nearest_point(constraints(([1, 0], 5), ([0, -1], 3)), 2), [0, 0], atol=1e-6)


def test_one_demand_moves_along_its_weights() -> None:
    np.testing.assert_allclose(nearest_point(constraints(([-3, -4], -50)), 2), [6, 8], atol=1e-5)


def test_equalities_are_met() -> None:
    np.testing.assert_allclose(
        nearest_point(constraints(([1, 1], 10), ([-1, -1], -10), ([1, -1], -4)), 2), [3, 7], atol=1e-4
    )


def test_what_cannot_be_met_is_violated_as_little_as_can_be() -> None:
    point = nearest_point(constraints(([1, 0], -1), ([-1, 0], -1), ([-1, 0], -1.5), ([0, 1], -7)), 2)
    # at most -1, at least 1, at least 1.5: from 1 to 1.5 the sum of the violations is least
    assert 1 - 1e-4 <= point[0] <= 1.5 + 1e-4
    np.testing.assert_allclose(point[1], -7, atol=1e-4)


@given(
    st.lists(st.floats(-50, 50), min_size=4, max_size=4),
    st.lists(
        st.tuples(st.lists(st.integers(-3, 3), min_size=4, max_size=4), st.floats(0, 20)),
        min_size=1,
        max_size=12,
    ),
)
def test_demands_that_some_point_meets_are_met_by_one_that_is_no_farther(
    somewhere: list[float], rows: list[tuple[list[int], float]]
) -> None:
    met = constraints(
        *(([float(w) for w in weights], float(np.dot(weights, somewhere)) + slack) for weights, slack in rows)
    )
    point = nearest_point(met, 4)
    assert (met.of(point) + met.excess).max() < 1e-4
    assert np.linalg.norm(point) <= np.linalg.norm(somewhere) + 0.01
