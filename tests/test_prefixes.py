"""Dumps of one job among those of several, by how their names begin."""

from __future__ import annotations

import io

import pytest

from tracelink.errors import Severity, UsageError
from tracelink.io.sources import Discovery, Source, only_with_prefix


def discovery(*paths: str, rank: int | None = None) -> Discovery:
    return Discovery([Source(path, io.BytesIO, rank=rank) for path in paths])


def ranks(found: Discovery) -> dict[str, int | None]:
    return {source.path: source.rank for source in found.sources}


def test_the_number_that_follows_is_the_rank() -> None:
    found = only_with_prefix(discovery("d/a_0", "d/a_17.pkl", "d/a_x3"), "a_")
    assert (ranks(found), found.findings) == ({"d/a_0": 0, "d/a_17.pkl": 17, "d/a_x3": None}, [])


def test_what_the_user_says_of_a_rank_stays() -> None:
    assert ranks(only_with_prefix(discovery("a_0", rank=5), "a_")) == {"a_0": 5}


def test_only_the_name_counts_and_not_the_folder() -> None:
    assert ranks(only_with_prefix(discovery("a_/b_1", "b/a_2", "x.zip:a_3"), "a_")) == {
        "b/a_2": 2,
        "x.zip:a_3": 3,
    }


def test_what_is_passed_over_is_said() -> None:
    (finding,) = only_with_prefix(discovery("a_0", "b_0", "b_1"), "a_").findings
    assert (finding.severity, finding.reason, finding.count, finding.example) == (
        Severity.INFO,
        "other_prefix",
        2,
        "b_0",
    )


def test_a_prefix_that_nothing_has() -> None:
    with pytest.raises(UsageError, match=r"no file's name begins with 'c_'. There are: a_0, b_0."):
        only_with_prefix(discovery("a_0", "b_0"), "c_")
