"""The page of compile logs: one HTML file, which loads nothing and sends nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from tracelink.compiling.divergences import Logs
from tracelink.compiling.html.compilations import compilations, text_block
from tracelink.compiling.html.embedding import Embedding, embedded, embedding_of
from tracelink.compiling.html.graphs import estimates, exports, orders, schedules
from tracelink.compiling.html.plots import stages_plot, times_plot
from tracelink.compiling.html.rows import MOST_LINKS, MOST_ROWS, link, links, rows_of
from tracelink.compiling.html.stacks import stack_tree
from tracelink.compiling.model import CompileReport
from tracelink.compiling.report import Read
from tracelink.compiling.summary import (
    breaks_of,
    caches_in_words,
    delayed,
    functions_of,
    guards_of,
    headlines,
    summary,
    unamortised,
)
from tracelink.io.targets import file_target
from tracelink.io.temporary import abandoned_files_removed
from tracelink.model.errors import printable
from tracelink.model.text import counted, duration, ranks_cell, size
from tracelink.show.markup import Child, Markup, element
from tracelink.show.page import Assets, closing, opening, page_header, sections_of

MOST_MESSAGES = 200
"""Messages of one kind."""
MESSAGES = {"recompile_reasons": "recompiles", "dynamo_graph_break_reason": "graph_breaks"}
"""Artifacts with messages, and the names that TORCH_LOGS has for them."""
GUARDS = "dynamo_cpp_guards_str"


def write_page(logs: Read, path: str) -> int:
    """Writes the page as a complete file and returns its size."""
    target = file_target(path)
    with abandoned_files_removed(path), target.file() as stream:
        for part in html_page(logs):
            stream.write(part.encode())
    return target.size()


def html_page(logs: Read) -> Iterator[str]:
    """The page in parts; the payloads of artifacts are the last ones, and never in memory together."""
    chosen = embedding_of(logs.logs)
    assets = Assets.of(__package__ or "")
    report = logs.report
    lines = headlines(report)
    sections = _sections(logs)
    yield opening(lines[0] if lines else summary(report), assets)
    yield _header(report, lines, [*sections, ("compilations", "Compilations")]).text
    yield "<main>\n"
    for shown in sections_of(sections):
        yield shown.text
    yield '<section aria-labelledby="compilations">\n'
    yield element("h2", "Compilations", id="compilations").text
    yield _search(chosen).text
    yield from compilations(logs, chosen)
    yield "</section>\n</main>\n"
    yield from embedded(logs, chosen)
    yield closing("compile", assets)


def _header(report: CompileReport, lines: Sequence[str], sections: Iterable[tuple[str, str]]) -> Markup:
    """What went wrong, and links to the sections."""
    return page_header(
        lines[0] if lines else "Nothing failed, differs between ranks, or is open.",
        element("ul", (element("li", line) for line in lines[1:MOST_ROWS])) if lines[1:] else None,
        element("p", summary(report), class_="aside"),
        sections=sections,
        class_="ok" if report.is_clean else "problem",
    )


def _search(chosen: Embedding) -> Markup:
    left_out = (
        f"{counted(chosen.left_out, 'artifact')} ({size(chosen.left_out_bytes)}) are not on this page, which would be "
        "too large: tracelink compile --artifacts DIR writes all of them."
    )
    return element(
        "div",
        element("noscript", "Artifacts and the search need scripts; everything else does not."),
        element("label", "Find ", element("input", type="search", id="search", aria_describedby="found")),
        " ",
        element("small", "", id="found", role="status"),
        element("p", left_out, class_="aside") if chosen.left_out else None,
        class_="search",
    )


# Sections.


def _sections(logs: Read) -> dict[tuple[str, str], Child]:
    report = logs.report
    every = {
        ("times", "When and how long"): [times_plot(report), stages_plot(report)]
        if report.compiles
        else None,
        ("functions", "Functions"): _functions(report),
        ("recompilations", "Recompilations"): _recompilations(report),
        ("delays", "Collectives that waited"): _delays(report),
        ("breaks", "Graph breaks"): _graph_breaks(report),
        ("failures", "Failures"): _failures(report),
        ("divergences", "Differences between ranks"): _divergences(report),
        ("open", "Open at the end"): _open(report),
        ("stacks", "Where functions were called"): stack_tree(logs.logs, link),
        ("caches", "Caches"): _caches(report),
        ("schedules", "Collectives of graphs"): schedules(report),
        ("estimates", "Estimated times"): estimates(report),
        ("order", "Order of execution"): orders(report),
        ("export", "Draft export"): exports(report),
        ("messages", "As TORCH_LOGS prints it"): _messages(logs.logs),
        ("logs", "Logs"): _logs(report),
        ("findings", "Findings"): _findings(report),
    }
    return {names: content for names, content in every.items() if content is not None}


def _functions(report: CompileReport) -> Child:
    functions = functions_of(report)
    profiled = any(one.runtime_ns is not None for one in functions)
    rows = [
        (
            " ".join(filter(None, (one.name, one.frame and f"[{one.frame}]"))) or "unknown",
            element("code", one.file),
            element("code", one.called_at),
            ranks_cell(sorted(one.ranks)),
            f"{one.compiled:,}",
            f"{one.recompiled:,}",
            f"{one.breaks:,}",
            f"{one.failed:,}",
            duration(one.time_ns) if one.time_ns else None,
            *([duration(one.runtime_ns) if one.runtime_ns is not None else None] if profiled else []),
            links(one.ids),
        )
        for one in functions
    ]
    header = (
        *("function", "defined at", "called at", "ranks", "compiled", "recompiled", "breaks", "failed"),
        *("time", *(["code ran"] if profiled else []), "compile ids"),
    )
    lines = [element("p", line) for line in unamortised(functions)[:MOST_ROWS]]
    return [rows_of("The most costly first", header, rows), lines] if rows else None


def _recompilations(report: CompileReport) -> Child:
    rows = [
        (
            one.reason,
            element("code", one.line) if one.line else None,
            one.at,
            ranks_cell(sorted(one.ranks)),
            f"{one.times:,}",
            duration(one.time_ns),
            links(one.ids),
        )
        for one in guards_of(report.compiles)
    ]
    return rows_of(
        "By guard", ("guard that failed", "at", "function", "ranks", "times", "time", "compile ids"), rows
    )


def _graph_breaks(report: CompileReport) -> Child:
    rows = [
        (
            one.reason,
            element("code", one.at),
            ranks_cell(sorted(one.ranks)),
            f"{one.times:,}",
            duration(one.time_ns) if one.time_ns else None,
            links(one.ids),
        )
        for one in breaks_of(report)
    ]
    return rows_of("By reason", ("reason", "at", "ranks", "times", "time", "compile ids"), rows)


def _failures(report: CompileReport) -> Child:
    rows = [
        (
            one.function or "unknown",
            f"{one.rank}",
            link(one.rank, one.id),
            one.type,
            one.reason,
            element("code", f"{one.file}:{one.line}") if one.file else None,
        )
        for one in report.failures
    ]
    return rows_of("All ranks", ("function", "rank", "compile id", "type", "reason", "at"), rows)


def _divergences(report: CompileReport) -> Child:
    ranks: dict[str, int] = {}
    for compiled in reversed(report.compiles):
        ranks[compiled.id] = compiled.rank
    rows = [
        (
            one.what,
            ranks_cell(one.outliers),
            link(ranks[one.id], one.id) if one.id in ranks else one.id,
            one.found,
            one.expected,
        )
        for one in report.divergences
    ]
    header = "what", "ranks that differ", "first at", "found there", "on the other ranks"
    return rows_of("At the first record that differs", header, rows)


def _open(report: CompileReport) -> Child:
    rows = [
        (
            one.name,
            f"{one.rank}",
            link(one.rank, one.id) if one.id else None,
            one.function,
            duration(one.for_ns),
        )
        for one in report.open
    ]
    return rows_of("The longest first", ("phase", "rank", "compile id", "function", "for"), rows)


def _caches(report: CompileReport) -> Child:
    lines = caches_in_words(report)
    rows = [
        (link(one.hit[0], one.id), one.function, one.cache, ranks_cell(one.hit), ranks_cell(one.missed))
        for one in report.partial_hits
    ]
    header = "compile id", "function", "cache", "hit on ranks", "not on ranks"
    some = rows_of("Caches that hit on some ranks only", header, rows)
    return [[element("p", line) for line in lines], some] if lines else None


def _delays(report: CompileReport) -> Child:
    known = {(one.rank, one.id) for one in report.compiles}
    rows = [
        (
            delayed(one),
            duration(one.delay_ns),
            f"{one.rank}",
            one.function or None,
            [
                [link(one.rank, id_) if (one.rank, id_) in known else f"[{id_}]", " "]
                for id_ in one.ids[:MOST_LINKS]
            ],
            ranks_cell(one.waiting),
        )
        for one in report.delays
    ]
    header = "collective", "waited", "for rank", "which compiled", "compile ids", "ranks that waited"
    return rows_of("The longest first", header, rows)


def _messages(logs: Logs) -> Child:
    """What TORCH_LOGS prints of recompilations and graph breaks, and a link to the guards of each compilation."""
    kinds = {name: defaultdict[tuple[str, str], set[int]](set) for name in MESSAGES}
    guards: dict[str, int] = {}
    for rank, of_rank in logs.items():
        for artifact in (artifact for log in of_rank for artifact in log.artifacts):
            if artifact.name in kinds and artifact.text:
                kinds[artifact.name][artifact.compile_id, artifact.text].add(rank)
            if artifact.name == GUARDS:
                guards.setdefault(artifact.compile_id, rank)
    parts: list[Child] = [
        _kind_of_message(MESSAGES[name], messages) for name, messages in kinds.items() if messages
    ]
    if guards:
        some = element("p", [[link(rank, id_), " "] for id_, rank in islice(guards.items(), MOST_ROWS)])
        title = f"guards: {counted(len(guards), 'compilation')}"
        parts.append(element("details", element("summary", title), some))
    return parts or None


def _kind_of_message(title: str, messages: Mapping[tuple[str, str], set[int]]) -> Markup:
    hidden = len(messages) - MOST_MESSAGES
    return element(
        "details",
        element("summary", f"{title}: {counted(len(messages), 'message')}"),
        (
            [
                element("p", link(min(ranks), id_), f" rank {ranks_cell(sorted(ranks))}", class_="aside"),
                text_block(text),
            ]
            for (id_, text), ranks in islice(messages.items(), MOST_MESSAGES)
        ),
        element("p", f"{counted(hidden, 'more message')} not shown.") if hidden > 0 else None,
    )


def _logs(report: CompileReport) -> Child:
    files = [
        (printable(one.path), one.version, f"{one.records:,}", size(one.bytes)) for one in report.sources
    ]
    artifacts = [(name, f"{count:,}") for name, count in report.artifacts.items()]
    kinds = [(name, f"{count:,}") for name, count in report.kinds.items()]
    return [
        rows_of("Files", ("file", "torch", "records", "size"), files),
        element(
            "details",
            element("summary", "Artifacts and records by name"),
            rows_of("Artifacts", ("artifact", "count"), artifacts),
            rows_of("Records", ("kind", "count"), kinds),
        ),
    ]


def _findings(report: CompileReport) -> Child:
    rows = [
        (one.severity.value, one.message, f"{one.count:,}", element("code", one.example))
        for one in report.findings
    ]
    return rows_of("The worst first", ("severity", "message", "count", "example"), rows)
