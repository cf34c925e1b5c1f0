"""Texts of NVTX ranges: the names and numbers in them, as a regular expression finds them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink._model.columns import StringTable
from tracelink.converters.nsys.nvtx import SEPARATOR, NameCodes, labels_of


def parsed(*texts: str) -> list[tuple[str, int, int]]:
    names = StringTable()
    labels = labels_of(SEPARATOR.join(text.encode() for text in texts), NameCodes(names))
    codes, identity, sequence = labels.name.tolist(), labels.identity.tolist(), labels.sequence.tolist()
    return [
        (names.texts()[code], one, other) for code, one, other in zip(codes, identity, sequence, strict=True)
    ]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("aten::mul, seq = 45328, op_id = 990726", ("aten::mul", 990726, 45328)),
        ("aten::mul, op_id = 7, sizes = [[2, 3], []]", ("aten::mul", 7, -1)),
        ("detach_, seq = 12", ("detach_", -1, 12)),
        ("step 1, loss 0.5", ("step 1, loss 0.5", -1, -1)),
        ("", ("", -1, -1)),
        (", op_id = 3", ("", 3, -1)),
        ("x, op_id = ", ("x", -1, -1)),
        ("x, op_id = 99999999999999999999", ("x", 999999999999999999, -1)),
        ("x, op_id = 1, op_id = 2", ("x", 1, -1)),
        ("größe, op_id = 4", ("größe", 4, -1)),
    ],
)
def test_a_text_has_a_name_and_numbers(text: str, label: tuple[str, int, int]) -> None:
    assert parsed(text) == [label]
    assert parsed("a, seq = 1", text, "b") == [("a", -1, 1), label, ("b", -1, -1)]


def expected(text: str) -> tuple[str, int, int]:
    found = {mark: re.search(rf", {mark} = ([0-9]{{0,18}})", text) for mark in ("op_id", "seq")}
    starts = [match.start() for match in found.values() if match]
    numbers = [int(match[1]) if match and match[1] else -1 for match in found.values()]
    return text[: min(starts, default=len(text))], numbers[0], numbers[1]


PARTS = st.sampled_from(
    ["aten::mul", ", op_id = ", ", seq = ", ",", " ", "12", "7", "ö", ", ", "op_id", "= ", "x"]
)


@given(st.lists(st.lists(PARTS, max_size=7).map("".join), min_size=1, max_size=6))
def test_any_texts_are_parsed_as_by_a_regular_expression(texts: list[str]) -> None:
    assert parsed(*texts) == [expected(text) for text in texts]
