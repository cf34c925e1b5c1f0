"""Decoded values as JSON."""

from __future__ import annotations

import pytest

from tracelink.converters.flight_recorder.pickles import json_text, plain


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"sizes": [(1, 2)], 3: None}, b'{"sizes":[[1,2]],"3":null}'),
        (
            {"name": "a\ud800b", "c\udfff": ["\ud800", {"d": ("\ud800", 1)}]},
            b'{"name":"a?b","c?":["?",{"d":["?",1]}]}',
        ),
    ],
)
def test_what_json_cannot_hold_is_replaced(value: object, text: bytes) -> None:
    assert json_text(value) == text


def test_a_copy_shares_nothing() -> None:
    shared = [1]
    copy = plain([shared, shared])
    assert copy == [[1], [1]]
    assert copy[0] is not copy[1]
