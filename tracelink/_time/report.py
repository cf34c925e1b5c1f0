"""The report of `tracelink summary`: the verdict, then what it is based on."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated

from msgspec.structs import asdict

from tracelink._match.report import table_of
from tracelink._model.errors import printable
from tracelink._model.fields import Nanoseconds, Row, Share, Shown, Unit
from tracelink._model.findings import Finding, Severity
from tracelink._model.text import counted, fine_span, kernel_in_words, moment, name_in_words, percent, size
from tracelink._show import charts
from tracelink._show.document import (
    Block,
    Chart,
    Details,
    Items,
    Legend,
    Medium,
    Only,
    Paragraph,
    Report,
    Section,
    Table,
    Tone,
)
from tracelink._show.terminal import paragraph
from tracelink._time.model.communication import BandwidthRow, CollectiveRow, Pattern
from tracelink._time.model.results import (
    NOTHING_LAUNCHED,
    OWN,
    PARTS,
    BreakdownRow,
    Cause,
    Metric,
    Portion,
    RankSummary,
    Step,
    Summary,
    WhatIf,
    WorkIn,
)

RANKS, ROWS, CALLS = 8, 6, 18
"""Rows without -v: of ranks, and of other tables; and rows of calls with -v."""
CAUSES, AWAITED = 12, 3
"""Causes without -v; and ranks that others wait for, each with a row of its own."""
LATE = 4
"""Late ranks, and ranks on the critical path, without -v."""
LEAST = 0.005
"""Causes and parts of the critical path of a smaller share of the time are shown with -v only."""
NOTICEABLE = 0.01
"""Others wait for a rank for so much of the time of all ranks, or it is shown with -v only."""
KERNELS, CHARTS = 12, 12
"""Bars of kernels, and charts of memory and metrics."""
MOST_ROWS, MOST_DELAYS = 300, 100
"""Rows of a table of a page."""
LONGEST_FOUND = 60
"""Characters of a name to look for in a timeline."""
PART_NAMES = ("compute", "exposed communication", "exposed copies", "idle")


def report_of(summary: Summary) -> Report:
    """The document of a summary."""
    sentences = summary.verdict or ["No rank has a profile: there is no time to divide."]
    own = [one for one in summary.findings if _is_own(one)]
    return Report(
        "summary",
        sentences[0],
        summary=[
            *(Paragraph(sentence, Tone.STRONG) for sentence in sentences[1:]),
            _page(Paragraph(_facts(summary), Tone.ASIDE)),
        ],
        sections=[
            Section("Time of steps", list(_ranks(summary)), "ranks"),
            Section("Why ranks do not compute", list(_causes(summary)), "causes"),
            Section("What if", list(_what_if(summary))),
            Section("Critical path", list(_path(summary)), "path"),
            Section("Kernels", list(_kernels(summary))),
            Section("Operators by shapes", [_shapes(summary)], "shapes"),
            Section("Late launches", list(_gaps(summary)), "host"),
            Section("Waits of the host", [_waits(summary)], "waits"),
            Section("Late ranks", list(_late(summary)), "late"),
            Section("Collectives", list(_collectives(summary))),
            Section("Memory", list(_memory(summary))),
            *_calls(summary),
            Section("Streams and launches", [_page(*_streams(summary))], "streams"),
            Section("Metrics", list(_metrics(summary))),
            Section("Clocks", [_page(table_of(summary.clocks))] if len(summary.clocks) > 1 else []),
            Section("Notes", [Items([paragraph(one) for one in own])]),
        ],
        findings=[one for one in summary.findings if not _is_own(one)],
    )


def _is_own(finding: Finding) -> bool:
    return finding.reason.startswith(OWN) and finding.severity is Severity.INFO


def _page(*blocks: Block) -> Only:
    return Only([Medium.HTML], blocks)


def _text(*blocks: Block) -> Only:
    return Only([Medium.TERMINAL, Medium.MARKDOWN], blocks)


def _chart(title: str, draw: Callable[[], charts.Plot], note: str = "") -> Chart:
    return Chart(lambda: draw().svg, title, note)


def _facts(summary: Summary) -> str:
    steps, hosts = summary.step_time.count, {rank.host for rank in summary.ranks if rank.host}
    parts = [
        counted(len(summary.ranks), "rank"),
        *([counted(len(hosts), "host")] if hosts else []),
        counted(summary.sources, "file"),
        *([f"{counted(steps, 'step')} of {fine_span(summary.step_time.p50)} (median)"] if steps else []),
    ]
    begin = "" if summary.start_ns is None else f", from {moment(summary.start_ns)}"
    return f"{', '.join(parts)}{begin}."


# Commands that show a row in a timeline.


def _merge(summary: Summary, *options: str) -> str:
    if not summary.paths:
        return ""
    return shlex.join(["tracelink", "merge", *summary.paths, *options, "--open"])


def _place_of_step(summary: Summary) -> Callable[[BreakdownRow | Step], str]:
    def place(row: BreakdownRow | Step) -> str:
        step = ["--steps", str(row.step)] if isinstance(row, Step) and row.step is not None else []
        return _merge(summary, "--ranks", str(row.rank), *step)

    return place


def _place_of_name(summary: Summary, name: str) -> str:
    """Perfetto finds parts of names: one without arguments of templates is enough."""
    command = _merge(summary)
    return f"{command}  # then find: {printable(name)[:LONGEST_FOUND]}" if command else ""


# Ranks: a bar for each.


class RankBar(BreakdownRow, frozen=True):
    """What a terminal shows of a rank, or of all ranks."""

    label: Annotated[str, Shown("rank")]
    bar: Annotated[Sequence[float], Unit.PARTS, Shown(" ", drop=2)]

    @classmethod
    def labelled(cls, label: str, row: BreakdownRow) -> RankBar:
        """The row of one rank or of all of them."""
        parts = row.compute_share, row.exposed_communication_share, row.exposed_copy_share, row.idle_share
        return cls(**asdict(row), label=label, bar=parts)


SHARES = ("compute_share", "exposed_communication_share", "exposed_copy_share", "idle_share")


def _ranks(summary: Summary) -> Iterator[Block]:
    ranks = [rank for rank in summary.ranks if rank.steps]
    if not ranks:
        return
    rows = [BreakdownRow.of(rank.rank, rank.steps) for rank in ranks]
    steps = sorted((step for rank in ranks for step in rank.steps), key=lambda step: -step.duration_ns)
    bars = [RankBar.labelled(str(row.rank), row) for row in rows]
    if len(rows) > 1:
        bars.append(RankBar.labelled("all", BreakdownRow.of(0, steps)))
    columns = ("label", "steps", "step_ns", *SHARES)
    brief = None if len(rows) <= RANKS else [*_extremes(rows), len(rows)]
    yield Legend("Time of steps", PART_NAMES)
    yield Only([Medium.TERMINAL], [Table(bars, columns=(*columns, "bar"), brief=brief, thing="rank")])
    yield Only([Medium.MARKDOWN], [Table(bars, columns=columns, thing="rank")])
    yield _page(
        _chart(
            "An average step of each rank",
            lambda: charts.bars(
                "An average step of each rank",
                [f"rank {row.rank}" for row in rows],
                {
                    name: [getattr(row, part) / row.steps for row in rows]
                    for name, part in zip(PART_NAMES, PARTS, strict=True)
                },
                "ns",
            ),
        ),
        Table(
            rows,
            "Ranks",
            columns=("rank", "steps", "duration_ns", *PARTS, "idle_share"),
            headings={"idle_share": "idle share"},
            place=_place_of_step(summary),
            most=MOST_ROWS,
        ),
        Table(
            steps,
            "Steps, the longest first",
            columns=("rank", "step", "start_ns", "duration_ns", *PARTS),
            place=_place_of_step(summary),
            most=MOST_ROWS,
        ),
    )


def _extremes(rows: Sequence[BreakdownRow]) -> list[int]:
    """Where the ranks with most and with least compute are."""
    ordered = sorted(range(len(rows)), key=lambda index: rows[index].compute_share)
    return sorted([*ordered[: RANKS // 2], *ordered[-RANKS // 2 :]])


# Causes of idle and exposed time.


class NotComputing(Row, frozen=True):
    """A cause of idle or exposed time of all ranks."""

    part: Annotated[str, Shown("not computing")]
    cause: Annotated[str, Shown("because")]
    share: Annotated[Share, Shown("of the time")]
    step_ns: Annotated[Nanoseconds, Shown("a step")]


NOT_COMPUTING = {"idle": "idle", "exposed_communication": "communication", "exposed_copies": "copies"}


def _causes(summary: Summary) -> Iterator[Block]:
    steps = sum(len(rank.steps) for rank in summary.ranks)
    total = sum(step.duration_ns for rank in summary.ranks for step in rank.steps) or 1
    rows = [
        NotComputing(name, cause, ns / total, ns // steps)
        for part, name in NOT_COMPUTING.items()
        for cause, ns in _sums_of_causes(summary, part).items()
    ]
    rows.sort(key=lambda row: -row.share)
    brief = min(CAUSES, sum(row.share >= LEAST for row in rows))
    yield Table(rows, "Of the time of all ranks", brief=brief, thing="cause")


def _sums_of_causes(summary: Summary, part: str) -> dict[str, int]:
    """The causes of a part; ranks that are waited for after the first few are one cause."""
    sums: dict[str, int] = defaultdict(int)
    by_rank: dict[str, int] = defaultdict(int)
    for rank in summary.ranks:
        for step in rank.steps:
            for portion in getattr(step, part):
                causes = sums if portion.rank is None else by_rank
                causes[cause_in_words(portion, rank.work)] += portion.ns
    ordered = sorted(by_rank, key=lambda cause: -by_rank[cause])
    others = ordered[AWAITED:] if len(ordered) > AWAITED + 1 else []
    for cause in ordered:
        sums[f"waiting for {len(others)} other ranks" if cause in others else cause] += by_rank[cause]
    return sums


CAUSES_IN_WORDS = {
    Cause.HOST_BOUND: "launched too late",
    Cause.DATA_LOADING: "data loading",
    Cause.SYNCHRONIZATION: "host waited for the device",
    Cause.LAUNCH_BOUND: "launching",
    Cause.KERNEL_GAP: "gaps between kernels",
    Cause.STREAM_DEPENDENCY: "dependency between streams",
    Cause.WAITING_FOR_RANK: "waiting for rank",
    Cause.TRANSFER: "transfer",
    Cause.COPY: "copy",
    Cause.NOT_RECORDED: "no events of the process",
    Cause.UNKNOWN: "unknown",
}


def cause_in_words(portion: Portion, work: WorkIn) -> str:
    """`launched too late: operators`, `waiting for rank 3`; of ranks without devices only what the host did."""
    words = CAUSES_IN_WORDS[portion.cause]
    if portion.rank is not None:
        return f"{words} {portion.rank}"
    if portion.cause is Cause.HOST_BOUND and (
        work is not WorkIn.KERNELS or portion.during == NOTHING_LAUNCHED
    ):
        return portion.during
    return f"{words}: {portion.during}" if portion.during else words


# Answers to what-if questions, and the critical path.


def _what_if(summary: Summary) -> Iterator[Block]:
    columns = ("question", "recorded_ns", "expected_ns", "share", "error", "why_not")
    together = ("recorded_ns", "expected_ns")
    yield _text(Items([_answer(one) for one in summary.what_if]))
    yield _page(Table(summary.what_if, "All steps together, by replay", columns=columns, together=together))
    notes = [note for one in summary.what_if for note in one.notes]
    if notes:
        yield Details("Notes on the replay", [Items(notes)])


def _answer(answer: WhatIf) -> str:
    if answer.expected_ns is None:
        return f"What if {answer.question}: no answer. {answer.why_not}"
    change = -(answer.share or 0.0)
    return (
        f"What if {answer.question}: {fine_span(answer.recorded_ns)} would be {fine_span(answer.expected_ns)} "
        f"({change * 100:+.1f} %). Error of the replay: {answer.error * 100:.2f} %."
    )


def _path(summary: Summary) -> Iterator[Block]:
    path = summary.critical_path
    if path is None:
        return
    yield Paragraph(f"Critical path, {fine_span(path.length_ns)}: {_shares(path.by_kind, path.length_ns)}.")
    if len(path.by_rank) > 1:
        longest = sorted(path.by_rank.items(), key=lambda item: -item[1])[:LATE]
        yield Paragraph(f"{_on_ranks(dict(longest), path.length_ns)}.")
        if path.uncertainty_ns != 0:
            bound = "unknown" if path.uncertainty_ns is None else f"±{fine_span(path.uncertainty_ns)}"
            yield Paragraph(f"Where it changes ranks, clock uncertainty is {bound}.")
    labels = ["all" if step.step is None else f"step {step.step}" for step in path.steps]
    yield _chart(
        "What the critical path consists of",
        lambda: charts.bars(
            "What the critical path consists of",
            labels or ["all"],
            {
                kind.replace("_", " "): [step.by_kind.get(kind, 0) for step in path.steps]
                or [path.by_kind[kind]]
                for kind in path.by_kind
            },
            "ns",
        ),
    )
    if len(path.by_rank) > 1:
        yield _chart(
            "On which ranks the critical path is",
            lambda: charts.bars(
                "On which ranks the critical path is",
                [f"rank {rank}" for rank in path.by_rank],
                {"time": list(path.by_rank.values())},
                "ns",
            ),
        )
    columns = ("kind", "name", "count", "total_ns")
    yield _page(
        Table(path.longest, "What takes most of it", columns=columns),
        Paragraph("tracelink merge --critical-path draws it into the timeline.", Tone.ASIDE),
    )


def _on_ranks(parts: Mapping[str, int], whole: int) -> str:
    """`Most of it is on rank 1: 60 %, 0: 40 %`; `It is 30 % on rank 2, 25 % on rank 0` if no rank has most of it."""
    if max(parts.values()) > whole / 2:
        return f"Most of it is on rank {_shares(parts, whole)}"
    listed = [
        f"{percent(part, whole)} on rank {rank}" for rank, part in parts.items() if part >= LEAST * whole
    ]
    return f"It is {', '.join(listed)}"


def _shares(parts: Mapping[str, int], whole: int) -> str:
    """`compute 60 %, host 20 %`; what is smaller than LEAST is left out."""
    shown = [
        f"{name.replace('_', ' ')}{':' if name.isdecimal() else ''} {percent(part, whole)}"
        for name, part in parts.items()
        if part >= LEAST * whole
    ]
    return ", ".join(shown)


# Kernels, and what the host did.


def _kernels(summary: Summary) -> Iterator[Block]:
    rows = summary.kernels
    columns = ("name", "count", "total_ns", "share", "mean_ns", "operator", "line", "source_lines")
    yield _text(Table(rows, columns=columns, brief=ROWS, thing="kernel"))
    title = "Kernels with most compute time, all ranks"
    computing = [row for row in rows if not row.communication][:KERNELS]
    names = [kernel_in_words(row.name) for row in computing]
    if computing:
        times = {"time": [row.total_ns for row in computing]}
        yield _chart(title, lambda: charts.bars(title, names, times, "ns"))
    yield _page(
        Table(
            rows,
            "The longest first",
            columns=(
                *("name", "count", "total_ns", "share", "low_ns", "high_ns", "queue_ns", "launch_ns"),
                *("operator", "module", "line", "source_lines", "ranks"),
            ),
            place=lambda row: _place_of_name(summary, row.name),
            most=MOST_ROWS,
        )
    )


def _shapes(summary: Summary) -> Table:
    columns = ("name", "shapes", "count", "device_ns")
    return Table(summary.shapes, columns=columns, brief=ROWS, thing="combination")


def _gaps(summary: Summary) -> Iterator[Block]:
    columns = ("within", "operator", "line", "count", "idle_ns")
    yield Table(
        summary.gaps,
        "Where launches came late",
        columns=columns,
        brief=ROWS,
        thing="place",
        place=(lambda row: _place_of_name(summary, row.operator or row.within)),
        most=MOST_ROWS,
    )


def _waits(summary: Summary) -> Table:
    columns = ("call", "operator", "line", "count", "host_ns", "idle_ns")
    title = "Where the host waits for the device"
    return Table(summary.waits, title, columns=columns, brief=ROWS, thing="place", most=MOST_ROWS)


def _calls(summary: Summary) -> Iterator[Section]:
    """Operators, modules and functions; a terminal shows them with -v."""
    for title, word, rows in (
        ("Operators", "operator", summary.operators),
        ("Modules", "module", summary.modules),
        ("Python functions", "line", summary.lines),
    ):
        table = Table(
            rows, title, headings={"name": word}, brief=CALLS, thing=word, more="--json", most=MOST_ROWS
        )
        yield Section(title, [table], verbose=True)


# Communication


def _late(summary: Summary) -> Iterator[Block]:
    time = sum(step.duration_ns for rank in summary.ranks for step in rank.steps)
    late, patterns = summary.communication.late, summary.communication.patterns
    noticed = sum(row.own_ns > NOTICEABLE * time for row in late[:LATE])
    yield Table(late, "For whom others wait", brief=noticed, thing="late rank", most=MOST_ROWS)
    for one in patterns if noticed else ():
        if one.pattern is Pattern.CONSTANT:
            yield Paragraph(
                f"Group {one.group_name}: rank {one.rank} causes {one.share * 100:.0f} % of the waits in "
                f"{counted(one.collectives, 'collective')}."
            )
    columns = ("waiting", "cause", "wait_ns", "collectives")
    yield _page(
        Table(summary.communication.delays, "Who waits for whom", columns=columns, most=MOST_DELAYS),
        Table(patterns, "Whether it is always the same rank"),
    )


def _collectives(summary: Summary) -> Iterator[Block]:
    rows = summary.collectives
    yield _text(
        Table(
            rows,
            columns=(
                *("operation", "group_name", "bytes", "count", "residence_ns", "wait_share"),
                *("bus_gb_s", "cost"),
            ),
            brief=ROWS,
            thing="class",
            things="classes",
        )
    )
    yield from _heat_map(rows)
    yield from _bandwidths(summary.communication.bandwidths)
    columns = (
        "operation",
        "group_name",
        "bytes",
        "ranks",
        "scope",
        "count",
        "cost",
        "residence_ns",
        "wait_ns",
    )
    yield _page(
        Table(
            rows,
            "By operation, size and group; times of all ranks together",
            columns=(*columns, "transfer_ns", "baseline_ns", "bus_gb_s", "why"),
            most=MOST_ROWS,
        ),
        Table(
            summary.communication.pairs,
            "Messages",
            columns=("source", "target", "scope", "count", "bytes", "latency_ns", "gb_s"),
            most=MOST_ROWS,
        ),
        Table(summary.communication.exchanges, "All-to-all", columns=("group_name", "count", "imbalance")),
    )


def _heat_map(rows: Sequence[CollectiveRow]) -> Iterator[Chart]:
    """How long each rank waited in each class of collectives; a dot marks the rank that is last most often."""
    timed = [row for row in rows if row.measured and any(rank.wait_ns for rank in row.by_rank)]
    ranks = [str(rank) for rank in sorted({rank.rank for row in timed for rank in row.by_rank})]
    title = "Waits of each rank in each class of collectives"
    if len(ranks) > 1:
        yield _chart(
            title,
            lambda: charts.heat_map(title, ranks, {_class_name(row): _heat(row) for row in timed}),
            "The darker, the longer the rank waited for the last one, by row. A dot: the rank that is last most often.",
        )


def _class_name(row: CollectiveRow) -> str:
    amount = f" {size(row.bytes)}" if row.bytes is not None else ""
    return f"{name_in_words(row.operation)}{amount}, group {name_in_words(row.group_name)}"


def _heat(row: CollectiveRow) -> dict[str, charts.Cell]:
    latest = max(row.by_rank, key=lambda rank: rank.last)
    return {
        str(one.rank): charts.Cell(
            one.wait_ns,
            f"rank {one.rank}, {_class_name(row)}: waited {fine_span(one.wait_ns)}, last "
            f"{counted(one.last, 'time')}",
            one is latest and one.last > 0,
        )
        for one in row.by_rank
    }


def _bandwidths(rows: Sequence[BandwidthRow]) -> Iterator[Chart]:
    if len(rows) < 2:
        return
    series: dict[str, list[BandwidthRow]] = {}
    for row in rows:
        series.setdefault(f"{name_in_words(row.operation)}, {counted(row.ranks, 'rank')}", []).append(row)
    drawn = [
        charts.Series(name, [row.bytes for row in some], [row.bus_gb_s for row in some])
        for name, some in series.items()
    ]
    title = "Bandwidth against size"
    yield _chart(
        title,
        lambda: charts.points(title, drawn, ("size", "bytes"), ("bus bandwidth", "GB/s")),
        "Without the time that ranks waited, as nccl-tests counts bus bandwidth.",
    )


# Memory, streams and metrics


def _memory(summary: Summary) -> Iterator[Block]:
    memory = [one for rank in summary.ranks for one in rank.memory]
    peaks = sorted(memory, key=lambda one: -one.peak_bytes)
    of_kind = {one.counter.rpartition(" ")[2]: one for one in peaks[::-1] if one.counter.startswith("GPU")}
    for kind, one in of_kind.items():
        where = f", in {name_in_words(one.peak_in)}" if one.peak_in else ""
        yield _text(Paragraph(f"GPU memory {kind}: at most {size(one.peak_bytes)} (rank {one.rank}{where})."))
    counters = list(dict.fromkeys(one.counter for one in memory))[:CHARTS]
    drawn = [name for name in counters if name.startswith("GPU") or len(counters) < 3]
    yield from (_memory_chart(summary.ranks, name) for name in drawn)
    yield _page(Table(peaks, "Peaks", most=MOST_ROWS))


def _memory_chart(ranks: Sequence[RankSummary], counter: str) -> Chart:
    series = [
        charts.Series(f"rank {one.rank}", *zip(*one.over_time, strict=True))
        for rank in ranks
        for one in rank.memory
        if one.counter == counter and one.over_time
    ]
    draw = charts.lines
    return _chart(counter, lambda: draw(counter, series, ("time", "unix ns"), ("used", "bytes")))


def _streams(summary: Summary) -> Iterator[Block]:
    streams = sorted((one for rank in summary.ranks for one in rank.streams), key=lambda one: -one.busy_ns)
    columns = ("rank", "device", "name", "count", "busy_ns", "communication_ns", "copy_ns")
    yield Table(streams, "The busiest first", columns=columns, most=MOST_ROWS)
    launches = [rank.launches for rank in summary.ranks if rank.launches]
    yield Table(launches, "Launches", most=MOST_ROWS)


def _metrics(summary: Summary) -> Iterator[Block]:
    """A chart for each gauge with a line for each rank and device."""
    by_gauge: dict[str, list[Metric]] = defaultdict(list)
    for one in summary.metrics:
        by_gauge[one.gauge].append(one)
    yield from (_metric_chart(gauge, some) for gauge, some in list(by_gauge.items())[:CHARTS])


def _metric_chart(gauge: str, metrics: Sequence[Metric]) -> Chart:
    series = [
        charts.Series(f"rank {one.rank} {one.device}".strip(), *zip(*one.over_time, strict=True))
        for one in metrics
        if one.over_time
    ]
    title = name_in_words(gauge)
    return _chart(title, lambda: charts.lines(title, series, ("time", "unix ns"), ("", "")))
