"""Calls around a problem."""

from __future__ import annotations

from xml.etree import ElementTree

from msgspec.structs import replace

from builders.programs import journal_of_programs
from tracelink.diagnosis.examine import diagnosis_of
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.report.recent import MOST_RANKS, Recent, recent_chart, recent_of
from tracelink.show.document import Chart, Paragraph

SVG = "{http://www.w3.org/2000/svg}"


def around(journal: Journal) -> Recent:
    return recent_of(diagnosis_of(journal), journal)


def signs(journal: Journal) -> list[str]:
    """The signs of each rank, `-` where it is no member."""
    recent = around(journal)
    return [
        "".join(call.cells[rank][0].sign if rank in call.cells else "-" for call in recent.calls)
        for rank in recent.ranks
    ]


def shown(journal: Journal, *culprits: int) -> tuple[str, list[str]]:
    """The note below the picture, and the tips of cells."""
    diagnosis = diagnosis_of(journal)
    problems = [replace(problem, culprits=culprits) for problem in diagnosis.problems]
    (block,) = recent_chart(replace(diagnosis, problems=problems), journal)
    if isinstance(block, Paragraph):
        return block.text, []
    assert isinstance(block, Chart)
    titles = ElementTree.fromstring(block.svg).iter(f"{SVG}title")
    return block.note, [one.text or "" for one in titles]


def test_joined_waiting_and_missing_ranks() -> None:
    journal = journal_of_programs({0: "a1 a2!", 1: "a1 a2!", 2: "a1"}, a=[0, 1, 2])
    assert signs(journal) == ["✓…", "✓…", "✓\N{MULTIPLICATION SIGN}"]
    assert shown(journal, 2)[0] == "3 of 3 dumps."


def test_cells_of_non_members_are_empty() -> None:
    journal = journal_of_programs({0: "a1 b1 a2!", 1: "a1 b1 a2!", 2: "a1"}, a=[0, 1, 2], b=[0, 1])
    assert [row[1] for row in signs(journal)] == ["✓", "✓", "-"]


def test_mismatch() -> None:
    journal = journal_of_programs({0: "a1 a2!", 1: "a1 a2!", 2: "a1 a2=broadcast!"}, a=[0, 1, 2])
    assert [row[1] for row in signs(journal)] == ["…", "…", "≠"]
    _, tips = shown(journal, 2)
    assert [tip for tip in tips if "differs" in tip] == [
        "rank 2: differs from most ranks, broadcast, 0 µs after the first"
    ]


def test_dropped_calls() -> None:
    journal = journal_of_programs({0: "a1 a2?", 1: "a1 a2?", 2: "a1"}, a=[0, 1, 2])
    assert [row[1] for row in signs(journal)] == ["!", "!", "\N{MULTIPLICATION SIGN}"]


def test_wrapped_buffer() -> None:
    journal = journal_of_programs(
        {0: "a1 a2 a3 a4!", 1: "a1 a2 a3 a4!", 2: "a3"}, a=[0, 1, 2], forgotten={2: 2}
    )
    assert signs(journal)[2] == "??✓\N{MULTIPLICATION SIGN}"


def test_columns_around_the_problem() -> None:
    steps = [f"a{number}" for number in range(1, 101)]
    ahead = [*steps, *(f"b{number}" for number in range(1, 101))]
    words = " ".join([*steps, "a101!", *ahead[100:]])
    journal = journal_of_programs({0: words, 1: words, 2: " ".join(ahead)}, a=[0, 1, 2], b=[0, 1, 2])
    recent = around(journal)
    assert [call.text.partition("#")[2] for call in recent.calls][18:22] == ["99", "100", "101", "1"]
    assert (recent.earlier, recent.later) == (80, 92)
    assert "80 earlier columns not shown; 92 later columns not shown." in shown(journal, 2)[0]


def test_culprit_is_shown() -> None:
    waits = dict.fromkeys(range(60), "a1 a2!")
    journal = journal_of_programs(waits | {41: "a1"}, a=[*range(60)])
    recent = around(journal)
    assert len(recent.ranks) == MOST_RANKS
    assert {0, 41} <= set(recent.ranks)


def test_culprit_without_a_dump() -> None:
    journal = journal_of_programs({0: "a1 a2!", 1: "a1 a2!"}, a=[0, 1, 2])
    assert shown(journal, 2)[0] == "2 of 2 dumps; not among them: rank 2."


def test_no_entries() -> None:
    assert shown(journal_of_programs({0: ""}, a=[0])) == ("The dumps have no entries.", [])
