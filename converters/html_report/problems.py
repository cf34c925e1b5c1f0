"""Problems: what happened, who is the cause, who waits, what to look at next, and what that rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracelink.analysis.wording import duration
from tracelink.converters.html_report.evidence import evidence_section
from tracelink.converters.html_report.markup import Child, Markup, element
from tracelink.converters.html_report.ring import followers, ring_drawing
from tracelink.converters.html_report.sightings import sightings_section
from tracelink.converters.html_report.tables import table
from tracelink.converters.html_report.texts import counted, group_name, numbered, rank_list
from tracelink.diagnosis import Link, Problem

MOST_IN_FULL = 10
MOST_IN_BRIEF = 200
MOST_LINKS = 100


def problems_section(problems: Sequence[Problem], descriptions: Mapping[str, str]) -> Child:
    """The problems by rank; of very many the less important ones in a line each."""
    brief = problems[MOST_IN_FULL:MOST_IN_BRIEF]
    hidden = len(problems) - MOST_IN_BRIEF
    return [
        [
            _problem(number, one, len(problems), descriptions)
            for number, one in enumerate(problems[:MOST_IN_FULL], 1)
        ],
        element("ul", (element("li", kind_badge(one), " ", one.message) for one in brief)) if brief else None,
        element("p", f"{counted(hidden, 'more problem')} are not shown.") if hidden > 0 else None,
    ]


def kind_badge(problem: Problem) -> Markup:
    """The kind of a problem."""
    return element("span", problem.kind.value.replace("_", " "), class_="kind")


def _problem(number: int, problem: Problem, of: int, descriptions: Mapping[str, str]) -> Markup:
    anchor = f"problem-{number}"
    place = f"Problem {number} of {of} " if of > 1 else "Problem "
    return element(
        "section",
        element("h2", place, kind_badge(problem), id=anchor),
        element("p", problem.message, class_="message") if of > 1 else None,
        element("div", _advice(problem), _facts(problem), class_="sides"),
        _cycle(problem.cycle, descriptions) if problem.cycle else None,
        evidence_section(problem.evidence),
        sightings_section(problem.sightings),
        class_="problem",
        aria_labelledby=anchor,
    )


def _advice(problem: Problem) -> Child:
    if not problem.advice:
        return None
    return element("div", element("strong", "Look at next"), element("p", problem.advice), class_="advice")


def _facts(problem: Problem) -> Markup:
    facts = [
        ("Culprits", _ranks(problem.culprits) + _doubts(problem)),
        ("Waiting", _ranks(problem.waiting, "nobody")),
        ("Since", f"at least {duration(problem.waited_ns)}" if problem.waited_ns is not None else ""),
        ("Where", f"{numbered(problem.operation, problem.sequence)} of {_group(problem)}"),
        ("Shows in", counted(problem.count, "collective") if problem.count > 1 else ""),
    ]
    told = [(element("dt", name), element("dd", text)) for name, text in facts if text]
    return element("dl", told)


def _ranks(ranks: Sequence[int], nobody: str = "the dumps do not tell") -> str:
    if not ranks:
        return nobody
    one = f"rank {ranks[0]}"
    return one if len(ranks) == 1 else f"{counted(len(ranks), 'rank')}: {rank_list(ranks)}"


def _doubts(problem: Problem) -> str:
    tie = "; they differ, and nothing tells which of them is wrong" if problem.tie else ""
    return tie + ("" if problem.proven else "; known only by the dumps of others")


def _group(problem: Problem) -> str:
    return group_name(problem.group, problem.description)


def _cycle(cycle: Sequence[Link], descriptions: Mapping[str, str]) -> Child:
    """The ring as a picture, and in words."""
    rows = [
        (
            f"{number + 1}",
            rank_list(link.ranks),
            f"{numbered(link.operation, link.sequence)} of {group_name(link.group, descriptions.get(link.group, ''))}",
            rank_list(link.waits_for),
            ", ".join(f"{other + 1}" for other in followers(cycle, number)),
        )
        for number, link in enumerate(cycle[:MOST_LINKS])
    ]
    hidden = len(cycle) - MOST_LINKS
    header = "node", "ranks", "are in", "wait for ranks", "which are in node"
    more = element("p", f"{counted(hidden, 'more node')} are not shown.") if hidden > 0 else None
    drawn = ring_drawing(cycle, descriptions)
    return [
        element("h3", "Who waits for whom"),
        element("div", drawn, class_="picture") if drawn else None,
        table("The ring: nobody can go on before the next one does", header, rows),
        more,
    ]
