"""Reports at a terminal: nothing is wider than the line, and nothing is left out without a word."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tracelink._model.fields import PATH, Nanoseconds, Row, Shown, Unit
from tracelink._model.findings import Finding, Severity
from tracelink._show.document import (
    Chart,
    Code,
    Details,
    Facts,
    Frames,
    Items,
    Legend,
    Medium,
    Only,
    Paragraph,
    Report,
    Section,
    Table,
    Tone,
)
from tracelink._show.terminal import UNWRAPPED, draw


class Kernel(Row, frozen=True):
    name: Annotated[str, Shown("kernel", longest=20)]
    total_ns: Nanoseconds
    operator: Annotated[str, Shown("launched by", drop=2)] = ""
    line: Annotated[str, Shown(drop=1)] = ""


GEMM = Kernel("gemm", 2_500_000, "aten::mm", "train.py(20): step")
COPY = Kernel("copy", 1_000, "aten::copy_")


def text(*blocks: object, width: int = 100, verbose: bool = False) -> str:
    section = Section("Kernels", blocks)  # type: ignore[arg-type]
    return draw(Report("summary", sections=[section]), width=width, verbose=verbose)


def test_a_table_that_fits() -> None:
    assert text(Table([GEMM, COPY])).splitlines() == [
        "kernel  total (ms)  launched by  line",
        "gemm         2.500  aten::mm     train.py(20): step",
        "copy         0.001  aten::copy_  -",
    ]


def test_a_narrow_table_says_what_it_leaves_out() -> None:
    assert text(Table([GEMM, COPY]), width=40).splitlines() == [
        "kernel  total (ms)  launched by",
        "gemm         2.500  aten::mm",
        "copy         0.001  aten::copy_",
        "Left out at this width: line.",
    ]
    assert text(Table([GEMM]), width=20).splitlines() == [
        "kernel  total (ms)",
        "gemm         2.500",
        "Left out at this",
        "width: launched by,",
        "line.",
    ]


def test_long_texts_are_as_wide_as_there_is_room() -> None:
    long = Kernel("ampere_sgemm_128x64t", 2_500_000, "aten::mm")
    for width, name in ((38, "ampere_sgemm_128x64t"), (36, "ampere_sg…m_128x64t"), (34, "ampere_s…_128x64t")):
        assert text(Table([long]), width=width).splitlines()[2].split()[0] == name


def test_bars_are_of_blocks_or_of_ascii() -> None:
    class Shares(Row, frozen=True):
        rank: int
        parts: Annotated[Sequence[float], Unit.PARTS, Shown(" ")]

    report = Report("x", summary=[Legend("Time", ["busy", "idle"]), Table([Shares(0, [0.75, 0.25])])])
    assert draw(report).splitlines() == [
        "Time: # busy  = idle",
        "rank",
        f"   0  {'#' * 24}{'=' * 8}",
    ]
    assert draw(report, blocks=True).splitlines()[-1] == f"   0  {'█' * 24}{'▓' * 8}"


def test_some_rows_are_shown_without_verbose() -> None:
    rows = [Kernel(name, 1) for name in "abcd"]
    chosen = text(Table(rows, brief=[0, 3])).splitlines()
    assert [line.split()[0] for line in chosen] == ["kernel", "a", "d", "2"]
    capped = Table(rows, brief=1, more="--json")
    assert text(capped, verbose=True).splitlines()[-1] == "3 more rows (--json shows them)."


def test_a_table_that_is_too_narrow_for_its_words_is_paragraphs() -> None:
    assert text(Table([GEMM]), width=8).splitlines()[:3] == ["kernel", "gemm", "  total"]


def test_columns_without_values_are_left_out() -> None:
    assert text(Table([COPY])).splitlines()[0] == "kernel  total (µs)  launched by"


def test_long_tables_are_brief() -> None:
    table = Table([GEMM] * 5, columns=["name"], brief=2, thing="kernel")
    assert text(table).splitlines()[2:] == ["gemm", "3 more kernels (-v shows them)."]
    assert len(text(table, verbose=True).splitlines()) == 6


def test_each_block_has_its_form() -> None:
    blocks = [
        Paragraph("Rank 3 waits.", Tone.PROBLEM),
        Items(["one", "two"], brief=1),
        Facts({"ranks": "8", "steps": "2"}),
        Frames([("train.py:20", "step"), ("train.py:4", "main")]),
        Code("a = 1\n  b"),
        Chart("<svg/>", "Steps", lines=["0  ##--"]),
        Details("More", [Paragraph("hidden")]),
        Only((Medium.HTML,), [Paragraph("on pages")]),
    ]
    assert text(*blocks).splitlines() == [
        "Rank 3 waits.",
        "one",
        "1 more note (-v shows it).",
        "ranks  8",
        "steps  2",
        "  train.py:20  step",
        "  train.py:4   main",
        "  a = 1",
        "    b",
        "0  ##--",
    ]
    assert text(*blocks, verbose=True).splitlines()[-2:] == ["More", "hidden"]


def test_sections_are_apart_and_empty_ones_leave_no_gap() -> None:
    sections = [
        Section("a", [Paragraph("one")]),
        Section("b", [Table([])]),
        Section("c", [Paragraph("detail")], verbose=True),
        Section("d", [Paragraph("two")], titled=True),
    ]
    report = Report("x", "Verdict.", sections=sections)
    assert draw(report).splitlines() == ["Verdict.", "", "one", "", "d", "two"]
    assert "detail" in draw(report, verbose=True)


def test_findings_are_sorted_and_notes_are_counted() -> None:
    findings = [
        Finding(Severity.INFO, "zeros", "a: 3 zeros.", 3),
        Finding(Severity.INFO, "skipped", "b: skipped.", source="b"),
        *[Finding(Severity.WARNING, "cut", f"c{number}: cut.") for number in range(5)],
        Finding(Severity.ERROR, "broken", "d: broken.", 2, example="byte 7"),
    ]
    report = Report("x", findings=findings)
    assert draw(report).splitlines() == [
        "error: d: broken (2 times). For example: byte 7",
        "warning: c0: cut.",
        "warning: c1: cut.",
        "warning: c2: cut.",
        "2 more similar warnings (-v shows them).",
        "note: b: skipped.",
        "1 more note (-v shows it).",
    ]
    assert len(draw(report, verbose=True).splitlines()) == 8


def test_styles_are_for_terminals_only() -> None:
    report = Report("x", "Verdict.", sections=[Section("", [Paragraph("careful", Tone.WARNING)])])
    assert draw(report, styled=True) == "\x1b[1mVerdict.\x1b[0m\n\n\x1b[33mcareful\x1b[0m"
    assert "\x1b" not in draw(report)


NAMES = st.text(st.characters(codec="utf-8"), max_size=60)


@given(
    st.lists(st.builds(Kernel, NAMES, st.integers(0, 10**12), NAMES, NAMES), max_size=4), st.integers(40, 140)
)
def test_any_names_fit(kernels: list[Kernel], width: int) -> None:
    drawn = draw(Report("x", sections=[Section("", [Table(kernels)])]), width=width)
    assert all(cell_len(line) <= width for line in drawn.splitlines())
    assert all(line.isprintable() for line in drawn.split("\n"))


def test_headings_are_wrapped_before_columns_are_left_out() -> None:
    assert text(Table([GEMM, COPY]), width=29).splitlines()[:3] == [
        "kernel  total  launched by",
        "         (ms)",
        "gemm    2.500  aten::mm",
    ]


class File(Row, frozen=True):
    path: Annotated[str, Shown(longest=PATH)]
    format: str = "kineto"
    share: Annotated[str, Shown(right=True)] = "65 of 66 (98 %)"


LONG = "/data/jobs/2026-11-19/a folder/with blanks/kineto_trace_of_rank_0.json.gz"


@pytest.mark.parametrize("width", [1, 20, 40, 80])
def test_no_path_is_broken(width: int) -> None:
    paragraph = Paragraph(f"error: {LONG}: it is cut off at byte 12,345,678.", path=LONG)
    frames = Frames([(LONG.replace(" ", "_"), "step")])
    lines = text(paragraph, Table([File(LONG), File("b")]), frames, width=width).splitlines()
    shown = [line for line in lines if "kineto_trace" in line]
    assert [LONG in line for line in shown] == [True, True, False]
    assert LONG.replace(" ", "_") in shown[2]


@pytest.mark.parametrize("width", range(1, 60))
def test_no_word_of_a_table_is_broken_and_only_a_word_is_wider_than_the_line(width: int) -> None:
    lines = text(Table([File("et/job.0.et")]), width=width).splitlines()
    words = " ".join(lines).replace(",", "").split()
    assert set(words) == {
        "path",
        "et/job.0.et",
        "format",
        "kineto",
        "share",
        *["65", "of", "66", "(98", "%)"],
    }
    assert all(len(line) <= width or len(line.split()) == 1 for line in lines)
    assert not [line for line in lines if line.endswith(" ")]


def test_a_huge_name_makes_no_huge_table() -> None:
    lines = text(Table([File("a"), File("b" * 1_000_000)] * 50), width=UNWRAPPED).splitlines()
    assert (len(lines), max(map(len, lines)) < 5000) == (101, True)
    assert lines[2].startswith(f"{'b' * (PATH - 1)}… ")


def test_many_lines_take_memory_in_proportion_to_their_text() -> None:
    items = Items([f"node {number} is an operator of the host" for number in range(1_000)])
    tracemalloc.start()
    drawn, (_, peak) = text(items), tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(drawn.splitlines()), peak < 50 << 20) == (1_000, True)
