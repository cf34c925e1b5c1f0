"""`tracelink._io.salvage`."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink._io import salvage as module
from tracelink._io.salvage import Damage, Salvaged, parse_document, parse_elements

SMALL = [None, 5, "a", [], {"ph": 1}, {"ph": "é \\u00e9", "name": [{"ph": "x" * 40}, 1.5]}]

BOUNDARY = re.compile(r"\}\s*(?P<comma>,)\s*(?P<element>\{)\s*\"(?:ph|name)\"\s*:")


def parsed(text: str | bytes, *, final: bool = True) -> Salvaged:
    (result,) = parse_elements(text.encode() if isinstance(text, str) else text, BOUNDARY, final=final)
    return result


def elements(text: str | bytes, *, final: bool = True) -> list[Any]:
    return parsed(text, final=final).elements


def test_whole_elements_up_to_the_end_of_the_array() -> None:
    array = '{"ph": 1}, {"ph": [2, {"a": 3}]} ,\n null ]'
    result = parsed(array + ' , "rest": 5')
    assert result == Salvaged([{"ph": 1}, {"ph": [2, {"a": 3}]}, None], [], len(array), closed=True)


def test_an_element_that_goes_on_is_left_unless_the_text_is_final() -> None:
    text = '{"ph": 1}, {"ph": 2, "name": "unfin'
    assert parsed(text, final=False) == Salvaged([{"ph": 1}], [], 11)
    final = parsed(text)
    assert (final.elements, final.consumed, final.closed, final.unfinished) == ([{"ph": 1}], 35, False, True)
    assert [damage.position for damage in final.damage] == [11]


def test_an_element_that_was_cut_between_objects_inside_it_is_left() -> None:
    assert parsed('{"name": 1, "l": [{"name": 2}, {"name": 3},', final=False) == Salvaged()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"ph": NaN}', "NaN"),
        ('{"ph": -Infinity}', "-Infinity"),
        ('{"ph": 0.10}', "0.10"),
        ('{"ph": 1689360788493697.123}', "1689360788493697.123"),
    ],
)
def test_numbers_keep_their_decimal_text(text: str, value: str) -> None:
    ((number,),) = [element.values() for element in elements(text)]
    assert isinstance(number, Decimal)
    assert str(number) == value


def test_integers_of_any_size() -> None:
    assert elements('{"ph": 18446744073709551616}') == [{"ph": 2**64}]


def test_control_characters_stand_in_texts_as_they_are() -> None:
    result = parsed('{"ph": "a\tb\nc\x01"}')
    assert (result.elements, result.damage) == ([{"ph": "a\tb\nc\x01"}], [])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'{"ph": "C:\data\q"}', {"ph": r"C:\data\q"}),
        (r'{"ph": "\u12"}', {"ph": r"\u12"}),
        ('{"ph": [1, 2,], "a": {"b": 1,},}', {"ph": [1, 2], "a": {"b": 1}}),
        ('{"ph": ["a,]", 2,]}', {"ph": ["a,]", 2]}),
        ('{"ph": 1, "name": "say "hi", ok", "ts": 2}', {"ph": 1, "name": 'say "hi", ok', "ts": 2}),
        ('{"ph": 1, "name": "ends "here""}', {"ph": 1, "name": 'ends "here"'}),
    ],
)
def test_known_defects_are_mended_and_told(text: str, value: Any) -> None:
    whole = f'{{"ph": 0}}, {text}, {{"ph": 9}}]'
    result = parsed(whole)
    assert result.elements == [{"ph": 0}, value, {"ph": 9}]
    assert [(damage.position, damage.repaired) for damage in result.damage] == [(11, True)]
    assert result.closed


def test_bytes_that_are_no_text_are_replaced_and_told_at_their_byte() -> None:
    result = parsed('{"ph": "é"}, '.encode() + b'{"ph": "\xff\xfe"}, {"ph": 3}]')
    assert result.elements == [{"ph": "é"}, {"ph": "\ufffd\ufffd"}, {"ph": 3}]
    assert result.damage == [Damage(14, "bytes that are not UTF-8", repaired=True)]
    assert result.closed


@pytest.mark.parametrize("broken", ['{"ph": 1 2}', '{"ph" 1}', "nonsense}", '{"ph": [1, 2}', '{"ph": "open}'])
def test_other_damage_costs_the_element_and_is_told(broken: str) -> None:
    result = parsed(f'{{"ph": 0}}, {broken}, {{"ph": 8}}, {{"ph": 9}}]')
    assert result.elements[0] == {"ph": 0}
    assert result.elements[-1] == {"ph": 9}
    assert [(damage.position, damage.repaired) for damage in result.damage] == [(11, False)]
    assert result.closed


def test_what_a_mended_element_hides_is_told() -> None:
    result = parsed(r'{"ph": "\q"}, {"id": 5}, {"ph": 9}]')
    assert result.elements == [{"ph": r"\q"}, {"ph": 9}]
    assert [(damage.position, damage.repaired) for damage in result.damage] == [(0, True), (0, False)]


def test_a_problem_is_told_without_a_place_in_the_piece() -> None:
    (damage,) = parsed('{"ph" 1}, {"ph": 2}]').damage
    assert damage == Damage(0, "Expecting ':' delimiter")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=10,
)


@given(st.lists(VALUES), st.sampled_from([",", ", ", " ,\n  "]))
def test_any_valid_array_is_read_as_any_parser_would(values: list[Any], separator: str) -> None:
    result = parsed(separator.join(json.dumps(value) for value in values) + "]")
    assert (result.elements, result.damage, result.closed) == (values, [], True)


@given(st.binary(max_size=60), st.booleans())
def test_anything_at_all_ends_without_an_error(data: bytes, final: bool) -> None:
    result = parsed(data, final=final)
    assert 0 <= result.consumed <= len(data)
    assert result.closed or not final or result.consumed == len(data)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b'{"a": [1, 2,],}', {"a": [1, 2]}),
        (rb'{"a": "C:\data"}', {"a": r"C:\data"}),
        (b'{"a": "\xff"}', {"a": "\ufffd"}),
        (b'{"a": Infinity}', {"a": float("inf")}),
    ],
)
def test_a_whole_document_leniently(text: bytes, value: Any) -> None:
    assert parse_document(text) == value


@pytest.mark.parametrize("text", [b"", b"{", b'{"a" 1}', b"{} {}", b"[" * 200_000])
def test_a_document_that_is_none(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_document(text)


def test_escaped_backslashes_stay_where_others_are_repaired() -> None:
    assert elements(r'{"ph": "a\\d", "name": "C:\d\\e", }') == [{"ph": "a\\d", "name": "C:\\d\\e"}]


def test_lone_surrogates_in_a_document_are_replaced() -> None:
    text = rb'{"a\uD800": ["\ud83d\ude00", "x\udc00", 5], "b": {"c": "\\ud800"}}'
    assert parse_document(text) == {"a?": ["\U0001f600", "x?", 5], "b": {"c": "\\ud800"}}


# However long the text is, and however much of it is damaged.


def test_elements_come_in_parts_of_a_limited_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    text = '[1], {}, 2 3, null, {"ph": 4}, 5, 6] , 7'
    parts = list(parse_elements(text.encode(), BOUNDARY, final=True))
    assert [part.elements for part in parts] == [[[1], {}, 2], [3, None, {"ph": 4}], [5, 6]]
    assert [part.closed for part in parts] == [False, False, True]
    assert [text[: part.consumed].rstrip(" ,") for part in parts] == [
        "[1], {}, 2",
        '[1], {}, 2 3, null, {"ph": 4}',
        text[:-4].rstrip(),
    ]


@given(st.lists(st.sampled_from(SMALL) | st.just(...), max_size=40), st.booleans(), st.integers(20, 200))
def test_the_window_in_which_elements_are_decoded_changes_nothing(
    values: list[Any], final: bool, window: int
) -> None:
    text = ", ".join('{"ph": "é" 2}' if value is ... else json.dumps(value) for value in values)
    with pytest.MonkeyPatch.context() as patch:
        expected = parsed(text, final=final)
        patch.setattr(module, "WINDOW", window)
        patch.setattr(module, "NEAR", 16)
        assert parsed(text, final=final) == expected
    for damage in expected.damage:
        assert text.encode()[damage.position :].startswith('{"ph": "é" 2}'.encode())


@pytest.mark.parametrize("unit", ["a", "\\\\q", '\\"', '"name":"', "{}", ",]", '"a",', "\\\\n"])
def test_a_long_header_is_repaired_in_memory_of_a_few_times_its_size(unit: str) -> None:
    data = ('{"x": "' + unit * (2_000_000 // len(unit)) + '", oops}').encode()
    tracemalloc.start()
    with pytest.raises(ValueError, match=r".+"):
        parse_document(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * len(data)


def test_a_valid_document_is_not_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(text: str) -> Iterator[str]:
        pytest.fail(text)
        yield text

    monkeypatch.setattr(module, "_repairs", never)
    assert parse_document(b'{"x": "a,]"}') == {"x": "a,]"}
