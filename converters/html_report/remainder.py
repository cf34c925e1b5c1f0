"""What stands under the problems: who comes late, what was read and what was not, and what was checked."""

from __future__ import annotations

from collections.abc import Sequence, Sized

from tracelink.analysis.wording import duration
from tracelink.converters.html_report.markup import Child, element
from tracelink.converters.html_report.tables import table
from tracelink.converters.html_report.texts import counted, name_in_words, rank_list
from tracelink.diagnosis import Checked, Diagnosis, Lateness
from tracelink.findings import Finding, in_order
from tracelink.journal import Journal

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
