"""The document of a diagnosis as a page: content, safety, and size."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.data import traces
from builders.dumps import diagnosis_of, dumps, hang
from builders.html_page import Element, read_html
from builders.kineto import cpu_op, python_frame
from builders.programs import diagnosis_of_programs, journal_of_programs
from builders.witnesses import call, loading, profile
from tracelink import _show as show
from tracelink._hang.examine import examine
from tracelink._hang.facts.journal import Journal
from tracelink._hang.facts.model import (
    Checked,
    Diagnosis,
    Evidence,
    Kind,
    Lateness,
    Link,
    Problem,
    RanksOfDumps,
    Role,
    Stage,
    Standing,
)
from tracelink._hang.report import report_of
from tracelink._hang.report.diagnosis import MOST_IN_FULL
from tracelink._model.errors import printable
from tracelink._model.findings import Finding, Severity
from tracelink._model.records import Entry, Frame
from tracelink._model.text import clipped
from tracelink._show import html
from tracelink._show.charts import STYLE as CHARTS
from tracelink._show.html import MOST_ITEMS
from tracelink._show.markup import LONGEST

# The complete page.


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


ELEMENTS = words_of(
    """
    html head meta title style body header nav main section footer h1 h2 h3 p a small span strong code ul ol li
    dl dt dd div table caption thead tbody tr th td svg g rect circle path polygon text script button label input
    figure figcaption details summary
    """
)
ATTRIBUTES = words_of(
    """
    charset http-equiv content name lang dir class id href title role tabindex aria-label aria-labelledby
    aria-hidden scope width height viewbox x y rx cx cy r d points transform text-anchor xmlns type hidden data-value
    """
)
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title></style></svg></td><b>",
    "<!-- ",
    "]]>&lt;b&gt;&amp;",
    "javascript:alert(1)",
    "\0\x08\x1b[2J\r\n\t\x85\u2028",
    "\u202egnp.exe\u2066\u200b",
    "\ud800",
    "x" * 10_000,
    "",
)
PAIRS = (
    *((f"--{name}", "--page") for name in ("text", "soft", "link", "problem")),
    ("--text", "--panel"),
)
"""Colours of letters and of what is under them."""


def page(diagnosis: Diagnosis, journal: Journal) -> Element:
    return read_html(written(diagnosis, journal))


def written(diagnosis: Diagnosis, journal: Journal) -> str:
    return html.draw(report_of(diagnosis, journal))


def everywhere(text: str) -> Diagnosis:
    """A diagnosis that says `text` wherever it can say anything."""
    entry = Entry(
        text, text, 1, text, [[2, 3]], [[2]], [text], [text], text, True, 7, 8, (Frame(text, text, 3),)
    )
    problem = Problem(
        kind=Kind.DEADLOCK,
        group=text,
        description=text,
        sequence=2,
        operation=text,
        culprits=(2,),
        waiting=(0, 1),
        message=text,
        advice=text,
        cycle=(Link(text, 2, text, (0, 1), (2,)), Link(f"{text}2", 1, text, (2,), (0,))),
        evidence=(Evidence(2, Role.CULPRIT, (entry, entry)), Evidence(0, Role.WAITING, (entry,))),
    )
    return Diagnosis(
        problems=[problem, problem],
        standings=[
            Standing(text, text, 2, text, Stage.WAITING, (0, 1)),
            Standing(text, text, None, text, Stage.NEVER_JOINED, (2,)),
            Standing(f"{text}2", text, 2, text, Stage.FINISHED, tuple(range(40))),
        ],
        lateness=[Lateness(0, 1, 2, 3, 4, text, 5)],
        ranks=RanksOfDumps.of([0, 1, 2], [3], {4: text}),
        checked=Checked(3, 4, 5, 6, 7),
        notes=[text],
        findings=[Finding(Severity.WARNING, text, text, 2, text, text)],
    )


def renamed(journal: Journal, text: str) -> Journal:
    """The same with `text` as the name of everything."""
    return replace(
        journal,
        strings=[text] * len(journal.strings),
        groups=[replace(group, name=text, description=text) for group in journal.groups],
        recordings={
            rank: replace(one, source=replace(one.source, path=text, version=text))
            for rank, one in journal.recordings.items()
        },
    )


WAITING = journal_of_programs({0: "a1 a2!", 1: "a1 a2!", 2: "a1"}, a=[0, 1, 2])
JUDGED = diagnosis_of_programs({0: "a1 a2!", 1: "a1 a2!", 2: "a1"}, a=[0, 1, 2])


def check_harmless(root: Element) -> None:
    """Nothing is run or loaded, and links lead to places of the page."""
    everything = root.all()
    assert {one.name for one in everything} <= ELEMENTS
    assert {name for one in everything for name in one.attributes} <= ATTRIBUTES
    places = [one.attributes["id"] for one in everything if "id" in one.attributes]
    assert len(set(places)) == len(places)
    targets = {one.attributes["href"] for one in everything if "href" in one.attributes}
    assert targets <= {f"#{place}" for place in places}
    assert not any("url(" in value for one in everything for value in one.attributes.values())


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text)[:20])
def test_hostile_text_is_shown_as_text(text: str) -> None:
    root = page(everywhere(text), renamed(WAITING, text))
    check_harmless(root)
    first, second = (printable(clipped(f"{number}. {text}", LONGEST)) for number in (1, 2))
    assert root.one("h1").text == first
    assert [one.text for one in root.all("h3") if one.text in (first, second)] == [second]
    assert root.one("head").one("title").text == printable(clipped(f"tracelink: 1. {text}", LONGEST))


@settings(max_examples=30, deadline=None)
@given(st.text(st.characters(categories=None, exclude_categories=())))
def test_any_text_is_harmless(text: str) -> None:
    made = written(everywhere(text), renamed(WAITING, text))
    assert made.encode().decode() == made
    check_harmless(read_html(made))


def test_content_security_policy() -> None:
    head = page(JUDGED, WAITING).one("head")
    policy = head.one("meta", http_equiv="Content-Security-Policy").attributes["content"]
    digest = base64.b64encode(hashlib.sha256(head.one("style").text.encode()).digest()).decode()
    own = resources.files(show).joinpath("script.js").read_text("utf-8")
    script = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; script-src 'sha256-{script}'; "
        "base-uri 'none'; form-action 'none'"
    )


def test_single_problem() -> None:
    root = page(JUDGED, WAITING)
    message = "Rank 2 never joined all_reduce #2 of group a; 2 ranks wait."
    assert root.one("h1").text.startswith(message)
    assert root.one("body").text.count(message) == 1
    assert [one.text for one in root.all("h2")] == [
        "Problem: never joined",
        "What to do",
        "Evidence",
        "Calls around the problem",
        "How far each rank got",
        "Dumps",
    ]


def test_many_problems() -> None:
    first = JUDGED.problems[0]
    problems = [replace(first, message=f"Problem {number}!") for number in range(1, MOST_ITEMS + 7)]
    root = page(replace(JUDGED, problems=problems), WAITING)
    assert [one.text for one in root.all("h3") if "!" in one.text] == [
        f"{number}. Problem {number}!" for number in range(2, MOST_IN_FULL + 1)
    ]
    listed = root.one("header").all("li")
    assert [one.text for one in listed] == [
        f"{number}. Problem {number}!" for number in range(2, MOST_ITEMS + 2)
    ]
    assert "5 problems not shown." in root.one("header").text


def test_healthy_job() -> None:
    told = {0: "a1 a2", 1: "a1 a2"}
    root = page(diagnosis_of_programs(told, a=[0, 1]), journal_of_programs(told, a=[0, 1]))
    assert root.one("h1").text == (
        "No problem found: 2 ranks, 1 group, 2 collectives, 4 entries. "
        "All ranks joined; operations, types and sizes agree."
    )
    assert [one.text for one in root.all("h2")] == [
        "How far each rank got",
        "Groups whose ranks are all at the same collective",
        "Dumps",
    ]


def test_missing_and_damaged_dumps() -> None:
    root = page(replace(JUDGED, ranks=RanksOfDumps.of([0, 1], [5, 6], {2: "truncated at byte 7."})), WAITING)
    assert "The dump of rank 2 is damaged: truncated at byte 7." in root.text
    assert [[cell.text for cell in row.all("td")] for row in root.all("table")[-1].all("tr")[1:]] == [
        ["0", "complete", "", "comm_lib_trace_rank_0", "2.10", "2", "0"],
        ["1", "complete", "", "comm_lib_trace_rank_1", "2.10", "2", "0"],
        ["2", "complete", "truncated at byte 7.", "comm_lib_trace_rank_2", "2.10", "1", "0"],
        ["5", "missing", "", "", "", "0", ""],
        ["6", "missing", "", "", "", "0", ""],
    ]


def test_accessibility() -> None:
    root = page(everywhere("name"), renamed(WAITING, "name"))
    assert root.one("html").attributes == {"lang": "en", "dir": "ltr"}
    levels = [int(one.name[1]) for one in root.all("h1", "h2", "h3")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for table in root.all("table"):
        assert {one.attributes.get("scope") for one in table.all("th")} == {"col"}
    for frame in root.all("div", class_="frame"):
        assert frame.attributes["tabindex"] == "0"
        assert frame.attributes["aria-label"]
    for drawing in root.all("svg"):
        assert {"aria-hidden", "aria-label"} & set(drawing.attributes) or drawing.children[0].name == "title"


def colours(scheme: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for style in (resources.files(show).joinpath("base.css").read_text("utf-8"), CHARTS):
        light, _, rest = style.partition("prefers-color-scheme: dark")
        text = light if scheme == "light" else rest.partition("\n}\n")[0]
        found |= re.findall(r"(--[\w-]+): (#[0-9a-f]{6});", text)
    return found


def brightness(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("letters", "ground"), PAIRS)
def test_contrast(scheme: str, letters: str, ground: str) -> None:
    named = colours(scheme)
    lower, upper = sorted(brightness(named[name]) for name in (letters, ground))
    assert (upper + 0.05) / (lower + 0.05) >= 4.5


def test_size_with_many_ranks() -> None:
    ranks = tuple(range(4096))
    standings = [
        Standing(f"{group}" + "x" * 10_000, "kind" + "y" * 10_000, last, "z" * 10_000, Stage.WAITING, some)
        for group in range(5)
        for last, some in ((1, ranks[::2]), (2, ranks[1::2]))
    ]
    diagnosis = replace(
        JUDGED,
        standings=standings,
        ranks=RanksOfDumps.of((), ranks[3:]),
        lateness=everywhere("x").lateness * 4096,
    )
    assert len(written(diagnosis, WAITING)) < 2_000_000


@pytest.mark.parametrize(
    ("case", "verdict"),
    [
        ("never_joined/settled", "Rank 3 is behind: ranks 0-2, 4-7 wait for it in all_reduce #7"),
        ("deadlock/settled", "Rank 6 deadlocks: "),
        ("skipped/settled", "Rank 5 skipped all_reduce #13"),
        ("healthy", "No problem found: 8 ranks, "),
    ],
)
def test_generated_jobs(case: str, verdict: str) -> None:
    examined = examine(traces(f"gloo/{case}"))
    root = page(examined.diagnosis, examined.journal)
    check_harmless(root)
    assert root.one("h1").text.startswith(verdict)


# The calls around the worst problem.


def around(journal: Journal) -> tuple[list[list[str]], str]:
    """The cells of the table, with its heading, and the sentence below it."""
    root = page(diagnosis_of(journal), journal)
    (section,) = [one for one in root.all("section") if one.attributes["aria-labelledby"] == "recent"]
    return [[cell.text for cell in row.all("td", "th")] for row in section.all("tr")], section.all("p")[
        0
    ].text


def test_ranks_with_equal_calls_share_a_column() -> None:
    rows, note = around(journal_of_programs({0: "a1 b1 a2!", 1: "a1 b1 a2!", 2: "a1"}, a=[0, 1, 2], b=[0, 1]))
    assert [[*row[:3], *row[-2:]] for row in rows] == [
        ["group", "#", "call", "ranks 0-1", "rank 2"],
        ["a", "1", "all_reduce", "done", "done"],
        ["b", "1", "all_reduce", "done", ""],
        ["a", "2", "all_reduce", "queued", "missing"],
    ]
    assert note == "In program order: rows 1-3 of 3, of 3 of 3 dumps."


def test_rows_around_the_problem() -> None:
    steps = [f"a{number}" for number in range(1, 101)]
    ahead = [*steps, *(f"b{number}" for number in range(1, 101))]
    words = " ".join([*steps, "a101!", *ahead[100:]])
    rows, note = around(
        journal_of_programs({0: words, 1: words, 2: " ".join(ahead)}, a=[0, 1, 2], b=[0, 1, 2])
    )
    assert [row[1] for row in rows][19:23] == ["99", "100", "101", "1"]
    assert note == "In program order: rows 81-109 of 201, of 3 of 3 dumps."


def test_the_culprit_is_among_few_of_many_ranks() -> None:
    rows, _ = around(journal_of_programs(dict.fromkeys(range(60), "a1 a2!") | {41: "a1"}, a=[*range(60)]))
    assert rows[0][-2:] == ["ranks 0, 30-40, 42-52", "rank 41"]


# What profiles show.


def page_of_job(folder: Path) -> str:
    """Rank 2 loads data while the others wait."""
    dumps(folder / "dumps", hang(4, culprit=2))
    profile(folder / "traces", 2, call(1), call(2), loading(2.3, 6.8))
    profile(folder / "traces", 0, call(1), until=2)
    examined = examine(folder, jobs=1)
    return written(examined.diagnosis, examined.journal)


def test_profiles_of_the_culprit_and_of_another_rank(tmp_path: Path) -> None:
    root = read_html(page_of_job(tmp_path))
    assert [one.text for one in root.all("h3") if "profile" in one.text] == [
        "In the profile of rank 2:",
        "In the profile of rank 0 (it ends 1.0 s before this call):",
    ]
    rows = [[cell.text for cell in row.all("td")] for table in root.all("table") for row in table.all("tr")]
    called = [row for row in rows if "record_param_comms" in row]
    around = "DistributedDataParallel.forward, c10d::allreduce_"
    assert [(row[0], *row[2:4], *row[-2:]) for row in called] == [
        ("all_reduce", "2", "0", around, "yes"),
        ("all_reduce", "1", "2", around, "yes"),
    ]
    assert [row[0] for row in rows if "stream 20" in row] == ["ncclDevKernel_AllReduce_Sum_f32_RING_LL"] * 2
    assert "Then, 5.0 s on thread 4200: 5.0 s main (train.py:100) > " in root.text
    assert "The profile ends at 2026-11-18 06:29:26.603435 UTC." in root.text


def test_names_in_profiles_are_escaped(tmp_path: Path) -> None:
    dumps(tmp_path / "dumps", hang(4, culprit=2))
    around = [
        cpu_op("<script>alert(1)</script>", 2e6 - 900, 2000),
        python_frame("<b>.py(3): x", 2e6 - 800, 1800),
    ]
    profile(tmp_path / "traces", 2, around, call(2))
    examined = examine(tmp_path, jobs=1)
    text = written(examined.diagnosis, examined.journal)
    assert "&lt;script&gt;alert(1)" in text
    assert "<script>alert" not in text
    assert "<b>" not in text
