"""The page of a diagnosis: one HTML file with all sections, which loads nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.diagnosis.dumps.movement import movement_in_words
from tracelink.diagnosis.examine import Examined
from tracelink.diagnosis.html.pictures import arrow_head, patterns, standings_section
from tracelink.diagnosis.html.problems import problems_section
from tracelink.diagnosis.html.recent import recent_of, recent_section
from tracelink.diagnosis.html.witnesses import (
    conflicts_section,
    inputs_section,
    reports_section,
    stacks_section,
)
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.model import Checked, Diagnosis, Lateness
from tracelink.io.targets import file_target
from tracelink.io.temporary import abandoned_files_removed
from tracelink.model.columns import NO_TIME
from tracelink.model.findings import Finding, in_order
from tracelink.model.text import counted, duration, moment, name_in_words, rank_list
from tracelink.show.markup import Child, Markup, element, table
from tracelink.show.page import Assets, Sections, closing, left_out, opening, page_header, sections_of

MOST_LATE = 10
MOST_UNREADABLE = 100
MOST_NOTES = 50
MOST_FINDINGS = 100
MOST_DUMPS = 16


def write_page(examined: Examined, path: str) -> int:
    """Writes the page as a complete file and returns its size."""
    target = file_target(path)
    with abandoned_files_removed(path), target.file() as stream:
        stream.write(html_report(examined.diagnosis, examined.journal).encode())
    return target.size()


def html_report(diagnosis: Diagnosis, journal: Journal) -> str:
    """The page as a string."""
    assets = Assets.of(__package__ or "")
    body = "".join(part.text for part in _body(diagnosis, journal))
    return f"{opening(_verdict(diagnosis), assets)}{body}{closing('diagnose', assets)}"


def _verdict(diagnosis: Diagnosis) -> str:
    if diagnosis.problems:
        return diagnosis.problems[0].message
    known = diagnosis.checked.ranks
    of = f" of {known + len(diagnosis.missing):,}" if diagnosis.missing else ""
    return f"No problems in the dumps of {known:,}{of} rank{'s' if known != 1 else ''}."


def _body(diagnosis: Diagnosis, journal: Journal) -> list[Markup]:
    culprits = {rank for item in diagnosis.problems for rank in item.culprits}
    recent = recent_of(diagnosis, journal) if diagnosis.problems else None
    around = recent_section(recent, len(journal.ranks), culprits) if recent else None
    sections: Sections = {
        ("conflicts", "Sources that contradict each other"): conflicts_section(diagnosis.witnesses),
        ("stacks", "Stacks"): stacks_section(diagnosis.witnesses),
        ("standings", "How far each rank got"): standings_section(diagnosis.standings, culprits),
        ("recent", "Calls around the problem"): around,
        ("lateness", "Late ranks"): lateness_section(diagnosis.lateness),
        ("notes", "Notes"): notes_section([*_movement(diagnosis), *diagnosis.notes]),
        ("watchdog", "Watchdog lines"): reports_section(diagnosis.witnesses),
        ("dumps", "Dumps"): dumps_section(diagnosis, journal),
        ("files", "Files"): inputs_section(diagnosis.witnesses),
        ("findings", "Findings"): findings_section(diagnosis.findings),
    }
    shared = element("defs", arrow_head(), patterns())
    return [
        _header(diagnosis, journal, sections),
        element("svg", shared, width=0, height=0, class_="shared", aria_hidden="true"),
        element(
            "main",
            problems_section(diagnosis.problems, _descriptions(diagnosis)),
            sections_of(sections),
        ),
    ]


def _movement(diagnosis: Diagnosis) -> list[str]:
    return [movement_in_words(diagnosis.movement)] if diagnosis.movement else []


def _descriptions(diagnosis: Diagnosis) -> dict[str, str]:
    """Descriptions of groups by name."""
    return {item.group: item.description for item in diagnosis.standings}


def _header(diagnosis: Diagnosis, journal: Journal, sections: Sections) -> Markup:
    """The verdict, what it is based on, and links to the sections."""
    more = len(diagnosis.problems) - 1
    also = element("p", f"And {counted(more, 'more problem')}; the worst comes first.") if more > 0 else None
    agree = "" if diagnosis.problems else " All ranks joined; operations, dtypes and sizes agree."
    summary = f"Checked: {checked_in_words(diagnosis.checked)}.{agree}"
    last = int(journal.records.created.max()) if len(journal) else NO_TIME
    if last != NO_TIME:
        summary += f" The last entry was created at {moment(last)}."
    return page_header(
        _verdict(diagnosis),
        also,
        element("p", summary, _gaps(diagnosis), class_="aside"),
        sections=[names for names, content in sections.items() if content is not None],
        class_=diagnosis.verdict,
    )


def _gaps(diagnosis: Diagnosis) -> str:
    """What was missing."""
    missing = f" {counted(len(diagnosis.missing), 'dump')} missing." if diagnosis.missing else ""
    failed = len(diagnosis.unreadable)
    return missing + (f" {counted(failed, 'dump')} unreadable or truncated." if failed else "")


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


# Sections after the problems.


def lateness_section(lateness: Sequence[Lateness]) -> Child:
    """Which ranks arrived last, and what that cost the others."""
    if not lateness:
        return None
    rows = [
        (
            f"rank {late.rank}",
            f"{late.collectives:,} of {late.of:,} collectives",
            duration(late.worst_ns),
            f"#{late.sequence} of group {name_in_words(late.group)}",
            duration(late.total_ns),
        )
        for late in lateness[:MOST_LATE]
    ]
    header = "rank", "arrived last at", "latest by", "in", "others waited for it"
    return [table("By creation times", header, rows), left_out(lateness, MOST_LATE, "more rank")]


def dumps_section(diagnosis: Diagnosis, journal: Journal) -> Child:
    """Which dumps were read, could not be read, or are missing."""
    missing, unreadable = diagnosis.missing, sorted(diagnosis.unreadable.items())
    failed = [(f"rank {rank}", why or "unknown") for rank, why in unreadable[:MOST_UNREADABLE]]
    lists = [
        ("Read", _ranks(diagnosis.present)),
        ("Missing", _ranks(missing)),
        ("Unreadable or truncated", _ranks([rank for rank, _ in unreadable])),
    ]
    return [
        element("dl", ((element("dt", name), element("dd", ranks)) for name, ranks in lists)),
        table("Dumps that are unreadable or truncated", ("rank", "why"), failed) if failed else None,
        left_out(unreadable, MOST_UNREADABLE, "more dump"),
        _files(journal),
    ]


def _ranks(ranks: Sequence[int]) -> str:
    return f"{counted(len(ranks), 'rank')}: {rank_list(ranks)}" if ranks else "none"


def _files(journal: Journal) -> Child:
    rows = [
        (
            f"rank {rank}",
            element("code", recording.source.path),
            recording.source.version or "unknown",
            f"{journal.bounds[index + 1] - journal.bounds[index]:,}",
            f"{recording.overwritten:,}",
        )
        for index, (rank, recording) in enumerate(list(journal.recordings.items())[:MOST_DUMPS])
    ]
    header = "rank", "file", "version", "entries", "overwritten entries"
    table_of_files = table("Files", header, rows) if rows else None
    return [table_of_files, left_out(journal.recordings, MOST_DUMPS, "more file")]


def notes_section(notes: Sequence[str]) -> Child:
    """Observations that are not problems."""
    if not notes:
        return None
    listed = element("ul", (element("li", note) for note in notes[:MOST_NOTES]))
    return [listed, left_out(notes, MOST_NOTES, "more note")]


def findings_section(findings: Sequence[Finding]) -> Child:
    """Findings of reading and diagnosing."""
    if not findings:
        return None
    rows = [
        (
            finding.severity.value,
            finding.reason.replace("_", " "),
            finding.message,
            f"{finding.count:,}",
            element("code", finding.source),
            element("code", finding.example),
        )
        for finding in in_order(findings)[:MOST_FINDINGS]
    ]
    header = "severity", "reason", "message", "count", "source", "example"
    return [table("Findings", header, rows), left_out(findings, MOST_FINDINGS, "more finding")]
