"""What the page says of graphs: collectives that are scheduled and that ran, estimates, orders, draft export."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tracelink.compiling.divergences import short
from tracelink.compiling.graphs import estimated_graphs, orders_of, repeated
from tracelink.compiling.html.rows import link, rows_of
from tracelink.compiling.model import CompileReport, Schedule
from tracelink.model.text import clipped, counted, duration, ranks_cell
from tracelink.show.markup import Child, element

MOST_OPERATIONS = 12
"""Collectives of a graph that are always shown."""
LONGEST_LIST = 20_000
"""Characters of the whole list, of which each line is short."""
MOST_STEPS = 200
"""Graphs of an order of execution."""


def schedules(report: CompileReport) -> Child:
    """The collectives of each graph, equal ones of several ranks in one row; and runs that called other ones."""
    same: defaultdict[tuple[str, int, tuple[str, ...]], list[Schedule]] = defaultdict(list)
    for one in report.schedules:
        same[one.id, one.graph, one.operations].append(one)
    rows = [
        (
            link(many[0].rank, id_),
            f"{graph}",
            ranks_cell(sorted({one.rank for one in many})),
            _operations(operations),
            _runs(many),
        )
        for (id_, graph, operations), many in sorted(same.items(), key=lambda item: item[0][:2])
    ]
    others = [
        (
            link(one.rank, one.id),
            "backward" if one.backward else "forward",
            f"{one.rank}",
            _operations(one.operations),
            f"{one.runs:,}",
        )
        for one in report.unscheduled
    ]
    if not rows:
        return None
    return [
        rows_of(
            "Runs that called other collectives", ("compile id", "pass", "rank", "called", "runs"), others
        ),
        rows_of(
            "In the order of each graph", ("compile id", "graph", "ranks", "collectives", "ran so"), rows
        ),
    ]


def _runs(many: Sequence[Schedule]) -> str | None:
    counts = sorted({one.runs for one in many if one.runs is not None})
    if not counts:
        return None
    words = counted(counts[0], "time") if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,} times"
    return f"{words} on each rank" if len(many) > 1 else words


def _operations(operations: Sequence[str]) -> Child:
    """Short names, equal ones in a row counted; the whole list on request."""
    if not operations:
        return "none"
    counts = repeated([short(name) for name in operations])
    shown = ", ".join(name if count == 1 else f"{name} x {count}" for name, count in counts[:MOST_OPERATIONS])
    more = f", and {len(counts) - MOST_OPERATIONS:,} more" if len(counts) > MOST_OPERATIONS else ""
    whole = clipped("\n".join(operations), LONGEST_LIST).split("\n")
    return element(
        "details",
        element("summary", shown + more),
        element("ol", (element("li", element("code", name)) for name in whole), class_="whole"),
    )


def estimates(report: CompileReport) -> Child:
    """What inductor thinks that each graph takes, those that differ between ranks first."""
    graphs = estimated_graphs(report)
    if not any(one.slowest_ns for one in graphs):
        some = counted(len(graphs), "graph")
        return element("p", f"Inductor estimated no time for {some}: it knows GPUs only.") if graphs else None
    rows = [
        (
            link(one.slowest, one.id),
            f"{one.graph}",
            ranks_cell(one.ranks),
            f"{one.operations:,}",
            duration(one.slowest_ns),
            f"{one.slowest}" if one.delta_ns else None,
            duration(one.collective_ns),
            duration(one.delta_ns) if one.delta_ns else "none",
        )
        for one in graphs
    ]
    header = (
        *("compile id", "graph", "ranks", "operations", "estimate"),
        *("on rank", "of it communication", "longer than on the fastest rank"),
    )
    return rows_of("One run of each graph, as inductor estimates it", header, rows)


def orders(report: CompileReport) -> Child:
    """The graphs that ran, in order; ranks with the same order are one row."""
    names = {one.id: one.function for one in report.compiles if one.function}
    ranks_of = {(one.id, one.rank) for one in report.compiles}

    def steps(ids: Sequence[str], rank: int) -> Child:
        counts = repeated(ids)
        shown: list[Child] = [
            [
                link(rank, id_) if (id_, rank) in ranks_of else f"[{id_}]",
                f" {names.get(id_, '')}{f' x {count}' if count > 1 else ''}; ",
            ]
            for id_, count in counts[:MOST_STEPS]
        ]
        hidden = len(counts) - MOST_STEPS
        return [shown, f"and {hidden:,} more" if hidden > 0 else None]

    rows = [
        (ranks_cell(sorted(ranks)), f"{len(ids):,}", steps(ids, min(ranks)))
        for ids, ranks in orders_of(report)
    ]
    return rows_of("Graphs that ran, the order of most ranks first", ("ranks", "graphs", "order"), rows)


def exports(report: CompileReport) -> Child:
    """What draft export met."""
    rows = [
        (
            one.what,
            element("code", one.about),
            one.reason or None,
            element("code", f"{one.file}:{one.line}") if one.file else None,
            f"{one.rank}",
            f"{one.count:,}",
        )
        for one in report.exports
    ]
    return rows_of("In the order of the log", ("what", "about", "reason", "at", "rank", "times"), rows)
