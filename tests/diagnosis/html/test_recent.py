"""Package."""

from __future__ import annotations

from builders.html_page import Element, read_html
from builders.told import journal_told
from tracelink.diagnosis.examine import diagnosis_of
from tracelink.diagnosis.html.markup import element
from tracelink.diagnosis.html.recent import MOST_RANKS, Recent, recent_of, recent_section
from tracelink.diagnosis.journal import Journal

CAPTION = "In program order"


def around(journal: Journal) -> Recent:
    return recent_of(diagnosis_of(journal), journal)


def shown(journal: Journal, *culprits: int) -> Element:
    section = recent_section(around(journal), len(journal.ranks), culprits)
    return read_html(element("div", section).text)


def test_who_is_in_what() -> None:
    journal = journal_told({0: "a1 a2!", 1: "a1 a2!", 2: "a1"}, a=[0, 1, 2])
    page = shown(journal, 2)
    assert page.rows(CAPTION) == [["0", "✓", "…"], ["1", "✓", "…"], ["2", "✓", "\N{MULTIPLICATION SIGN}"]]
    assert page.text.strip().endswith("3 of 3 dumps.")


def test_groups_in_which_a_rank_has_no_part_are_empty_cells() -> None:
    journal = journal_told({0: "a1 b1 a2!", 1: "a1 b1 a2!", 2: "a1"}, a=[0, 1, 2], b=[0, 1])
    assert [row[2] for row in shown(journal).rows(CAPTION)] == ["✓", "✓", ""]


def test_a_rank_that_does_something_else_differs() -> None:
    journal = journal_told({0: "a1 a2!", 1: "a1 a2!", 2: "a1 a2=broadcast!"}, a=[0, 1, 2])
    page = shown(journal)
    assert [row[2] for row in page.rows(CAPTION)] == ["…", "…", "≠"]
    told = [
        one.attributes["title"] for one in page.all("span", class_="differs") if "title" in one.attributes
    ]
    assert told == ["rank 2: differs from most ranks, broadcast, 0 µs after the first"]


def test_those_who_gave_up_are_told_apart_from_those_who_finished() -> None:
    journal = journal_told({0: "a1 a2?", 1: "a1 a2?", 2: "a1"}, a=[0, 1, 2])
    assert [row[2] for row in shown(journal).rows(CAPTION)] == ["!", "!", "\N{MULTIPLICATION SIGN}"]


def test_what_a_buffer_no_longer_holds_is_not_said_to_be_absent() -> None:
    journal = journal_told({0: "a1 a2 a3 a4!", 1: "a1 a2 a3 a4!", 2: "a3"}, a=[0, 1, 2], forgotten={2: 2})
    assert shown(journal).rows(CAPTION)[2] == ["2", "?", "?", "✓", "\N{MULTIPLICATION SIGN}"]


def test_the_problem_is_in_the_picture_however_far_others_have_gone_on() -> None:
    steps = [f"a{number}" for number in range(1, 101)]
    ahead = [*steps, *(f"b{number}" for number in range(1, 101))]
    words = " ".join([*steps, "a101!", *ahead[100:]])
    journal = journal_told({0: words, 1: words, 2: " ".join(ahead)}, a=[0, 1, 2], b=[0, 1, 2])
    recent = around(journal)
    assert [column.sequence for column in recent.columns][18:22] == [99, 100, 101, 1]
    assert (recent.earlier, recent.later) == (80, 92)
    assert "80 earlier columns not shown; 92 later columns not shown." in shown(journal).text


def test_the_culprit_is_among_the_ranks_that_are_shown() -> None:
    waits = dict.fromkeys(range(60), "a1 a2!")
    journal = journal_told(waits | {41: "a1"}, a=[*range(60)])
    recent = around(journal)
    assert len(recent.ranks) == MOST_RANKS
    assert {0, 41} <= set(recent.ranks)


def test_a_culprit_without_a_dump_is_named() -> None:
    journal = journal_told({0: "a1 a2!", 1: "a1 a2!"}, a=[0, 1, 2])
    assert "2 of 2 dumps; not among them: rank 2." in shown(journal, 2).text


def test_without_entries_there_is_a_sentence() -> None:
    assert shown(journal_told({0: ""}, a=[0])).text.strip().startswith("The dumps have no entries.")
