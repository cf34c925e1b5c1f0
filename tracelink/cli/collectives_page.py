"""What `collectives` shows: who keeps whom waiting, and a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from tracelink.analysis.arrivals import Arrivals, arrivals
from tracelink.cli.choice import WORST_FIRST, Choice, Order, labels
from tracelink.cli.found import show_findings
from tracelink.cli.listing import span
from tracelink.cli.page import NOTHING, Page, counted, number, size
from tracelink.cli.together import Row, Rows, collective_columns, message_columns, ranks_in, rows_of, verdicts
from tracelink.collectives import Participations, Verdict
from tracelink.communications import UNKNOWN
from tracelink.events import NO_TIME
from tracelink.job import Job
from tracelink.ranges import Numbers

HEADER = (
    "group",
    "sequence",
    "operation",
    "ranks",
    "bytes",
    "start",
    "duration",
    "skew",
    "wait",
    "last rank",
    "bus GB/s",
    "verdict",
)
NUMBERS = tuple(name for name in HEADER if name not in ("group", "operation", "ranks", "verdict"))
OPTIONAL = ("wait", "start", "ranks", "bytes")
MESSAGES = ("group", "from", "to", "tag", "bytes", "sent", "took", "verdict")
MESSAGE_NUMBERS = ("from", "to", "tag", "bytes", "sent", "took")

SMALLEST_RATE = 0.001

NAME = 32
ABSENT = 16
"""Letters that are shown of a group's name, and of a list of ranks."""


def collectives_page(
    job: Job, choice: Choice, shown: int | None, *, list_messages: bool, verbose: bool
) -> str:
    """What is chosen in all, and at most `shown` rows of it."""
    page = Page()
    rows, messages = choice.collectives, choice.messages
    if len(rows):
        _summarise(page, job, choice)
        page.line()
        _show_collectives(page, job, rows[:shown])
        _show_more(page, rows, shown)
    else:
        page.line("no collectives: the sources record none, or none of what was asked for")
    if len(messages) and list_messages:
        page.line()
        _show_messages(page, job, messages[:shown])
        _show_more(page, messages, shown)
    elif len(messages):
        page.line(f"{counted(len(messages), 'message')} from rank to rank; --messages lists them", "dim")
    show_findings(page, job.findings, verbose=verbose)
    return page.text


def _summarise(page: Page, job: Job, choice: Choice) -> None:
    rows = choice.collectives
    words = verdicts(job)[rows]
    loose = int(np.count_nonzero(words == Verdict.UNMATCHED))
    parts = _of_collectives(job.participations, rows)
    groups = len(np.unique(job.collectives.group[rows]))
    page.line(
        f"{counted(len(rows) - loose, 'collective')} in {counted(groups, 'group')}"
        f" on {counted(len(np.unique(parts.rank)), 'rank')}",
        "bold",
    )
    _show_slowest(page, job, rows)
    _show_latest(page, job, arrivals(job.collectives, parts))
    counts = Counter(words.tolist())
    odd = [
        f"{number(counts[word])} {word}" for word in WORST_FIRST if counts[word] and word != Verdict.COMPLETE
    ]
    if odd:
        advice = "" if choice.order is Order.VERDICT else "; --sort verdict shows them first"
        page.line(f"not complete: {', '.join(odd)}{advice}", "yellow")
    table = job.collectives
    if asked := np.count_nonzero((table.start[rows] == NO_TIME) & (table.skew[rows] != UNKNOWN)):
        page.line(
            f"of {number(int(asked))} it is only known when ranks asked for them: their skew and wait rest on that"
        )
    _show_doubt(page, job)


def _of_collectives(participations: Participations, rows: Rows) -> Participations:
    wanted = np.isin(participations.collective, rows)
    return Participations(*(column[wanted] for column in participations.columns().values()))


def _show_slowest(page: Page, job: Job, rows: Rows) -> None:
    slowest = rows[[np.argmax(job.collectives.duration[rows])]]
    (row,) = rows_of(collective_columns(job, slowest))
    if row["duration_ns"] is not None:
        group = _short(labels(job), int(job.collectives.group[slowest[0]]))
        place = "" if row["sequence"] is None else f" {row['sequence']}"
        page.line(f"slowest: {row['operation']}{place} of group {group}: {span(row['duration_ns'])}")


def _show_latest(page: Page, job: Job, counts: Arrivals) -> None:
    if not len(counts):
        why = (
            "only one rank was read; name the traces of all"
            if len(job.ranks) == 1
            else "the sources do not tell when ranks entered"
        )
        page.line(f"who came last is not known: {why}")
        return
    latest = int(np.argmax(counts.last))
    share = counts.last[latest] / counts.collectives[latest]
    page.line(
        f"last most often: rank {counts.rank[latest]}, in {100 * share:.0f} % of its "
        f"{counted(int(counts.collectives[latest]), 'collective')}; "
        f"the others waited {span(int(counts.waited_for[latest]))} for it, all together"
    )


