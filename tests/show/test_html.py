"""Reports as pages: every name is escaped, tables sort and filter, nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from hypothesis import given
from hypothesis import strategies as st

from builders.html_page import Element as Root
from builders.html_page import read_html
from tracelink._model.fields import Bytes, Nanoseconds, Row, Shown
from tracelink._model.findings import Finding, Severity
from tracelink._show import html
from tracelink._show.charts import STYLE, bars
from tracelink._show.document import (
    Block,
    Chart,
    Code,
    Details,
    Element,
    Facts,
    Frames,
    Items,
    Medium,
    Only,
    Paragraph,
    Report,
    Section,
    Table,
    Tone,
)
from tracelink._show.html import draw, fragment, parts
from tracelink._show.markup import Markup, element
from tracelink._show.terminal import draw as draw_text


class Kernel(Row, frozen=True):
    name: str
    total_ns: Annotated[Nanoseconds, Shown("total")]


GEMM = Kernel("gemm", 2_500_000)


def page(*blocks: object, findings: list[Finding] | None = None) -> Root:
    section = Section("Kernels", blocks)  # type: ignore[arg-type]
    return read_html(html.draw(Report("summary", "Slow.", Tone.PROBLEM, [], [section], findings or [])))


def test_the_frame_of_a_page() -> None:
    root = page(Paragraph("text"))
    assert root.one("title").text == "tracelink: Slow."
    assert root.one("header", class_="problem").one("h1").text == "Slow."
    assert [one.attributes["href"] for one in root.one("nav").all("a")] == ["#kernels"]
    assert root.one("h2", id="kernels").text == "Kernels"
    assert (
        "default-src 'none'" in root.one("meta", http_equiv="Content-Security-Policy").attributes["content"]
    )
    assert root.one("footer").text == "Written by tracelink summary."


def test_sections_without_content_are_left_out() -> None:
    root = page(Table([]))
    assert root.all("h2") == []
    assert root.one("nav").all("a") == []


def test_tables_have_numbers_to_sort_by_and_commands_for_places() -> None:
    rows = [GEMM] * 12
    root = page(Table(rows, "Longest", place=lambda row: f"tracelink merge --only {row.name}", most=12))
    assert [one.text for one in root.all("th")] == ["name", "total (ms)", "timeline"]
    assert root.rows("Longest")[0] == ["gemm", "2.500", "show"]
    cells = root.one("tbody").all("tr")[0].all("td")
    assert [one.attributes.get("data-value") for one in cells] == [None, "2500000", None]
    assert {one.attributes["data-command"] for one in root.all("button", class_="place")} == {
        "tracelink merge --only gemm"
    }
    assert root.one("input", type="search").attributes["aria-label"] == "Filter: Longest"


def test_long_tables_say_how_much_is_not_shown() -> None:
    root = page(Table([GEMM] * 5, "Longest", most=3, thing="kernel"))
    assert len(root.rows("Longest")) == 3
    assert "2 more kernels not shown." in root.one("section").text


def test_each_block_has_its_element() -> None:
    root = page(
        Paragraph("careful", Tone.WARNING),
        Items(["one", "two"]),
        Facts({"ranks": "8"}),
        Frames([("train.py:20", "step")]),
        Code("a = 1", "Source"),
        Chart("<svg><title>x</title></svg>", "Steps", "a note"),
        Details("More", [Paragraph("folded")], open=True),
        Only((Medium.TERMINAL,), [Paragraph("at terminals")]),
        Only((Medium.HTML,), [Element(element("mark", "special"))]),
    )
    main = root.one("main")
    assert main.one("p", class_="warning").text == "careful"
    assert [one.text for one in main.all("ul")[0].all("li")] == ["one", "two"]
    assert (main.one("dt").text, main.one("dd").text) == ("ranks", "8")
    assert main.one("ol", class_="stack").text.strip() == "train.py:20 step"
    assert main.one("pre").text == "a = 1"
    assert [one.text for one in main.all("figcaption")] == ["Source", "a note"]
    assert "folded" in main.one("details", open="").text
    assert main.one("mark").text == "special"
    assert "at terminals" not in main.text


def test_findings_are_listed_errors_first() -> None:
    findings = [Finding(Severity.INFO, "a", "note a."), Finding(Severity.ERROR, "b", "b broke.")]
    assert [one.text for one in page(findings=findings).one("ul", class_="findings").all("li")] == [
        "error: b broke.",
        "note: note a.",
    ]


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_any_text_is_shown_and_has_no_effect(text: str) -> None:
    root = page(
        Table([Kernel(text, 1)], text),
        Paragraph(text),
        Items([text]),
        Facts({text: text}),
        Frames([(text, text)]),
        Code(text, text),
        Details(text, []),
    )
    assert len(root.all("script")) == 1
    assert root.all("img", "iframe", "b") == []


def test_a_part_of_a_page_has_no_script() -> None:
    table = Table([GEMM], place=lambda row: row.name, drawn={"name": lambda _: element("a", "x", href="#x")})
    report = Report("summary", "Slow.", sections=[Section("Kernels", [table])])
    assert not read_html(html.fragment(report)).all("button", "a")
    assert read_html(html.fragment(report)).one("table").one("td", class_="number").text == "2.500"


class Named(Row, frozen=True):
    name: str
    size_bytes: Bytes


def test_a_page_has_what_is_made_for_it_in_parts() -> None:
    made: list[int] = []

    def blocks() -> Iterator[Block]:
        for number in range(3):
            made.append(number)
            yield Element(Markup(f"<i>{number}</i>"))

    report = Report("test", "Yes.", sections=[Section("Many", [Only((Medium.HTML,), blocks)])])
    assert (draw_text(report), made) == ("Yes.", [])
    page = parts(report)
    until = next(part for part in page if "<i>0</i>" in part)
    assert (made, "<i>1</i>" in until) == ([0], False)
    assert [part.count("<i>") for part in page if "<i>" in part] == [1, 1]


def test_cells_that_a_page_draws_itself() -> None:
    rows = [Named("<b>", 5)]
    table = Table(
        rows, columns=["size_bytes"], drawn={"name": lambda row: Markup(f"<a href='#x'>{row.size_bytes}</a>")}
    )
    report = Report("test", "Yes.", sections=[Section("All", [table])])
    assert "<td><a href='#x'>5</a></td>" in draw(report)
    assert draw_text(report).splitlines()[2:] == ["size (B)", "       5"]


def test_a_chart_has_its_style_once_in_a_page_and_in_a_notebook() -> None:
    plot = bars("Times", ["a"], {"b": [1]}, "ns")
    report = Report("test", "Yes.", sections=[Section("Charts", [Chart(plot.svg, plot.title)] * 2)])
    for text in (draw(report), fragment(report)):
        assert (text.count(STYLE), text.count("<svg")) == (1, 2)
