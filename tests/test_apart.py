"""Recordings of one job lie at one time."""

from __future__ import annotations

from tracelink.pipeline.gathering import recorded_apart

SECOND = 10**9


def test_ranks_that_overlap_or_follow_each_other_within_a_minute_are_of_one_job() -> None:
    assert (
        recorded_apart(
            [(0, 100 * SECOND, 0), (50 * SECOND, 90 * SECOND, 1), (159 * SECOND, 200 * SECOND, 2)], ""
        )
        == []
    )


def test_more_than_a_minute_between_them_is_between_two_jobs() -> None:
    (finding,) = recorded_apart([(400 * SECOND, 500 * SECOND, 1), (0, 100 * SECOND, 0)], "Take one.")
    assert finding.message == (
        "Rank 1 begins 300 s after rank 0 has ended: these seem to be recordings of two jobs. Take one."
    )
