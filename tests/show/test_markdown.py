"""Tests of tracelink.show.markdown."""

from __future__ import annotations

from tracelink.show.markdown import markdown_escaped, markdown_table


def test_names_have_no_effect() -> None:
    assert markdown_escaped("@team [x](y) `z`\n") == "\\@team \\[x\\]\\(y\\) \\`z\\`\\\\n"


def test_table() -> None:
    assert markdown_table(["a", "b"], [["1", "2"]]) == ["| a | b |", "| --- | --- |", "| 1 | 2 |"]
