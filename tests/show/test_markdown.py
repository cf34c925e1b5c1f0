"""Tests of tracelink._show.markdown."""

from __future__ import annotations

from tracelink._model.fields import Nanoseconds, Row
from tracelink._model.findings import Finding, Severity
from tracelink._show import markdown
from tracelink._show.document import Facts, Frames, Items, Paragraph, Report, Section, Table
from tracelink._show.markdown import markdown_escaped, markdown_table


def test_names_have_no_effect() -> None:
    assert markdown_escaped("@team [x](y) `z`\n") == "\\@team \\[x\\]\\(y\\) \\`z\\`\\\\n"


def test_table() -> None:
    assert markdown_table(["a", "b"], [["1", "2"]]) == ["| a | b |", "| --- | --- |", "| 1 | 2 |"]


class Kernel(Row, frozen=True):
    name: str
    total_ns: Nanoseconds


def test_a_report_for_an_issue() -> None:
    report = Report(
        "summary",
        "Rank 3 waits.",
        summary=[Items(["one", "two"])],
        sections=[
            Section("Kernels", [Table([Kernel("a|b", 2_500_000)] * 22, thing="kernel")]),
            Section("Detail", [Paragraph("hidden")], verbose=True),
            Section("Where", [Frames([("train.py:20", "step")]), Facts({"ranks": "8"})]),
        ],
        findings=[Finding(Severity.WARNING, "cut", "@all: cut."), Finding(Severity.INFO, "note", "a note.")],
    )
    lines = markdown.draw(report).splitlines()
    assert lines[:9] == [
        "**Rank 3 waits.**",
        "",
        "- one",
        "- two",
        "",
        "### Kernels",
        "",
        "| name | total \\(ms\\) |",
        "| --- | ---: |",
    ]
    assert lines[9:29] == ["| a\\|b | 2.500 |"] * 20
    assert lines[29:] == [
        "",
        "2 more kernels.",
        "",
        "### Where",
        "",
        "    train.py:20  step",
        "",
        "- ranks: 8",
        "",
        "- warning\\: \\@all\\: cut.",
    ]
