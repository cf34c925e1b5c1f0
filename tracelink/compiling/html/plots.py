"""Plots of the page: when each rank compiled, and how long each stage took on each rank and for each function."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tracelink.compiling.html.rows import anchor
from tracelink.compiling.model import Compiled, CompileReport, Status
from tracelink.compiling.summary import names_of_functions
from tracelink.model.text import counted, duration, shortened
from tracelink.show.markup import Child, Markup, element, framed

WIDTH, LABEL, ROW, BAR = 1000, 220, 24, 16
"""Of a plot in its own units: all of it, the names at the left, a row, and the bar in it."""
MOST_BARS = 24
MOST_RANKS = 64
MOST_BOXES = 3000
"""Compilations in the plot of times: the longest."""
LONGEST_LABEL = 26
STAGES = ("dynamo", "aot_autograd", "inductor", "code_gen", "triton")
"""Each contains the next one."""
NAMES = {
    "dynamo": "tracing and guards",
    "aot_autograd": "AOTAutograd",
    "inductor": "inductor passes",
    "code_gen": "code generation",
    "triton": "compiling kernels",
    "backward": "backward, around the graph",
    "other": "not known",
}


def times_plot(report: CompileReport) -> Child:
    """A row for each rank with a box for each compilation: whether ranks compile together, or wait for each other."""
    open_for: defaultdict[tuple[int, str], int] = defaultdict(int)
    for phase in report.open:
        key = phase.rank, phase.id
        open_for[key] = max(open_for[key], phase.for_ns)

    def length(one: Compiled) -> int:
        return one.duration_ns or (open_for[one.rank, one.id] if one.status is Status.OPEN else 0)

    timed = [one for one in report.compiles if one.start_ns is not None and length(one)]
    if not timed:
        return None
    longest = sorted(timed, key=lambda one: -length(one))[:MOST_BOXES]
    first = min(one.start_ns or 0 for one in timed)
    last = max((one.start_ns or 0) + length(one) for one in timed)
    every = sorted({one.rank for one in timed})
    rows = {rank: row for row, rank in enumerate(every[:MOST_RANKS])}
    scale = (WIDTH - LABEL) / max(last - first, 1)

    def box(one: Compiled) -> Markup:
        words = f"[{one.id}] {one.function} {one.status.value} {duration(length(one))}"
        return element(
            "a",
            element(
                "rect",
                element("title", words),
                x=f"{LABEL + ((one.start_ns or 0) - first) * scale:.2f}",
                y=rows[one.rank] * ROW + (ROW - BAR) // 2,
                width=f"{max(length(one) * scale, 1.5):.2f}",
                height=BAR,
                class_=f"box {one.status.value}",
            ),
            href=f"#{anchor(one.rank, one.id)}",
            aria_label=words,
            tabindex=-1,
        )

    boxes = (box(one) for one in sorted(longest, key=lambda one: one.start_ns or 0) if one.rank in rows)
    labels = (_label(f"rank {rank}", row) for rank, row in rows.items())
    height = len(rows) * ROW
    axis = [
        element("line", x1=LABEL, x2=WIDTH, y1=height, y2=height, class_="axis"),
        _text("0 s", LABEL, height + 16, "start"),
        _text(duration(last - first), WIDTH, height + 16, "end"),
    ]
    hidden = " ".join(
        filter(
            None,
            (
                _hidden(len(timed) - len(longest), "shorter compilation"),
                _hidden(len(every) - len(rows), "rank"),
            ),
        )
    )
    used = dict.fromkeys(one.status.value for one in longest)
    return [
        _plot("When each rank compiled", height + 22, [labels, boxes, axis], hidden),
        _legend("box", {name: name for name in used}) if len(used) > 1 else None,
    ]


def stages_plot(report: CompileReport) -> Child:
    """Bars of the compile time of each function and of each rank, by stage."""
    by_function: defaultdict[str, dict[str, int]] = defaultdict(dict)
    by_rank: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for one, (frame, name) in zip(report.compiles, names_of_functions(report), strict=True):
        for stage, time in stages_of(one).items():
            for total in (by_function[f"{name} [{frame}]"], by_rank[f"rank {one.rank}"]):
                total[stage] = total.get(stage, 0) + time
    if not any(map(sum, (times.values() for times in by_function.values()))):
        return None
    used = [name for name in NAMES if any(times.get(name) for times in by_rank.values())]
    legend = _legend("bar", {name: NAMES[name] for name in used})
    longest = _longest(by_function)
    ranks = _longest(by_rank) if len(by_rank) > MOST_BARS else list(by_rank.items())
    return [
        legend,
        _bars("Compile time of each function, by stage, all ranks together", longest, used, "function"),
        _bars("Compile time of each rank, by stage", ranks, used, "rank") if len(by_rank) > 1 else None,
    ]


def _longest(rows: Mapping[str, Mapping[str, int]]) -> list[tuple[str, Mapping[str, int]]]:
    return sorted(rows.items(), key=lambda item: -sum(item[1].values()))


def stages_of(one: Compiled) -> Mapping[str, int]:
    """The time of each stage without the stages within it; what no stage explains is `other`."""
    found: dict[str, int] = {}
    outer = "backward" if one.backward else STAGES[0]
    chain = [outer, *(name for name in STAGES[1:] if name in one.stages)]
    times = [one.stages.get(name, 0) for name in chain]
    for name, time, inner in zip(chain, times, [*times[1:], 0], strict=True):
        found[name] = max(time - inner, 0)
    found["other"] = max((one.duration_ns or 0) - sum(found.values()), 0)
    return {name: time for name, time in found.items() if time}


def _bars(
    title: str, rows: Sequence[tuple[str, Mapping[str, int]]], stages: Sequence[str], thing: str
) -> Markup:
    shown = rows[:MOST_BARS]
    most = max((sum(times.values()) for _, times in shown), default=0) or 1
    scale = (WIDTH - LABEL - 90) / most
    parts: list[Child] = []
    for row, (name, times) in enumerate(shown):
        left = float(LABEL)
        parts.append(_label(name, row))
        for stage in stages:
            if time := times.get(stage, 0):
                tip = element("title", f"{name}: {NAMES[stage]} {duration(time)}")
                y = row * ROW + (ROW - BAR) // 2
                width = f"{time * scale:.2f}"
                parts.append(
                    element("rect", tip, x=f"{left:.2f}", y=y, width=width, height=BAR, class_=f"bar {stage}")
                )
                left += time * scale
        parts.append(_text(duration(sum(times.values())), left + 6, row * ROW + 17, "start"))
    return _plot(title, len(shown) * ROW, parts, _hidden(len(rows) - len(shown), thing))


def _legend(kind: str, names: Mapping[str, str]) -> Markup:
    def key(name: str) -> Markup:
        sample = element("rect", width=11, height=11, class_=f"{kind} {name}")
        return element("svg", sample, width=11, height=11, aria_hidden="true", class_="key")

    return element("ul", (element("li", key(name), text) for name, text in names.items()), class_="legend")


def _hidden(count: int, thing: str) -> str:
    return f"{counted(count, f'more {thing}')} not drawn." if count > 0 else ""


def _plot(title: str, height: float, parts: Iterable[Child], note: str) -> Markup:
    drawn = element(
        "svg",
        element("title", title),
        parts,
        viewBox=f"0 0 {WIDTH} {height}",
        role="group",
        aria_label=title,
        class_="plot",
    )
    caption = element("figcaption", title, element("small", f" {note}") if note else None)
    return element("figure", caption, framed(title, drawn))


def _label(name: str, row: int) -> Markup:
    return _text(shortened(name, LONGEST_LABEL), LABEL - 8, row * ROW + 17, "end", name)


def _text(text: str, x: float, y: float, side: str, title: str = "") -> Markup:
    tip = element("title", title) if title and title != text else None
    return element("text", text, tip, x=f"{x:.1f}", y=y, text_anchor=side)