def _show_doubt(page: Page, job: Job) -> None:
    """How far apart clocks can be: smaller skews say nothing."""
    doubts = [rank.clock_uncertainty_ns for rank in job.ranks]
    known = [doubt for doubt in doubts if doubt is not None]
    if known and len(known) < len(doubts):
        page.line("nothing bounds some clocks, so skews can be wrong; see `tracelink clocks`", "yellow")
    elif any(known):
        page.line(f"clocks are known to ± {span(max(known))}: smaller skews say nothing", "dim")


def _show_collectives(page: Page, job: Job, rows: Rows) -> None:
    groups = labels(job)
    table = rows_of(collective_columns(job, rows))
    place = "sequence" if any(row["sequence"] is not None for row in table) else "order"
    complete = all(row["verdict"] == Verdict.COMPLETE for row in table)
    header = [place if name == "sequence" else name for name in HEADER]
    cells = [
        _cells(job, row, _short(groups, group), parts, place)
        for row, group, parts in zip(
            table, job.collectives.group[rows].tolist(), ranks_in(job, rows), strict=True
        )
    ]
    _show_known(page, header[: len(header) - complete], cells, whole=complete)


def _show_known(page: Page, header: Sequence[str], cells: Sequence[Sequence[str]], *, whole: bool) -> None:
    """A table of those columns of which anything is known; who is absent is told however little room there is."""
    known = [place for place in range(len(header)) if any(row[place] != NOTHING for row in cells)]
    page.table(
        [header[place] for place in known],
        [[row[place] for place in known] for row in cells],
        numbers=[*NUMBERS, "order", *(["ranks"] if whole else [])],
        optional=[name for name in OPTIONAL if whole or name != "ranks"],
    )


def _cells(job: Job, row: Row, group: str, parts: Sequence[int], place: str) -> list[str]:
    return [
        group,
        _said(row[place]),
        _said(row["operation"]),
        _of_members(parts, row["ranks"]),
        NOTHING if row["bytes"] is None else size(row["bytes"]),
        _since(job, row["start_ns"]),
        _lasting(row["duration_ns"]),
        _lasting(row["skew_ns"]),
        _lasting(row["wait_ns"]),
        _said(row["last_rank"]),
        NOTHING if row["bus_gb_s"] is None else rate(row["bus_gb_s"]),
        _said(row["verdict"]),
    ]


def _of_members(parts: Sequence[int], members: Sequence[int]) -> str:
    """8, or 7 of 8, not 3."""
    absent = Numbers.of(set(members) - set(parts))
    if not absent:
        return number(len(parts))
    return f"{number(len(parts))} of {number(len(members))}, not {_cut(str(absent), ABSENT)}"


def _show_messages(page: Page, job: Job, rows: Rows) -> None:
    groups = labels(job)
    cells = [
        [
            _short(groups, group),
            _said(row["source"]),
            _said(row["target"]),
            _said(row["tag"]),
            NOTHING if row["bytes"] is None else size(row["bytes"]),
            _since(job, row["sent_ns"]),
            NOTHING
            if row["sent_ns"] is None or row["received_ns"] is None
            else span(row["received_ns"] - row["sent_ns"]),
            _said(row["verdict"]),
        ]
        for row, group in zip(
            rows_of(message_columns(job, rows)), job.messages.group[rows].tolist(), strict=True
        )
    ]
    page.table(MESSAGES, cells, numbers=MESSAGE_NUMBERS, optional=("tag", "verdict"))


def _show_more(page: Page, rows: Rows, shown: int | None) -> None:
    if shown is not None and len(rows) > shown:
        page.line(f"{number(len(rows) - shown)} more; --limit 0 shows all", "dim")


def _short(groups: Sequence[str], group: int) -> str:
    if not 0 <= group < len(groups):
        return NOTHING
    return _cut(groups[group], NAME)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _said(value: object) -> str:
    return NOTHING if value is None else str(value)


def _since(job: Job, time: int | None) -> str:
    return NOTHING if time is None or job.first_ns is None else span(time - job.first_ns)


def _lasting(ns: int | None) -> str:
    return NOTHING if ns is None else span(ns)


def rate(gb_s: float) -> str:
    """1,234, 12.3, 1.23, 0.012, <0.001."""
    if 0 < gb_s < SMALLEST_RATE:
        return f"<{SMALLEST_RATE}"
    digits = 0 if gb_s >= 100 else 1 if gb_s >= 10 else 2 if gb_s >= 1 else 3
    return f"{gb_s:,.{digits}f}"
