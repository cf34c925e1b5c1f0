"""Arguments as viewers show them well, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink.converters.perfetto.json.text import NUL_SIGN
from tracelink.converters.perfetto.native.packets import as_recorded, readable

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        (b'{"a": 1, "b": "x"}', b'{"a": 1, "b": "x"}'),
        (b'{"Input Dims": [[8, 3], []]}', b'{"Input Dims": "[[8, 3], []] "}'),
        (b'{"grid":[1,2,3],"block":[4]}', b'{"grid":"[1,2,3] ","block":"[4] "}'),
        (b'{"types": ["float", "a \\"b\\" ]"]}', rb'{"types": "[\"float\", \"a \\\"b\\\" ]\"] "}'),
        (b'{"seq": null, "none": {}}', b'{"seq": "null ", "none": "{} "}'),
        (b'{"in": {"dims": [1]}}', b'{"in": {"dims": "[1] "}}'),
        (b'{"objects": [{"a": 1}]}', b'{"objects": [{"a": 1}]}'),
        (rb'{"said": "\": [1]"}', rb'{"said": "\": [1]"}'),
        (b'{"ranks": "[0, 1]"}', b'{"ranks": "[0, 1]"}'),
        (b'{"ranks": "[0, 1] ", "none": "null  "}', b'{"ranks": "[0, 1]  ", "none": "null   "}'),
        (rb'{"name": "\u00e9"}', '{"name": "é"}'.encode()),
        (rb'{"name": "\u00e9", "most": Infinity}', '{"name": "é", "most": Infinity}'.encode()),
        (b"", b""),
    ],
)
def test_lists_are_texts_that_end_in_a_blank(recorded: bytes, shown: bytes) -> None:
    assert readable([recorded]) == [shown]
    assert as_recorded([shown]) == [recorded.replace(rb"\u00e9", "é".encode())]


@given(
    st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=4),
    st.sampled_from([(", ", ": "), (",", ":")]),
)
def test_what_was_recorded_comes_back(objects: list[dict[str, Any]], separators: tuple[str, str]) -> None:
    """Byte for byte, but for characters that were written as numbers."""
    texts = [json.dumps(each, ensure_ascii=False, separators=separators).encode() for each in objects]
    back = as_recorded(readable(texts))
    assert [b"\\u" in text or back == text for text, back in zip(texts, back, strict=True)] == [True] * len(
        texts
    )


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=4))
def test_everything_that_is_shown_is_json(objects: list[dict[str, Any]]) -> None:
    shown = readable([json.dumps(each).encode() for each in objects])
    assert [set(json.loads(text)) for text in shown] == [
        {name.replace("\0", NUL_SIGN) for name in each} for each in objects
    ]


def test_a_text_that_holds_what_stands_between_texts_costs_nobody_else() -> None:
    texts = [b'{"a": "\0"}', b'{"b": [1]}']
    assert readable(texts) == [b'{"a": "\0"}', b'{"b": "[1] "}']
    assert as_recorded(readable(texts)) == texts


def test_lists_that_are_very_deep_stay_lists() -> None:
    deep = b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}"
    assert readable([deep]) == [deep]


def test_an_endless_list_is_given_up_at_once() -> None:
    endless = b'{"a": [' + b'"x", ' * 100_000
    assert readable([endless]) == [endless]
