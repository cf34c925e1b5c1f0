"""`tracelink._model.communications`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink._model.columns import UNKNOWN, StringTable
from tracelink._model.communications import (
    C10D_SIGNATURES,
    Communications,
    Sizes,
    Statement,
    communications,
    elements_of,
    number_in,
    rank_in,
    shape_of,
    sizes_in,
    stated_by,
    stated_by_inputs,
    text_in,
)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0, 0),
        ("17", 17),
        (2**63 - 1, 2**63 - 1),
        (2**63, UNKNOWN),
        ("9" * 5000, UNKNOWN),
        (-1, UNKNOWN),
        ("-1", UNKNOWN),
        ("", UNKNOWN),
        (True, UNKNOWN),
        (1.0, UNKNOWN),
        (None, UNKNOWN),
        ([3], UNKNOWN),
    ],
)
def test_numbers(value: Any, number: int) -> None:
    assert number_in(value) == number


def test_a_rank_is_smaller_than_other_numbers() -> None:
    assert (rank_in(2**31 - 1), rank_in(2**31)) == (2**31 - 1, UNKNOWN)


@pytest.mark.parametrize(("value", "text"), [("tp", "tp"), ("\ud800", "?"), (5, ""), (None, "")])
def test_texts(value: Any, text: str) -> None:
    assert text_in(value) == text


@pytest.mark.parametrize(
    ("dims", "sizes", "elements", "shape"),
    [
        ([32, 64], [[32, 64]], 2048, "[[32,64]]"),
        ([[10], [2, 3]], [[10], [2, 3]], 16, "[[10],[2,3]]"),
        ([[[8], [8]], [[8]]], [[8], [8], [8]], 24, "[[8],[8],[8]]"),
        ([[]], [[]], 1, "[[]]"),
        ([0, 4], [[0, 4]], 0, "[[0,4]]"),
        ([[2**62, 4]], [[2**62, 4]], UNKNOWN, "[[4611686018427387904,4]]"),
        ([], None, UNKNOWN, ""),
        ([[[[8]]]], None, UNKNOWN, ""),
        ([[-1]], None, UNKNOWN, ""),
        (["8"], None, UNKNOWN, ""),
        ("8", None, UNKNOWN, ""),
        (None, None, UNKNOWN, ""),
    ],
)
def test_sizes_of_tensors(dims: Any, sizes: Sizes | None, elements: int, shape: str) -> None:
    assert (sizes_in(dims), elements_of(sizes), shape_of(sizes)) == (sizes, elements, shape)


def test_a_name_says_who_sends_to_whom() -> None:
    assert stated_by("nccl:recv 3<-0") == Statement("nccl:recv 3<-0", point_to_point=True, source=0, target=3)
    assert stated_by("nccl:all_reduce") == Statement("nccl:all_reduce")


@pytest.mark.parametrize(
    ("operation", "ends"),
    [
        ("send", (UNKNOWN, 5)),
        ("recv", (5, UNKNOWN)),
        ("broadcast", (5, UNKNOWN)),
        ("allreduce", (UNKNOWN, UNKNOWN)),
    ],
)
def test_the_peer_is_the_other_end_or_the_root(operation: str, ends: tuple[int, int]) -> None:
    statement = Statement(operation)
    statement.name_peer(5)
    assert (statement.source, statement.target) == ends


@given(
    st.lists(
        st.builds(
            Statement,
            st.sampled_from(["allreduce", "c10d::send"]),
            st.sampled_from(["", "0", "tp"]),
            st.integers(-1, 9),
            st.booleans(),
            st.integers(-1, 3),
            st.integers(-1, 3),
            st.booleans(),
            shape=st.sampled_from(["", "[[1]]"]),
        )
    )
)
def test_a_table_holds_every_statement(statements: list[Statement]) -> None:
    strings = StringTable.of(["something else"])
    rows = [2 * place for place in range(len(statements))]
    table = communications(rows, statements, strings)
    texts = [*strings.texts(), ""]
    told = [
        (texts[operation], texts[group], sequence, texts[shape])
        for operation, group, sequence, shape in zip(
            table.operation, table.group, table.sequence, table.shape, strict=True
        )
    ]
    assert told == [(s.operation, s.group, s.sequence, s.shape) for s in statements]
    assert table.row.tolist() == rows
    assert table.point_to_point.tolist() == [s.point_to_point for s in statements]
    assert isinstance(table, Communications)


@dataclass
class Recorded:
    """Inputs as a test gives them: the size of a tensor, or a number."""

    given: list[Any] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.given)

    def sizes(self, place: int) -> Sizes | None:
        return sizes_in(self.given[place]) if place < len(self) else None

    def type(self, place: int) -> str:
        return "Float" if place < len(self) and isinstance(self.given[place], list) else ""

    def value(self, place: int) -> Any:
        return self.given[place] if place < len(self) else None


GIVEN, GOT, ROOT, PEER, TAG = [2, 3], [5], 6, 7, 8
INPUTS = {
    "broadcast_": [GIVEN, None, ROOT, 0],
    "allreduce_": [GIVEN, None],
    "allreduce_coalesced_": [GIVEN, None],
    "allgather_": [GOT, GIVEN, None],
    "_allgather_base_": [GOT, GIVEN, None],
    "allgather_coalesced_": [GOT, GIVEN, None],
    "allgather_into_tensor_coalesced_": [GOT, GIVEN, None],
    "reduce_scatter_": [GOT, GIVEN, None, None],
    "_reduce_scatter_base_": [GOT, GIVEN, None, None],
    "reduce_scatter_tensor_coalesced_": [GOT, GIVEN, None, None],
    "reduce_": [GIVEN, None, None, ROOT, 0],
    "gather_": [GOT, GIVEN, None, ROOT],
    "scatter_": [GOT, GIVEN, None, ROOT],
    "alltoall_": [GOT, GIVEN, None],
    "alltoall_base_": [GOT, GIVEN, None],
    "barrier": [GIVEN, None],
    "monitored_barrier_": [GIVEN, None],
    "send": [GIVEN, None, PEER, TAG],
    "recv_": [GIVEN, None, PEER, TAG],
    "recv_any_source_": [GIVEN, None, TAG],
}
"""Inputs of every operator in the order of its schema."""


def test_every_operator_of_torch_has_a_signature() -> None:
    assert set(INPUTS) == set(C10D_SIGNATURES)


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_are_told_by_the_schema(name: str) -> None:
    inputs = INPUTS[name]
    said = stated_by_inputs(f"c10d::{name}", Recorded(inputs))
    barred = "barrier" in name
    assert (said.elements_in, said.shape) == ((UNKNOWN, "") if barred else (6, "[[2,3]]"))
    assert said.elements_out == (UNKNOWN if barred else 5 if GOT in inputs else 6)
    assert said.source == (ROOT if ROOT in inputs else PEER if name == "recv_" else UNKNOWN)
    assert said.target == (PEER if name == "send" else UNKNOWN)
    assert said.tag == (TAG if TAG in inputs else UNKNOWN)


def test_inputs_that_were_not_recorded_are_unknown() -> None:
    assert stated_by_inputs("c10d::send", Recorded()) == Statement("c10d::send", point_to_point=True)
