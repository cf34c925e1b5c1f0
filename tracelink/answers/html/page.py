"""The page of a report: the verdict, then what it is based on. It loads and sends nothing."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from tracelink.answers.html.drawings import figure, heat_map
from tracelink.answers.html.tables import plain, sortable
from tracelink.answers.model.communication import BandwidthRow
from tracelink.answers.model.results import PARTS, Summary
from tracelink.answers.model.words import cause_in_words, kernel_in_words, percent
from tracelink.io.targets import file_target
from tracelink.io.temporary import abandoned_files_removed
from tracelink.model.clock import Clock
from tracelink.model.errors import printable
from tracelink.model.events import Counters, Track
from tracelink.model.job import Job
from tracelink.model.ranges import Numbers
from tracelink.model.results import values_of
from tracelink.model.text import counted, fine_span, group_cell, moment, name_in_words, number
from tracelink.show import charts
from tracelink.show.markup import Child, element
from tracelink.show.page import Assets, Sections, closing, opening, page_header, sections_of

MOST_CAUSES = 40
MOST_NOTES = 200
MOST_CHARTS = 12
MOST_SAMPLES = 400
"""Samples of a metric that are drawn."""
LONGEST_FOUND = 60
"""Characters of a name to look for in a timeline."""
PART_NAMES = ("compute", "exposed communication", "exposed copies", "idle")


class Facts(Struct, frozen=True):
    """What the page shows besides the summary."""

    paths: Sequence[str]
    """The inputs, for commands."""
    sources: int
    hosts: Sequence[str]
    start_ns: int | None
    clocks: Sequence[Clock]
    metrics: Counters
    metric_tracks: Sequence[Track]

    @classmethod
    def of(cls, job: Job, paths: Sequence[str]) -> Facts:
        """The facts of a job."""
        return cls(
            paths,
            len(job.sources),
            sorted({rank.host for rank in job.ranks if rank.host}),
            job.first_ns,
            [rank.clock for rank in job.ranks],
            job.metrics,
            job.metric_tracks,
        )


def write_page(summary: Summary, facts: Facts, path: str) -> int:
    """Writes the page as a complete file and returns its size."""
    target = file_target(path)
    with abandoned_files_removed(path), target.file() as stream:
        stream.write(html_report(summary, facts).encode())
    return target.size()


def html_report(summary: Summary, facts: Facts) -> str:
    """The page as a string."""
    assets = Assets.of()
    headline = summary.verdict[0] if summary.verdict else "No rank has a profile: there is no time to divide."
    sections = _sections(summary, facts)
    header = page_header(
        headline,
        element("ul", (element("li", sentence) for sentence in summary.verdict[1:]), class_="verdict")
        if summary.verdict[1:]
        else None,
        element("p", _facts(summary, facts), class_="facts"),
        sections=[names for names, content in sections.items() if content is not None],
        class_="ok",
    )
    place = element(
        "p",
        "In the timeline: ",
        element("code", ""),
        " ",
        element("small", ""),
        id="place",
        role="status",
        hidden="",
    )
    body = header.text + element("main", sections_of(sections), place).text
    return f"{opening(headline, assets)}{body}{closing('report', assets)}"


def _facts(summary: Summary, facts: Facts) -> str:
    steps = summary.step_time.count
    parts = [
        counted(len(summary.ranks), "rank"),
        *([counted(len(facts.hosts), "host")] if facts.hosts else []),
        counted(facts.sources, "file"),
        *([f"{counted(steps, 'step')} of {fine_span(summary.step_time.p50)} (median)"] if steps else []),
    ]
    begin = "" if facts.start_ns is None else f", from {moment(facts.start_ns)}"
    return f"{', '.join(parts)}{begin}."


def _sections(summary: Summary, facts: Facts) -> Sections:
    return {
        ("ranks", "Time of steps"): _ranks(summary, facts),
        ("causes", "Why ranks do not compute"): _causes(summary),
        ("path", "Critical path"): _path(summary),
        ("what-if", "What if"): _what_if(summary),
        ("collectives", "Collectives"): _collectives(summary),
        ("late", "Late ranks"): _late(summary),
        ("kernels", "Kernels"): _kernels(summary, facts),
        ("host", "Host"): _host(summary, facts),
        ("modules", "Operators, modules and lines"): _calls(summary),
        ("memory", "Memory"): _memory(summary),
        ("streams", "Streams and launches"): _streams(summary),
        ("metrics", "Metrics"): _metrics(facts),
        ("clocks", "Clocks"): _clocks(facts),
        ("notes", "Notes"): _notes(summary),
    }


# Commands that show a place in a timeline.


def _merge(facts: Facts, *options: str) -> str:
    return shlex.join(["tracelink", "merge", *facts.paths, *options, "--open"])


def _of_step(facts: Facts, rank: int, step: int | None) -> str:
    return _merge(facts, "--ranks", str(rank), *([] if step is None else ["--steps", str(step)]))


def _of_name(facts: Facts, name: str) -> str:
    """Perfetto finds parts of names: one without arguments of templates is enough."""
    return f"{_merge(facts)}  # then find: {printable(name)[:LONGEST_FOUND]}"


# Sections.


def _ranks(summary: Summary, facts: Facts) -> Child:
    table = summary.table("breakdown")
    if not len(table):
        return None
    steps = np.maximum(table["steps"], 1)
    chart = charts.bars(
        "An average step of each rank",
        [f"rank {rank}" for rank in values_of(table["rank"])],
        {name: (table[part] / steps).tolist() for name, part in zip(PART_NAMES, PARTS, strict=True)},
        "ns",
    )
    columns = {
        "rank": "",
        "steps": "",
        "duration_ns": "all steps",
        "compute_ns": "",
        "exposed_communication_ns": "",
        "exposed_copy_ns": "exposed copies",
        "idle_ns": "",
        "idle_share": "idle",
    }
    by_step = dict.fromkeys(("rank", "step", "start_ns", "duration_ns", *PARTS), "")
    return [
        figure(chart),
        sortable("Ranks", table, columns, command=lambda row: _of_step(facts, row.rank, None)),
        sortable(
            "Steps, the longest first",
            summary.table("steps").sorted_by("duration_ns", descending=True),
            by_step,
            command=lambda row: _of_step(facts, row.rank, row.step),
        ),
    ]


def _causes(summary: Summary) -> Child:
    steps = sum(len(rank.steps) for rank in summary.ranks)
    whole = sum(step.duration_ns for rank in summary.ranks for step in rank.steps)
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for rank in summary.ranks:
        for step in rank.steps:
            for part, portions in (
                ("idle", step.idle),
                ("exposed communication", step.exposed_communication),
                ("exposed copies", step.exposed_copies),
            ):
                for portion in portions:
                    sums[part, cause_in_words(portion, rank.work)] += portion.ns
    ordered = sorted(sums.items(), key=lambda item: -item[1])[:MOST_CAUSES]
    rows = [(part, cause, percent(ns, whole), fine_span(ns // steps)) for (part, cause), ns in ordered]
    return plain("Of the time of all ranks", ("part", "because", "share", "a step"), rows)


def _path(summary: Summary) -> Child:
    path = summary.critical_path
    if path is None:
        return None
    kinds = list(path.by_kind)
    labels = ["all" if step.step is None else f"step {step.step}" for step in path.steps]
    uncertain = "unbounded" if path.uncertainty_ns is None else f"at most {fine_span(path.uncertainty_ns)}"
    return [
        element(
            "p",
            f"{fine_span(path.length_ns)} from the begin of the first step to the end of the last. Where the path "
            f"changes ranks, the error of clocks is {uncertain}.",
        ),
        figure(
            charts.bars(
                "What the critical path consists of",
                labels or ["all"],
                {
                    kind.replace("_", " "): [step.by_kind.get(kind, 0) for step in path.steps]
                    or [path.by_kind[kind]]
                    for kind in kinds
                },
                "ns",
            )
        ),
        figure(
            charts.bars(
                "On which ranks the critical path is",
                [f"rank {rank}" for rank in path.by_rank],
                {"time": list(path.by_rank.values())},
                "ns",
            )
        )
        if len(path.by_rank) > 1
        else None,
        sortable(
            "What takes most of it",
            summary.table("path_parts"),
            {"kind": "", "name": "", "count": "", "total_ns": "time"},
        ),
        element("p", "tracelink merge --critical-path draws it into the timeline.", class_="aside"),
    ]


def _what_if(summary: Summary) -> Child:
    rows = [
        (
            answer.question,
            fine_span(answer.recorded_ns),
            fine_span(answer.expected_ns) if answer.expected_ns is not None else "no answer",
            f"{answer.share:.1%}" if answer.share is not None else "",
            f"{answer.error:.1%}",
            answer.why_not,
        )
        for answer in summary.what_if
    ]
    header = ("question", "recorded", "expected", "saved", "error of the replay", "why not")
    return plain("All steps together, by replay", header, rows)


def _collectives(summary: Summary) -> Child:
    if not summary.collectives:
        return None
    table = summary.table("collectives")
    columns = {
        "operation": "",
        "group_name": "group",
        "bytes": "size",
        "ranks": "",
        "scope": "",
        "count": "",
        "cost": "mostly",
        "residence_ns": "in it",
        "wait_ns": "waits",
        "transfer_ns": "transfer",
        "baseline_ns": "baseline",
        "bus_gb_s": "bus bandwidth",
        "why": "why inconclusive",
    }
    return [
        heat_map(summary.collectives),
        _bandwidths(summary),
        sortable("By operation, size and group; times of all ranks together", table, columns),
        sortable(
            "Messages",
            summary.table("pairs"),
            {
                "source": "",
                "target": "",
                "scope": "",
                "count": "",
                "bytes": "",
                "latency_ns": "",
                "gb_s": "bandwidth",
            },
        ),
        sortable(
            "All-to-all",
            summary.table("exchanges"),
            {"group_name": "group", "count": "", "imbalance": ""},
        ),
    ]


def _bandwidths(summary: Summary) -> Child:
    rows = summary.communication.bandwidths
    if len(rows) < 2:
        return None
    series: dict[str, list[BandwidthRow]] = {}
    for row in rows:
        series.setdefault(f"{row.operation}, {counted(row.ranks, 'rank')}", []).append(row)
    drawn = [
        charts.Series(name_in_words(name), [row.bytes for row in some], [row.bus_gb_s for row in some])
        for name, some in series.items()
    ]
    return figure(
        charts.points("Bandwidth against size", drawn, ("size", "bytes"), ("bus bandwidth", "GB/s")),
        "Without the time that ranks waited, as nccl-tests counts bus bandwidth.",
    )


def _late(summary: Summary) -> Child:
    late = {
        "rank": "",
        "last": "times last",
        "collectives": "of",
        "caused_ns": "others waited",
        "passed_on_ns": "passed on",
        "inherited_ns": "inherited",
        "waited_ns": "waited itself",
    }
    patterns = [
        (
            group_cell(row.group_name, ""),
            row.pattern.value,
            "" if row.rank is None else f"rank {row.rank}",
            f"{row.share:.0%}",
        )
        for row in summary.communication.patterns
    ]
    found = [
        sortable("For whom others wait", summary.table("late"), late),
        sortable(
            "Who waits for whom",
            summary.table("delays"),
            {
                "waiting": "rank",
                "cause": "waits for rank",
                "wait_ns": "wait",
                "collectives": "in collectives",
            },
            most=100,
        ),
        plain("Whether it is always the same rank", ("group", "pattern", "rank", "share of waits"), patterns),
    ]
    return found if any(found) else None


def _kernels(summary: Summary, facts: Facts) -> Child:
    table = summary.table("kernels")
    if not len(table):
        return None
    computing = [row for row in summary.kernels if not row.communication][:12]
    chart = charts.bars(
        "Kernels with most compute time, all ranks",
        [kernel_in_words(row.name) for row in computing],
        {"time": [row.total_ns for row in computing]},
        "ns",
    )
    columns = {
        "name": "kernel",
        "count": "",
        "total_ns": "total",
        "share": "",
        "low_ns": "shortest",
        "high_ns": "longest",
        "queue_ns": "queued",
        "launch_ns": "launching",
        "operator": "launched by",
        "module": "",
        "line": "",
        "source_lines": "computes",
        "ranks": "",
    }
    return [
        figure(chart) if computing else None,
        sortable("The longest first", table, columns, command=lambda row: _of_name(facts, row.name)),
    ]


def _host(summary: Summary, facts: Facts) -> Child:
    gaps = {
        "within": "idle before launches in",
        "operator": "",
        "line": "",
        "count": "gaps",
        "idle_ns": "idle",
        "ranks": "",
    }
    waits = {
        "call": "host waits in",
        "operator": "",
        "line": "",
        "count": "",
        "host_ns": "waited",
        "idle_ns": "then idle",
    }
    found = [
        sortable(
            "Where launches came late",
            summary.table("gaps"),
            gaps,
            command=lambda row: _of_name(facts, row.operator or row.within),
        ),
        sortable("Where the host waits for the device", summary.table("waits"), waits),
    ]
    return found if any(found) else None


def _calls(summary: Summary) -> Child:
    columns = {
        "name": "",
        "count": "",
        "total_ns": "total",
        "self_ns": "self",
        "device_ns": "on devices",
        "ranks": "",
    }
    found = [
        sortable("Operators", summary.table("operators"), columns),
        sortable(
            "Modules", summary.table("modules"), columns | {"backward_device_ns": "backward on devices"}
        ),
        sortable("Python functions", summary.table("lines"), columns),
    ]
    return found if any(found) else None


def _memory(summary: Summary) -> Child:
    samples = summary.table("memory_over_time")
    peaks = {
        "rank": "",
        "counter": "",
        "peak_bytes": "peak",
        "peak_at_ns": "at",
        "peak_in": "in",
        "first_bytes": "first",
        "last_bytes": "last",
    }
    if not len(samples):
        return None
    counters = list(dict.fromkeys(values_of(samples["counter"])))[:MOST_CHARTS]
    drawn = [
        figure(
            samples.where(counter=counter).plot("used_bytes", x="time_ns", by="rank", kind="lines"), counter
        )
        for counter in counters
        if str(counter).startswith("GPU") or len(counters) < 3
    ]
    return [drawn, sortable("Peaks", summary.table("memory").sorted_by("peak_bytes", descending=True), peaks)]


def _streams(summary: Summary) -> Child:
    streams = {
        "rank": "",
        "device": "",
        "name": "stream",
        "count": "works",
        "busy_ns": "busy",
        "communication_ns": "communication",
        "copy_ns": "copies",
    }
    launches = {
        "rank": "",
        "count": "works",
        "unknown": "launch unknown",
        "calls": "",
        "calls_ns": "in calls",
        "queue_p50_ns": "queued, median",
        "queue_p90_ns": "queued, p90",
        "launch_p50_ns": "launching, median",
        "launch_p90_ns": "launching, p90",
        "shorter_than_launch": "shorter than launch",
        "graph_launches": "graph launches",
        "graph_work": "works of graphs",
    }
    found = [
        sortable(
            "The busiest first", summary.table("streams").sorted_by("busy_ns", descending=True), streams
        ),
        sortable("Launches", summary.table("launches"), launches),
    ]
    return found if any(found) else None


def _metrics(facts: Facts) -> Child:
    """A chart for each gauge with a line for each rank and device."""
    counters, tracks = facts.metrics, facts.metric_tracks
    by_gauge: dict[str, list[int]] = defaultdict(list)
    for index in np.unique(counters.track).tolist():
        by_gauge[tracks[index].label].append(index)
    figures = [
        figure(
            charts.lines(
                name_in_words(gauge),
                [_samples(counters, tracks[index], index) for index in indexes],
                ("time", "unix ns"),
                ("", ""),
            )
        )
        for gauge, indexes in list(by_gauge.items())[:MOST_CHARTS]
    ]
    return figures or None


def _samples(counters: Counters, track: Track, index: int) -> charts.Series:
    rows = np.flatnonzero(counters.track == index)
    rows = rows[:: max(1, len(rows) // MOST_SAMPLES)]
    name = f"rank {track.rank} {track.process}".strip()
    return charts.Series(name, counters.time[rows].tolist(), counters.value[rows].tolist())


def _clocks(facts: Facts) -> Child:
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for clock in facts.clocks:
        groups[clock.host, clock.offset_ns, clock.drift_ppm, clock.uncertainty_ns].append(clock.rank)
    if len(facts.clocks) < 2:
        return None
    rows = [
        (
            str(Numbers.of(ranks)),
            host or "unknown",
            f"{'-' if offset < 0 else ''}{fine_span(abs(offset))}",
            f"{drift:+.2f} ppm",
            "unbounded" if uncertainty is None else f"±{fine_span(uncertainty)}",
        )
        for (host, offset, drift, uncertainty), ranks in groups.items()
    ]
    return plain(
        "Clocks of ranks against the reference", ("ranks", "host", "offset", "drift", "uncertainty"), rows
    )


def _notes(summary: Summary) -> Child:
    rows = [(note.severity.value, note.message) for note in summary.notes[:MOST_NOTES]]
    hidden = len(summary.notes) - len(rows)
    more = element("p", f"{number(hidden)} more not shown.") if hidden > 0 else None
    return [plain("What limits these numbers", ("severity", "note"), rows), more] if rows else None
