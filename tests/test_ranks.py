"""The rank of a file: content, name and user must agree; a guess from the name counts only where nobody says."""

from __future__ import annotations

import pytest

from tracelink.errors import RankConflictError
from tracelink.io.sources import RankHint, rank_in_name, resolve_rank

SAID = {
    "rank0_trace.json": 0,
    "rank-0.json.gz": 0,
    "rank-12.Apr_03_18_51_38.1102.pt.trace.json.gz": 12,
    "graph_capture_rank_7.1694128201545.pt.trace.json.gz": 7,
    "trace_rank[5].json": 5,
    "RANK=3.json": 3,
    "nccl_trace_rank_17": 17,
    "nccl_trace_rank_node-7_3": 3,
    "comm_lib_trace_rank_2": 2,
}
GUESSED = {
    "kineto_trace_4.json": 4,
    "worker0_step_12.1694128201545.pt.trace.json": 0,
    "r1t03_53384.1694128201545.pt.trace.json": None,
    "host.3.json": 3,
    "device.3.json": 3,
    "et_6.json": 6,
    "gpu2.json": 2,
}
SILENT = [
    "node7_53384.1694128201545012345.pt.trace.json.gz",
    "1727-TP-0-DP-0-PP-0-EP-0-DECODE.trace.json.gz",
    "trace.json",
    "ranking.json",
    "rank.json",
    "",
]


@pytest.mark.parametrize("name", SAID)
def test_names_that_say_the_rank(name: str) -> None:
    assert rank_in_name(name) == RankHint(SAID[name], certain=True)


@pytest.mark.parametrize("name", GUESSED)
def test_names_that_hint_at_the_rank(name: str) -> None:
    rank = GUESSED[name]
    assert rank_in_name(name) == (None if rank is None else RankHint(rank, certain=False))


@pytest.mark.parametrize("name", SILENT)
def test_names_that_say_nothing(name: str) -> None:
    assert rank_in_name(name) is None


NAMED_3 = RankHint(3, certain=True)
GUESSED_4 = RankHint(4, certain=False)


@pytest.mark.parametrize(
    ("content", "name", "said", "rank"),
    [
        (None, None, None, None),
        (2, None, None, 2),
        (None, NAMED_3, None, 3),
        (None, GUESSED_4, None, 4),
        (None, None, 5, 5),
        (3, NAMED_3, 3, 3),
        (2, GUESSED_4, None, 2),
        (None, GUESSED_4, 5, 5),
        (0, None, 0, 0),
    ],
)
def test_one_rank_out_of_all_statements(
    content: int | None, name: RankHint | None, said: int | None, rank: int | None
) -> None:
    assert resolve_rank("f.json", content=content, name=name, said=said) == rank


@pytest.mark.parametrize(
    ("content", "name", "said", "statements"),
    [
        (2, NAMED_3, None, "the content says 2, the name says 3"),
        (2, None, 5, "the content says 2, --rank says 5"),
        (None, NAMED_3, 5, "--rank says 5, the name says 3"),
        (0, NAMED_3, 0, "the content says 0, --rank says 0, the name says 3"),
    ],
)
def test_a_contradiction_is_an_error_that_shows_both_sides(
    content: int | None, name: RankHint | None, said: int | None, statements: str
) -> None:
    with pytest.raises(RankConflictError) as caught:
        resolve_rank("f.json", content=content, name=name, said=said)
    assert str(caught.value).startswith(f"f.json: the rank is contradictory: {statements}. ")
    assert caught.value.advice
