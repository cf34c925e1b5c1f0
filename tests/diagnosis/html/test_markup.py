"""Package."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.html_page import read_html
from tracelink.diagnosis.html.markup import LONGEST, Markup, element, inner
from tracelink.errors import printable
from tracelink.text import clipped

ANY_TEXT = st.text(
    st.characters(categories=None, exclude_categories=()) | st.sampled_from("<>&\"'/\0\u202e\ud800")
)


def test_an_element_says_what_it_is_given_and_nothing_that_is_none() -> None:
    cell = element("td", "a ", element("b", 7), None, ["x", ["y"]], class_="left", aria_label="c", title=None)
    assert cell == Markup('<td class="left" aria-label="c">a <b>7</b>xy</td>')


def test_an_element_without_an_end_has_none() -> None:
    assert element("meta", charset="utf-8").text == '<meta charset="utf-8">'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("\"'&", "&quot;&#x27;&amp;"),
        ("a\0b\x1b[31m\r\n", "a\\x00b\\x1b[31m\\r\\n"),
        ("\u202etxt.exe", "\\u202etxt.exe"),
        ("\ud800 \U000e0041", "\\ud800 \\U000e0041"),
        ("größe ≠ 尺寸", "größe ≠ 尺寸"),
    ],
)
def test_text_is_escaped_and_what_cannot_be_seen_is_spelled_out(text: str, shown: str) -> None:
    assert inner(text) == shown
    assert element("p", title=text).text == f'<p title="{shown}"></p>\n'


def test_a_long_text_is_cut_and_says_how_long_it_is() -> None:
    assert clipped("x" * 10_000, 3) == "xxx… (10,000 characters)"
    assert len(inner("<" * 1_000_000)) < 5 * LONGEST


@given(ANY_TEXT, ANY_TEXT)
def test_any_text_comes_back_as_text_and_as_the_value_of_an_attribute(content: str, value: str) -> None:
    (read,) = read_html(element("p", content, title=value).text.removesuffix("\n")).children
    assert not isinstance(read, str)
    assert (read.name, read.text) == ("p", printable(clipped(content, LONGEST)))
    assert read.attributes == {"title": printable(clipped(value, LONGEST))}


@given(ANY_TEXT)
def test_what_is_visible_can_be_written_and_has_no_invisible_character(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(text).encode().decode() == printable(text)
