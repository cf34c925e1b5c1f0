"""Charts of compilations: when ranks compiled, how long each stage took, and the stacks of calls as one tree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct, field

from tracelink._compile.divergences import Logs
from tracelink._compile.model import TORCH, Compiled, CompileReport, Status
from tracelink._compile.summary import anchor, label_of, names_of_functions
from tracelink._model.records import Frame
from tracelink._model.text import duration, ranks_cell
from tracelink._show.charts import MOST_BARS, Box, Plot, bars, timeline
from tracelink._show.document import Block, Element
from tracelink._show.markup import Child, Markup, element

STAGES = ("dynamo", "aot_autograd", "inductor", "code_gen", "triton")
"""Each contains the next one."""
NAMES = {
    "dynamo": "tracing and guards",
    "aot_autograd": "AOTAutograd",
    "inductor": "inductor passes",
    "code_gen": "code generation",
    "triton": "compiling kernels",
    "backward": "backward, around the graph",
    "other": "unknown",
}
COLORS = {
    Status.OK: "c4",
    Status.BREAK: "c3",
    Status.ERROR: "c2",
    Status.OPEN: "c5",
    Status.EMPTY: "c0",
    Status.UNKNOWN: "c0",
}


def charts_of(report: CompileReport, *, linked: bool) -> Iterator[Plot]:
    """A row of boxes for each rank: whether ranks compile together, or wait for each other; and bars of stages."""
    boxes = _boxes(report, linked)
    if boxes:
        ranks = sorted({rank for rank, _ in boxes})
        rows = {rank: row for row, rank in enumerate(ranks)}
        yield timeline(
            "When each rank compiled",
            [f"rank {rank}" for rank in ranks],
            [box._replace(row=rows[rank]) for rank, box in boxes],
            {status.value: color for status, color in COLORS.items()},
        )
    by_function: defaultdict[str, dict[str, int]] = defaultdict(dict)
    by_rank: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for one, key in zip(report.compiles, names_of_functions(report), strict=True):
        for stage, time in stages_of(one).items():
            for total in (by_function[label_of(*key)], by_rank[f"rank {one.rank}"]):
                total[stage] = total.get(stage, 0) + time
    if by_function:
        yield _bars(
            "Compile time of each function, by stage, all ranks together", _longest_first(by_function)
        )
    if len(by_rank) > 1:
        shown = by_rank if len(by_rank) <= MOST_BARS else _longest_first(by_rank)
        yield _bars("Compile time of each rank, by stage", shown)


def _boxes(report: CompileReport, linked: bool) -> list[tuple[int, Box]]:
    """A box for each compilation, with its rank; what is open has one until the end of the log."""
    open_for: defaultdict[tuple[int, str], int] = defaultdict(int)
    for phase in report.open:
        key = phase.rank, phase.id
        open_for[key] = max(open_for[key], phase.for_ns)
    found = []
    for one in report.compiles:
        length = one.duration_ns or (open_for[one.rank, one.id] if one.status is Status.OPEN else 0)
        if one.start_ns is not None and length:
            status = one.status.value
            tip = f"[{one.id}] {one.function} {status} {duration(length)}"
            target = anchor(one.rank, one.id) if linked else ""
            found.append((one.rank, Box(0, one.start_ns, length, status, tip, target)))
    return found


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


def _longest_first(rows: Mapping[str, Mapping[str, int]]) -> Mapping[str, Mapping[str, int]]:
    return dict(sorted(rows.items(), key=lambda row: -sum(row[1].values())))


def _bars(title: str, rows: Mapping[str, Mapping[str, int]]) -> Plot:
    used = [stage for stage in NAMES if any(stage in times for times in rows.values())]
    parts = {NAMES[stage]: [times.get(stage, 0) for times in rows.values()] for stage in used}
    return bars(title, list(rows), parts, "ns")


DEEPEST = 60
"""Frames of a stack: the innermost ones."""


Link = Callable[[int, str], Child]
"""Makes the link to a compile id of a rank."""


class _Node(Struct):
    """A frame, with what it calls and what was compiled in it."""

    calls: dict[Frame, _Node] = field(default_factory=dict)
    compiled: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Ranks by compile id."""


def stack_tree(logs: Logs, link: Link) -> Iterator[Block]:
    """The tree as nested lists, without frames of torch."""
    root = _Node()
    for rank, of_rank in logs.items():
        for log in of_rank:
            for compile_id, stack in log.called_at.items():
                node = root
                for frame in [frame for frame in stack if not TORCH.search(frame.filename)][-DEEPEST:]:
                    node = node.calls.setdefault(frame, _Node())
                node.compiled[compile_id].add(rank)
    if root.calls or root.compiled:
        yield Element(element("div", _list(root, link), class_="stacks"))


def _list(node: _Node, link: Link) -> Markup:
    return element(
        "ul",
        _compiled(node.compiled, link) if node.compiled else None,
        (_call(frame, called, link) for frame, called in node.calls.items()),
    )


def _call(frame: Frame, node: _Node, link: Link) -> Markup:
    """A frame; those that call only one other are in the same item."""
    frames = [frame]
    while len(node.calls) == 1 and not node.compiled:
        ((only, node),) = node.calls.items()
        frames.append(only)
    lines = (element("div", element("code", frame_in_words(one)), title=one.filename) for one in frames)
    return element("li", lines, _list(node, link))


def frame_in_words(frame: Frame) -> str:
    """`train.py:17 in step`."""
    return f"{frame.filename.rsplit('/', 1)[-1]}:{frame.line} in {frame.name}"


def _compiled(compiled: Mapping[str, set[int]], link: Link) -> Markup:
    return element(
        "li",
        (
            [link(min(ranks), compile_id), f" (rank {ranks_cell(sorted(ranks))}) " if len(ranks) else None]
            for compile_id, ranks in compiled.items()
        ),
        class_="leaf",
    )
