"""Calls around a problem."""

from __future__ import annotations

from builders.html_page import Element, read_html
from builders.programs import journal_of_programs
from tracelink.diagnosis.examine import diagnosis_of
from tracelink.diagnosis.html.recent import MOST_RANKS, Recent, recent_of, recent_section
from tracelink.diagnosis.journal import Journal
from tracelink.show.markup import element

CAPTION = "In program order"


def around(journal: Journal) -> Recent:
    return recent_of(diagnosis_of(journal), journal)


def shown(journal: Journal, *culprits: int) -> Element:
    section = recent_section(around(journal), len(journal.ranks), culprits)
    return read_html(element("div", section).text)


def test_joined_waiting_and_missing_ranks() -> None:
    journal = journal_of_programs({0: "a1 a2!", 1: "a1 a2!", 2: "a1"}, a=[0, 1, 2])
    page = shown(journal, 2)
    assert page.rows(CAPTION) == [["0", "✓", "…"], ["1", "✓", "…"], ["2", "✓", "\N{MULTIPLICATION SIGN}"]]
    assert page.text.strip().endswith("3 of 3 dumps.")


def test_cells_of_non_members_are_empty() -> None:
    journal = journal_of_programs({0: "a1 b1 a2!", 1: "a1 b1 a2!", 2: "a1"}, a=[0, 1, 2], b=[0, 1])
    assert [row[2] for row in shown(journal).rows(CAPTION)] == ["✓", "✓", ""]


def test_mismatch() -> None:
    journal = journal_of_programs({0: "a1 a2!", 1: "a1 a2!", 2: "a1 a2=broadcast!"}, a=[0, 1, 2])
    page = shown(journal)
    assert [row[2] for row in page.rows(CAPTION)] == ["…", "…", "≠"]
    told = [
        one.attributes["title"] for one in page.all("span", class_="differs") if "title" in one.attributes
    ]
    assert told == ["rank 2: differs from most ranks, broadcast, 0 µs after the first"]


def test_dropped_calls() -> None:
    journal = journal_of_programs({0: "a1 a2?", 1: "a1 a2?", 2: "a1"}, a=[0, 1, 2])
    assert [row[2] for row in shown(journal).rows(CAPTION)] == ["!", "!", "\N{MULTIPLICATION SIGN}"]


def test_wrapped_buffer() -> None:
    journal = journal_of_programs(
        {0: "a1 a2 a3 a4!", 1: "a1 a2 a3 a4!", 2: "a3"}, a=[0, 1, 2], forgotten={2: 2}
    )
    assert shown(journal).rows(CAPTION)[2] == ["2", "?", "?", "✓", "\N{MULTIPLICATION SIGN}"]


def test_columns_around_the_problem() -> None:
    steps = [f"a{number}" for number in range(1, 101)]
    ahead = [*steps, *(f"b{number}" for number in range(1, 101))]
    words = " ".join([*steps, "a101!", *ahead[100:]])
    journal = journal_of_programs({0: words, 1: words, 2: " ".join(ahead)}, a=[0, 1, 2], b=[0, 1, 2])
    recent = around(journal)
    assert [column.sequence for column in recent.columns][18:22] == [99, 100, 101, 1]
    assert (recent.earlier, recent.later) == (80, 92)
    assert "80 earlier columns not shown; 92 later columns not shown." in shown(journal).text


def test_culprit_is_shown() -> None:
    waits = dict.fromkeys(range(60), "a1 a2!")
    journal = journal_of_programs(waits | {41: "a1"}, a=[*range(60)])
    recent = around(journal)
    assert len(recent.ranks) == MOST_RANKS
    assert {0, 41} <= set(recent.ranks)


def test_culprit_without_a_dump() -> None:
    journal = journal_of_programs({0: "a1 a2!", 1: "a1 a2!"}, a=[0, 1, 2])
    assert "2 of 2 dumps; not among them: rank 2." in shown(journal, 2).text


def test_no_entries() -> None:
    assert shown(journal_of_programs({0: ""}, a=[0])).text.strip().startswith("The dumps have no entries.")
