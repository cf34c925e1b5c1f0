"""Package."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from builders.job import JobBuilder
from tracelink.converters.chakra.communications import consumer_sizes
from tracelink.model.columns import UNKNOWN

Said = Mapping[int, tuple[int, int]]
"""For each rank how many bytes it gives and gets."""


def sizes(operation: str, said: Said, members: int | None = None) -> list[int]:
    """The size for each rank."""
    builder = JobBuilder()
    group = builder.group("0", range(members or len(said)))
    builder.collective(group, dict.fromkeys(said, (0, 10)), operation)
    for part in builder.participations:
        part["bytes_in"], part["bytes_out"] = said[part["rank"]]
    return consumer_sizes(builder.build()).tolist()


@pytest.mark.parametrize(
    ("operation", "given", "gotten", "size"),
    [
        ("all_reduce", 64, 64, 64),
        ("reduce", 64, 64, 64),
        ("broadcast", 64, 64, 64),
        ("all_gather", 16, 64, 16),
        ("gather", 16, 64, 16),
        ("reduce_scatter", 64, 16, 64),
        ("scatter", 64, 16, 16),
        ("all_to_all", 64, 64, 64),
        ("barrier", 0, 0, 0),
        ("all_reduce", 0, 0, 0),
    ],
)
def test_what_one_rank_puts_in(operation: str, given: int, gotten: int, size: int) -> None:
    assert sizes(operation, dict.fromkeys(range(4), (given, gotten))) == [size] * 4


@pytest.mark.parametrize(
    ("operation", "given", "gotten", "size"),
    [
        ("all_gather", UNKNOWN, 64, 16),
        ("reduce_scatter", UNKNOWN, 16, 64),
        ("all_to_all", UNKNOWN, 64, 64),
        ("all_reduce", UNKNOWN, 64, 64),
        ("broadcast", 64, UNKNOWN, 64),
        ("gather", UNKNOWN, 64, UNKNOWN),
        ("scatter", 64, UNKNOWN, UNKNOWN),
        ("all_gather", UNKNOWN, UNKNOWN, UNKNOWN),
        ("barrier", UNKNOWN, UNKNOWN, 0),
        ("_object_of_another_kind", UNKNOWN, 64, UNKNOWN),
    ],
)
def test_where_only_one_side_is_recorded(operation: str, given: int, gotten: int, size: int) -> None:
    assert sizes(operation, dict.fromkeys(range(4), (given, gotten))) == [size] * 4


@pytest.mark.parametrize("operation", ["all_to_all", "all_gather", "reduce_scatter", "gather"])
def test_of_uneven_parts_the_most_counts_for_all(operation: str) -> None:
    said = {0: (16, 64), 1: (48, 64), 2: (0, 64), 3: (32, 64)}
    assert sizes(operation, said) == [48] * 4


def test_of_uneven_parts_to_scatter_the_most_that_anybody_gets() -> None:
    assert sizes("scatter", {0: (64, 16), 1: (UNKNOWN, 40), 2: (UNKNOWN, 8)}) == [40] * 3


def test_ranks_that_do_not_say_it_have_what_others_say() -> None:
    assert sizes("all_reduce", {0: (64, 64), 1: (UNKNOWN, UNKNOWN)}) == [64, 64]


def test_a_mismatch_stays_one() -> None:
    assert sizes("all_reduce", {0: (64, 64), 1: (128, 128)}) == [64, 128]


def test_ranks_without_files_count_as_members() -> None:
    assert sizes("all_gather", {0: (UNKNOWN, 64)}, members=8) == [8]


def test_of_several_collectives_each_has_its_own() -> None:
    builder = JobBuilder()
    for name, ranks in (("0", (0, 1)), ("1", (1, 2))):
        builder.collective(builder.group(name, ranks), dict.fromkeys(ranks, (0, 1)), "all_to_all")
    for number, part in enumerate(builder.participations):
        part["bytes_in"] = 10 * (number + 1)
    assert consumer_sizes(builder.build()).tolist() == [20, 20, 40, 40]


def test_nothing() -> None:
    assert consumer_sizes(JobBuilder().build()).tolist() == []
