"""The page: sections in order, the file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence, Sized
from importlib import resources
from pathlib import Path

from tracelink.diagnosis.examine import Examined
from tracelink.diagnosis.html.markup import Child, Markup, element, table
from tracelink.diagnosis.html.pictures import arrow_head, patterns, standings_section
from tracelink.diagnosis.html.problems import problems_section
from tracelink.diagnosis.html.recent import recent_of, recent_section
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.model import Checked, Diagnosis, Lateness
from tracelink.errors import Finding, in_order
from tracelink.io.targets import FileTarget
from tracelink.model.columns import NO_TIME
from tracelink.text import counted, duration, moment, name_in_words, rank_list

# What stands under the problems: who comes late, what was read and what was not, and what was checked.


MOST_LATE = 10
MOST_UNREADABLE = 100
MOST_NOTES = 50
MOST_FINDINGS = 100
MOST_DUMPS = 16


def lateness_section(lateness: Sequence[Lateness]) -> Child:
    """Who came last, and what that cost the others."""
    if not lateness:
        return None
    rows = [
        (
            f"rank {one.rank}",
            f"{one.collectives:,} of {one.of:,}",
            duration(one.worst_ns),
            f"#{one.sequence} of group {name_in_words(one.group)}",
            duration(one.total_ns),
        )
        for one in lateness[:MOST_LATE]
    ]
    header = "rank", "came last to collectives", "latest by", "in", "it alone was awaited for"
    return [table("By creation times", header, rows), _more(lateness, MOST_LATE, "more rank")]


def dumps_section(diagnosis: Diagnosis, journal: Journal) -> Child:
    """Which dumps were read, which could not be, and which are absent."""
    missing, unreadable = diagnosis.missing, sorted(diagnosis.unreadable.items())
    failed = [(f"rank {rank}", why or "unknown") for rank, why in unreadable[:MOST_UNREADABLE]]
    said = [
        ("Read", _ranks(diagnosis.present)),
        ("Missing", _ranks(missing)),
        ("Unreadable or cut", _ranks([rank for rank, _ in unreadable])),
    ]
    return [
        element("dl", ((element("dt", name), element("dd", ranks)) for name, ranks in said)),
        table("Dumps that could not be read, or not to their end", ("rank", "why"), failed)
        if failed
        else None,
        _more(unreadable, MOST_UNREADABLE, "more dump"),
        _files(journal),
    ]


def _files(journal: Journal) -> Child:
    rows = [
        (
            f"rank {rank}",
            element("code", one.source.path),
            one.source.version or "unknown",
            f"{journal.bounds[place + 1] - journal.bounds[place]:,}",
            f"{one.overwritten:,}",
        )
        for place, (rank, one) in enumerate(list(journal.recordings.items())[:MOST_DUMPS])
    ]
    header = "rank", "file", "version", "entries", "overwritten before"
    table_of_files = table("Files", header, rows) if rows else None
    return [table_of_files, _more(journal.recordings, MOST_DUMPS, "more file")]


def notes_section(notes: Sequence[str]) -> Child:
    """What is worth knowing and no problem."""
    if not notes:
        return None
    listed = element("ul", (element("li", note) for note in notes[:MOST_NOTES]))
    return [listed, _more(notes, MOST_NOTES, "more note")]


def findings_section(findings: Sequence[Finding]) -> Child:
    """What did not fit."""
    if not findings:
        return None
    rows = [
        (
            one.severity.value,
            one.reason.replace("_", " "),
            one.message,
            f"{one.count:,}",
            element("code", one.source),
            element("code", one.example),
        )
        for one in in_order(findings)[:MOST_FINDINGS]
    ]
    header = "severity", "reason", "what", "count", "source", "example"
    return [table("What did not fit", header, rows), _more(findings, MOST_FINDINGS, "more finding")]


def checked_in_words(checked: Checked) -> str:
    """`8 ranks, 424 entries, 8 groups, 60 collectives`."""
    counts = [
        counted(checked.ranks, "rank"),
        counted(checked.entries, "entry"),
        counted(checked.groups, "group"),
        counted(checked.collectives, "collective"),
    ]
    counts += [counted(checked.messages, "message")] if checked.messages else []
    return ", ".join(counts)


def _ranks(ranks: Sequence[int]) -> str:
    return f"{counted(len(ranks), 'rank')}: {rank_list(ranks)}" if ranks else "none"


def _more(listed: Sized, most: int, thing: str) -> Child:
    hidden = len(listed) - most
    return element("p", f"{counted(hidden, thing)} not shown.") if hidden > 0 else None


# A diagnosis as one page: it needs nothing beside itself and runs nothing.


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


# The page as a file.


def write_page(examined: Examined, path: str) -> int:
    """Writes the page, which appears whole or not at all, and says how large the file is."""
    target = FileTarget(Path(path))
    with target.file() as stream:
        stream.write(html_report(examined.diagnosis, examined.journal).encode())
    return target.size()
