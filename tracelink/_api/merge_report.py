"""The report of `tracelink merge`: how many events were linked, and what was merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from msgspec import defstruct

from tracelink._api.outputs import RELATIONS, Merged, RankLinks
from tracelink._model.fields import Count, Row, Shown
from tracelink._model.graph import LinkReport
from tracelink._model.text import counted, number, span
from tracelink._show.document import Block, Medium, Only, Paragraph, Report, Section, Table, Tone

ROWS = 16
"""Jobs with more ranks have one row for all of them."""

LEFT_OUT = "left_out"
IN_REPORT = ("unlinked.", LEFT_OUT)
"""Reasons of findings that other lines of the report contain already, as prefixes."""

RELATION_NAMES = {
    "same.et_kineto": "ET = Kineto",
    "same.recorder_kineto": "recorder = Kineto",
    "same.nsys": "nsys = Kineto",
    "same.compile_kineto": "compile log = Kineto",
    "compiles.region": "compiled regions",
    "compiles.backward": "compiled backward passes",
    "compiles.graph": "calls of compiled graphs",
    "compiles.kernel": "generated kernels",
    "compiles.code": "calls of generated code",
    "compiles.recorder": "collectives in generated code",
}
SOMETIMES = ("compiles.region", "same.nsys")
"""Shown in the table if there is a compile log, or if Nsight Systems and a profiler recorded the same process."""


def report_of(merged: Merged) -> Report:
    """The document of the links of each rank, of what was matched across ranks, and of the files."""
    ranks = merged.ranks
    of_each = [
        (relation, [rank for rank in ranks if relation in rank.links])
        for relation in dict.fromkeys(relation for rank in ranks for relation in rank.links)
    ]
    unlinked = [block for relation, some in of_each for block in _unlinked(relation, some)]
    notes = [block for relation, some in of_each for block in _notes(relation, some)]
    return Report(
        "merge",
        _headline(merged),
        sections=[
            Section("Links", [*_table(ranks), *unlinked, *_absent(ranks), *_matches(merged)]),
            Section("Notes on links", notes, verbose=True),
            Section("Files", [Only((Medium.HTML, Medium.MARKDOWN), [Table(merged.outputs, thing="file")])]),
        ],
        findings=[one for one in merged.findings if not one.reason.startswith(IN_REPORT)],
    )


def _headline(merged: Merged) -> str:
    if not merged.ranks:
        formats = ", ".join(dict.fromkeys(output.format for output in merged.outputs))
        return f"Converted to {formats}." if formats else "Nothing was merged."
    events = sum(rank.events for rank in merged.ranks)
    return f"Linked {counted(events, 'event')} of {counted(len(merged.ranks), 'rank')}."


def summed(reports: Iterable[LinkReport]) -> LinkReport:
    """One report on the same relation of several ranks."""
    relation, linked, candidates = "", 0, 0
    unlinked: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    for report in reports:
        relation = report.relation
        linked += report.linked
        candidates += report.candidates
        unlinked.update(report.unlinked)
        notes.update(report.notes)
    return LinkReport(relation, linked, candidates, unlinked, notes)


def _table(ranks: Sequence[RankLinks]) -> Iterator[Block]:
    """A row for each rank, or one for many, with a column for each relation."""
    if not ranks:
        return
    relations = [*RELATIONS, *(one for one in SOMETIMES if any(one in rank.links for rank in ranks))]
    columns = {
        f"links_{index}": Annotated[str | None, Shown(relation_name(relation), right=True)]
        for index, relation in enumerate(relations)
    }
    row = defstruct(
        "RankRow", [("rank", str), ("events", Count), *columns.items()], bases=(Row,), frozen=True
    )
    if len(ranks) > ROWS:
        rows = [_row(row, counted(len(ranks), "rank"), ranks, relations)]
    else:
        rows = [_row(row, str(rank.rank), [rank], relations) for rank in ranks]
    nothing = {
        cell for one in rows for name in columns if (cell := getattr(one, name) or "").startswith("0 of")
    }
    yield Table(rows, thing="rank", from_right=True, tones=dict.fromkeys(nothing, Tone.PROBLEM))


def _row(row: Any, label: str, ranks: Sequence[RankLinks], relations: Sequence[str]) -> Any:
    totals = [
        summed(rank.links[relation] for rank in ranks if relation in rank.links) for relation in relations
    ]
    return row(label, sum(rank.events for rank in ranks), *map(_share, totals))


def _share(report: LinkReport) -> str | None:
    return f"{number(report.linked)} of {number(report.candidates)}" if report.candidates else None


def _unlinked(relation: str, ranks: Sequence[RankLinks]) -> Iterator[Block]:
    """The events that were not linked, with reasons; ranks without any link first."""
    name = relation_name(relation)
    empty = [rank for rank in ranks if rank.links[relation].candidates and not rank.links[relation].linked]
    if empty:
        total = summed(rank.links[relation] for rank in empty)
        where = f"rank{'' if len(empty) == 1 else 's'} {_some([rank.rank for rank in empty])}"
        yield Paragraph(
            f"{name}: nothing linked on {where} ({_share(total)}): {_reasons(total.unlinked)}.", Tone.PROBLEM
        )
    report = summed(rank.links[relation] for rank in ranks if rank not in empty)
    if report.candidates > report.linked:
        missing = f"{number(report.candidates - report.linked)} of {number(report.candidates)}"
        yield Paragraph(f"{name}: {missing} not linked: {_reasons(report.unlinked)}.")


def _notes(relation: str, ranks: Sequence[RankLinks]) -> Iterator[Block]:
    notes = summed(rank.links[relation] for rank in ranks).notes
    if notes:
        yield Paragraph(f"note: {relation_name(relation)}: {_reasons(notes)}.", Tone.ASIDE)


def _absent(ranks: Sequence[RankLinks]) -> Iterator[Block]:
    absent = [
        relation_name(name) for name in RELATIONS if not any(rank.links[name].candidates for rank in ranks)
    ]
    if absent and ranks:
        yield Paragraph(f"Nothing to link: the sources do not record {', '.join(absent)}.", Tone.ASIDE)


def _matches(merged: Merged) -> Iterator[Block]:
    """The matches across ranks, the correction of clocks, what was left out, and what was kept."""
    counts = [
        counted(count, thing)
        for count, thing in ((merged.collectives, "collective"), (merged.messages, "message"))
        if count
    ]
    if counts:
        yield Paragraph(f"Matched across ranks: {' and '.join(counts)} (`tracelink collectives` lists them).")
    if furthest := merged.clocks_corrected_ns:
        yield Paragraph(
            f"Clocks corrected by up to {span(furthest)} (`tracelink clocks` shows how they were estimated)."
        )
    for finding in merged.findings:
        if finding.reason == LEFT_OUT:
            yield Paragraph(f"Left out: {finding.message}")
    if merged.resumed:
        ranks = counted(len(merged.ranks), "rank")
        yield Paragraph(f"Resumed: an earlier run had read {number(merged.resumed)} of {ranks}.")


def _reasons(counts: Mapping[str, int]) -> str:
    if not counts:
        return "the reason is unknown"
    return ", ".join(f"{reason} ({number(count)})" for reason, count in counts.items())


def _some(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:ROWS]))
    return f"{shown} and {number(len(ranks) - ROWS)} more" if len(ranks) > ROWS else shown


def relation_name(relation: str) -> str:
    """A relation as people read it: `backward of`, `ET = Kineto`."""
    return RELATION_NAMES.get(relation) or relation.replace(".", " ").replace("_", " ")
