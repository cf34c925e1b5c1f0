"""JSON text that Perfetto's engine loads as intended."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink.converters.perfetto.facts import EXACT_NS, NUL_SIGN, encoded, loadable, micros, quoted

NUL = NUL_SIGN.encode()


@given(st.lists(st.integers(0, EXACT_NS - 1) | st.integers(EXACT_NS - 5, 2**62), max_size=50))
def test_times_are_exact_decimals_with_at_most_three_places(times: list[int]) -> None:
    texts = [text.decode() for text in micros(np.array(times, np.int64))]
    assert [Decimal(text) * 1000 for text in texts] == times
    assert all("e" not in text.lower() and len(text.partition(".")[2]) <= 3 for text in texts)


@given(st.integers(0, 104 * 86_400 * 10**9 // 12))
def test_times_survive_the_engine_which_reads_doubles(time: int) -> None:
    (text,) = micros(np.array([time]))
    assert round(float(text) * 1000) == time


@given(st.text(st.characters(exclude_categories=())))
def test_a_name_is_json_in_utf8_without_surrogates_or_nul(name: str) -> None:
    text = quoted(name)
    read = json.loads(text.decode())
    assert b"\\ud" not in text.lower() or "\\ud" in name.lower()
    assert "\0" not in read
    if not any(character == "\0" or 0xD800 <= ord(character) < 0xE000 for character in name):
        assert read == name


def test_a_pair_of_surrogates_in_a_name_is_one_character() -> None:
    assert json.loads(quoted("\ud83d\udd25")) == "🔥"
    assert json.loads(quoted("a\ud83db")) == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize(
    ("recorded", "written"),
    [
        (rb'{"a": "\ud83d\udd25"}', '{"a": "🔥"}'),
        (rb'{"a": "\uD83D\uDD25!"}', '{"a": "🔥!"}'),
        (rb'{"a": "\ud83d"}', '{"a": "\N{REPLACEMENT CHARACTER}"}'),
        (rb'{"a": "\udd25\ud83d"}', '{"a": "\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"}'),
        (rb'{"a": "\\ud83d\\udd25"}', r'{"a": "\\ud83d\\udd25"}'),
        (rb'{"a": "\\\ud83d\udd25"}', '{"a": "\\\\🔥"}'),
        (rb'{"a": "\u00e9 \n \" \/"}', r'{"a": "\u00e9 \n \" \/"}'),
        (b'{"a": "\xff"}', '{"a": "\N{REPLACEMENT CHARACTER}"}'),
        (b'{ "a" : 1.50,\n "b": null }', '{ "a" : 1.50,\n "b": null }'),
    ],
)
def test_arguments_are_copied_but_for_surrogates(recorded: bytes, written: str) -> None:
    assert loadable(recorded).decode() == written


def test_a_header_has_a_space_after_colons() -> None:
    assert encoded({"rank": 0, "name": "é\ud83d\udd25"}) == '{"rank": 0, "name": "é🔥"}'.encode()


def test_a_backslash_before_the_number_of_a_character_is_a_backslash() -> None:
    assert encoded(
        {"a": "\0", "b": r"\u0000", "c": "\\\0"}
    ) == rb'{"a": "%s", "b": "\\u0000", "c": "\\%s"}' % (NUL, NUL)
