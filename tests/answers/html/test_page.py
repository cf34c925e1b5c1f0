"""Tests of tracelink.answers.html: what the page contains, and what hostile names do to it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

import tracelink
from builders.html_page import Element, read_html
from tracelink import samples
from tracelink.answers.html.drawings import heat_map
from tracelink.answers.html.page import Facts, html_report
from tracelink.answers.model.communication import CollectiveRow, CostKind, RankWaits, Scope
from tracelink.answers.model.results import Summary
from tracelink.model.clock import Clock
from tracelink.model.events import Counters
from tracelink.show.markup import inner

HOSTILE = '</title></script></style><script>alert(1)</script><img src="//host/x" onerror="alert(2)">\u202e'
FACTS = Facts(["traces/"], 2, ["node0"], None, [Clock(0, "node0"), Clock(1, "node0")], Counters.empty(), [])
SCRIPTS = ("script", "img", "iframe", "object", "embed", "link", "base", "form")


def page(summary: Summary, facts: Facts = FACTS) -> Element:
    return read_html(html_report(summary, facts))


@pytest.fixture(scope="module")
def summary() -> Summary:
    return tracelink.summarize(samples.path("gpu_pair"), what_if=["communication free"])


def test_sections(summary: Summary) -> None:
    root = page(summary)
    assert root.one("h1").text == summary.verdict[0]
    assert [item.text for item in root.one("ul", class_="verdict").all("li")] == list(summary.verdict[1:])
    assert [heading.text for heading in root.all("h2")] == [
        "Time of steps",
        "Why ranks do not compute",
        "Critical path",
        "What if",
        "Collectives",
        "Late ranks",
        "Kernels",
        "Host",
        "Operators, modules and lines",
        "Memory",
        "Streams and launches",
        "Clocks",
        *(["Notes"] if summary.notes else []),
    ]
    assert [link.attributes["href"] for link in root.one("nav").all("a")] == [
        f"#{heading.attributes['id']}" for heading in root.all("h2")
    ]


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


def test_hostile_names_are_text(summary: Summary) -> None:
    text = msgspec.json.encode(summary)
    for name in ("ampere_sgemm_128x64_tn", "all_reduce", "aten::mm", "train.py"):
        text = text.replace(name.encode(), msgspec.json.encode(HOSTILE)[1:-1])
    hostile = msgspec.json.decode(text, type=Summary)
    written = html_report(hostile, msgspec.structs.replace(FACTS, paths=[HOSTILE], hosts=[HOSTILE]))
    root = read_html(written)
    assert len(root.all("script")) == 1
    assert root.all(*SCRIPTS[1:]) == []
    assert not any(name.startswith("on") for one in root.all() for name in one.attributes)
    assert "\u202e" not in written
    assert not re.search(r"(?:src|href)=\"(?!#)", written)


def test_without_profiles() -> None:
    empty = tracelink.summarize(samples.path("hung_job"))
    root = page(empty)
    assert root.one("h1").text == "No rank has a profile: there is no time to divide."


def row(*waits: int) -> CollectiveRow:
    """A class of collectives in which ranks waited so long."""
    ranks = [RankWaits(rank, wait, 1 if not wait else 0) for rank, wait in enumerate(waits)]
    measured = (4, 4, CostKind.ARRIVAL, "", sum(waits), sum(waits), 1, None, 0, None, None)
    return CollectiveRow(0, "dp", "all_reduce", 1024, len(waits), Scope.INTRA_HOST, *measured, ranks)


def test_heat_map() -> None:
    drawn = read_html(inner(heat_map([row(0, 10, 100)])))
    shades = [cell.attributes["class"] for cell in drawn.all("rect")]
    assert shades == ["h0", "h1", "h5"]
    assert len(drawn.all("circle")) == 1
    assert drawn.one("rect", class_="h5").text == (
        "rank 2, all_reduce 1.0 kB, group dp: waited 0.1 µs, last 0 times"
    )


def test_no_heat_map_without_waits() -> None:
    assert heat_map([row(0, 0)]) is None
    assert heat_map([row(5)]) is None


def test_size_of_a_large_job(summary: Summary) -> None:
    ranks = [
        msgspec.structs.replace(summary.ranks[0], rank=rank, steps=[*summary.ranks[0].steps] * 10)
        for rank in range(64)
    ]
    many = msgspec.structs.replace(summary, ranks=ranks, kernels=[*summary.kernels] * 100)
    assert len(html_report(many, FACTS)) < 5_000_000


def test_report_writes_the_page(tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    found = tracelink.report(samples.path("run_before"), output=output)
    assert found == tracelink.summarize(samples.path("run_before"))
    root = read_html(output.read_text("utf-8"))
    assert root.one("h1").text == found.verdict[0]
