"""A diagnosis as one page: it needs nothing beside itself and runs nothing."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

from tracelink.converters.html_report.markup import Child, Markup, element
from tracelink.converters.html_report.picture import patterns
from tracelink.converters.html_report.problems import problems_section
from tracelink.converters.html_report.recent import recent_of
from tracelink.converters.html_report.recent_table import recent_section
from tracelink.converters.html_report.remainder import (
    checked_in_words,
    dumps_section,
    findings_section,
    lateness_section,
    notes_section,
)
from tracelink.converters.html_report.ring import arrow_head
from tracelink.converters.html_report.standings import standings_section
from tracelink.converters.html_report.texts import counted, moment
from tracelink.diagnosis import Diagnosis
from tracelink.events import NO_TIME
from tracelink.journal import Journal

LONG = 160
"""Characters of a verdict that is set in smaller letters."""


def html_report(diagnosis: Diagnosis, journal: Journal) -> str:
    """The page, as the text of a file."""
    style = resources.files(__package__ or "").joinpath("style.css").read_text("utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(style)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"tracelink: {_verdict(diagnosis)}"),
        element("style", Markup(style)),
    )
    page = element("html", head, element("body", _body(diagnosis, journal)), lang="en", dir="ltr")
    return f"<!DOCTYPE html>\n{page.text}\n"


def _policy(style: str) -> str:
    """Nothing is loaded, run or sent; this one style is applied."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _verdict(diagnosis: Diagnosis) -> str:
    if diagnosis.problems:
        return diagnosis.problems[0].message
    known = diagnosis.checked.ranks
    of = f" of {known + len(diagnosis.missing):,}" if diagnosis.missing else ""
    return f"Nothing is wrong in what {known:,}{of} rank{'s' if known != 1 else ''} recorded."


def _body(diagnosis: Diagnosis, journal: Journal) -> Child:
    culprits = {rank for one in diagnosis.problems for rank in one.culprits}
    recent = recent_of(diagnosis, journal) if diagnosis.problems else None
    around = recent_section(recent, len(journal.ranks), culprits) if recent else None
    others = [
        ("standings", "Where every rank is", standings_section(diagnosis.standings, culprits)),
        ("recent", "The collectives around it", around),
        ("lateness", "Who comes late", lateness_section(diagnosis.lateness)),
        ("notes", "Notes", notes_section(diagnosis.notes)),
        ("dumps", "Dumps", dumps_section(diagnosis, journal)),
        ("findings", "Findings", findings_section(diagnosis.findings)),
    ]
    shown = [(anchor, title, content) for anchor, title, content in others if content is not None]
    links = [element("a", title, href=f"#{anchor}") for anchor, title, _ in shown]
    shared = element("defs", arrow_head(), patterns())
    return [
        _header(diagnosis, journal, links),
        element("svg", shared, width=0, height=0, class_="shared", aria_hidden="true"),
        element(
            "main",
            problems_section(diagnosis.problems, _descriptions(diagnosis)),
            (_section(*one) for one in shown),
        ),
        element("footer", "Written by tracelink diagnose."),
    ]


def _descriptions(diagnosis: Diagnosis) -> dict[str, str]:
    """What the groups are for, by name."""
    return {one.group: one.description for one in diagnosis.standings}


def _section(anchor: str, title: str, content: Child) -> Markup:
    return element("section", element("h2", title, id=anchor), content, aria_labelledby=anchor)


def _header(diagnosis: Diagnosis, journal: Journal, links: list[Markup]) -> Markup:
    """The verdict, what it rests on, and the way to the rest."""
    verdict = _verdict(diagnosis)
    more = len(diagnosis.problems) - 1
    also = element("p", f"And {counted(more, 'more problem')}; the worst is first.") if more > 0 else None
    agree = "" if diagnosis.problems else " Everybody joined; operations, types and sizes agree."
    rests = f"Checked: {checked_in_words(diagnosis.checked)}.{agree}"
    last = int(journal.records.created.max()) if len(journal) else NO_TIME
    if last != NO_TIME:
        rests += f" The last entry was made at {moment(last)}."
    return element(
        "header",
        element("h1", verdict, class_="long" if len(verdict) > LONG else None),
        also,
        element("p", rests, _gaps(diagnosis), class_="aside"),
        element("nav", [[link, " "] for link in links], aria_label="Sections"),
        class_=diagnosis.verdict,
    )


def _gaps(diagnosis: Diagnosis) -> str:
    """What was not there to be checked."""
    missing = f" {counted(len(diagnosis.missing), 'dump')} missing." if diagnosis.missing else ""
    failed = len(diagnosis.unreadable)
    return missing + (f" {counted(failed, 'dump')} unreadable or cut." if failed else "")
