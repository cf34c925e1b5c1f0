"""The report of a summary: what it contains, what hostile names do to its page, and what is left out."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import pytest

import tracelink
from builders.html_page import Element, read_html
from tracelink import samples
from tracelink._show import html, markdown, terminal
from tracelink._show.document import Only, Paragraph, Table
from tracelink._time.model.communication import CollectiveRow, CostKind, RankWaits, Scope
from tracelink._time.model.results import CriticalPath, Metric, Portion, Summary
from tracelink._time.report import RANKS, report_of

HOSTILE = '</title></script></style><script>alert(1)</script><img src="//host/x" onerror="alert(2)">\u202e'
SCRIPTS = ("script", "img", "iframe", "object", "embed", "link", "base", "form")


def written(summary: Summary) -> str:
    return "".join(html.draw(report_of(summary)))


def page(summary: Summary) -> Element:
    return read_html(written(summary))


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    notes = tmp_path_factory.mktemp("notes") / "notes.json"
    notes.write_text('{"remarks": []}')
    found = tracelink.summary([samples.path("gpu_pair"), notes.parent], what_if=["communication free"])
    return msgspec.structs.replace(found, paths=["traces/"])


def test_sections(summary: Summary) -> None:
    root = page(summary)
    assert root.one("h1").text == summary.verdict[0]
    assert [item.text for item in root.one("header").all("p")][:-1] == list(summary.verdict[1:])
    assert [heading.text for heading in root.all("h2")] == [
        "Time of steps",
        "Why ranks do not compute",
        "What if",
        "Critical path",
        "Kernels",
        "Late launches",
        "Waits of the host",
        "Late ranks",
        "Collectives",
        "Memory",
        "Operators",
        "Modules",
        "Python functions",
        "Streams and launches",
        "Clocks",
        "Notes",
        "Findings",
    ]
    assert [link.attributes["href"] for link in root.one("nav").all("a")] == [
        f"#{heading.attributes['id']}" for heading in root.all("h2")
    ]


def test_pictures(summary: Summary) -> None:
    assert [drawing.attributes["aria-label"] for drawing in page(summary).all("svg")] == [
        "An average step of each rank",
        "What the critical path consists of",
        "On which ranks the critical path is",
        "Kernels with most compute time, all ranks",
        "Waits of each rank in each class of collectives",
        "Bandwidth against size",
        "GPU 0 allocated",
        "GPU 0 reserved",
        "GPU 1 allocated",
        "GPU 1 reserved",
    ]


def test_a_chart_for_each_gauge(summary: Summary) -> None:
    metrics = [
        Metric(rank, "GPU 0", gauge, "W", [(10**18, 1.0), (10**18 + 5, 2.0)])
        for rank in (0, 1)
        for gauge in ("power", "temperature")
    ]
    drawn = page(msgspec.structs.replace(summary, metrics=metrics)).all("svg")
    assert [one.attributes["aria-label"] for one in drawn][-2:] == ["power", "temperature"]
    assert [len(one.all("polyline")) for one in drawn][-2:] == [2, 2]


def test_rows_of_steps_have_values_and_commands(summary: Summary) -> None:
    root = page(summary)
    rows = root.rows("Steps, the longest first")
    assert sorted((row[0], row[1]) for row in rows) == [("0", "1"), ("0", "2"), ("1", "1"), ("1", "2")]
    (table,) = [one for one in root.all("table") if one.one("caption").text.startswith("Steps")]
    for row in table.one("tbody").all("tr"):
        cells = row.all("td")
        rank, step = (cells[index].attributes["data-value"] for index in (0, 1))
        assert row.one("button").attributes["data-command"] == (
            f"tracelink merge traces/ --ranks {rank} --steps {step} --open"
        )


def test_a_summary_of_a_graph_has_no_commands(summary: Summary) -> None:
    assert page(msgspec.structs.replace(summary, paths=())).all("button", class_="place") == []


def test_hostile_names_are_text(summary: Summary) -> None:
    text = msgspec.json.encode(summary)
    for name in ("ampere_sgemm_128x64_tn", "all_reduce", "aten::mm", "train.py"):
        text = text.replace(name.encode(), msgspec.json.encode(HOSTILE)[1:-1])
    hostile = msgspec.json.decode(text, type=Summary)
    drawn = written(msgspec.structs.replace(hostile, paths=[HOSTILE]))
    root = read_html(drawn)
    assert len(root.all("script")) == 1
    assert root.all(*SCRIPTS[1:]) == []
    assert not any(name.startswith("on") for one in root.all() for name in one.attributes)
    assert "\u202e" not in drawn
    assert not re.search(r"(?:src|href)=\"(?!#)", drawn)
    assert "\u202e" not in terminal.draw(report_of(hostile))
    assert "<script>" not in markdown.draw(report_of(hostile))


def test_without_profiles() -> None:
    root = page(tracelink.summary(samples.path("hung_job")))
    assert root.one("h1").text == "No rank has a profile: there is no time to divide."


def test_size_of_a_large_job(summary: Summary) -> None:
    ranks = [
        msgspec.structs.replace(summary.ranks[0], rank=rank, steps=[*summary.ranks[0].steps] * 10)
        for rank in range(64)
    ]
    many = msgspec.structs.replace(summary, ranks=ranks, kernels=[*summary.kernels] * 100)
    assert len(written(many)) < 5_000_000


def test_notes_of_the_summary_itself_are_shown_without_verbose(summary: Summary) -> None:
    lines = terminal.draw(report_of(summary)).splitlines()
    assert "note: Waits are certain to ±0.021 ms, the uncertainty of clocks." in lines


# Tables of a terminal


def blocks(summary: Summary, title: str) -> list[object]:
    """The blocks of a section, also of those for some media."""
    (section,) = [one for one in report_of(summary).sections if one.title == title]
    return [
        inner for block in section.blocks for inner in (block.blocks if isinstance(block, Only) else [block])
    ]


def brief(table: object) -> list[object]:
    """The rows that a terminal shows without -v."""
    assert isinstance(table, Table)
    if isinstance(table.brief, int):
        return list(table.rows[: table.brief])
    return [table.rows[index] for index in table.brief or range(len(table.rows))]


def test_of_many_ranks_those_with_most_and_least_compute_are_shown(summary: Summary) -> None:
    step = summary.ranks[0].steps[0]
    ranks = [
        msgspec.structs.replace(
            summary.ranks[0],
            rank=rank,
            steps=[msgspec.structs.replace(step, duration_ns=100, compute_ns=rank * 37 % 40)],
        )
        for rank in range(40)
    ]
    shown = brief(blocks(msgspec.structs.replace(summary, ranks=ranks), "Time of steps")[1])
    assert len(shown) == RANKS + 1
    shares = sorted(round(row.compute_share * 100) for row in shown[:-1])  # type: ignore[attr-defined]
    assert shares == [0, 1, 2, 3, 36, 37, 38, 39]
    assert [row.label for row in shown][-1] == "all"  # type: ignore[attr-defined]


def waiting(summary: Summary, ranks: Sequence[int]) -> list[str]:
    """The causes of a job that waits for these ranks."""
    from tracelink._time.model.results import Cause

    portions = [Portion(Cause.WAITING_FOR_RANK, 100 - rank, rank) for rank in ranks]
    step = msgspec.structs.replace(
        summary.ranks[0].steps[0],
        duration_ns=1000,
        idle=(),
        exposed_copies=(),
        exposed_communication=portions,
    )
    ranked = msgspec.structs.replace(summary.ranks[0], steps=[step])
    (table,) = blocks(msgspec.structs.replace(summary, ranks=[ranked]), "Why ranks do not compute")
    return [row.cause for row in brief(table)]  # type: ignore[attr-defined]


def test_ranks_that_are_waited_for_after_the_first_three_are_one_cause(summary: Summary) -> None:
    four = [f"waiting for rank {rank}" for rank in range(4)]
    assert waiting(summary, range(4)) == four
    assert waiting(summary, range(6)) == ["waiting for 3 other ranks", *four[:3]]


def test_ranks_on_the_critical_path_without_a_majority(summary: Summary) -> None:
    path = CriticalPath(100, {"compute": 100}, {"0": 25, "1": 45, "2": 30}, {}, [], [], 0, 0)
    found = blocks(msgspec.structs.replace(summary, critical_path=path), "Critical path")
    texts = [block.text for block in found if isinstance(block, Paragraph)]
    assert "It is 45 % on rank 1, 30 % on rank 2, 25 % on rank 0." in texts


def row(*waits: int) -> CollectiveRow:
    """A class of collectives in which ranks waited so long."""
    ranks = [RankWaits(rank, wait, 1 if not wait else 0) for rank, wait in enumerate(waits)]
    measured = (4, 4, CostKind.ARRIVAL, "", sum(waits), sum(waits), 1, None, 0, None, None)
    return CollectiveRow(0, "dp", "all_reduce", 1024, len(waits), Scope.INTRA_HOST, *measured, ranks)


def heat_maps(summary: Summary, *rows: CollectiveRow) -> list[Element]:
    root = page(msgspec.structs.replace(summary, collectives=list(rows)))
    return [one for one in root.all("svg") if one.attributes["aria-label"].startswith("Waits of each rank")]


def test_heat_map(summary: Summary) -> None:
    (drawn,) = heat_maps(summary, row(0, 10, 100))
    assert [cell.attributes["class"] for cell in drawn.all("rect")] == ["h0", "h1", "h5"]
    assert len(drawn.all("circle")) == 1
    assert drawn.one("rect", class_="h5").text == (
        "rank 2, all_reduce 1.0 kB, group dp: waited 0.1 µs, last 0 times"
    )


def test_no_heat_map_without_waits(summary: Summary) -> None:
    assert heat_maps(summary, row(0, 0)) == heat_maps(summary, row(5)) == []
