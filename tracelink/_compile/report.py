"""The report of `tracelink compile`: what is open, what differs, what failed; then functions, by cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import asdict, replace

from tracelink._compile.graphs import (
    EstimatedGraph,
    estimated_graphs,
    operations_in_words,
    orders_of,
    repeated,
)
from tracelink._compile.model import (
    Compiled,
    CompileReport,
    Execution,
    Schedule,
    Status,
    Unscheduled,
)
from tracelink._compile.summary import (
    Reason,
    anchor,
    breaks_of,
    caches_in_words,
    first_line,
    functions_of,
    guards_of,
    headlines,
    summary,
    unamortised,
)
from tracelink._model.fields import Ranks, Shown
from tracelink._model.text import counted, duration, number
from tracelink._show.document import (
    Block,
    Chart,
    Details,
    Facts,
    Items,
    Medium,
    Only,
    Paragraph,
    Report,
    Section,
    Table,
    Tone,
)
from tracelink._show.markup import Child, element
from tracelink._show.page import left_out

if TYPE_CHECKING:
    from tracelink._compile.reading import Read

MOST_ROWS = 12
"""Rows of a table without -v."""
MOST_UNAMORTISED = 3
MOST_STEPS, MOST_LINKS, MOST_OPERATIONS = 200, 12, 500
"""Graphs of an order of execution, links of a cell, and collectives of a graph that a page lists."""
TONES = {
    Status.ERROR.value: Tone.PROBLEM,
    Status.OPEN.value: Tone.PROBLEM,
    Status.BREAK.value: Tone.WARNING,
}
PAGE = (Medium.HTML,)
Drawn = Mapping[str, Callable[[Any], Child]]


class Page:
    """The links to compilations, if they are on the page."""

    def __init__(self, report: CompileReport, logs: Read | None) -> None:
        self.logs = logs
        self._known = {(one.rank, one.id) for one in report.compiles} if logs else set()
        self._known |= {
            (rank, artifact.compile_id)
            for rank, of_rank in (logs.logs.items() if logs else ())
            for log in of_rank
            for artifact in log.artifacts
        }

    def drawn(self, **cells: Callable[[Any], Child]) -> Drawn:
        """What cells are on the page."""
        return cells if self.logs else {}

    def link(self, rank: int, compile_id: str) -> Child:
        """A link to a compile id, if the page has it."""
        text = f"[{compile_id}]" if compile_id else ""
        known = (rank, compile_id) in self._known
        return element("a", text, href=f"#{anchor(rank, compile_id)}") if text and known else text

    def of_row(self, row: Any) -> Child:
        """The link to the compile id of a row."""
        return self.link(row.rank, row.id)

    def links(self, ids: Iterable[tuple[str, int]]) -> Child:
        """Links to compile ids, each with a rank that has it."""
        listed = list(ids)
        hidden = len(listed) - MOST_LINKS
        shown = ([self.link(rank, id_), " "] for id_, rank in listed[:MOST_LINKS])
        return [shown, f"and {hidden:,} more" if hidden > 0 else None]


def report_of(report: CompileReport, logs: Read | None = None) -> Report:
    """The document of a report; with its logs, a page has each compilation with its artifacts."""
    lines, sentence = headlines(report), summary(report)
    page = Page(report, logs)
    return Report(
        "compile",
        lines[0] if lines else sentence,
        Tone.PROBLEM if lines else Tone.GOOD,
        [Items(lines[1:], MOST_ROWS - 1, "problem"), Paragraph(sentence)] if lines else [],
        [*_costs(report, page), *_details(report, page)],
        report.findings,
        "tracelink._compile" if logs else "",
    )


# What to act on: functions, guards, collectives, graph breaks, caches.


def _costs(report: CompileReport, page: Page) -> Iterator[Section]:
    functions, ids = functions_of(report), page.drawn(ids=lambda row: page.links(row.ids.items()))
    yield Section("When and how long", [Only(PAGE, lambda: _charts(report, page))], "times")
    columns: Sequence[str] = (
        *("function", "file", "called_at", "ranks", "compiled", "recompiled", "breaks", "failed"),
        *("time_ns", "runtime_ns"),
    )
    table = Table(functions, "The most costly first", columns, brief=MOST_ROWS, thing="function", drawn=ids)
    yield Section("Functions", [table, Items(unamortised(functions), MOST_UNAMORTISED, "function")])
    guards = _reasons(guards_of(report.compiles), "guard", "recompiled because", ids)
    yield Section("Recompilations", [guards])
    yield Section("Collectives that waited", [_delays(report, page)], "delays")
    breaks = _reasons(breaks_of(report), "reason", "graph break", ids)
    yield Section("Graph breaks", [breaks], "breaks")
    yield Section("Runs that called other collectives", [_other_runs(report, page)], "unscheduled")
    yield Section("Estimated times", list(_estimates(report, page)), "estimates")
    hits = Table(
        report.partial_hits,
        "Caches that hit on some ranks only",
        ("cache", "id", "function", "hit", "missed"),
        brief=MOST_ROWS,
        thing="graph",
        drawn=page.drawn(id=lambda row: page.link(row.hit[0], row.id)),
    )
    yield Section("Caches", [Items(caches_in_words(report)), hits])
    columns = ("what", "about", "reason", "file", "line", "rank", "count")
    exports = Table(report.exports, "In the order of the log", columns, brief=MOST_ROWS, thing="note")
    yield Section("Draft export", [exports], "export")


def _charts(report: CompileReport, page: Page) -> Iterator[Block]:
    from tracelink._compile.charts import charts_of

    return (Chart(plot.svg, plot.title) for plot in charts_of(report, linked=page.logs is not None))


def _reasons(rows: Sequence[Reason], by: str, heading: str, drawn: Drawn) -> Table:
    columns = ("reason", "line", "function", "ranks", "times", "time_ns")
    title = f"The most costly first, by {by}"
    return Table(rows, title, columns, {"reason": heading}, MOST_ROWS, by, drawn=drawn)


def _delays(report: CompileReport, page: Page) -> Table:
    return Table(
        report.delays,
        "The longest first",
        ("operation", "sequence", "group", "delay_ns", "rank", "function", "ids", "waiting"),
        brief=MOST_ROWS,
        thing="collective",
        drawn=page.drawn(ids=lambda row: page.links((id_, row.rank) for id_ in row.ids)),
    )


def _other_runs(report: CompileReport, page: Page) -> Table:
    columns = ("function", "backward", "id", "rank", "runs", "operations")
    drawn = page.drawn(id=page.of_row, operations=_whole)
    return Table(report.unscheduled, "By graph", columns, brief=MOST_ROWS, thing="graph", drawn=drawn)


def _whole(row: Schedule | Unscheduled) -> Child:
    """Short names of collectives, and the whole list on request."""
    whole = (element("li", element("code", name)) for name in row.operations[:MOST_OPERATIONS])
    more = left_out(row.operations, MOST_OPERATIONS, "more collective")
    summary = element("summary", operations_in_words(row.operations))
    return (
        element("details", summary, element("ol", whole, class_="whole"), more) if row.operations else "none"
    )


def _estimates(report: CompileReport, page: Page) -> Iterator[Block]:
    graphs: list[EstimatedGraph] = estimated_graphs(report)
    if not any(one.time_ns for one in graphs):
        some = counted(len(graphs), "graph")
        words = f"Inductor estimated no time for {some}: it knows GPUs only."
        yield Only(PAGE, [Paragraph(words)] if graphs else [])
        return
    yield Table(
        graphs,
        "One run of each graph, as inductor estimates it, on the slowest rank",
        ("id", "graph", "rank", "time_ns", "fastest_ns", "delta_ns", "ranks", "operations", "collective_ns"),
        {"rank": "slowest rank", "time_ns": "estimate"},
        brief=min(MOST_ROWS, sum(one.delta_ns > 0 for one in graphs)),
        thing="graph",
        drawn=page.drawn(id=page.of_row),
        together=("time_ns", "fastest_ns", "delta_ns", "collective_ns"),
    )


# The rows one by one: what failed, differs or is open, graphs, compilations, logs.


def _details(report: CompileReport, page: Page) -> Iterator[Section]:
    drawn = page.drawn(id=page.of_row)
    columns: Sequence[str] = ("function", "rank", "id", "type", "reason", "file", "line")
    failures = Table(report.failures, "All ranks", columns, drawn=drawn)
    yield Section("Failures", [failures], verbose=True, titled=True)
    first = {one.id: one.rank for one in reversed(report.compiles)}
    drawn_first = page.drawn(id=lambda row: page.link(first.get(row.id, -1), row.id))
    differing = Table(report.divergences, "At the first record that differs", drawn=drawn_first)
    yield Section("Differences between ranks", [differing], "divergences", verbose=True, titled=True)
    columns = ("name", "rank", "id", "function", "for_ns")
    phases = Table(report.open, "The longest first", columns, drawn=drawn)
    yield Section("Open at the end", [phases], "open", verbose=True, titled=True)
    made = Only(tuple(Medium), lambda: [_schedules(report, page)])
    yield Section("Collectives of graphs", [made], "schedules", verbose=True, titled=True)
    made = Only(tuple(Medium), lambda: [_orders(report, page)])
    yield Section("Order of execution", [made], "order", verbose=True, titled=True)
    if page.logs:
        yield from _program(page.logs, page)
    yield _logs(report)
    yield Section("Compilations", [_compilations(report, page)], verbose=True, titled=True)


def _program(logs: Read, page: Page) -> Iterator[Section]:
    """Where compiled functions were called, and what the compiler said."""
    from tracelink._compile.charts import stack_tree
    from tracelink._compile.page import messages

    made = Only(PAGE, lambda: stack_tree(logs.logs, page.link))
    yield Section("Where functions were called", [made], "stacks")
    yield Section("As TORCH_LOGS prints it", [Only(PAGE, lambda: messages(logs.logs, page.link))], "messages")


def _logs(report: CompileReport) -> Section:
    columns = ("path", "rank", "version", "records", "bytes")
    files = Table(report.sources, "Files", columns, {"version": "torch"})
    counts = {"Artifacts": report.artifacts, "Records": report.kinds}
    folded = [
        Details(f"{name} by name", [Facts({one: number(count) for one, count in some.items()})])
        for name, some in counts.items()
    ]
    return Section("Logs", [files, *folded], verbose=True)


class Scheduled(Schedule, frozen=True):
    """The collectives of one graph on all ranks on which it has the same ones, and ran as often."""

    ranks: Ranks = ()
    collectives: Annotated[str, Shown(longest=100)] = ""


def _schedules(report: CompileReport, page: Page) -> Table:
    ranks: defaultdict[Schedule, list[int]] = defaultdict(list)
    for one in report.schedules:
        ranks[replace(one, rank=0)].append(one.rank)
    rows = [
        Scheduled(
            **asdict(one) | {"rank": some[0]},
            ranks=sorted(some),
            collectives=operations_in_words(one.operations),
        )
        for one, some in sorted(ranks.items(), key=lambda item: (item[0].id, item[0].graph))
    ]
    columns = ("id", "graph", "ranks", "collectives", "runs")
    drawn = page.drawn(id=page.of_row, collectives=_whole)
    return Table(rows, "In the order of each graph", columns, drawn=drawn)


class Order(Execution, frozen=True):
    """The graphs that ran, on all ranks on which they ran in the same order."""

    ranks: Ranks = ()
    graphs: int = 0
    order: Annotated[str, Shown(longest=100)] = ""


def _orders(report: CompileReport, page: Page) -> Table:
    rows = [Order(ranks[0], ids, ranks, len(ids), _steps(ids)) for ids, ranks in orders_of(report)]
    names = {one.id: one.function for one in report.compiles if one.function}

    def steps(row: Order) -> Child:
        counts = repeated(row.ids)
        shown: list[Child] = [
            [page.link(row.rank, id_), f" {names.get(id_, '')}{f' x {count}' if count > 1 else ''}; "]
            for id_, count in counts[:MOST_STEPS]
        ]
        hidden = len(counts) - MOST_STEPS
        return [shown, f"and {hidden:,} more" if hidden > 0 else None]

    columns = ("ranks", "graphs", "order")
    return Table(rows, "The order of most ranks first", columns, drawn=page.drawn(order=steps))


def _steps(ids: Sequence[str]) -> str:
    counts = repeated(ids[:MOST_STEPS])
    return "; ".join(f"[{id_}]{f' x {count}' if count > 1 else ''}" for id_, count in counts)


class Timed(Compiled, frozen=True, kw_only=True):
    """A compilation with its stages in words."""

    reason: Annotated[str, Shown("because", drop=2, longest=100)] = ""
    stage_times: Annotated[str, Shown("stages", drop=1, longest=100)] = ""


def _compilations(report: CompileReport, page: Page) -> Only:
    """A row for each one; on a page with the logs all of it."""
    logs = page.logs
    if logs is None:
        return Only(tuple(Medium), lambda: [_timed(report.compiles)])
    from tracelink._compile.page import compilations

    return Only(PAGE, lambda: compilations(logs, page.link))


def _timed(compiles: Sequence[Compiled]) -> Table:
    rows = [
        Timed(
            **asdict(one)
            | {
                "function": f"{'backward of ' if one.backward else ''}{one.function}".strip(),
                "reason": first_line(one.reason),
            },
            stage_times=", ".join(f"{name} {duration(time)}" for name, time in one.stages.items()),
        )
        for one in compiles
    ]
    names = "rank", "id", "function", "status", "start_ns", "duration_ns", "recompile_of", "reason"
    return Table(rows, "In the order of time", (*names, "stage_times"), tones=TONES)
