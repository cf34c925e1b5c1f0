"""HTML elements."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.html_page import read_html
from tracelink._model.errors import printable
from tracelink._model.text import clipped
from tracelink._show.markup import LONGEST, Markup, element, inner

ANY_TEXT = st.text(
    st.characters(categories=None, exclude_categories=()) | st.sampled_from("<>&\"'/\0\u202e\ud800")
)


def test_element_with_attributes() -> None:
    cell = element("td", "a ", element("b", 7), None, ["x", ["y"]], class_="left", aria_label="c", title=None)
    assert cell == Markup('<td class="left" aria-label="c">a <b>7</b>xy</td>')


def test_void_element() -> None:
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
def test_text_is_escaped(text: str, shown: str) -> None:
    assert inner(text) == shown
    assert element("p", title=text).text == f'<p title="{shown}"></p>\n'


def test_long_text_is_shortened() -> None:
    assert clipped("x" * 10_000, 3) == "xxx… (10,000 characters)"
    assert len(inner("<" * 1_000_000)) < 5 * LONGEST


@given(ANY_TEXT, ANY_TEXT)
def test_any_text_round_trips(content: str, value: str) -> None:
    (read,) = read_html(element("p", content, title=value).text.removesuffix("\n")).children
    assert not isinstance(read, str)
    assert (read.name, read.text) == ("p", printable(clipped(content, LONGEST)))
    assert read.attributes == {"title": printable(clipped(value, LONGEST))}


@given(ANY_TEXT)
def test_any_text_is_printable(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(text).encode().decode() == printable(text)
